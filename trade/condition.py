"""A condition with one axis, and the chart u(c) that networks and derivatives use."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.errors import TradeError

CLOSEST = 1e-4  # boundary values in the chart: nearer ones are one to a flow


@dataclass(frozen=True)
class Condition(AbstractCondition):
    """A scalar condition: its range, its scale and where data is known.

    The chart u(c) maps [low, high] onto [-1, 1], linearly in c or in log c. Flows
    see u, and every derivative of the method is taken with respect to u, so that the
    residual does not depend on the unit of c.

    Args:
        low: Smallest condition.
        high: Largest condition.
        scale: ``"log"`` or ``"linear"``.
        boundary: Conditions c0 at which data (or another boundary term) is given;
            empty means "wherever ``fit`` is given data".
        knee: On a linear scale with one boundary value, the distance from it up to which the chart is linear; beyond,
            it is logarithmic: asinh((c - c0) / knee). From a prior to a posterior most changes at small powers.

    Example:
        >>> temperature = Condition(300.0, 600.0, scale="log", boundary=600.0)
        >>> round(float(temperature.chart(600.0)), 3), round(float(temperature.unchart(-1.0)))
        (1.0, 300)
    """

    low: float
    high: float
    scale: Literal["log", "linear"] = "log"
    boundary: tuple[float, ...] = ()
    knee: float | None = None

    def __post_init__(self) -> None:
        check.choice(self.scale, "Condition scale", "log", "linear")
        check.numbers(self, "low", "high")
        low, high = self._rounded(self.low, self.high)
        if not np.isfinite([low, high]).all() or not low < high:
            raise TradeError(f"Condition needs low < high, apart in {low.dtype}, got low={self.low}, high={self.high}.")
        if self.scale == "log" and not low > 0:
            raise TradeError(f"Condition with scale='log' needs low > 0, got low={self.low:g}.")
        single = not isinstance(self.boundary, Iterable) or isinstance(self.boundary, str | bytes)
        single = single or getattr(self.boundary, "ndim", 1) == 0  # an array that is one number
        values: Any = (self.boundary,) if single else self.boundary
        object.__setattr__(self, "boundary", tuple(sorted(self.check(c, "boundary value") for c in values)))
        if self.knee is not None:
            takes = "positive, on a linear scale with one boundary value"
            check.numbers(self, "knee", low=0, open_low=True, takes=takes)
            if self.scale != "linear" or len(self.boundary) != 1:
                raise TradeError(f"Condition knee must be {takes}, got {self.knee!r}.")
        for one, two, apart in zip(self.boundary, self.boundary[1:], np.diff(self.boundary_u), strict=False):
            if apart < CLOSEST:
                raise TradeError(f"Condition boundary values {one!r} and {two!r} are the same or too close: give one.")

    @staticmethod
    def _rounded(*values: float) -> np.ndarray:
        """As JAX will see them."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(values).astype(jnp.result_type(float))

    def check(self, c: float, name: str = "condition") -> float:
        """Return c as a float, or refuse it when it lies outside the range by more than rounding.

        Args:
            c: A condition.
            name: What an error message calls it.

        Returns:
            The condition.
        """
        value = check.number(c, f"The {name}", takes="a number")
        slack = 1e-6 * (self.high - self.low)
        below = min(slack, 1e-3 * self.low) if self.scale == "log" else slack  # log c must exist
        if not self.low - below <= value <= self.high + slack:
            raise TradeError(
                f"The {name} {value:g} lies outside the range of the condition, [{self.low:g}, {self.high:g}]."
            )
        return value

    def check_all(self, conditions: float | Iterable[float]) -> tuple[float, ...]:
        """One condition or several as a tuple, or refuse them: each must lie within the range, and no two be alike.

        Args:
            conditions: A number, or some numbers.

        Returns:
            The conditions, in the order given.
        """
        several = isinstance(conditions, Iterable) and getattr(conditions, "ndim", 1) > 0
        values: Any = conditions if several else (conditions,)
        found = tuple(self.check(c) for c in values)
        if not found or len(set(found)) < len(found):
            raise TradeError(f"conditions must be one number, or several that differ, got {check.shown(conditions)}.")
        return found

    def with_boundary(self, values: Iterable[float]) -> "Condition":
        """The same condition with other boundary values.

        Args:
            values: The boundary values, in any order.

        Returns:
            The new condition.
        """
        return replace(self, boundary=tuple(values))

    def _stretched(self, c: Any, of: ModuleType) -> Any:
        """The coordinate in which the chart is linear, less its value in the middle of the range."""
        if self.knee is not None:
            return of.arcsinh((c - self.boundary[0]) / self.knee) - self._middle
        # The ratio before the logarithm: a difference of logarithms would lose float32 digits.
        return of.log(c / self._centre) if self.scale == "log" else c - self._centre

    @property
    def _ends(self) -> tuple[float, float]:
        if self.knee is not None:
            return tuple(math.asinh((c - self.boundary[0]) / self.knee) for c in (self.low, self.high))  # pyright: ignore
        return (math.log(self.low), math.log(self.high)) if self.scale == "log" else (self.low, self.high)

    @property
    def _middle(self) -> float:
        return 0.5 * sum(self._ends)

    @property
    def _centre(self) -> float:
        """The condition at u = 0."""
        return float(self._unstretched(0.0, np))

    def _unstretched(self, v: Any, of: ModuleType) -> Any:
        if self.knee is not None:
            return self.boundary[0] + self.knee * of.sinh(v + self._middle)
        return math.exp(self._middle) * of.exp(v) if self.scale == "log" else self._middle + v

    @property
    def slope(self) -> float:
        """d(log c)/du for a log scale, dc/du for a linear one: half the range."""
        low, high = self._ends
        return 0.5 * (high - low)

    def chart(self, c: ArrayLike) -> Array:
        """The chart u(c), which is -1 at ``low`` and 1 at ``high``.

        Args:
            c: Conditions, of any shape.

        Returns:
            Their chart coordinates, of the same shape.
        """
        check.array(c, "c")
        return self._stretched(jnp.asarray(c, dtype=jnp.result_type(float)), jnp) / self.slope

    def unchart(self, u: ArrayLike) -> Array:
        """The condition c at chart coordinate u.

        Args:
            u: Chart coordinates, of any shape.

        Returns:
            Their conditions, of the same shape.
        """
        check.array(u, "u")
        return self._unstretched(self.slope * jnp.asarray(u), jnp)

    def charted(self, c: np.ndarray) -> np.ndarray:
        """The chart in NumPy and double precision: never traced.

        Args:
            c: Conditions, of any shape.

        Returns:
            Their chart coordinates, of the same shape.
        """
        return self._stretched(np.asarray(c, dtype=float), np) / self.slope

    @property
    def boundary_u(self) -> np.ndarray:
        """The chart coordinates of the boundary values, in NumPy: never traced."""
        return self.charted(np.asarray(self.boundary))

    @property
    def names(self) -> tuple[str, ...]:
        """The only axis is called c."""
        return ("c",)

    @property
    def u_shape(self) -> tuple[int, ...]:
        """A scalar."""
        return ()

    @property
    def reference(self) -> float:
        """The largest boundary value, or the upper end."""
        return self.boundary[-1] if self.boundary else self.high

    @property
    def extent(self) -> tuple[Any, ...]:
        """Both ends and the scale."""
        return self.low, self.high, self.scale

    def point(self, c: Any) -> Any:
        """The number itself."""
        return c

    def show(self, c: Any) -> str:
        """Such as "c = 0.5"."""
        return f"c = {float(c):.6g}"

    def show_range(self) -> str:
        """Such as "c from 0.5 to 2"."""
        bent = "" if self.knee is None else f", logarithmic beyond {self.knee:.3g}"
        return f"c from {self.low:g} to {self.high:g}{bent}"

    def directions(self, key: Array, n: int) -> Array:
        """Upward."""
        return jnp.ones(n)

    def spread(self, points: int) -> np.ndarray:
        """Evenly spaced in the chart, of shape (about points,)."""
        points = check.integer(points, "points", 2)
        u, c = np.linspace(-1.0, 1.0, points), self.grid(points)
        away = np.min(np.abs(u[:, None] - self.boundary_u), axis=1, initial=np.inf) > 0.2 / (points - 1)
        return np.unique(np.concatenate([c[away], self.boundary]))

    def grid(self, points: int) -> np.ndarray:
        """Conditions evenly spaced in the chart over the whole range.

        Args:
            points: How many, 2 or more.

        Returns:
            The conditions, increasing, of shape (points,); the first is ``low`` and the last ``high``.
        """
        points = check.integer(points, "points", 2)
        c = self._unstretched(self.slope * np.linspace(-1.0, 1.0, points), np)
        c[0], c[-1] = self.low, self.high
        return c

    def grid_with_boundary(self, points: int) -> np.ndarray:
        """Sorted chart coordinates of an even grid, with the boundary values among them.

        Args:
            points: About how many, boundary values included; a grid point at a boundary value is not repeated.

        Returns:
            The chart coordinates, increasing.
        """
        inner = np.linspace(-1.0, 1.0, max(check.integer(points, "points", 2) - len(self.boundary), 2))
        inner = inner[np.min(np.abs(inner[:, None] - self.boundary_u), axis=1, initial=np.inf) > CLOSEST]
        return np.sort(np.concatenate([inner, self.boundary_u]))


def check_condition(condition: object, *, positive: str = "", single: str = "", name: str = "condition") -> Any:
    """Refuse what is no condition, or one that reaches zero or has several axes where that has no meaning.

    Args:
        condition: What was given.
        positive: What has no meaning at zero and below, such as a temperature; empty where all is well there.
        single: What has no meaning for several axes; empty where all is well with them.
        name: What the user calls it.

    Returns:
        The condition.
    """
    check.instance(condition, AbstractCondition, name, "a trade.Condition")
    if (single or positive) and not isinstance(condition, Condition):
        raise TradeError(f"{name} must have one axis for {single or positive}, got {check.shown(condition)}.")
    if isinstance(condition, Condition) and positive and not condition.low > 0:
        raise TradeError(f"{name} must begin above zero for {positive}, got low={condition.low:g}.")
    return condition
