"""Affine coupling layers: free ones, ones that keep volume, and learned rotations between them.

Two ways to keep volume: ``"gin"`` fixes the last log scale to minus the sum of the others
(Sorrenson et al. 2020), ``"mean"`` subtracts the mean from all of them (Dibak et al. 2022).
Orientation as in ``coupling``: ``transform`` samples, ``inverse`` scores.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jax import Array

from trade import check
from trade.flows.conditioner import Network, NetworkSpec, check_network
from trade.flows.coupling import Coupling, bounded

Volume = Literal["gin", "mean"]
MAX_LOG_SCALE = 2.0


class AffineCoupling(Coupling):
    """One half scaled and shifted by what the other half and c say, then a fixed permutation.

    Args:
        key: A JAX random key.
        dim: Dimension of the states.
        cond_dim: Length of the condition vector that the network sees, or None.
        volume: ``"free"``, or ``"mean"`` to keep it.
        options: Those of ``Coupling``.
    """

    volume: Literal["free", "mean"] = eqx.field(static=True)

    def __init__(
        self, key: Array, dim: int, cond_dim: int | None, *, volume: Literal["free", "mean"] = "free", **options: Any
    ) -> None:
        check.choice(volume, "AffineCoupling volume", "free", "mean")
        self.volume = volume
        super().__init__(key, dim, cond_dim, **options)

    def _parameters(self, passive: Array, condition: Array | None) -> tuple[Array, ...]:
        _, log_scale, shift = super()._parameters(passive, condition)
        return (log_scale - log_scale.mean() if self.volume == "mean" else log_scale), shift

    def _forward(self, active: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        return active * jnp.exp(log_scale) + shift, log_scale

    def _backward(self, active: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        return (active - shift) * jnp.exp(-log_scale), -log_scale


class VolumePreservingCoupling(AbstractBijection):
    """One half shifted and scaled by what the other half says, then a learned rotation.

    The log determinant is zero by construction, and zero is what it reports.

    Args:
        key: A JAX random key.
        dim: Dimension of the states, 2 or more.
        network: Spec of the network.
        volume: How volume is kept: ``"gin"`` or ``"mean"``.
    """

    network: Network
    reflections: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    volume: Volume = eqx.field(static=True)
    cond_shape = None

    def __init__(self, key: Array, dim: int, *, network: NetworkSpec, volume: Volume = "gin") -> None:
        key_net, key_turn = jax.random.split(check.random_key(key))
        dim = check.integer(dim, "VolumePreservingCoupling dim", 2)
        check_network(network, "VolumePreservingCoupling network")
        check.choice(volume, "VolumePreservingCoupling volume", "gin", "mean")
        self.shape, self.volume = (dim,), volume
        self.network = network.build(key_net, self.passive, 2 * (dim - self.passive))
        self.reflections = jax.random.normal(key_turn, (dim, dim))

    @property
    def passive(self) -> int:
        """How many coordinates pass unchanged."""
        return self.shape[0] // 2

    def _parameters(self, passive: Array) -> tuple[Array, Array]:
        raw, shift = jnp.split(self.network(passive), 2)
        log_scale = bounded(raw, MAX_LOG_SCALE)
        if self.volume == "mean":
            return log_scale - log_scale.mean(), shift
        return jnp.append(log_scale[:-1], -log_scale[:-1].sum()), shift

    def rotation(self) -> Array:
        """The orthogonal matrix: a product of as many Householder reflections as dimensions.

        Returns:
            A matrix of shape (dim, dim).
        """
        matrix = jnp.eye(self.shape[0], dtype=self.reflections.dtype)
        for i in range(self.shape[0]):
            v = self.reflections[i]
            matrix = matrix - jnp.outer(matrix @ v, 2.0 * v / (v @ v))
        return matrix

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: scale and shift, then the rotation."""
        passive, active = jnp.split(y, [self.passive])
        log_scale, shift = self._parameters(passive)
        turned = self.rotation() @ jnp.concatenate([passive, active * jnp.exp(log_scale) + shift])
        return turned, jnp.zeros((), y.dtype)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the rotation undone, then the inverse shift and scale."""
        passive, active = jnp.split(self.rotation().T @ x, [self.passive])
        log_scale, shift = self._parameters(passive)
        return jnp.concatenate([passive, (active - shift) * jnp.exp(-log_scale)]), jnp.zeros((), x.dtype)
