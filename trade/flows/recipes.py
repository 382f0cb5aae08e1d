"""Ready-made flows. A recipe is plain data, so that a saved model can name it."""

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import equinox as eqx
import jax
from flowjax.bijections import AbstractBijection, Chain, EmbedCondition, Reshape
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget, check_target
from trade.condition import check_condition
from trade.errors import TradeError
from trade.flows.adapter import Adapter
from trade.flows.affine import AffineCoupling, Volume, VolumePreservingCoupling
from trade.flows.bounded import Bounded
from trade.flows.conditioner import MLP, Embedding, NetworkSpec, ResidualMLP, Steep, check_network
from trade.flows.coupling import SplineCoupling, Stack, check_bins
from trade.flows.flow import Flow, Recipe
from trade.flows.halves import layer_orders, permutations
from trade.flows.hierarchy import Hierarchy, check_sources
from trade.flows.latent import LatentSpec, Normal, PowerScaled, check_latent
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise
from trade.flows.tails import Tails
from trade.flows.whiten import Whiten
from trade.states import Bound, as_shape, check_angles, check_bounds

MOST_TURNED = 64  # coordinates that an adapter turns into each other: its matrix has their square


class ObservationOnly(eqx.Module):
    """Of the vector a flow is conditioned on all but u(c).

    Args:
        axes: Length of u(c).
    """

    axes: int = eqx.field(static=True, default=1)

    def __call__(self, condition: Array) -> Array:
        """The condition vector without its first entries."""
        return condition[self.axes :]


@dataclass(frozen=True)
class SplineFlow(Recipe):
    """Rational-quadratic spline couplings, conditioned on u(c) (and an observation).

    Args:
        shape: Shape of one state; any dimension from 1 up.
        condition: The condition whose chart the flow sees.
        observation_size: Size of the observation appended to the condition vector.
        blocks: Number of coupling layers.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data.
        reach: Part of the interval that the data fill; the rest is left for conditions with a
            wider density.
        adapter: Hidden units of a learned linear map and tails that follow the condition, next to the data
            (see ``flows.Adapter``); 0 leaves them out.
        network: Conditioner of each coupling.
        embedding: Features of a learned condition embedding; 0 feeds the raw chart.
        steep: Show the networks further views of the chart, steep in its middle and at its ends (``flows.Steep``).
        squares: Show the networks the squares of coordinates (see ``flows.SplineCoupling``).
        latent: Base distribution.
        conditional: False leaves c to the latent alone; an observation is still seen.
        whiten: Turn and scale vectors to covariance one over the data, and not each coordinate by itself.
        angles: Coordinates of a whitened vector that are angles in radians, cut open where data are rarest; the
            density vanishes there (``CircularFlow`` has a periodic one).
        sources: Coordinates of a whitened vector that set the widths of the others (see ``flows.Hierarchy``).
        tails: Give coordinates of a whitened vector the tails of an exponential where data have them (see
            ``flows.Tails``).
        bounds: The support of each coordinate of a vector, where it is bounded (see ``trade.Target``).
        unroll: Layers per iteration of the compiled scan; 0 decides by where and how long it runs.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    observation_size: int = 0
    blocks: int = 8
    bins: int = 10
    interval: float = 4.0
    reach: float = 0.8
    adapter: int = 0
    network: NetworkSpec = field(default_factory=MLP)
    embedding: int = 0
    steep: bool = False
    squares: bool = False
    latent: LatentSpec = field(default_factory=Normal)
    conditional: bool = True
    whiten: bool = False
    angles: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    tails: bool = False
    bounds: tuple[Bound, ...] = ()
    unroll: int = 0

    def __post_init__(self) -> None:
        check_recipe(self)
        check.integers(self, adapter=0, embedding=0, observation_size=0)
        check.flags(self, "conditional", "whiten", "steep", "squares", "tails")
        object.__setattr__(self, "bounds", check_bounds(self.bounds, self.shape))
        if self.whiten and len(self.shape) != 1:
            raise TradeError(f"SplineFlow can whiten vectors only, got shape {self.shape}.")
        object.__setattr__(self, "sources", check_sources(self.sources, self.shape, "SplineFlow sources"))
        for name in ("angles", "sources", "tails"):
            if getattr(self, name) and not self.whiten:
                raise TradeError(f"SplineFlow {name} are for whiten=True.")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as the identity."""
        dim, axes = prod(self.shape), len(self.condition.names)
        cond_dim = axes + self.observation_size
        key_layers, key_embed, key_scale, key_order = jax.random.split(check.random_key(key), 4)
        steep = self.steep and self.conditional
        seen = (cond_dim if self.conditional else self.observation_size) + steep * Steep.more * axes
        layer_cond = seen * max(self.embedding, 1) or None

        def layer(k: Array, order: Array) -> SplineCoupling:
            options = {"network": self.network, "bins": self.bins, "squares": self.squares, "interval": self.interval}
            return SplineCoupling(k, dim, layer_cond, permutation=order, **options)

        orders = permutations(layer_orders(key_order, dim, self.blocks))
        layers = eqx.filter_vmap(layer)(jax.random.split(key_layers, self.blocks), orders)
        bijection: AbstractBijection = Stack(layers, self.unroll)
        if self.embedding and seen:
            embedding = Embedding(key_embed, seen, self.embedding, width=32)
            bijection = EmbedCondition(bijection, embedding, raw_cond_shape=(seen,))
        if self.adapter and seen:
            turning = len(self.shape) == 1 and dim <= MOST_TURNED
            bijection = Chain([bijection, Adapter(key_scale, dim, seen, self.adapter, turning=turning)])
        if steep or (seen and not self.conditional):
            view = Steep(axes) if steep else ObservationOnly(axes)
            bijection = EmbedCondition(bijection, view, raw_cond_shape=(cond_dim,))
        if self.shape != (dim,):
            bijection = Reshape(bijection, self.shape)
        reach = self.reach * self.interval
        measured = (
            Whiten(self.shape, angles=self.angles, reach=reach) if self.whiten else Standardise(self.shape, reach=reach)
        )
        bijections: list[AbstractBijection] = [bijection]
        if self.tails:
            bijections.append(Tails(self.shape, reach=reach))
        if self.sources:
            bijections.append(Hierarchy(self.shape, self.sources, reach=reach))
        bijections.append(measured)
        if self.bounds:
            bijections.append(Bounded(self.bounds))
        return Flow(self.latent.build(self.shape, cond_dim, self.condition), Chain(bijections), self)


@dataclass(frozen=True)
class VolumePreservingFlow(Recipe):
    """Volume-preserving affine couplings with learned rotations; only the latent sees the condition.

    With a power-scaled latent this is a temperature-steerable flow: at every condition it is
    the power of one density, as far as that one was learned.

    Args:
        shape: Shape of one state, of dimension 2 or more.
        condition: The condition that the latent follows.
        blocks: Number of coupling layers.
        network: Conditioner of each coupling.
        volume: How volume is kept: ``"gin"`` or ``"mean"`` (see ``flows.affine``).
        latent: Base distribution.
        reach: The data lie within this distance of the origin, in units of the latent.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    blocks: int = 20
    network: NetworkSpec = field(default_factory=lambda: MLP(32, 2, "relu"))
    volume: Volume = "gin"
    latent: PowerScaled = field(default_factory=PowerScaled)
    reach: float = 4.0

    def __post_init__(self) -> None:
        check_recipe(self)
        if len(self.shape) != 1 or self.shape[0] < 2:
            raise TradeError(f"VolumePreservingFlow needs a vector of 2 or more entries, got shape {self.shape}.")
        check.choice(self.volume, "VolumePreservingFlow volume", "gin", "mean")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as a rotation."""

        def layer(k: Array) -> VolumePreservingCoupling:
            return VolumePreservingCoupling(k, self.shape[0], network=self.network, volume=self.volume)

        key_layers, key_scale = jax.random.split(check.random_key(key))
        layers = eqx.filter_vmap(layer)(jax.random.split(key_layers, self.blocks))
        stack = Stack(layers)
        # A constant change of volume keeps powers of the density what they are, and is free to learn.
        scale = Rescale(key_scale, self.shape, None, width=1)
        bijection = Chain([stack, scale, Standardise(self.shape, reach=self.reach)])
        return Flow(self.latent.build(self.shape, 1, self.condition), bijection, self)


@dataclass(frozen=True)
class AffineFlow(Recipe):
    """Affine couplings over whitened data.

    With ``volume="mean"`` and a power-scaled latent it is a temperature-steerable flow (Dibak et al. 2022): only
    the latent sees the condition, and at every one the flow is the power of one density.

    Warning:
        Angles are cut open where data are rarest, and the density vanishes there. With ``volume="mean"`` it is one
        on the line (see ``flows.Whiten``).

    Args:
        shape: Shape of one state, a vector.
        condition: The condition whose chart the flow sees.
        angles: Which coordinates are angles in radians.
        blocks: Number of coupling layers.
        network: Conditioner of each coupling.
        volume: ``"free"``: layers see the condition. ``"mean"``: they do not, and keep volume up to a constant.
        latent: Base distribution.
        interval: Networks see coordinates, and give shifts, within it, in units of the whitened data.
        unroll: Layers per iteration of the compiled scan; 0 decides by where and how long it runs.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    angles: tuple[int, ...] = ()
    blocks: int = 20
    network: NetworkSpec = field(default_factory=lambda: MLP(128, 3))
    volume: Literal["free", "mean"] = "free"
    latent: LatentSpec = field(default_factory=Normal)
    interval: float = 8.0
    unroll: int = 0

    def __post_init__(self) -> None:
        check_recipe(self)
        check_vector(self)
        check.choice(self.volume, "AffineFlow volume", "free", "mean")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as the identity."""
        (dim,) = self.shape
        key_layers, key_scale, key_order = jax.random.split(check.random_key(key), 3)
        axes = len(self.condition.names)
        seen = axes if self.volume == "free" else None

        def layer(k: Array, order: Array) -> AffineCoupling:
            options: dict[str, Any] = {"network": self.network, "interval": self.interval, "volume": self.volume}
            return AffineCoupling(k, dim, seen, permutation=order, **options)

        orders = permutations(layer_orders(key_order, dim, self.blocks))
        layers = eqx.filter_vmap(layer)(jax.random.split(key_layers, self.blocks), orders)
        bijections: list[AbstractBijection] = [Stack(layers, self.unroll)]
        if self.volume == "mean":  # a constant volume is free to learn: see VolumePreservingFlow
            bijections.append(Rescale(key_scale, self.shape, None, width=1))
        bijections.append(Whiten(self.shape, angles=self.angles, stretched=self.volume == "free"))
        return Flow(self.latent.build(self.shape, axes, self.condition), Chain(bijections), self)


def check_recipe(recipe: Any) -> None:
    """What recipes have in common, as far as this one has it, checked and in one form."""
    owner, own = type(recipe).__name__, recipe.__dataclass_fields__
    check_condition(recipe.condition, name=f"{owner} condition")
    object.__setattr__(recipe, "shape", as_shape(f"{owner} shape", recipe.shape))
    check.integers(recipe, **{name: least for name, least in (("blocks", 1), ("unroll", 0)) if name in own})
    if "bins" in own:
        object.__setattr__(recipe, "bins", check_bins(recipe.bins, owner))
    if "interval" in own:
        check.numbers(recipe, "interval", low=0, open_low=True)
    if "reach" in own:  # a part of the interval, where there is one
        check.numbers(recipe, "reach", low=0, high=1 if "interval" in own else None, open_low=True)
    if "latent" in own:
        check_latent(recipe.latent, f"{owner} latent")
    if isinstance(own["network"].default_factory(), MLP | ResidualMLP):
        check_network(recipe.network, f"{owner} network")
    for name in ("angles", "cut"):
        if name in own:
            found = check_angles(getattr(recipe, name), recipe.shape, f"{owner} {name}")
            object.__setattr__(recipe, name, found)


def check_vector(recipe: Any) -> None:
    """Refuse a recipe whose states are no vectors."""
    if len(recipe.shape) != 1:
        raise TradeError(f"{type(recipe).__name__} needs a vector, got shape {recipe.shape}.")


def spline_flow(key: Array, target: AbstractTarget, **options: object) -> Flow:
    """A spline coupling flow for a target.

    Args:
        key: A JAX random key.
        target: Gives the shape of a state, the condition and the observation.
        options: Any argument of ``SplineFlow`` but the first three.

    Returns:
        The flow.
    """
    check_target(target, "The target of spline_flow")
    allowed = [f for f in SplineFlow.__dataclass_fields__ if f not in ("shape", "condition", "observation_size")]
    for name in options:
        if name not in allowed:
            raise TradeError(f"spline_flow has no option {name!r}; it takes {', '.join(allowed)}.")
    size = 0 if target.observation_shape is None else prod(target.observation_shape)
    recipe = SplineFlow(target.shape, target.condition, size, **options)  # pyright: ignore
    return recipe.build(key)
