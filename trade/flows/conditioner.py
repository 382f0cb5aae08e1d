"""The networks that turn the passive half and the condition into spline parameters.

A *spec* (``MLP``, ``ResidualMLP``) is plain data; ``spec.build(key, inputs, outputs)``
makes the network. Xavier-normal weights, zero biases, and a last layer of zeros, so
that a coupling starts as the identity (Appendix B.6, C.2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.errors import TradeError

Activation = Literal["silu", "relu"]
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": jax.nn.silu, "relu": jax.nn.relu}


class Linear(eqx.Module):
    """h -> h W + b; also for no inputs at all (a learned constant)."""

    weight: Array
    bias: Array

    def __init__(self, key: Array, inputs: int, outputs: int, *, zero: bool = False) -> None:
        gain = 0.0 if zero else (2.0 / (inputs + outputs)) ** 0.5
        self.weight = gain * jax.random.normal(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, h: Array) -> Array:
        """The outputs, of shape (..., outputs), for inputs of shape (..., inputs)."""
        return h @ self.weight + self.bias


class Network(eqx.Module):
    """A fully connected network; with ``residual`` its inner layers come in skip-connected pairs."""

    layers: tuple[Linear, ...]
    residual: bool = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __call__(self, h: Array) -> Array:
        """The outputs for one vector of inputs."""
        act = _ACTIVATIONS[self.activation]
        first, *inner, last = self.layers
        if not self.residual:
            for layer in (first, *inner):
                h = act(layer(h))
            return last(h)
        h = first(h)
        for one, two in zip(inner[::2], inner[1::2], strict=True):
            h = h + two(act(one(act(h))))
        return last(act(h))


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron.

    Args:
        width: Units of each hidden layer.
        depth: Number of hidden layers.
        activation: ``"silu"`` or ``"relu"``.
    """

    width: int = 64
    depth: int = 2
    activation: Activation = "silu"

    def __post_init__(self) -> None:
        check.integers(self, width=1, depth=1)
        check.choice(self.activation, "MLP activation", *_ACTIVATIONS)

    def build(self, key: Array, inputs: int, outputs: int) -> Network:
        """A network of ``depth`` hidden layers."""
        return _build(key, inputs, self.width, self.depth - 1, outputs, residual=False, activation=self.activation)


@dataclass(frozen=True)
class ResidualMLP:
    """An input layer, two-layer residual blocks and an output layer.

    Args:
        width: Units of each hidden layer.
        blocks: Number of residual blocks.
        activation: ``"silu"`` or ``"relu"``.
    """

    width: int = 64
    blocks: int = 1
    activation: Activation = "silu"

    def __post_init__(self) -> None:
        check.integers(self, width=1, blocks=0)
        check.choice(self.activation, "ResidualMLP activation", *_ACTIVATIONS)

    def build(self, key: Array, inputs: int, outputs: int) -> Network:
        """A network with skip connections over pairs of layers."""
        return _build(key, inputs, self.width, 2 * self.blocks, outputs, residual=True, activation=self.activation)


class NetworkSpec(Protocol):
    """Plain data from which a network is built: ``MLP``, ``ResidualMLP``, or one of your own."""

    def build(self, key: Array, inputs: int, outputs: int) -> Network:
        """Make the network, with its last layer at zero.

        Args:
            key: A JAX random key.
            inputs: Length of what it sees.
            outputs: Length of what it gives.

        Returns:
            A function of an array.
        """
        ...


def check_network(network: object, name: str) -> None:
    """Refuse what is no spec of a network: one of ours, or another that builds one."""
    takes = "an MLP or a ResidualMLP, such as MLP(64)"
    check.member(network, name, takes, "build")
    if len(signature(network.build).parameters) != 3:  # pyright: ignore  # one for lattices wants their dimensions too
        raise TradeError(f"{name} must be {takes}, got {check.shown(network)}.")


def _build(
    key: Array, inputs: int, width: int, inner: int, outputs: int, *, residual: bool, activation: Activation
) -> Network:
    keys = jax.random.split(key, inner + 2)
    sizes = [inputs, *[width] * (inner + 1)]
    hidden = [Linear(k, i, o) for k, i, o in zip(keys[:-1], sizes[:-1], sizes[1:], strict=True)]
    return Network((*hidden, Linear(keys[-1], width, outputs, zero=True)), residual, activation)


class Embedding(eqx.Module):
    """A learned residual embedding of the condition vector: repeat(v) + network(v)."""

    network: Network
    features: int = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, features: int, width: int) -> None:
        self.network = MLP(width, 2).build(key, inputs, inputs * features)
        self.features = features

    def __call__(self, v: Array) -> Array:
        """The features of one condition vector: ``features`` of them for each of its entries."""
        return jnp.repeat(v, self.features) + self.network(v)


class Steep(eqx.Module):
    """The condition vector (u, ...) with two further views of u: steep in the middle of the range, and at its ends.

    A network is smooth, and learns a change that happens within a tenth of the range slowly. Densities often change
    fastest where a parameter comes near to a limit: at an end of the range.

    Args:
        axes: Length of u.
    """

    axes: int = eqx.field(static=True, default=1)
    more = 2  # entries that are added for each axis

    def __call__(self, v: Array) -> Array:
        """The longer vector.

        Args:
            v: The condition vector, whose first entries are the chart coordinate u.

        Returns:
            (u, ..., tanh 3u, sinh 3u / sinh 3).
        """
        u = v[: self.axes]
        return jnp.concatenate([v, jnp.tanh(3.0 * u), jnp.sinh(3.0 * u) / math.sinh(3.0)])
