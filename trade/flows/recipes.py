"""Ready-made flows. A recipe is plain data, so that a saved model can name it."""

from dataclasses import dataclass, field
from math import prod

import equinox as eqx
import jax
from flowjax.bijections import AbstractBijection, Chain, EmbedCondition, Reshape
from flowjax.distributions import AbstractDistribution, AbstractTransformed
from jax import Array

from trade.condition import Condition
from trade.errors import TradeError
from trade.flows import spline
from trade.flows.conditioner import MLP, Embedding, ResidualMLP
from trade.flows.coupling import SplineCoupling, Stack
from trade.flows.latent import Normal, PowerScaled
from trade.flows.standardise import Standardise
from trade.target import AbstractTarget


@dataclass(frozen=True)
class SplineFlow:
    """Rational-quadratic spline couplings, conditioned on u(c) (and an observation).

    Args:
        shape: Shape of one state; any dimension from 1 up.
        condition: The condition whose chart the flow sees.
        observation_size: Size of the observation appended to the condition vector.
        blocks: Number of coupling layers.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data.
        network: Conditioner of each coupling.
        embedding: Features of a learned condition embedding; 0 feeds the raw chart.
        latent: Base distribution.
        conditional: False leaves c to the latent alone.
        unroll: Layers per iteration of the compiled scan; 0 lets the backend decide.
    """

    shape: tuple[int, ...]
    condition: Condition
    observation_size: int = 0
    blocks: int = 8
    bins: int = 10
    interval: float = 4.0
    network: MLP | ResidualMLP = field(default_factory=MLP)
    embedding: int = 0
    latent: Normal | PowerScaled = field(default_factory=Normal)
    conditional: bool = True
    unroll: int = 0

    def __post_init__(self) -> None:
        for name, least in (("blocks", 1), ("bins", 2), ("embedding", 0), ("observation_size", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise TradeError(f"SplineFlow {name} must be an integer of at least {least}, got {value!r}.")
        if self.bins * spline.MIN_BIN >= 1:
            raise TradeError(f"SplineFlow bins must be fewer than {1 / spline.MIN_BIN:.0f}, got {self.bins}.")
        if not self.interval > 0:
            raise TradeError(f"SplineFlow interval must be positive, got {self.interval!r}.")

    def build(self, key: Array) -> "Flow":
        """Make the flow; it starts as the identity up to a permutation."""
        dim, cond_dim = prod(self.shape), 1 + self.observation_size
        key_layers, key_embed = jax.random.split(key)
        layer_cond: int | None = cond_dim * max(self.embedding, 1) if self.conditional else None

        def layer(k: Array) -> SplineCoupling:
            return SplineCoupling(k, dim, layer_cond, network=self.network, bins=self.bins, interval=self.interval)

        layers = eqx.filter_vmap(layer)(jax.random.split(key_layers, self.blocks))
        bijection: AbstractBijection = Stack(layers, self.unroll or _default_unroll(self.blocks))
        if self.embedding and self.conditional:
            embedding = Embedding(key_embed, cond_dim, self.embedding, width=32)
            bijection = EmbedCondition(bijection, embedding, raw_cond_shape=(cond_dim,))
        if self.shape != (dim,):
            bijection = Reshape(bijection, self.shape)
        # A quarter of the interval is left for conditions wider than the data.
        bijection = Chain([bijection, Standardise(self.shape, reach=0.8 * self.interval)])
        return Flow(self.latent.build(self.shape, cond_dim, self.condition), bijection, self)


def _default_unroll(blocks: int) -> int:
    """A short loop body compiles fast; a GPU gains from a longer one, at the price of compile time."""
    return 1 if jax.default_backend() == "cpu" else min(3, blocks)


class Flow(AbstractTransformed):
    """A flowjax distribution that remembers the recipe it was built from."""

    base_dist: AbstractDistribution
    bijection: AbstractBijection
    recipe: SplineFlow = eqx.field(static=True)

    def __init__(self, base_dist: AbstractDistribution, bijection: AbstractBijection, recipe: SplineFlow) -> None:
        self.base_dist, self.bijection, self.recipe = base_dist, bijection, recipe


def spline_flow(key: Array, target: AbstractTarget, **options: object) -> Flow:
    """A spline coupling flow for a target; options are the arguments of ``SplineFlow``.

    Args:
        key: A JAX random key.
        target: Gives the shape of a state, the condition and the observation.
        options: Any argument of ``SplineFlow`` but the first three.
    """
    if not isinstance(target, AbstractTarget):
        raise TradeError(f"spline_flow needs a trade.Target, got {target!r}.")
    allowed = [f for f in SplineFlow.__dataclass_fields__ if f not in ("shape", "condition", "observation_size")]
    for name in options:
        if name not in allowed:
            raise TradeError(f"spline_flow has no option {name!r}; it takes {', '.join(allowed)}.")
    size = 0 if target.observation_shape is None else prod(target.observation_shape)
    recipe = SplineFlow(target.shape, target.condition, size, **options)  # pyright: ignore
    return recipe.build(key)
