"""Reference data that the project makes itself, kept with a checksum so that it is made once."""

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from trade.config import to_json
from trade.errors import TradeError
from trade.files import read_json, write_bytes, write_json
from trade.training.compilation import cache_directory

Arrays = dict[str, np.ndarray]


def cached(name: str, settings: dict[str, Any], make: Callable[[], Arrays]) -> Arrays:
    """The arrays that ``make`` returns for these settings, from disk where they are there and whole.

    Args:
        name: The beginning of the file's name.
        settings: All that the arrays depend on.
        make: Makes them.
    """
    described = json.dumps(to_json(settings), sort_keys=True)
    path = cache_directory() / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:16]}.npz"
    manifest = path.with_suffix(".json")
    if path.exists() and manifest.exists():
        content = path.read_bytes()
        try:
            whole = read_json(manifest).get("sha256") == hashlib.sha256(content).hexdigest()
        except TradeError:
            whole = False
        if whole:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
    arrays = {k: np.asarray(v) for k, v in make().items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())
    write_json(manifest, {"sha256": hashlib.sha256(buffer.getvalue()).hexdigest(), "settings": json.loads(described)})
    return arrays
