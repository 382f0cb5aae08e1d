"""What a target family q(x|c) says of itself: densities up to their normalisation, states, condition."""

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition, ConditionLike
from trade.errors import TradeError, UnknownError
from trade.states import Bound, check_function, shape_of

LogDensity = Callable[..., Array]


def _in_full_precision(method: LogDensity) -> LogDensity:
    """Left to itself a GPU multiplies float32 matrices with ten bits, and log q would be off by a thousandth."""

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Array:
        with jax.default_matmul_precision("highest"):
            return method(*arguments, **named)

    return call


class AbstractTarget(eqx.Module):
    """A family of unnormalised densities q(x|c), written for one state x.

    Subclasses define ``shape``, ``condition`` and ``log_density``; everything else has
    a default. ``Target`` wraps a plain function; the shipped targets derive from here.
    Products of matrices in a density are computed in full precision on every device.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    condition: eqx.AbstractVar[AbstractCondition]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("log_density", "condition_derivative", "rebuild"):
            if name in vars(cls):
                setattr(cls, name, _in_full_precision(vars(cls)[name]))

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        """Shape of the observation y the density also depends on, or None."""
        return None

    @property
    def angles(self) -> tuple[int, ...]:
        """Which coordinates of a vector are angles in radians, in which the density is periodic."""
        return ()

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The support of each coordinate of a vector, where it is bounded; empty if none is."""
        return ()

    @property
    def lattice(self) -> bool:
        """Whether states are fields on a periodic lattice, and translations and a change of sign keep their density."""
        return False

    @property
    def has_symmetry(self) -> bool:
        """Whether ``symmetry`` does anything."""
        return False

    @property
    def has_density(self) -> bool:
        """Whether log q can be evaluated; without it a flow trains energy-free alone."""
        return True

    @abstractmethod
    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """log q(x|c), or log q(x|c, y), up to a constant that may depend on c.

        Args:
            x: One state, of shape ``shape``.
            c: The condition, a scalar; with several axes a vector, in their order.
            y: The observation, of shape ``observation_shape``, where the density depends on one.

        Returns:
            A scalar; minus infinity outside the support.
        """

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_c log q(x|c), by forward-mode differentiation unless a subclass knows better.

        Args:
            x: One state, of shape ``shape``.
            c: The condition, a scalar; with several axes a vector.
            y: The observation, where the density depends on one.

        Returns:
            A scalar; with several axes the gradient, a vector.
        """
        return jax.jacfwd(lambda t: self.log_density(x, t, y))(c)

    def derivative_along(self, x: Array, c: Array, direction: Array, y: Array | None = None) -> Array:
        """The derivative of log q(x|c) in c along a direction: one ``jvp``, or from ``condition_derivative`` if known.

        Args:
            x: One state, of shape ``shape``.
            c: The condition.
            direction: A tangent of it, of the same shape.
            y: The observation, where the density depends on one.

        Returns:
            A scalar.
        """
        if self._knows_derivative:
            return jnp.sum(direction * self.condition_derivative(x, c, y))
        return jax.jvp(lambda t: self.log_density(x, t, y), (c,), (direction,))[1]

    @property
    def _knows_derivative(self) -> bool:
        return type(self).condition_derivative is not AbstractTarget.condition_derivative

    def log_density_at(self, x: Array, u: Array, y: Array | None = None) -> Array:
        """log q(x|c(u)) at chart coordinate u.

        Args:
            x: One state, of shape ``shape``.
            u: The chart coordinate.
            y: The observation, where the density depends on one.

        Returns:
            A scalar.
        """
        return self.log_density(x, self.condition.unchart(u), y)

    def score(self, x: Array, u: Array, y: Array | None = None, direction: Array | None = None) -> Array:
        """∂_u log q(x|c(u)), the derivative in the chart; with several axes along a direction.

        Args:
            x: One state, of shape ``shape``.
            u: The chart coordinate.
            y: The observation, where the density depends on one.
            direction: A tangent of u; upward by default.

        Returns:
            A scalar.
        """
        c, slope = jax.jvp(self.condition.unchart, (u,), (jnp.ones_like(u) if direction is None else direction,))
        return self.derivative_along(x, c, slope, y)

    def config(self) -> dict | None:
        """The constructor's arguments as plain data, from which a class known to ``trade.register`` is rebuilt.

        Returns:
            The arguments by name, or None for a target that cannot be rebuilt from them.
        """
        return None

    def with_condition(self, condition: AbstractCondition) -> Self:
        """The same target under another chart of the same range.

        Args:
            condition: The condition that replaces its own.

        Returns:
            The new target.
        """
        other = copy(self)
        object.__setattr__(other, "condition", condition)
        return other

    def prepared(self, data: tuple[Array, ...]) -> Self:
        """The target once it has seen the data that a flow is trained on; most learn nothing from them.

        Args:
            data: States at each boundary value.

        Returns:
            The target to train with.
        """
        return self

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """log q(x|c) from log p(x|c0) alone, for energy-free training (Section 4.3.5); refused without a rule.

        Args:
            log_p0: log p(x|c0), a scalar.
            x: One state, of shape ``shape``.
            c: The condition, a scalar.
            c0: The condition at which log p0 is known.
            y: The observation, where the density depends on one.

        Returns:
            log q(x|c) up to a constant, a scalar.
        """
        raise TradeError(
            f"{type(self).__name__} has no energy-free rule: give Target(rebuild=...),"
            " for example trade.targets.boltzmann or trade.targets.power."
        )

    def symmetry(self, key: Array, x: Array) -> Array:
        """Apply a random symmetry of the density to one state; the identity by default.

        Args:
            key: A JAX random key.
            x: One state, of shape ``shape``.

        Returns:
            A state of the same density.
        """
        return x

    def sample(self, key: Array, n: int, c: ConditionLike) -> Array:
        """Draw n exact samples at c; refused with ``UnknownError`` where no exact sampler is known.

        Args:
            key: A JAX random key.
            n: How many.
            c: The condition.

        Returns:
            States of shape (n, *shape).
        """
        raise UnknownError(f"{type(self).__name__} has no exact sampler.")

    def log_partition(self, c: ConditionLike) -> float:
        """log Z(c) = log ∫ q(x|c) dx; refused with ``UnknownError`` where it is not known.

        Args:
            c: The condition.

        Returns:
            log Z(c).
        """
        raise UnknownError(f"{type(self).__name__} has no known log partition function.")

    def check_scalar(self) -> None:
        """Refuse a log density that cannot be called on (x, c) or is not a real scalar."""
        x, c, y = self._inputs()
        check_function(self.log_density, "log_density", (x, c, y), on=f"x of shape {self.shape} and a scalar condition")

    def _inputs(self) -> tuple[Any, Any, Any]:
        """What the density is a function of, as shapes: a state, a condition, an observation."""
        y = None if self.observation_shape is None else shape_of(self.observation_shape)
        return shape_of(self.shape), shape_of(self.condition.u_shape), y

    def check_sampling(self, key: Array, n: int, c: ConditionLike) -> tuple[Array, int, Any]:
        """The arguments of ``sample``, or one sentence on which of them cannot be used.

        Args:
            key: A JAX random key.
            n: How many samples.
            c: The condition.

        Returns:
            The three, checked.
        """
        return check.random_key(key), check.count(n, self.shape), self.condition.check(c)


def check_target(target: object, name: str = "target", *, observed: bool = True) -> None:
    """Refuse what is no target; or one with an observation, where that cannot be used."""
    check.instance(target, AbstractTarget, name, "a trade.Target")
    if not observed and target.observation_shape is not None:  # pyright: ignore
        raise TradeError(f"{name} must be one without an observation here, got a {type(target).__name__} with one.")
