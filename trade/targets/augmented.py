"""A target with Gaussian coordinates beside its own, for flows that need room."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget, check_target
from trade.condition import check_condition
from trade.config import describe_target
from trade.errors import TradeError
from trade.states import Bound


class Augmented(AbstractTarget):
    """q(x, a|c) = q(x|c) N(a; 0, (c/c0)^exponent) with ``extra`` coordinates a (Dibak et al. 2022).

    The coordinates a are independent of x, so what is learned of x is what is learned of both:
    the KL divergence and the NLL of the pair (less the entropy of a) bound those of x from
    above, and the ESS of the pair bounds that of x from below.

    Args:
        inner: A target whose states are vectors.
        extra: Number of further coordinates.
        exponent: How their variance follows c: +1 for a temperature, -1 for a power.
        reference: The condition c0 at which their variance is one.
    """

    inner: AbstractTarget
    shape: tuple[int, ...] = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)
    extra: int = eqx.field(static=True)
    exponent: float = eqx.field(static=True)
    reference: float = eqx.field(static=True)

    def __init__(self, inner: AbstractTarget, extra: int, exponent: float = 1.0, reference: float = 1.0) -> None:
        check_target(inner, "Augmented inner")
        if len(inner.shape) != 1 or inner.observation_shape is not None:
            raise TradeError("Augmented needs a target of plain vectors without an observation.")
        check_condition(inner.condition, positive="a variance that follows it", name="The condition of Augmented inner")
        self.inner, self.extra = inner, check.integer(extra, "Augmented extra")
        self.exponent = check.number(exponent, "Augmented exponent")
        self.reference = check.number(reference, "Augmented reference", 0, open_low=True)
        self.shape, self.condition = (inner.shape[0] + self.extra,), inner.condition

    def config(self) -> dict | None:
        """The constructor's arguments; None where the inner target has none."""
        inner = describe_target(self.inner)
        if inner is None:
            return None
        return {"inner": inner, "extra": self.extra, "exponent": self.exponent, "reference": self.reference}

    def _deviation(self, c: Array | float) -> Array:
        return (jnp.asarray(c, float) / self.reference) ** (0.5 * self.exponent)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """log q(x|c) plus the normalised log density of the extra coordinates."""
        own, extra = jnp.split(x, [self.inner.shape[0]])
        return self.inner.log_density(own, c) + jax.scipy.stats.norm.logpdf(extra, scale=self._deviation(c)).sum()

    def with_condition(self, condition: AbstractCondition) -> "Augmented":
        """The same, with that of the inner target replaced."""
        return Augmented(self.inner.with_condition(condition), self.extra, self.exponent, self.reference)

    @property
    def angles(self) -> tuple[int, ...]:
        """Those of the states themselves, which come first."""
        return self.inner.angles

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Extra coordinates have none."""
        return (*self.inner.bounds, *[None] * self.extra) if self.inner.bounds else ()

    @property
    def has_symmetry(self) -> bool:
        """Always: the extra coordinates have no preferred direction."""
        return True

    def symmetry(self, key: Array, x: Array) -> Array:
        """A symmetry of the inner target, and the extra coordinates turned to a random direction.

        Frames extended once are few points in a space this large, and a flow can memorise them; turned anew
        each time they are drawn, they never repeat.
        """
        key_inner, key_extra = jax.random.split(key)
        own, extra = jnp.split(x, [self.inner.shape[0]])
        direction = jax.random.normal(key_extra, extra.shape, extra.dtype)
        turned = direction * (jnp.linalg.norm(extra) / jnp.linalg.norm(direction))
        return jnp.concatenate([self.inner.symmetry(key_inner, own), turned])

    def extend(self, key: Array, x: Array, c: float) -> Array:
        """States with fresh extra coordinates.

        Args:
            key: A JAX random key.
            x: States of the inner target, of shape (n, d).
            c: The condition.

        Returns:
            States of shape (n, d + extra).
        """
        x = check.array(x, "x", (-1, *self.inner.shape))
        shape = (len(x), self.extra)
        extra = self._deviation(self.condition.check(c)) * jax.random.normal(check.random_key(key), shape)
        return jnp.concatenate([jnp.asarray(x), extra], axis=1)

    def sample(self, key: Array, n: int, c: float) -> Array:
        """Exact samples of the inner target, extended."""
        key, n, c = self.check_sampling(key, n, c)
        key_inner, key_extra = jax.random.split(key)
        return self.extend(key_extra, self.inner.sample(key_inner, n, c), c)

    def log_partition(self, c: float) -> float:
        """That of the inner target: the extra coordinates are normalised."""
        return self.inner.log_partition(c)

    def extra_entropy(self, c: float) -> float:
        """Entropy of the extra coordinates.

        Args:
            c: The condition.

        Returns:
            The entropy in nats.
        """
        deviation = self._deviation(self.condition.check(c))
        return self.extra * float(0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + jnp.log(deviation))
