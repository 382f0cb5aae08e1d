"""Ready-made flows for states some of whose coordinates are angles."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection, Chain
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.errors import TradeError
from trade.flows.circular import CircularCoupling, CircularLatent
from trade.flows.conditioner import NetworkSpec, ResidualMLP
from trade.flows.coupling import Stack
from trade.flows.flow import Flow, Recipe
from trade.flows.halves import layer_orders, permutations
from trade.flows.latent import LatentSpec, Normal, PowerScaled
from trade.flows.recipes import check_recipe, check_vector
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise
from trade.flows.steerable import SteerableCoupling


@dataclass(frozen=True)
class CircularFlow(Recipe):
    """Spline couplings for vectors of which some coordinates are angles in radians; the density is periodic in them.

    Args:
        shape: Shape of one state, a vector.
        condition: The condition whose chart the flow sees.
        angles: Which coordinates are angles on the circle.
        cut: Which are angles that stay near one value, and are taken as the distance from it (see
            ``flows.Standardise``): a Gaussian that follows the temperature suits them better than a circle.
        blocks: Number of coupling layers.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data; it is also the half circle.
        reach: Part of the interval that the data fill, of coordinates that are no angles.
        network: Conditioner of each coupling.
        latent: Base distribution of the coordinates that are no angles.
        conditional: False leaves c to the latent alone.
        steerable: The reference c0 of a steerable flow, that of its ``PowerScaled`` latent. The networks do not see c:
            angles follow it by a power of their densities, and the other coordinates keep volume, up to a learned
            constant (see ``flows.SteerableCoupling``).
        rescale: Hidden units of a learned scale and shift, of coordinates that are no angles, that follow the
            condition before the splines; 0 leaves them out.
        moebius: Draw angles towards a point of the circle, which depends on the others, before they are splined (see
            ``flows.CircularCoupling``).
        unroll: Layers per iteration of the compiled scan; 0 decides by where and how long it runs.
    """

    shape: tuple[int, ...]
    condition: AbstractCondition
    angles: tuple[int, ...]
    blocks: int = 12
    bins: int = 8
    interval: float = 4.0
    reach: float = 0.8
    network: NetworkSpec = field(default_factory=ResidualMLP)
    latent: LatentSpec = field(default_factory=Normal)
    conditional: bool = True
    steerable: float | None = None
    rescale: int = 0
    cut: tuple[int, ...] = ()
    moebius: bool = False
    unroll: int = 0

    def __post_init__(self) -> None:
        check_recipe(self)
        check_vector(self)
        check.integers(self, rescale=0)
        check.flags(self, "conditional", "moebius")
        if self.steerable is not None:
            check.numbers(self, "steerable", low=0, open_low=True)
        if set(self.cut) & set(self.angles):
            raise TradeError(f"CircularFlow cut must be coordinates that are no angles, got {self.cut}.")
        if not self.angles:
            raise TradeError("CircularFlow needs at least one angle: use SplineFlow for coordinates on the line.")
        if len(self.angles) == self.shape[0] and (self.rescale or self.steerable is not None):
            raise TradeError("CircularFlow rescale and steerable are for coordinates that are no angles, but all are.")
        reference = self.latent.reference if isinstance(self.latent, PowerScaled) else None
        if self.steerable is not None and self.steerable != reference:
            raise TradeError(f"CircularFlow steerable={self.steerable!r} needs a PowerScaled latent of this reference.")
        if self.moebius and self.steerable is not None:
            raise TradeError("CircularFlow moebius has no power, which steerable needs: leave one of them out.")
        if self.rescale and not self._networks_see_c:
            raise TradeError("CircularFlow rescale follows the condition, which conditional or steerable forbids.")

    @property
    def _networks_see_c(self) -> bool:
        return self.conditional and self.steerable is None

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as the identity."""
        (dim,) = self.shape
        key_layers, key_order = jax.random.split(check.random_key(key))
        angular = jnp.isin(jnp.arange(dim), jnp.array(self.angles))
        orders = layer_orders(key_order, dim, self.blocks)

        options: dict[str, Any] = {"network": self.network, "bins": self.bins, "interval": self.interval}
        axes = len(self.condition.names)
        seen = axes if self._networks_see_c else None

        def layer(k: Array, angular: Array, order: Array) -> CircularCoupling:
            if self.steerable is not None:
                return SteerableCoupling(k, angular, self.condition, self.latent, permutation=order, **options)  # pyright: ignore
            return CircularCoupling(k, angular, seen, permutation=order, moebius=self.moebius, **options)

        keys = jax.random.split(key_layers, self.blocks)
        layers = eqx.filter_vmap(layer)(keys, angular[orders], permutations(orders))
        bijections: list[AbstractBijection] = [Stack(layers, self.unroll)]
        if self.rescale or self.steerable is not None:  # a constant volume is free to learn: see VolumePreservingFlow
            key_scale = jax.random.fold_in(key, 2)
            bijections.append(Rescale(key_scale, self.shape, seen, self.rescale or 1, angles=self.angles))
        reach = self.reach * self.interval
        circle = {"angles": self.angles, "half_circle": self.interval, "cut": self.cut}
        bijections.append(Standardise(self.shape, reach=reach, **circle))
        rest = self.latent.build((dim - len(self.angles),), axes, self.condition)
        latent = CircularLatent(
            shape=self.shape, cond_shape=rest.cond_shape, rest=rest, angles=self.angles, interval=self.interval
        )
        return Flow(latent, Chain(bijections), self)
