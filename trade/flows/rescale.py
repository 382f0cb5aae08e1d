"""A learned change of scale with the condition, next to the data."""

from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax import Array

from trade import check
from trade.flows.conditioner import MLP, Network
from trade.states import as_shape, check_angles


class Rescale(AbstractBijection):
    """x = (z + shift(c)) * exp(log_scale(c)), coordinate by coordinate; the identity before training.

    The splines act on a fixed interval. A density that widens or narrows with c leaves it or
    fills a small part of it, unless something brings it back to size first: this does.
    Without a condition it is a learned constant scale and shift.

    Args:
        key: A JAX random key.
        shape: Shape of the states.
        cond_dim: Length of the condition vector, or None.
        width: Hidden units of the network.
        shared: One scale and shift for all coordinates, so that a field keeps its symmetries.
        angles: Coordinates of a vector that are left as they are.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        shape: tuple[int, ...],
        cond_dim: int | None,
        width: int,
        *,
        shared: bool = False,
        angles: tuple[int, ...] = (),
    ) -> None:
        self.shape, self.shared = as_shape("Rescale shape", shape), check.flag(shared, "Rescale shared")
        self.angles, key = check_angles(angles, self.shape, "Rescale angles"), check.random_key(key)
        self.cond_shape = None if cond_dim is None else (check.integer(cond_dim, "Rescale cond_dim"),)
        self.network = MLP(width, 2).build(key, cond_dim or 0, 2 if shared else 2 * prod(self.shape))

    def _parameters(self, condition: Array | None) -> tuple[Array, Array]:
        inputs = jnp.zeros(0) if self.cond_shape is None or condition is None else condition
        log_scale, shift = jnp.split(self.network(inputs), 2)
        if self.shared:
            return jnp.broadcast_to(log_scale[0], self.shape), jnp.broadcast_to(shift[0], self.shape)
        if self.angles:
            log_scale, shift = (v.at[np.array(self.angles)].set(0.0) for v in (log_scale, shift))
        return log_scale.reshape(self.shape), shift.reshape(self.shape)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the shift, then the scale."""
        log_scale, shift = self._parameters(condition)
        return (x + shift) * jnp.exp(log_scale), log_scale.sum()

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: the scale undone, then the shift."""
        log_scale, shift = self._parameters(condition)
        return y * jnp.exp(-log_scale) - shift, -log_scale.sum()
