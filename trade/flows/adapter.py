"""A map next to the data that follows the condition: where a density is, how wide, how turned, how long its tails."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax import Array

from trade import check
from trade.flows.conditioner import MLP, Network

_FARTHEST = 30.0  # of a logarithm: its exponential is still a float32


class Adapter(AbstractBijection):
    """From data to latent z = S(A(c) (y - m(c))): a triangular matrix, then one map per coordinate; first the identity.

    Splines act on a fixed interval, and their tails are linear. A density that widens, turns or grows long tails with c
    leaves the interval or fills a small part of it, unless something brings it back first: this does. S is the
    sinh-arcsinh map, sinh(asinh(v) / δ(c) - ε(c)): for δ > 1 tails are longer than Gaussian ones, and ε tilts them.

    Args:
        key: A JAX random key.
        dim: Dimension of the states.
        cond_dim: Length of the condition vector.
        width: Hidden units of the network.
        turning: False leaves the matrix diagonal.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] = eqx.field(static=True)
    turning: bool = eqx.field(static=True)

    def __init__(self, key: Array, dim: int, cond_dim: int, width: int, *, turning: bool = True) -> None:
        dim, cond_dim = check.integer(dim, "Adapter dim"), check.integer(cond_dim, "Adapter cond_dim")
        turning, key = check.flag(turning, "Adapter turning"), check.random_key(key)
        self.shape, self.cond_shape, self.turning = (dim,), (cond_dim,), turning and dim > 1
        below = dim * (dim - 1) // 2 if self.turning else 0
        self.network = MLP(width, 2).build(key, cond_dim, 4 * dim + below)

    def _parameters(self, condition: Array | None) -> tuple[Array, Array, Array, Array, Array]:
        (dim,) = self.shape
        shift, log_scale, log_tail, tilt, below = jnp.split(self.network(condition), [dim, 2 * dim, 3 * dim, 4 * dim])  # pyright: ignore
        matrix = jnp.eye(dim)
        if self.turning:
            matrix = matrix.at[np.tril_indices(dim, -1)].set(below)
        return shift, log_scale, matrix, jnp.tanh(log_tail), jnp.tanh(tilt)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: shift, scale and turn, then the tails."""
        shift, log_scale, matrix, log_tail, tilt = self._parameters(condition)
        moved = (y - shift) * jnp.exp(-log_scale)
        v = jnp.matmul(matrix, moved, precision=jax.lax.Precision.HIGHEST) if self.turning else moved
        angle = jnp.arcsinh(v) * jnp.exp(-log_tail) - tilt
        z = jnp.sinh(jnp.clip(angle, -_FARTHEST, _FARTHEST)) + jnp.sinh(tilt)
        slope = _log_cosh(angle) - log_tail - 0.5 * jnp.log1p(v * v)
        return z, jnp.sum(slope - log_scale)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the tails, then turn, scale and shift."""
        shift, log_scale, matrix, log_tail, tilt = self._parameters(condition)
        angle = jnp.arcsinh(x - jnp.sinh(tilt))
        v = jnp.sinh(jnp.clip((angle + tilt) * jnp.exp(log_tail), -_FARTHEST, _FARTHEST))
        slope = _log_cosh(angle) - log_tail - 0.5 * jnp.log1p(v * v)
        moved = jnp.matmul(_inverse(matrix), v, precision=jax.lax.Precision.HIGHEST) if self.turning else v
        return moved * jnp.exp(log_scale) + shift, jnp.sum(log_scale - slope)


def _inverse(matrix: Array) -> Array:
    """Of a triangular matrix I + N with ones on its diagonal: (I - N)(I + N²)(I + N⁴)..., until a power of N is zero.

    Products alone: a triangular solve of many small matrices is slow, on a GPU most of all.
    """
    dim = len(matrix)
    power, found = jnp.eye(dim) - matrix, 2.0 * jnp.eye(dim) - matrix
    for _ in range(max(dim - 1, 1).bit_length() - 1):
        power = jnp.matmul(power, power, precision=jax.lax.Precision.HIGHEST)
        found = jnp.matmul(found, jnp.eye(dim) + power, precision=jax.lax.Precision.HIGHEST)
    return found


def _log_cosh(x: Array) -> Array:
    size = jnp.abs(x)
    return size + jnp.log1p(jnp.exp(-2.0 * size)) - jnp.log(2.0)
