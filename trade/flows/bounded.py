"""States with a bounded support: a map of the whole space onto a box."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax import Array

from trade import check
from trade.states import Bound, check_bounds

_EDGE = 15.0  # of a logit: float32 has nothing between it and the wall


class Bounded(AbstractBijection):
    """x = low + (high - low) σ(z) where both ends are known, low + e^z or high - e^z where one is, and z elsewhere.

    Args:
        bounds: For each coordinate of a vector None, or its ends, of which one may be None.
    """

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape = None

    def __init__(self, bounds: tuple[Bound, ...]) -> None:
        check.instance(bounds, (tuple, list), "bounds", "one (low, high) or None for each coordinate")
        bounds = check_bounds(bounds, (len(bounds),))
        ends = [(None, None) if b is None else b for b in bounds]
        self.low = tuple(-np.inf if a is None else float(a) for a, _ in ends)
        self.high = tuple(np.inf if b is None else float(b) for _, b in ends)
        self.shape = (len(bounds),)

    def _masks(self) -> tuple[np.ndarray, ...]:
        low, high = np.array(self.low), np.array(self.high)
        from_low, from_high = np.isfinite(low), np.isfinite(high)
        both = from_low & from_high
        sign = np.where(from_low, 1.0, -1.0)
        origin = np.where(from_low, low, np.where(from_high, high, 0.0))
        width = np.where(both, high - np.where(both, low, 0.0), 1.0)
        return both, (from_low | from_high) & ~both, sign, origin, width

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From the whole space into the box."""
        both, one, sign, origin, width = self._masks()
        z = jnp.where(both | one, jnp.clip(x, -_EDGE, jnp.where(both, _EDGE, 80.0)), x)
        inner = jnp.where(both, z, 0.0)
        grown = jnp.exp(jnp.where(one, z, 0.0))
        y = jnp.where(both, origin + width * jax.nn.sigmoid(inner), jnp.where(one, origin + sign * grown, x))
        slope = jnp.where(both, jnp.log(width) + _log_slope(inner), jnp.where(one, z, 0.0))
        return y, slope.sum()

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From the box to the whole space; a state on a wall or beyond is taken for one just inside."""
        both, one, sign, origin, width = self._masks()
        edge = 1.0 / (1.0 + np.exp(_EDGE))
        part = jnp.clip(jnp.where(both, (y - origin) / width, 0.5), edge, 1.0 - edge)
        inner = jnp.log(part) - jnp.log1p(-part)
        away = jnp.maximum(jnp.where(one, sign * (y - origin), 1.0), np.exp(-_EDGE))
        z = jnp.where(both, inner, jnp.where(one, jnp.log(away), y))
        slope = jnp.where(both, jnp.log(width) + _log_slope(inner), jnp.where(one, jnp.log(away), 0.0))
        return z, -slope.sum()


def _log_slope(z: Array) -> Array:
    """log σ'(z)."""
    return jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)
