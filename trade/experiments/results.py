"""The form of results, written and read: what an experiment measured, and on what."""

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trade.files import plain


def row(method: str, metric: str, condition: float, values: list[float], paper: float | None = None) -> dict[str, Any]:
    """One number of a table: mean and spread over seeds, beside the paper's; null where they are not finite."""
    with np.errstate(invalid="ignore"):  # an infinite value has no spread
        spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    entry = {
        "method": method,
        "metric": metric,
        "condition": float(condition),
        "mean": float(np.mean(values)),
        "std": float(spread),
        "seeds": len(values),
        "each": [float(v) for v in values],
        "paper": paper,
    }
    return plain(entry)


def curve(method: str, metric: str, condition: float, values: np.ndarray, **more: np.ndarray) -> dict[str, Any]:
    """Many numbers for a figure, such as a histogram, of one seed."""
    numbers = {"values": values, **more}
    about = {"method": method, "metric": metric, "condition": float(condition)}
    return about | {name: np.asarray(v).tolist() for name, v in numbers.items()}


def typed() -> str:
    """The command that this program is, as one would type it."""
    module, file = sys.modules["__main__"].__spec__, Path(sys.argv[0])
    if module is not None:
        name = module.name.removesuffix(".__main__")
        program = name if name == "trade" else f"python -m {name}"
    elif file.name == "trade":
        program = "trade"
    else:
        here = Path.cwd()
        program = f"python {file.resolve().relative_to(here) if file.resolve().is_relative_to(here) else file}"
    return " ".join([program, *(shlex.quote(word) for word in sys.argv[1:])])


def origin() -> dict[str, Any]:
    """By which command, on what and at which commit this program runs."""
    return {"command": typed(), "hardware": hardware(), "jax": jax.__version__, "commit": commit()}


def record(experiment: str, rows: list[dict[str, Any]], wall_seconds: float) -> dict[str, Any]:
    """The content of ``results.json``."""
    return {
        "experiment": experiment,
        **origin(),
        "wall_seconds": round(wall_seconds, 1),
        "rows": [r for r in rows if "values" not in r],
        "curves": [r for r in rows if "values" in r],
    }


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """Results as read from a file, with NaN for null: a file has null for what is not finite.

    Args:
        results: The content of ``results.json``.

    Returns:
        The same with numbers in every row.
    """

    def filled(row: dict[str, Any]) -> dict[str, Any]:
        return row | {k: np.nan for k in ("mean", "std") if row[k] is None}

    return results | {"rows": [filled(r) for r in results["rows"]]}


def by_method(results: dict[str, Any]) -> tuple[list[float], dict[str, dict[str, list[float]]]]:
    """What a table and a figure show of results.

    Args:
        results: The content of ``results.json``.

    Returns:
        Conditions in falling order, and method -> metric -> values at them.
    """
    conditions = sorted({r["condition"] for r in results["rows"]}, reverse=True)
    table: dict[str, dict[str, dict[float, float]]] = {}
    for r in numbers(results)["rows"]:
        table.setdefault(r["method"], {}).setdefault(r["metric"], {})[r["condition"]] = r["mean"]
    return conditions, {m: {k: [v[c] for c in conditions] for k, v in t.items()} for m, t in table.items()}


def hardware() -> str:
    """The accelerator, or the processor."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        return f"{name}, {sum(line.startswith('processor') for line in lines)} cores"
    except (OSError, StopIteration, IndexError):
        return name


def commit() -> str:
    """The commit of the code that ran, marked when the tree had changes.

    The environment variable ``TRADE_COMMIT`` speaks for copies that are no checkout.
    """
    if "TRADE_COMMIT" in os.environ:
        return os.environ["TRADE_COMMIT"]
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ":/trade") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
