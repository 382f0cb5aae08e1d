"""What a state is: its shape, its angles and bounds, and the functions of it that a user writes, all checked."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError

Bound = tuple[float | None, float | None] | None  # the ends of a coordinate's support


def as_shape(name: str, shape: object) -> tuple[int, ...]:
    """A shape as a tuple, or one sentence on why it is none."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    try:
        found = tuple(check.integer(n, name) for n in sizes)
    except TradeError:
        raise TradeError(f"{name} must be a tuple of positive integers, got {check.shown(shape)}.") from None
    if prod(found) > check.MOST_NUMBERS:
        raise TradeError(f"{name} {found} has more numbers than one state can have.")
    return found


def shape_of(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """Floats of a shape, to try a function on without any."""
    return jax.ShapeDtypeStruct(shape, jnp.result_type(float))


def check_function(
    function: Callable, name: str, given: tuple[Any, ...], *, returns: tuple[int, ...] = (), on: str = ""
) -> None:
    """Refuse a user's function that fails, or returns something else than real floats of a shape.

    Args:
        function: Called without values: only shapes are followed.
        name: What the user calls it.
        given: Shapes of its arguments.
        returns: The shape that it must return; a scalar by default.
        on: The arguments in words; "one state" by default.
    """
    try:
        out = jax.eval_shape(function, *given)
    except TradeError:
        raise
    except Exception as error:
        text = f"{name} could not be evaluated on {on or 'one state'}: {check.reason(error)}."
        raise TradeError(text) from error
    found = getattr(out, "shape", type(out).__name__)
    if found != returns:
        what = f"an array of shape {returns}" if returns else "a scalar"
        state = next((s.shape for s in given if getattr(s, "shape", ())), ())
        raise TradeError(f"{name} must return {what} for one state of shape {state}, got {found}.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TradeError(f"{name} must return a real float that can be differentiated, got {out.dtype}.")


def check_angles(angles: object, shape: tuple[int, ...], name: str = "angles") -> tuple[int, ...]:
    """Indices of angles as a sorted tuple, or one sentence on why they are none."""
    several = isinstance(angles, tuple | list | range) or getattr(angles, "ndim", 0) == 1
    found: tuple = tuple(angles) if several else (angles,)  # pyright: ignore
    if found and len(shape) != 1:
        raise TradeError(f"{name} must be coordinates of a vector, got {check.shown(angles)} for shape {shape}.")
    for i in found:
        most = shape[0] - 1
        check.integer(i, name, 0, most, takes=f"coordinates from 0 to {most}")
    if len({int(i) for i in found}) != len(found):
        raise TradeError(f"{name} must be different coordinates of a vector, got {check.shown(angles)}.")
    return tuple(sorted(int(i) for i in found))


def check_bounds(bounds: object, shape: tuple[int, ...]) -> tuple[Bound, ...]:
    """Bounds as a tuple with one entry per coordinate, or one sentence on why they are none."""
    bounds = _listed(bounds)
    if bounds is None or (isinstance(bounds, tuple | list) and not bounds):
        return ()
    if len(shape) != 1 or not isinstance(bounds, tuple | list) or len(bounds) != shape[0]:
        raise TradeError(f"bounds must be one (low, high) or None for each entry of a vector of shape {shape}.")
    found: list[Bound] = []
    for i, pair in enumerate(map(_listed, bounds)):
        if pair is not None and (not isinstance(pair, tuple | list) or len(pair) != 2):
            raise TradeError(f"bounds[{i}] must be (low, high) or None, got {check.shown(pair)}.")
        low, high = (None, None) if pair is None else pair
        low, high = -np.inf if low is None else check.as_real(low), np.inf if high is None else check.as_real(high)
        if not low < high:
            raise TradeError(f"bounds[{i}] must have low < high, numbers or None, got {check.shown(pair)}.")
        ends = tuple(float(v) if np.isfinite(v) else None for v in (low, high))
        found.append(None if ends == (None, None) else ends)  # pyright: ignore
    return tuple(found)


def _listed(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | Array) else value
