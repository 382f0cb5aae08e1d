"""Ready-made flows for fields on a periodic lattice."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection, Chain, EmbedCondition, Reshape
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.errors import TradeError
from trade.flows.conditioner import MLP, Embedding, NetworkSpec, check_network
from trade.flows.continuous import ContinuousField
from trade.flows.convolution import Convolutional
from trade.flows.coupling import SplineCoupling, Stack, check_bins
from trade.flows.flow import Flow, Recipe
from trade.flows.latent import Normal
from trade.flows.lattice import DownSampled, LatticeCoupling, Spectrum, ZeroMode
from trade.flows.recipes import check_recipe
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise
from trade.states import as_shape


@dataclass(frozen=True)
class LatticeFlow(Recipe):
    """Checkerboard couplings that make the field Gaussian, then its spectrum and its zero mode.

    It commutes with a change of sign and with translations by an even number of sites, and none of
    its weights depends on the length of the lattice.

    Args:
        shape: The lattice, of even lengths.
        condition: The condition whose chart the flow sees.
        blocks: Number of couplings, an even number: each colour has its turn.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data.
        network: Conditioner of each coupling.
        width: Hidden units of the networks of spectrum and zero mode.
        zero_mode_bins: Bins of the spline of the zero mode.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    blocks: int = 8
    bins: int = 8
    interval: float = 6.0
    network: Convolutional = field(default_factory=Convolutional)
    width: int = 32
    zero_mode_bins: int = 24

    def __post_init__(self) -> None:
        check_recipe(self)
        _check_convolutional(self.network, "LatticeFlow network")
        check.integers(self, width=1)
        object.__setattr__(self, "zero_mode_bins", check_bins(self.zero_mode_bins, "LatticeFlow zero-mode"))
        if not self.shape or any(n % 2 for n in self.shape):
            raise TradeError(f"LatticeFlow needs a lattice of even lengths, got shape {self.shape}.")
        if self.blocks % 2:
            raise TradeError(f"LatticeFlow blocks must be an even number of at least 2, got {self.blocks!r}.")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as a rescaled free field."""
        key_layers, key_spectrum, key_zero = jax.random.split(check.random_key(key), 3)
        axes = len(self.condition.names)

        def layer(k: Array) -> LatticeCoupling:
            return LatticeCoupling(
                k, (1, *self.shape), axes, network=self.network, bins=self.bins, interval=self.interval, odd=True
            )

        layers = eqx.filter_vmap(layer)(jax.random.split(key_layers, self.blocks))
        return _nearly_free(self, Reshape(Stack(layers), self.shape), key_spectrum, key_zero)


@dataclass(frozen=True)
class ContinuousLatticeFlow(Recipe):
    """An ordinary differential equation that makes the field Gaussian, then its spectrum and its zero mode.

    It commutes with a change of sign and with translations, and none of its weights depends on the length of the
    lattice (see ``flows.ContinuousField``).

    Args:
        shape: The lattice, of any lengths.
        condition: The condition whose chart the flow sees.
        interval: Half a wavelength of the first sine, in units of the scaled data, of which all are nearer.
        waves: Number of sines.
        hops: Sites that the local kernels reach, at least 1.
        times: Functions of time that a kernel is a sum of.
        steps: Steps of the integration.
        network: Gives the kernels for each condition.
        width: Hidden units of the networks of spectrum and zero mode.
        zero_mode_bins: Bins of the spline of the zero mode.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    interval: float = 6.0
    waves: int = 8
    hops: int = 3
    times: int = 4
    steps: int = 12
    network: NetworkSpec = field(default_factory=MLP)
    width: int = 32
    zero_mode_bins: int = 24

    def __post_init__(self) -> None:
        check_recipe(self)
        check.integers(self, waves=1, hops=1, times=1, steps=1, width=1)
        object.__setattr__(self, "zero_mode_bins", check_bins(self.zero_mode_bins, "ContinuousLatticeFlow zero-mode"))

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as a rescaled free field."""
        key_field, key_spectrum, key_zero = jax.random.split(check.random_key(key), 3)
        options = {name: getattr(self, name) for name in ("network", "interval", "waves", "hops", "times", "steps")}
        middle = ContinuousField(key_field, self.shape, len(self.condition.names), **options)
        return _nearly_free(self, middle, key_spectrum, key_zero)


def _nearly_free(
    recipe: "LatticeFlow | ContinuousLatticeFlow", middle: AbstractBijection, key_spectrum: Array, key_zero: Array
) -> Flow:
    """Zero mode and spectrum next to the latent, then what a free field does not need, then the scale of the data."""
    shape, axes, width, interval = recipe.shape, len(recipe.condition.names), recipe.width, recipe.interval
    zero = ZeroMode(key_zero, shape, axes, width=width, bins=recipe.zero_mode_bins, interval=interval)
    spectrum = Spectrum(key_spectrum, shape, axes, width=width)
    scale = Standardise(shape, reach=0.8 * interval, shared=True)
    return Flow(Normal().build(shape, axes, recipe.condition), Chain([zero, spectrum, middle, scale]), recipe)


@dataclass(frozen=True)
class ConvolutionalFlow(Recipe):
    """The flow of Appendix B.6: rescale, down-sample, convolutional couplings, fully connected ones.

    Args:
        shape: A two-dimensional lattice of even lengths.
        condition: The condition whose logarithm the flow sees, through a learned embedding.
        blocks: Couplings of each kind.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data.
        network: Conditioner of the convolutional couplings.
        dense: Conditioner of the fully connected couplings.
        embedding: Features of the embedded condition.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    blocks: int = 3
    bins: int = 10
    interval: float = 6.0
    network: Convolutional = field(default_factory=lambda: Convolutional((64, 64, 32, 32), (3, 3, 1, 1)))
    dense: MLP = field(default_factory=lambda: MLP(128, 4))
    embedding: int = 1

    def __post_init__(self) -> None:
        check_recipe(self)
        _check_convolutional(self.network, "ConvolutionalFlow network")
        check_network(self.dense, "ConvolutionalFlow dense")
        check.integers(self, embedding=1)
        if len(self.shape) != 2 or any(n % 2 for n in self.shape):
            raise TradeError(f"ConvolutionalFlow needs a two-dimensional lattice of even lengths, got {self.shape}.")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as the identity up to the order of the sites."""
        keys = jax.random.split(check.random_key(key), 4)
        rows, columns = self.shape
        sites, axes = rows * columns, len(self.condition.names)
        cond = axes * self.embedding
        small = (4, rows // 2, columns // 2)

        def convolution(k: Array) -> LatticeCoupling:
            options = {"network": self.network, "bins": self.bins, "interval": self.interval}
            return LatticeCoupling(k, small, cond, split="channels", **options)

        def full(k: Array) -> SplineCoupling:
            return SplineCoupling(k, sites, cond, network=self.dense, bins=self.bins, interval=self.interval)

        def stack(layer: Callable[[Array], AbstractBijection], k: Array) -> Stack:
            layers = eqx.filter_vmap(layer)(jax.random.split(k, self.blocks))
            return Stack(layers)

        couplings: AbstractBijection = Chain(
            [
                Reshape(stack(full, keys[0]), self.shape),
                DownSampled(stack(convolution, keys[1])),
                Rescale(keys[2], self.shape, cond, width=64, shared=True),
            ]
        )
        embedding = Embedding(keys[3], axes, self.embedding, width=32)
        bijection = EmbedCondition(couplings, embedding, raw_cond_shape=(axes,))
        return Flow(
            Normal().build(self.shape, axes, self.condition),
            Chain([bijection, Standardise(self.shape, reach=0.8 * self.interval, shared=True)]),
            self,
        )


def _check_convolutional(network: object, name: str) -> None:
    check.instance(network, Convolutional, name, "a Convolutional, such as Convolutional((32, 32), (3, 3))")


def on_lattice(flow: Flow, shape: tuple[int, ...]) -> Flow:
    """A ``LatticeFlow`` or ``ContinuousLatticeFlow`` with the same weights, on a lattice of another length.

    Args:
        flow: A flow built from one of these recipes.
        shape: The other lattice, of as many dimensions.

    Returns:
        The flow on it.
    """
    recipe = getattr(flow, "recipe", flow)
    if not isinstance(recipe, LatticeFlow | ContinuousLatticeFlow):
        kinds = "LatticeFlow or a ContinuousLatticeFlow"
        raise TradeError(f"Only a {kinds} fits other lattices, got one of {type(recipe).__name__}.")
    if len(as_shape("shape", shape)) != len(flow.shape):
        raise TradeError(f"shape must have as many axes as the lattice of the flow, {flow.shape}, got {shape!r}.")
    other = replace(recipe, shape=shape).build(jax.random.key(0))
    arrays, static = eqx.partition(other, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    # Only the shared scale has one entry per site, and they are all equal.
    old = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
    leaves = [o if o.shape == n.shape else jnp.full(n.shape, o.ravel()[0]) for o, n in zip(old, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, leaves), static)
