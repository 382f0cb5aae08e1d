"""From a distribution that can be sampled to any density: no data and no parameter needed."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution, Normal
from jax import Array

from trade import check
from trade.abstract_target import AbstractTarget
from trade.condition import Condition
from trade.errors import TradeError
from trade.states import Bound, as_shape, check_angles, check_bounds, check_function, shape_of


class Bridge(AbstractTarget):
    """The geometric path log q(x|c) = (1 - c) log p_base(x) + c log q(x), for c from 0 to 1.

    At c = 0 it is the base, which has an exact sampler; at c = 1 the density that is wanted. The base should be wide
    enough to cover all of it: a mode where the base has no states is not found.

    Args:
        log_density: ``f(x)``: log q of one state, any JAX function that returns a scalar.
        base: A flowjax distribution of the same shape.
        angles: Coordinates of a vector that are angles in radians (see ``trade.Target``).
        bounds: The support of each coordinate of a vector (see ``trade.Target``).
    """

    _log_density: Callable[[Array], Array] = eqx.field(static=True)
    base: AbstractDistribution
    _angles: tuple[int, ...] = eqx.field(static=True)
    _bounds: tuple[Bound, ...] = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        base: AbstractDistribution,
        *,
        angles: tuple[int, ...] = (),
        bounds: tuple[Bound, ...] = (),
    ) -> None:
        check.function(log_density, "log_density", "one state")
        if not isinstance(base, AbstractDistribution) or base.cond_shape is not None:
            raise TradeError(f"base must be an unconditional flowjax distribution, got {type(base).__name__}.")
        self._log_density, self.base = log_density, base
        self._angles, self._bounds = check_angles(angles, base.shape), check_bounds(bounds, base.shape)
        self.condition = Condition(0.0, 1.0, scale="linear", boundary=(0.0,))
        check_function(log_density, "log_density", (shape_of(base.shape),))
        check_function(base.log_prob, "log_prob of the base", (shape_of(base.shape),))
        self.check_scalar()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the base."""
        return self.base.shape

    @property
    def angles(self) -> tuple[int, ...]:
        """The coordinates that were said to be angles."""
        return self._angles

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The support that was given, one entry per coordinate; empty without any."""
        return self._bounds

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """Linear in c; the base is normalised, so that log Z at c = 1 is that of the density itself."""
        start = self.base.log_prob(x)
        end = self._log_density(x)
        # 0 · inf is no number: at c = 0 what lies outside the density's support still belongs to the base.
        return start + c * (jnp.where(jnp.isneginf(end), _IMPOSSIBLE, end) - start)

    def sample(self, key: Array, n: int, c: float) -> Array:
        """States of the base, at c = 0."""
        key, n, c = self.check_sampling(key, n, c)
        if c > 1e-6:
            raise TradeError(f"A bridge can be sampled at c = 0 alone, got c = {c:g}.")
        return self.base.sample(key, (n,))


_IMPOSSIBLE = -1e4  # log of a density that is zero; finite, so that the path to it stays so


def bridge(
    log_density: Callable[[Array], Array],
    base: AbstractDistribution | float = 1.0,
    *,
    shape: tuple[int, ...] | int | None = None,
    angles: tuple[int, ...] = (),
    bounds: tuple[Bound, ...] = (),
) -> Bridge:
    """A target for a density without a parameter and without samples: ``fit(bridge(...))`` needs no data.

    Args:
        log_density: ``f(x)``: log q of one state, up to a constant.
        base: Where the path begins: any flowjax distribution that can be sampled and scored, or the standard deviation
            of a Gaussian around the origin, which then needs a ``shape``.
        shape: Shape of one state, with a standard deviation.
        angles: Coordinates that are angles in radians.
        bounds: The support of each coordinate.

    Returns:
        The path, with c from 0 (the base) to 1 (the density).

    Example:
        >>> target = bridge(lambda x: -(x**4).sum(), 1.5, shape=(2,))
        >>> target.condition.boundary, target.shape
        ((0.0,), (2,))
    """
    if not isinstance(base, AbstractDistribution):
        takes = "a flowjax distribution or a positive standard deviation"
        width = check.number(base, "base", 0, open_low=True, takes=takes)
        if shape is None:
            raise TradeError("A bridge from a standard deviation needs the shape of a state: bridge(..., shape=(d,)).")
        base = Normal(jnp.zeros(as_shape("shape", shape)), jnp.asarray(width))
    elif shape is not None and as_shape("shape", shape) != base.shape:
        raise TradeError(f"shape must be that of the base, {base.shape}, or left out, got {check.shown(shape)}.")
    return Bridge(log_density, base, angles=angles, bounds=bounds)
