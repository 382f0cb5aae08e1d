"""Arrays in a page: quantised to one or two bytes a number, in base64."""

import base64
from typing import Any

import numpy as np


def pack(values: np.ndarray, low: float | None = None, high: float | None = None, *, bits: int = 8) -> dict[str, Any]:
    """Quantise an array between two values; what lies beyond is moved to them, and what is no number to the lower one.

    Args:
        values: Numbers of any shape.
        low: What becomes zero; the least finite number by default.
        high: What becomes the largest integer; the largest finite number by default.
        bits: 8 or 16 a number.

    Returns:
        Plain data: ``shape``, ``bits``, ``low``, ``high``, and ``data`` in base64, little-endian.
    """
    values = np.asarray(values, np.float64)
    finite = values[np.isfinite(values)]
    low = float(finite.min(initial=np.inf) if low is None else low)
    high = float(finite.max(initial=-np.inf) if high is None else high)
    if not high > low:  # nothing finite, or all the same
        low = low if np.isfinite(low) else 0.0
        high = low + max(abs(low), 1.0)
    top = 2**bits - 1
    share = np.nan_to_num((values - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    whole = np.rint(np.clip(share, 0.0, 1.0) * top).astype(f"<u{bits // 8}")
    data = base64.b64encode(whole.tobytes()).decode()
    return {"shape": list(values.shape), "bits": bits, "low": low, "high": high, "data": data}


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """The numbers of ``pack``, as the page sees them.

    Args:
        packed: What ``pack`` gave.

    Returns:
        The array, within a quantum of what it was.
    """
    bits = packed["bits"]
    whole = np.frombuffer(base64.b64decode(packed["data"]), f"<u{bits // 8}").reshape(packed["shape"])
    return packed["low"] + (packed["high"] - packed["low"]) * (whole / (2**bits - 1))


def rounded(values: Any, digits: int = 6) -> Any:
    """Numbers as JSON takes them: significant digits, and None for what is not finite.

    Args:
        values: A number, an array, or lists of them.
        digits: How many significant digits are kept.

    Returns:
        A number, None, or a list.
    """
    if isinstance(values, np.ndarray | list | tuple):
        return [rounded(v, digits) for v in values]
    value = float(values)
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None
