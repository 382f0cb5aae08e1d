"""The target family q(x|c): what is known of the densities, up to their normalisation."""

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from math import prod
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.condition import Condition
from trade.errors import TradeError, UnknownError

LogDensity = Callable[..., Array]
Bound = tuple[float | None, float | None] | None  # the ends of a coordinate's support


def boltzmann(log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
    """Energy-free rule for a temperature: E(x) = -T0 log p(x|T0), so log q = (T0/T) log p0."""
    return log_p0 * c0 / c


def power(log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
    """Energy-free rule for a power of the density: log q = (c/c0) log p0."""
    return log_p0 * c / c0


class AbstractTarget(eqx.Module):
    """A family of unnormalised densities q(x|c), written for one state x.

    Subclasses define ``shape``, ``condition`` and ``log_density``; everything else has
    a default. ``Target`` wraps a plain function; the shipped targets derive from here.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    condition: eqx.AbstractVar[Condition]

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
        """log q(x|c) (or log q(x|c, y)): a scalar, up to a constant that may depend on c."""

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_c log q(x|c), by forward-mode differentiation unless a subclass knows better."""
        return jax.jvp(lambda t: self.log_density(x, t, y), (c,), (jnp.ones_like(c),))[1]

    def log_density_at(self, x: Array, u: Array, y: Array | None = None) -> Array:
        """log q(x|c(u)) at chart coordinate u."""
        return self.log_density(x, self.condition.unchart(u), y)

    def score(self, x: Array, u: Array, y: Array | None = None) -> Array:
        """∂_u log q(x|c(u)), the derivative in the chart."""
        c, slope = jax.jvp(self.condition.unchart, (u,), (jnp.ones_like(u),))
        return self.condition_derivative(x, c, y) * slope

    def config(self) -> dict | None:
        """The constructor's arguments as plain data, for a class known to ``trade.register``; None: not rebuilt."""
        return None

    def with_condition(self, condition: Condition) -> Self:
        """The same target under another chart of the same range."""
        other = copy(self)
        object.__setattr__(other, "condition", condition)
        return other

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """log q(x|c) from log p(x|c0) alone, for energy-free training (Section 4.3.5)."""
        raise TradeError(
            f"{type(self).__name__} has no energy-free rule: give Target(rebuild=...),"
            " for example trade.boltzmann or trade.power."
        )

    def symmetry(self, key: Array, x: Array) -> Array:
        """Apply a random symmetry of the density to one state."""
        return x

    def sample(self, key: Array, n: int, c: float) -> Array:
        """Draw n exact samples at c, where an exact sampler is known."""
        raise UnknownError(f"{type(self).__name__} has no exact sampler.")

    def log_partition(self, c: float) -> float:
        """log Z(c) = log ∫ q(x|c) dx, where it is known."""
        raise UnknownError(f"{type(self).__name__} has no known log partition function.")

    def check_scalar(self) -> None:
        """Refuse a log density that cannot be called on (x, c) or is not a real scalar."""
        x, c, y = self._inputs()
        check_function(self.log_density, "log_density", (x, c, y), on=f"x of shape {self.shape} and a scalar condition")

    def _inputs(self) -> tuple[Any, Any, Any]:
        """What the density is a function of, as shapes: a state, a condition, an observation."""
        y = None if self.observation_shape is None else shape_of(self.observation_shape)
        return shape_of(self.shape), shape_of(()), y

    def check_sampling(self, key: Array, n: int, c: float) -> tuple[Array, int, float]:
        """The arguments of ``sample``, or one sentence on which of them cannot be used."""
        return check.random_key(key), check.count(n, self.shape), self.condition.check(c)


class Target(AbstractTarget):
    """A target made of a user's functions.

    Args:
        log_density: ``f(x, c)`` (``f(x, c, y)`` with an observation): log q for one
            state and one condition, any JAX function that returns a scalar.
        shape: Shape of one state.
        condition: Range, scale and boundary values of the condition.
        observation_shape: Shape of y, when the density also depends on an observation.
        condition_derivative: ``f(x, c[, y])`` = ∂_c log q, to replace the automatic one.
        angles: Coordinates of a vector that are angles in radians; the density is periodic in them.
        bounds: For each coordinate of a vector its ends (low, high), of which one may be None, or None: its support.
        lattice: States are fields on a periodic lattice, and translations and a change of sign keep their density.
        rebuild: Energy-free rule, e.g. ``trade.boltzmann`` or ``trade.power``.
        symmetry: ``f(key, x)``: a random symmetry of the density.
        sampler: ``f(key, n, c)``: exact samples, if known.
        log_partition: ``f(c)``: exact log Z, if known.

    Example:
        >>> target = Target(lambda x, T: -(x**4).sum() / T, (2,), Condition(0.5, 1.0))
        >>> float(target.score(jnp.ones(2), target.condition.chart(1.0)))  # E/T dlogT/du
        0.693147...
    """

    _log_density: LogDensity = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)
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
        condition: Condition,
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
        self._rebuild = rebuild
        self._symmetry = symmetry
        self._sampler = sampler
        self._log_partition = log_partition
        self.check_scalar()
        x, c, y = self._inputs()
        check_function(self.condition_derivative, "condition_derivative", (x, c, y))
        check_function(self.symmetry, "symmetry", (jax.random.key(0), x), returns=self.shape)
        if rebuild is not None:
            check_function(self.rebuild, "rebuild", (c, x, c, c, y))

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        return self._observation_shape

    @property
    def angles(self) -> tuple[int, ...]:
        return self._angles

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return self._bounds

    @property
    def lattice(self) -> bool:
        return self._lattice

    @property
    def has_symmetry(self) -> bool:
        return self._symmetry is not None

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        return self._log_density(x, c) if self._observation_shape is None else self._log_density(x, c, y)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        if self._condition_derivative is None:
            return super().condition_derivative(x, c, y)
        if self._observation_shape is None:
            return self._condition_derivative(x, c)
        return self._condition_derivative(x, c, y)

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        if self._rebuild is None:
            return super().rebuild(log_p0, x, c, c0, y)
        return self._rebuild(log_p0, x, c, c0, y)

    def symmetry(self, key: Array, x: Array) -> Array:
        return x if self._symmetry is None else self._symmetry(key, x)

    def sample(self, key: Array, n: int, c: float) -> Array:
        if self._sampler is None:
            return super().sample(key, n, c)
        key, n, c = self.check_sampling(key, n, c)
        found = check.called("sampler", self._sampler, key, n, c)
        if self._observation_shape is None:
            check.array(found, "What sampler returns", (n, *self.shape))
        return found

    def log_partition(self, c: float) -> float:
        if self._log_partition is None:
            return super().log_partition(c)
        found = check.called("log_partition", self._log_partition, self.condition.check(c))
        return check.number(found, "What log_partition returns")


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


def check_condition(condition: object, *, positive: str = "", name: str = "condition") -> None:
    """Refuse what is no condition, or one that reaches zero where that has no meaning.

    Args:
        condition: What was given.
        positive: What has no meaning at zero and below, such as a temperature; empty where all is well there.
        name: What the user calls it.
    """
    check.instance(condition, Condition, name, "a trade.Condition")
    if positive and not condition.low > 0:  # pyright: ignore
        raise TradeError(f"{name} must begin above zero for {positive}, got low={condition.low:g}.")  # pyright: ignore


def check_target(target: object, name: str = "target", *, observed: bool = True) -> None:
    """Refuse what is no target; or one with an observation, where that cannot be used."""
    check.instance(target, AbstractTarget, name, "a trade.Target")
    if not observed and target.observation_shape is not None:  # pyright: ignore
        raise TradeError(f"{name} must be one without an observation here, got a {type(target).__name__} with one.")


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


def check_condition_dependence(target: AbstractTarget, x: Array, y: Array | None = None) -> None:
    """Refuse a target whose ∂_c log q is not finite, or the same for every given state.

    Args:
        target: The family of densities.
        x: A batch of states inside the support, usually data.
        y: The observations that belong to them, if the target takes any.
    """
    u = jnp.linspace(-0.9, 0.9, 5)
    ys_axis = None if y is None else 0
    log_q = jax.vmap(target.log_density_at, in_axes=(0, None, ys_axis))(x, u[2], y)
    if not bool(jnp.isfinite(log_q).any()):
        raise TradeError(f"The log density is not finite at any of the {len(x)} data that were checked.")
    over_x = jax.vmap(target.score, in_axes=(0, None, ys_axis))
    try:
        scores = jax.vmap(lambda v: over_x(x, v, y))(u)
    except TradeError:
        raise
    except Exception as error:
        text = f"log_density cannot be differentiated with respect to c: {check.reason(error)}."
        raise TradeError(text) from error
    finite = jnp.isfinite(scores)
    if not bool(finite.any()):
        raise TradeError("The derivative of log_density with respect to c is not finite at any data point.")
    if not bool(finite.all()):
        c = float(target.condition.unchart(u[int(jnp.argmin(finite.all(axis=1)))]))
        raise TradeError(
            "The derivative of log_density with respect to c is not finite at"
            f" {int((~finite).sum())} of {finite.size} checked data points, for example at c = {c:g}."
        )
    if len(x) > 1 and bool(jnp.all(scores == scores[:, :1])):
        raise TradeError(
            "The dependence of log_density on c is constant (its derivative is the same at every data point,"
            f" {float(scores[0, 0]):g}): TRADE needs a dependence on the condition that changes with x."
        )


def with_knee(target: AbstractTarget, condition: Condition, x: Array) -> Condition:
    """The condition with a chart that suits a power: linear near a boundary value at an end, logarithmic beyond.

    Where log q = a(x) + c b(x), as from a prior to a posterior, a density that contracts in d dimensions changes at a
    speed of √(d/2)/c: constant in log c, from c = √(d/2)/s on, where s is the speed at the boundary value, the standard
    deviation of b there. Other conditions come back as they are.

    Args:
        target: The family of densities, without observations.
        condition: Its condition with the boundary values filled in.
        x: States at the boundary value.
    """
    ends = condition.scale == "linear" and condition.knee is None and len(condition.boundary) == 1
    if not ends or target.observation_shape is not None or min(abs(abs(condition.walls) - 1.0)) > 1e-6:
        return condition
    c = jnp.linspace(condition.low, condition.high, 4)
    slopes = jax.vmap(lambda t: jax.vmap(lambda v: target.condition_derivative(v, t))(x))(c)
    speed = float(jnp.std(slopes[0]))
    if not jnp.allclose(slopes, slopes[:1], rtol=1e-3, atol=1e-3 * speed) or not speed > 0:
        return condition
    knee = (prod(target.shape) / 2) ** 0.5 / speed
    return replace(condition, knee=knee) if knee < 0.5 * (condition.high - condition.low) else condition
