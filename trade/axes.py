"""Several conditions at once: points (T, P), (κ, λ), (α, β) in the product of their ranges."""

import itertools
from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from keyword import iskeyword
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.condition import CLOSEST, Condition, check_condition
from trade.errors import TradeError

Point = tuple[float, ...]
MOST = 6  # axes: a box of more has too many corners to look at


@dataclass(frozen=True)
class Axes(AbstractCondition):
    """Conditions by name, each with its range and scale, and the points of their product at which data are known.

    A point is given as a mapping, ``{"T": 300.0, "P": 1.0}``, or by position, ``(300.0, 1.0)``. A density sees it as a
    tuple with names: ``T, P = c`` and ``c.T`` both work. The chart is the product of the charts, u(c) ∈ [-1, 1]ᵏ, and
    every derivative of the method is one along a direction in it.

    Args:
        axes: Conditions by name. Boundary values of their own only say where a ``knee`` is.
        boundary: Points c0 at which data (or another boundary term) is given: one, or several in a list; empty means
            "wherever ``fit`` is given data".

    Example:
        >>> plane = Axes({"T": Condition(0.5, 2.0), "h": Condition(-1.0, 1.0, scale="linear")}, boundary=(1.0, 0.0))
        >>> plane.boundary, plane.check({"h": 0.5, "T": 2})
        (((1.0, 0.0),), (2.0, 0.5))
    """

    axes: tuple[tuple[str, Condition], ...]
    boundary: tuple[Point, ...] = ()

    def __init__(self, axes: Mapping[str, Condition] | Iterable[tuple[str, Condition]], boundary: Any = ()) -> None:
        object.__setattr__(self, "axes", _named(axes))
        given = boundary.tolist() if hasattr(boundary, "tolist") else boundary
        if not isinstance(given, Mapping | tuple | list):
            raise TradeError(f"Axes boundary must be a point, or several in a list, got {check.shown(boundary)}.")
        several = not isinstance(given, Mapping) and all(isinstance(p, Mapping | tuple | list) for p in given)
        points = tuple(sorted(self.check(p, "boundary point") for p in (given if several else [given])))
        object.__setattr__(self, "boundary", points)
        for one, two in itertools.combinations(self.boundary_u, 2):
            if np.abs(one - two).max() < CLOSEST:
                raise TradeError(f"Axes boundary has two points that are the same or too close: {points}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(name for name, _ in self.axes)

    @property
    def u_shape(self) -> tuple[int, ...]:
        """A vector, one entry for each axis."""
        return (len(self.axes),)

    @property
    def reference(self) -> Point:
        """The last boundary point, or the upper corner."""
        return self.boundary[-1] if self.boundary else tuple(axis.high for _, axis in self.axes)

    def __getitem__(self, name: str) -> Condition:
        """One of the axes, by its name."""
        return dict(self.axes)[name]

    def check(self, c: Any, name: str = "condition") -> Point:
        """Return c as a tuple, or refuse it: every axis must have a number within its range."""
        if isinstance(c, Mapping):
            unknown = [key for key in c if key not in self.names]
            missing = [key for key in self.names if key not in c]
            if unknown or missing:
                wrong = f"unknown {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
                raise TradeError(f"The {name} must have a number for each of {', '.join(self.names)}, got {wrong}.")
            values: list[Any] = [c[key] for key in self.names]
        else:
            values = list(c) if isinstance(c, tuple | list) or getattr(c, "ndim", 0) == 1 else []
            if len(values) != len(self.axes):
                raise TradeError(
                    f"The {name} must be a mapping, or numbers in the order ({', '.join(self.names)}),"
                    f" got {check.shown(c)}."
                )
        return tuple(axis.check(v, f"{name}'s {key}") for (key, axis), v in zip(self.axes, values, strict=True))

    def check_all(self, conditions: Any) -> tuple[Point, ...]:
        """One point, or several in a list or an array of two axes."""
        if isinstance(conditions, np.ndarray | Array):
            conditions = list(conditions) if conditions.ndim > 1 else [conditions]
        single = isinstance(conditions, Mapping) or (
            isinstance(conditions, tuple | list) and not any(np.ndim(p) or isinstance(p, Mapping) for p in conditions)
        )
        if not single and not isinstance(conditions, Iterable):
            raise TradeError(f"conditions must be one point, or several that differ, got {check.shown(conditions)}.")
        found = tuple(self.check(p) for p in ([conditions] if single else conditions))
        if not found or len(set(found)) < len(found):
            raise TradeError(f"conditions must be one point, or several that differ, got {check.shown(conditions)}.")
        return found

    def with_boundary(self, values: Iterable[Any]) -> "Axes":
        """The same axes with other boundary points."""
        return replace(self, boundary=list(values))

    def _each(self, function: str, values: Any, join: Any) -> Any:
        return join([getattr(axis, function)(values[..., i]) for i, (_, axis) in enumerate(self.axes)], axis=-1)

    def chart(self, c: ArrayLike) -> Array:
        """The product of the charts; the last axis of c is that of the conditions."""
        return self._each("chart", jnp.asarray(self._array(c, "c"), jnp.result_type(float)), jnp.stack)

    def unchart(self, u: ArrayLike) -> Array:
        """The product of the inverse charts; the last axis of u is that of the conditions."""
        return self._each("unchart", jnp.asarray(self._array(u, "u")), jnp.stack)

    def _array(self, values: ArrayLike, name: str) -> Any:
        found = check.array(values, name)
        if not found.ndim or found.shape[-1] != len(self.axes):
            raise TradeError(f"{name} must have {len(self.axes)} entries along its last axis, got shape {found.shape}.")
        return found

    @property
    def boundary_u(self) -> np.ndarray:
        """The chart coordinates of the boundary points, of shape (points, axes), in NumPy: never traced."""
        found = [axis.charted(np.array([p[i] for p in self.boundary])) for i, (_, axis) in enumerate(self.axes)]
        return np.stack(found, axis=-1)

    @property
    def extent(self) -> tuple[Any, ...]:
        """Names, ends and scales."""
        return tuple((name, *axis.extent) for name, axis in self.axes)

    def point(self, c: Any) -> Any:
        """The numbers as a tuple with the names of the axes."""
        return _point_type(self.names)(*(c[i] for i in range(len(self.axes))))

    def show(self, c: Any) -> str:
        """Such as "T = 300, P = 1"."""
        return ", ".join(f"{name} = {float(v):.6g}" for name, v in zip(self.names, c, strict=True))

    def show_range(self) -> str:
        """Such as "T from 300 to 600, P from 1 to 10"."""
        return ", ".join(name + axis.show_range().removeprefix("c") for name, axis in self.axes)

    def directions(self, key: Array, n: int) -> Array:
        """Uniform on the sphere."""
        v = jax.random.normal(key, (n, *self.u_shape))
        return v / jnp.linalg.norm(v, axis=1, keepdims=True)

    def grid(self, points: int | tuple[int, ...]) -> np.ndarray:
        """All combinations of conditions evenly spaced in the charts of the axes.

        Args:
            points: How many on each axis, 2 or more: one number, or one for each axis.

        Returns:
            The points, of shape (product of the numbers, axes); the last axis changes fastest.
        """
        counts = points if isinstance(points, tuple | list) else (points,) * len(self.axes)
        if len(counts) != len(self.axes):
            raise TradeError(f"points must be one number, or one for each of {len(self.axes)} axes, got {points}.")
        lines = [axis.grid(n) for (_, axis), n in zip(self.axes, counts, strict=True)]
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(self.axes))

    def spread(self, points: int) -> np.ndarray:
        """A grid with about so many points, its corners, its centre and the boundary points among them."""
        each = max(2, round((1.5 * check.integer(points, "points", 2)) ** (1.0 / len(self.axes))))
        found = self.grid(each)
        if each % 2 == 0:
            found = np.concatenate([found, np.asarray(self.unchart(np.zeros(len(self.axes))), np.float64)[None]])
        apart = np.asarray(self.chart(found))[:, None] - self.boundary_u
        away = np.min(np.abs(apart).max(axis=-1), axis=1, initial=np.inf) > 0.2 / (each - 1)
        boundary = np.reshape(self.boundary, (-1, len(self.axes)))
        return np.unique(np.concatenate([found[away], boundary]), axis=0)


def _named(axes: Any) -> tuple[tuple[str, Condition], ...]:
    """Axes by name, or one sentence on why they are none."""
    takes = "conditions by name, such as {'T': Condition(300, 600), 'P': Condition(1, 10)}"
    pairs = list(axes.items()) if isinstance(axes, Mapping) else axes
    if not isinstance(pairs, tuple | list) or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
        raise TradeError(f"Axes must be given {takes}, got {check.shown(axes)}.")
    if not 1 <= len(pairs) <= MOST:
        raise TradeError(f"Axes must be one to {MOST} {takes.removeprefix('conditions ')}, got {len(pairs)}.")
    for name, condition in pairs:
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            raise TradeError(f"A name of Axes must be one that Python can take, such as 'T', got {check.shown(name)}.")
        check.instance(condition, Condition, f"Axis {name}", "a trade.Condition")
    if len({name for name, _ in pairs}) < len(pairs):
        raise TradeError(f"Axes must have names that differ, got {', '.join(name for name, _ in pairs)}.")
    return tuple((name, condition) for name, condition in pairs)


def check_axes(condition: object, owner: str, *names: str) -> None:
    """Refuse several axes whose names are not those that a target knows; a condition with one axis is well.

    Args:
        condition: What was given.
        owner: What the user calls the target.
        names: The names that it knows, in any order.
    """
    check_condition(condition)
    if isinstance(condition, Axes) and set(condition.names) != set(names):
        wanted, given = ", ".join(names), ", ".join(condition.names)
        raise TradeError(f"{owner} has axes with the names {wanted}, got {given}.")


@cache
def _point_type(names: tuple[str, ...]) -> type:
    return namedtuple("Point", names)
