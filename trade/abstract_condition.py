"""The external condition c, on one axis or several: what everything else knows of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade.errors import TradeError

ConditionLike = float | tuple[float, ...] | Mapping[str, float]  # with several axes a point, by position or by name


class AbstractCondition(ABC):
    """What a condition with one axis (``Condition``) and one with several (``Axes``) have in common.

    One condition c is a number, or a tuple with one number for each axis; its chart coordinate u is a scalar, or a
    vector. Arrays of conditions have these along their last axes.
    """

    boundary: tuple[Any, ...]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What the axes are called."""

    @property
    @abstractmethod
    def u_shape(self) -> tuple[int, ...]:
        """Shape of a chart coordinate: (), or (number of axes,)."""

    @property
    @abstractmethod
    def reference(self) -> Any:
        """The condition that log Z is given relative to: the last boundary value, or the upper end."""

    @abstractmethod
    def check(self, c: Any, name: str = "condition") -> Any:
        """Return c in its plain form, or refuse it when it lies outside the range by more than rounding.

        Args:
            c: A condition.
            name: What an error message calls it.

        Returns:
            The condition.
        """

    @abstractmethod
    def check_all(self, conditions: Any) -> tuple[Any, ...]:
        """One condition or several as a tuple, or refuse them: each must lie within the range, and no two be alike.

        Args:
            conditions: A condition, or some of them.

        Returns:
            The conditions, in the order given.
        """

    @abstractmethod
    def with_boundary(self, values: Iterable[Any]) -> Any:
        """The same condition with other boundary values.

        Args:
            values: The boundary values, in any order.

        Returns:
            The new condition.
        """

    @abstractmethod
    def chart(self, c: ArrayLike) -> Array:
        """The chart u(c), in [-1, 1] on every axis.

        Args:
            c: Conditions, of any number of leading axes.

        Returns:
            Their chart coordinates, of the same shape.
        """

    @abstractmethod
    def unchart(self, u: ArrayLike) -> Array:
        """The condition c at chart coordinate u.

        Args:
            u: Chart coordinates, of any number of leading axes.

        Returns:
            Their conditions, of the same shape.
        """

    @property
    @abstractmethod
    def boundary_u(self) -> np.ndarray:
        """The chart coordinates of the boundary values, in NumPy: never traced."""

    @abstractmethod
    def point(self, c: Any) -> Any:
        """A condition as a user's function sees it: a scalar, or a tuple with names.

        Args:
            c: One condition.

        Returns:
            The same numbers.
        """

    @abstractmethod
    def show(self, c: Any) -> str:
        """A condition in words.

        Args:
            c: One condition.

        Returns:
            Such as "c = 0.5", or "T = 300, P = 1".
        """

    def show_all(self, conditions: Iterable[Any]) -> str:
        """Some conditions in words.

        Args:
            conditions: The conditions.

        Returns:
            Such as "c = 0.5, 1", or "T = 300, P = 1; T = 400, P = 1".
        """
        texts = [self.show(c) for c in conditions]
        return "; ".join(texts) if self.u_shape else ", ".join([*texts[:1], *(t.split()[-1] for t in texts[1:])])

    @abstractmethod
    def show_range(self) -> str:
        """The range in words.

        Returns:
            Such as "c from 0.5 to 2".
        """

    @abstractmethod
    def directions(self, key: Array, n: int) -> Array:
        """Directions in the chart along which derivatives are taken: the only one there is, or random ones.

        Args:
            key: A JAX random key.
            n: How many.

        Returns:
            Tangents of length one, of shape (n, *u_shape).
        """

    @property
    @abstractmethod
    def extent(self) -> tuple[Any, ...]:
        """Range and scale, for comparison."""

    @abstractmethod
    def grid(self, points: int) -> np.ndarray:
        """Conditions evenly spaced in the chart over the whole range; with several axes all combinations.

        Args:
            points: How many on each axis, 2 or more.

        Returns:
            The conditions, sorted.
        """

    @abstractmethod
    def spread(self, points: int) -> np.ndarray:
        """Conditions over the whole range, ends and boundary values among them.

        Boundary values take the place of what lies close to them: two conditions that differ by rounding would have a
        slope of their own.

        Args:
            points: About how many.

        Returns:
            The conditions, sorted.
        """

    def boundary_chart(self) -> Array:
        """The chart coordinates of the boundary values, refused where there are none.

        Returns:
            One row per boundary value, in their order.
        """
        if not self.boundary:
            raise TradeError("The condition has no boundary value: give data or Condition(boundary=...).")
        return jnp.asarray(self.boundary_u, jnp.result_type(float))

    def nearest_boundary(self, u: ArrayLike) -> Array:
        """Index of the boundary value nearest to u in the chart.

        Args:
            u: Chart coordinates, of any number of leading axes.

        Returns:
            Indices into ``boundary``, one for each.
        """
        u, home = jnp.asarray(u), self.boundary_chart()
        lead = u.shape[: u.ndim - len(self.u_shape)]
        apart = u.reshape(*lead, 1, -1) - home.reshape(len(home), -1)
        return jnp.argmin(jnp.sum(apart**2, axis=-1), axis=-1)

    def index(self, c: Any, among: np.ndarray | tuple[Any, ...]) -> int:
        """Which of some conditions is nearest to c in the chart.

        Args:
            c: One condition.
            among: Conditions, along the first axis.

        Returns:
            The index.
        """
        apart = np.asarray(self.chart(np.asarray(among, float))) - np.asarray(self.chart(np.asarray(c, float)))
        return int(np.argmin(np.abs(apart.reshape(len(apart), -1)).max(axis=1)))
