"""A target family of a user's own: q(x|c) as a function, with what else is known of it."""

from collections.abc import Callable

import equinox as eqx
import jax
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition, ConditionLike
from trade.abstract_target import AbstractTarget, LogDensity
from trade.condition import check_condition
from trade.states import Bound, as_shape, check_angles, check_bounds, check_function, shape_of


class Target(AbstractTarget):
    """A target made of a user's functions.

    Args:
        log_density: ``f(x, c)`` (``f(x, c, y)`` with an observation): log q for one
            state and one condition, any JAX function that returns a scalar.
        shape: Shape of one state.
        condition: Range, scale and boundary values of the condition; or ``trade.Axes``, several of them by name: then
            functions see c as a tuple with these names.
        observation_shape: Shape of y, when the density also depends on an observation.
        condition_derivative: ``f(x, c[, y])`` = ∂_c log q, to replace the automatic one; with several axes a vector.
        angles: Coordinates of a vector that are angles in radians; the density is periodic in them.
        bounds: For each coordinate of a vector its ends (low, high), of which one may be None, or None: its support.
        lattice: States are fields on a periodic lattice, and translations and a change of sign keep their density.
        rebuild: Energy-free rule, e.g. ``trade.targets.boltzmann`` or ``trade.targets.power``.
        symmetry: ``f(key, x)``: a random symmetry of the density.
        sampler: ``f(key, n, c)``: exact samples, if known.
        log_partition: ``f(c)``: exact log Z, if known.

    Example:
        >>> import jax.numpy as jnp
        >>> from trade import Condition
        >>> target = Target(lambda x, T: -(x**4).sum() / T, (2,), Condition(0.5, 1.0))
        >>> float(target.score(jnp.ones(2), target.condition.chart(1.0)))  # E/T dlogT/du
        0.693147...
    """

    _log_density: LogDensity = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)
    _observation_shape: tuple[int, ...] | None = eqx.field(static=True)
    _condition_derivative: LogDensity | None = eqx.field(static=True)
    _angles: tuple[int, ...] = eqx.field(static=True)
    _bounds: tuple[Bound, ...] = eqx.field(static=True)
    _lattice: bool = eqx.field(static=True)
    _rebuild: Callable | None = eqx.field(static=True)
    _symmetry: Callable | None = eqx.field(static=True)
    _sampler: Callable | None = eqx.field(static=True)
    _log_partition: Callable | None = eqx.field(static=True)

    def __init__(
        self,
        log_density: LogDensity,
        shape: tuple[int, ...],
        condition: AbstractCondition,
        *,
        observation_shape: tuple[int, ...] | None = None,
        condition_derivative: LogDensity | None = None,
        angles: tuple[int, ...] = (),
        bounds: tuple[Bound, ...] = (),
        lattice: bool = False,
        rebuild: Callable | None = None,
        symmetry: Callable | None = None,
        sampler: Callable | None = None,
        log_partition: Callable | None = None,
    ) -> None:
        check.function(log_density, "log_density", "(x, c)")
        check_condition(condition)
        others = {"condition_derivative": condition_derivative, "rebuild": rebuild, "symmetry": symmetry}
        for name, function in {**others, "sampler": sampler, "log_partition": log_partition}.items():
            if function is not None:
                check.function(function, name)
        self.shape = as_shape("shape", shape)
        self.condition = condition
        self._log_density = log_density
        self._observation_shape = (
            None if observation_shape is None else as_shape("observation_shape", observation_shape)
        )
        self._condition_derivative = condition_derivative
        self._angles, self._bounds = check_angles(angles, self.shape), check_bounds(bounds, self.shape)
        self._lattice = check.flag(lattice, "lattice")
        self._rebuild, self._symmetry = rebuild, symmetry
        self._sampler, self._log_partition = sampler, log_partition
        self.check_scalar()
        x, c, y = self._inputs()
        check_function(self.condition_derivative, "condition_derivative", (x, c, y), returns=self.condition.u_shape)
        check_function(self.symmetry, "symmetry", (jax.random.key(0), x), returns=self.shape)
        if rebuild is not None:
            check_function(self.rebuild, "rebuild", (shape_of(()), x, c, c, y))

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        """Shape of the observation, if the density takes one."""
        return self._observation_shape

    @property
    def angles(self) -> tuple[int, ...]:
        """The coordinates that were said to be angles."""
        return self._angles

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The support that was given, one entry per coordinate; empty without any."""
        return self._bounds

    @property
    def lattice(self) -> bool:
        """Whether states were said to be fields on a lattice."""
        return self._lattice

    @property
    def has_symmetry(self) -> bool:
        """Whether a symmetry was given."""
        return self._symmetry is not None

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """The user's function."""
        at = self.condition.point(c)
        return self._log_density(x, at) if self._observation_shape is None else self._log_density(x, at, y)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """The user's function, or the automatic derivative."""
        if self._condition_derivative is None:
            return super().condition_derivative(x, c, y)
        at = self.condition.point(c)
        return self._condition_derivative(x, at, *(() if self._observation_shape is None else (y,)))

    @property
    def _knows_derivative(self) -> bool:
        return self._condition_derivative is not None

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """The user's energy-free rule; refused without one."""
        if self._rebuild is None:
            return super().rebuild(log_p0, x, c, c0, y)
        return self._rebuild(log_p0, x, self.condition.point(c), self.condition.point(c0), y)

    def symmetry(self, key: Array, x: Array) -> Array:
        """The user's symmetry; the state itself without one."""
        return x if self._symmetry is None else self._symmetry(key, x)

    def sample(self, key: Array, n: int, c: ConditionLike) -> Array:
        """Samples of the user's sampler, their shape checked; refused without one."""
        if self._sampler is None:
            return super().sample(key, n, c)
        key, n, c = self.check_sampling(key, n, c)
        found = check.called("sampler", self._sampler, key, n, self.condition.point(c))
        if self._observation_shape is None:
            check.array(found, "What sampler returns", (n, *self.shape))
        return found

    def log_partition(self, c: ConditionLike) -> float:
        """The value of the user's function, checked; refused without one."""
        if self._log_partition is None:
            return super().log_partition(c)
        at = self.condition.point(self.condition.check(c))
        found = check.called("log_partition", self._log_partition, at)
        return check.number(found, "What log_partition returns")
