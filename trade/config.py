"""Plain data to JSON and back, for a fixed list of classes: loading runs no code from a file."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from trade.errors import TradeError


def to_json(value: Any) -> Any:
    """Encode dataclasses, tuples, arrays and scalars; what has no plain form becomes its repr."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"class": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    return {"repr": repr(value)}


def brief(value: Any, leave_out: tuple[str, ...] = ()) -> str:
    """A dataclass as one would write it: what differs from its defaults."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value) if isinstance(value, bool | int | float | str | tuple | None) else type(value).__name__
    parts = []
    for f in dataclasses.fields(value):
        now = getattr(value, f.name)
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        if f.init and f.name not in leave_out and now != default:
            parts.append(f"{f.name}={brief(now)}")
    return f"{type(value).__name__}({', '.join(parts)})"


def from_json(value: Any, classes: Mapping[str, type]) -> Any:
    """Decode what ``to_json`` wrote; only the given classes are ever constructed."""
    if isinstance(value, list):
        return tuple(from_json(v, classes) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" not in value:
        return {k: from_json(v, classes) for k, v in value.items()}
    name = value["class"]
    if not isinstance(name, str) or name not in classes:
        raise TradeError(f"A saved configuration names {name!r}, which is not one of {', '.join(sorted(classes))}.")
    arguments = {k: from_json(v, classes) for k, v in value.items() if k != "class"}
    try:
        return classes[name](**arguments)
    except TypeError as error:
        raise TradeError(f"A saved configuration does not fit {name}: {error}.") from error
