"""Circular couplings that follow the condition without seeing it: temperature steering of angles."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.condition import Condition, check_condition
from trade.flows.circular import CircularCoupling
from trade.flows.latent import PowerScaled


class SteerableCoupling(CircularCoupling):
    """A coupling whose angles take the power κ(c) of the density they have at c0 (Dibak et al. 2022, Appendix B).

    At c0 the splines of angles are those of a ``CircularCoupling`` whose network sees no condition. Elsewhere their
    slopes h/w of a bin and d of a knot become (h/w)^κ and d^κ, over one constant that keeps the circle. The other
    coordinates are scaled and shifted only, and keep volume: with a latent of variance 1/κ that is exact.

    Warning:
        Powers of angular densities are approximate: within a bin, and from one layer to the next.

    Args:
        key: A JAX random key.
        angular: Which coordinates are angles.
        condition: Of which the first entry of the condition vector is the chart.
        latent: That of the other coordinates; it has the reference c0 and the variance 1/κ(c).
        options: Those of ``SplineCoupling``.
    """

    condition: Condition = eqx.field(static=True)
    latent: PowerScaled = eqx.field(static=True)

    def __init__(self, key: Array, angular: Array, condition: Condition, latent: PowerScaled, **options: Any) -> None:
        check_condition(condition, positive="a PowerScaled latent")
        check.instance(latent, PowerScaled, "SteerableCoupling latent", "a PowerScaled")
        super().__init__(key, angular, None, **options)
        self.condition, self.latent = condition, latent
        self.cond_shape = (1,)

    def _parameters(self, passive: Array, condition: Array | None) -> tuple[Array, ...]:
        assert condition is not None
        raw, log_scale, shift = super()._parameters(passive, None)
        angular = self.angular[self.passive :]
        others = jnp.maximum(jnp.sum(~angular), 1)
        log_scale = jnp.where(angular, 0.0, log_scale - jnp.sum(log_scale) / others)
        raw = jnp.where(angular[:, None], raw, 0.0)  # the identity
        ratio = self.condition.unchart(condition[0]) / self.latent.reference
        return raw, log_scale, shift, ratio**-self.latent.exponent

    def _forward(self, active: Array, *parameters: Array) -> tuple[Array, Array]:
        return self._spline(active, *parameters)

    def _backward(self, active: Array, *parameters: Array) -> tuple[Array, Array]:
        return self._unspline(active, *parameters)
