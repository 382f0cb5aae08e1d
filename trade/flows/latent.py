"""Base distributions p(z|c).

A latent *spec* is plain data; ``spec.build(shape, cond_dim, condition)`` makes the
flowjax distribution. Every latent samples what it scores.
"""

from dataclasses import dataclass
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution, StandardNormal
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.condition import Condition, check_condition


class PowerScaledNormal(AbstractDistribution):
    """A normal whose variance follows the condition: N(0, (c/c0)^exponent).

    The first entry of the flow's condition vector is the chart coordinate u(c).

    Args:
        shape: Shape of one state.
        cond_shape: Shape of the condition vector.
        condition: The condition, for its chart.
        reference: The condition c0 at which it is standard normal.
        exponent: The power of c/c0 that is the variance.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)
    reference: float = eqx.field(static=True)
    exponent: float = eqx.field(static=True)

    def _deviation(self, condition: Array | None) -> Array:
        assert condition is not None
        ratio = self.condition.unchart(condition[0]) / self.reference
        return ratio ** (0.5 * self.exponent)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        deviation = self._deviation(condition)
        log_density = jax.scipy.stats.norm.logpdf(x / deviation).sum()
        return log_density - x.size * jnp.log(deviation)

    def _sample(self, key: Array, condition: Array | None = None) -> Array:
        return self._deviation(condition) * jax.random.normal(key, self.shape)


class LatentSpec(Protocol):
    """Plain data from which a latent is built: ``Normal``, ``PowerScaled``, or one of your own."""

    def build(self, shape: tuple[int, ...], cond_dim: int, condition: AbstractCondition) -> AbstractDistribution:
        """Make the distribution.

        Args:
            shape: Shape of one state.
            cond_dim: Length of the flow's condition vector, whose first entries are u(c).
            condition: The condition, for its chart.

        Returns:
            A distribution that samples what it scores.
        """
        ...


def check_latent(latent: object, name: str) -> None:
    """Refuse what is no spec of a latent: one of ours, or another that builds one."""
    check.member(latent, name, "a latent of trade.flows, Normal() or PowerScaled()", "build")


def scaled(latent: AbstractDistribution, z: Array, factor: Array) -> tuple[Array, int]:
    """A latent state with its Gaussian coordinates multiplied by a factor, and how many these are."""
    if isinstance(latent, StandardNormal | PowerScaledNormal):
        return factor * z, z.size
    if hasattr(latent, "scaled"):
        return latent.scaled(z, factor)  # pyright: ignore
    return z, 0


@dataclass(frozen=True)
class Normal:
    """The standard normal latent."""

    def build(self, shape: tuple[int, ...], cond_dim: int, condition: AbstractCondition) -> AbstractDistribution:
        """A standard normal, whatever the condition."""
        return StandardNormal(shape)


@dataclass(frozen=True)
class PowerScaled:
    """A normal with variance (c/c0)^exponent (Appendix C.2).

    Args:
        exponent: -1 for a power c of the density, +1 for a temperature.
        reference: The condition c0 at which the latent is standard normal.
    """

    exponent: float = -1.0
    reference: float = 1.0

    def __post_init__(self) -> None:
        check.numbers(self, "exponent")
        check.numbers(self, "reference", low=0, open_low=True)

    def build(self, shape: tuple[int, ...], cond_dim: int, condition: AbstractCondition) -> AbstractDistribution:
        """A ``PowerScaledNormal``; the condition must begin above zero."""
        single = check_condition(condition, positive="a PowerScaled latent")
        return PowerScaledNormal(shape, (cond_dim,), single, self.reference, self.exponent)
