"""Layers and latent for states some of whose coordinates are angles: torsions of a molecule beside its bonds."""

from math import pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.flows import spline
from trade.flows.conditioner import NetworkSpec
from trade.flows.coupling import SplineCoupling, bounded
from trade.flows.latent import scaled

STRONGEST = 2.0  # of each entry of a vector before it is brought into the disc: float32 must find the way back


class CircularCoupling(SplineCoupling):
    """A spline coupling that knows which of its coordinates are angles.

    Those are splined on the circle and shifted round it; the networks see their sine and cosine. The others
    are splined, scaled and shifted as ever.

    An angle that follows another once round the circle would need a shift that does too, and no network has one that
    is continuous. With ``moebius`` angles are first drawn towards a point of the circle, by a vector that goes round as
    easily as it stays.

    Args:
        key: A JAX random key.
        angular: Which coordinates are angles: a vector of True and False, one entry per coordinate.
        cond_dim: Length of the condition vector that the network sees, or None.
        network: Spec of the network.
        moebius: Whether a Möbius map of angles comes before their splines.
        options: Those of ``SplineCoupling``.
    """

    angular: Array  # of the coordinates on the side of the data
    moebius: bool = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        angular: Array,
        cond_dim: int | None,
        *,
        network: NetworkSpec,
        moebius: bool = False,
        **options: Any,
    ) -> None:
        self.moebius = check.flag(moebius, "CircularCoupling moebius")
        known = isinstance(angular, Array | np.ndarray) and angular.ndim == 1
        if not known or angular.dtype != bool:
            raise TradeError(f"angular must be a vector of True and False, got {check.shown(angular)}.")
        super().__init__(key, len(angular), cond_dim, network=network, **options)
        self.angular = angular

    @property
    def features(self) -> int:
        """Two for each passive coordinate: sine and cosine, or itself and its square (zero without ``squares``)."""
        return 2 * self.passive

    @property
    def shape_parameters(self) -> int:
        """More than on a line: the slope where the circle closes, and the vector of a Möbius map."""
        return spline.parameter_count(self.bins) + 1 + 2 * self.moebius

    def _parameters(self, passive: Array, condition: Array | None) -> tuple[Array, ...]:
        raw, log_scale, shift = super()._parameters(passive, condition)
        if not self.moebius:
            return raw, log_scale, shift
        raw, vector = jnp.split(raw, [raw.shape[1] - 2], axis=-1)
        vector = jnp.where(self.angular[self.passive :, None], bounded(vector, STRONGEST), 0.0)
        in_disc = vector / jnp.sqrt(1.0 + jnp.sum(vector**2, axis=-1, keepdims=True))
        return raw, log_scale, shift, in_disc

    def _seen(self, passive: Array) -> Array:
        angular, turn = self.angular[: self.passive], pi / self.interval
        itself = bounded(passive, self.interval)
        first = jnp.where(angular, jnp.sin(turn * passive), itself)
        square = itself * itself / self.interval if self.squares else 0.0
        return jnp.concatenate([first, jnp.where(angular, jnp.cos(turn * passive), square)])

    def _placed(self, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        """An angle has no scale, and is turned by less than half a circle."""
        angular, turn = self.angular[self.passive :], bounded(shift, self.interval)
        log_scale, shift = super()._placed(log_scale, shift)
        return jnp.where(angular, 0.0, log_scale), jnp.where(angular, turn, shift)

    def _forward(
        self, active: Array, raw: Array, log_scale: Array, shift: Array, vector: Array | None = None
    ) -> tuple[Array, Array]:
        drawn, log_pull = self._draw(active, vector)
        turned, log_slope = self._spline(drawn, raw, log_scale, shift)
        return turned, log_slope + log_pull

    def _backward(
        self, active: Array, raw: Array, log_scale: Array, shift: Array, vector: Array | None = None
    ) -> tuple[Array, Array]:
        drawn, log_slope = self._unspline(active, raw, log_scale, shift)
        active, log_pull = self._draw(drawn, None if vector is None else -vector)
        return active, log_slope + log_pull

    def _draw(self, active: Array, vector: Array | None) -> tuple[Array, Array]:
        if vector is None:
            return active, jnp.zeros_like(active)
        turn = pi / self.interval
        angle, log_pull = moebius(turn * active, vector)
        angular = self.angular[self.passive :]
        return jnp.where(angular, spline.wrapped(angle / turn, self.interval), active), log_pull

    def _spline(
        self, active: Array, raw: Array, log_scale: Array, shift: Array, power: Array | None = None
    ) -> tuple[Array, Array]:
        angular = self.angular[self.passive :]
        active, log_slope = spline.forward(active, raw, self.interval, angular, power)
        active = active * jnp.exp(log_scale) + shift
        return jnp.where(angular, spline.wrapped(active, self.interval), active), log_slope + log_scale

    def _unspline(
        self, active: Array, raw: Array, log_scale: Array, shift: Array, power: Array | None = None
    ) -> tuple[Array, Array]:
        angular = self.angular[self.passive :]
        active, log_slope = spline.inverse((active - shift) * jnp.exp(-log_scale), raw, self.interval, angular, power)
        return active, log_slope - log_scale


def moebius(angle: Array, w: Array) -> tuple[Array, Array]:
    """The map z -> (z + w) / (1 + w̄ z) of the unit circle, and the logarithm of its slope (Rezende et al. 2020).

    Its inverse is the one with -w; with w = 0 it is the identity.

    Args:
        angle: Angles in radians, of shape (n,).
        w: Vectors in the unit disc, of shape (n, 2).

    Returns:
        Angles, at most half a circle from where they were, and the logarithms.
    """
    # (z + w) / (1 + w̄ z) = z v / v̄ with v = 1 + w z̄, which is never on the left of the imaginary axis.
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    across, along = w[:, 1] * cos - w[:, 0] * sin, w[:, 0] * cos + w[:, 1] * sin
    real = 1.0 + along
    log_slope = jnp.log1p(-jnp.sum(w**2, axis=-1)) - jnp.log(real**2 + across**2)
    return angle + 2.0 * jnp.arctan2(across, real), log_slope


class CircularLatent(AbstractDistribution):
    """Uniform on the circle for angles, another latent for the rest."""

    rest: AbstractDistribution
    angles: tuple[int, ...] = eqx.field(static=True)
    interval: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    @property
    def _others(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.shape[0]), self.angles)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        uniform = -len(self.angles) * jnp.log(2.0 * self.interval)
        return uniform + self.rest._log_prob(x[self._others], condition) if len(self._others) else uniform

    def scaled(self, z: Array, factor: Array) -> tuple[Array, int]:
        """Coordinates that are no angles, multiplied by a factor (see ``latent.scaled``)."""
        if not len(self._others):
            return z, 0
        rest, size = scaled(self.rest, z[self._others], factor)
        return z.at[self._others].set(rest), size

    def _sample(self, key: Array, condition: Array | None = None) -> Array:
        one, two = jax.random.split(key)
        turned = jax.random.uniform(one, (len(self.angles),), minval=-self.interval, maxval=self.interval)
        x = jnp.zeros(self.shape).at[np.array(self.angles, int)].set(turned)
        return x.at[self._others].set(self.rest._sample(two, condition)) if len(self._others) else x
