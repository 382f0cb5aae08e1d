"""Plain data to JSON and back, for a list of registered classes: loading runs no code from a file."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from trade.errors import TradeError

C = TypeVar("C")
_SAVEABLE: dict[str, type] = {}


def register(cls: C) -> C:
    """Let a saved run name this class, and ``trade.load`` rebuild it: a decorator for targets, recipes and their parts.

    A dataclass is saved by its fields, a target by its ``config()``: plain data, with which the class is called
    again. Loading never imports anything: a class must have been registered by then.

    Args:
        cls: A dataclass, or a class with a method ``config``.

    Returns:
        The class itself.

    Example:
        >>> @register
        ... @dataclasses.dataclass(frozen=True)
        ... class Wide:
        ...     width: int = 7
        >>> from_json(to_json(Wide(9)))
        Wide(width=9)
    """
    new: Any = cls
    if not isinstance(new, type) or not (dataclasses.is_dataclass(new) or hasattr(new, "config")):
        raise TradeError(f"register takes a dataclass or a class with a method config, got {new!r}.")
    known = _SAVEABLE.get(new.__name__, new)
    if (known.__module__, known.__qualname__) != (new.__module__, new.__qualname__):
        raise TradeError(
            f"register has a class {new.__name__} of {known.__module__} already: choose another name for yours."
        )
    _SAVEABLE[new.__name__] = new  # a module that was run again has made its classes anew
    return cls


def is_registered(value: object) -> bool:
    """Whether an object is exactly of a registered class, not only of one with the same name."""
    return _SAVEABLE.get(type(value).__name__) is type(value)


def describe_target(target: Any) -> dict[str, Any] | None:
    """A target as plain data, or None where it cannot be rebuilt from it."""
    config = target.config() if is_registered(target) else None
    return None if config is None else {"class": type(target).__name__, **to_json(config)}


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
    if callable(value) and hasattr(value, "__qualname__"):  # its repr would name a place in memory
        value = f"{value.__module__}.{value.__qualname__}"
    return {"repr": value if isinstance(value, str) else repr(value)}


def brief(value: Any, leave_out: tuple[str, ...] = ()) -> str:
    """A dataclass as one would write it: what differs from its defaults."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return str(value) if isinstance(value, bool | int | float | str | tuple | None) else type(value).__name__
    parts = []
    for f in dataclasses.fields(value):
        now = getattr(value, f.name)
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        if f.init and f.name not in leave_out and now != default:
            parts.append(f"{f.name}={brief(now)}")
    return f"{type(value).__name__}({', '.join(parts)})"


def from_json(value: Any) -> Any:
    """Decode what ``to_json`` wrote; only registered classes are ever constructed."""
    if isinstance(value, list):
        return tuple(from_json(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" not in value:
        return {k: from_json(v) for k, v in value.items()}
    name = value["class"]
    if not isinstance(name, str) or name not in _SAVEABLE:
        raise TradeError(
            f"A saved configuration names {name!r}, which is not registered: trade.register makes your own class known."
        )
    arguments = {k: from_json(v) for k, v in value.items() if k != "class"}
    try:
        return _SAVEABLE[name](**arguments)
    except (TypeError, AttributeError) as error:
        raise TradeError(f"A saved configuration does not fit {name}: {error}.") from error
