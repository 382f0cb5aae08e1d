"""Convolutional conditioners for fields on a periodic lattice of any dimension and length."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.flows.conditioner import Linear

Sites = Callable[[Array], Array]  # from features of all sites, (*lattice, features), to those of some


class Convolution(eqx.Module):
    """A circular convolution over all but the last axis: each site sees the ``kernel``-wide cube around it."""

    linear: Linear
    kernel: int = eqx.field(static=True)

    def __init__(
        self, key: Array, inputs: int, outputs: int, kernel: int, dimensions: int, *, zero: bool = False
    ) -> None:
        self.kernel = kernel
        self.linear = Linear(key, inputs * kernel**dimensions, outputs, zero=zero)

    def __call__(self, h: Array, where: Sites | None = None) -> Array:
        """The features after the layer; ``where`` picks the sites at which they are wanted."""
        pick = where or (lambda a: a)
        if self.kernel == 1:
            return self.linear(pick(h))
        # As one product of the shifted copies: the fastest form for the few channels of a conditioner.
        axes = tuple(range(h.ndim - 1))
        reach = range(-(self.kernel // 2), self.kernel // 2 + 1)
        copies = [pick(jnp.roll(h, s, axes)) for s in product(reach, repeat=len(axes))]
        return self.linear(jnp.concatenate(copies, axis=-1))


class ConvolutionalNetwork(eqx.Module):
    """Convolutions with SiLU between them."""

    layers: tuple[Convolution, ...]

    def __call__(self, h: Array, where: Sites | None = None) -> Array:
        """The outputs at the sites that ``where`` picks: what only other sites need is not computed."""
        act: Callable[[Array], Array] = jax.nn.silu
        picking = max(i for i, layer in enumerate(self.layers) if layer.kernel > 1 or i == 0)
        for i, layer in enumerate(self.layers):
            h = layer(h if i == 0 else act(h), where if i == picking else None)
        return h


@dataclass(frozen=True)
class Convolutional:
    """Hidden convolutions and a site-wise output layer of zeros.

    Args:
        channels: Channels of each hidden layer.
        kernels: Width of each hidden convolution, odd.
    """

    channels: tuple[int, ...] = (32, 32)
    kernels: tuple[int, ...] = (3, 3)

    def __post_init__(self) -> None:
        for name in ("channels", "kernels"):
            values = getattr(self, name)
            check.instance(values, (tuple, list), f"Convolutional {name}", "a tuple of integers")
            found = tuple(check.integer(v, f"An entry of Convolutional {name}") for v in values)
            object.__setattr__(self, name, found)
        if len(self.channels) != len(self.kernels) or any(k % 2 == 0 for k in self.kernels):
            raise TradeError(
                f"Convolutional needs an odd kernel for each of {len(self.channels)} channels, got {self.kernels}."
            )

    def build(self, key: Array, inputs: int, outputs: int, dimensions: int) -> ConvolutionalNetwork:
        """Make the network, with its last layer at zero.

        Args:
            key: A JAX random key.
            inputs: Channels that it sees at each site.
            outputs: Channels that it gives at each site.
            dimensions: Dimensions of the lattice.

        Returns:
            A function of an array of shape (*lattice, inputs).
        """
        keys = jax.random.split(key, len(self.channels) + 1)
        sizes = (inputs, *self.channels)
        hidden = [
            Convolution(k, i, o, width, dimensions)
            for k, i, o, width in zip(keys[:-1], sizes[:-1], sizes[1:], self.kernels, strict=True)
        ]
        return ConvolutionalNetwork((*hidden, Convolution(keys[-1], sizes[-1], outputs, 1, dimensions, zero=True)))
