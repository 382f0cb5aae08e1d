"""A learned change of scale with the condition, next to the data."""

import equinox as eqx
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jax import Array

from trade.flows.conditioner import MLP, Network


class Rescale(AbstractBijection):
    """x = (z + shift(c)) * exp(log_scale(c)), coordinate by coordinate; the identity before training.

    The splines act on a fixed interval. A density that widens or narrows with c leaves it or
    fills a small part of it, unless something brings it back to size first: this does.
    Without a condition it is a learned constant scale and shift.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, key: Array, dim: int, cond_dim: int | None, width: int) -> None:
        self.shape, self.cond_shape = (dim,), None if cond_dim is None else (cond_dim,)
        self.network = MLP(width, 2).build(key, cond_dim or 0, 2 * dim)

    def _parameters(self, condition: Array | None) -> tuple[Array, Array]:
        inputs = jnp.zeros(0) if self.cond_shape is None or condition is None else condition
        log_scale, shift = jnp.split(self.network(inputs), 2)
        return log_scale, shift

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        log_scale, shift = self._parameters(condition)
        return (x + shift) * jnp.exp(log_scale), log_scale.sum()

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        log_scale, shift = self._parameters(condition)
        return y * jnp.exp(-log_scale) - shift, -log_scale.sum()
