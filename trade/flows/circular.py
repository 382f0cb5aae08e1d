"""Flows for states some of whose coordinates are angles: torsions of a molecule beside its bonds."""

from dataclasses import dataclass, field
from math import pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import Chain
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.condition import Condition
from trade.errors import TradeError, check_integers
from trade.flows import spline
from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.coupling import SplineCoupling, Stack, alternating_permutation
from trade.flows.latent import Normal, PowerScaled
from trade.flows.recipes import Flow, default_unroll
from trade.flows.standardise import Standardise


class CircularCoupling(SplineCoupling):
    """A spline coupling that knows which of its coordinates are angles.

    Those are splined on the circle and shifted round it; the networks see their sine and cosine. The others
    are splined, scaled and shifted as ever.
    """

    angular: Array  # of the coordinates on the side of the data

    def __init__(
        self,
        key: Array,
        angular: Array,
        cond_dim: int,
        *,
        network: MLP | ResidualMLP,
        **options: Any,
    ) -> None:
        super().__init__(key, len(angular), cond_dim, network=network, **options)
        self.angular = angular

    @property
    def features(self) -> int:
        """Two for each passive coordinate: sine and cosine, or itself and zero."""
        return 2 * self.passive

    @property
    def spline_parameters(self) -> int:
        """One more than on a line: the slope where the circle closes."""
        return spline.parameter_count(self.bins) + 1

    def _seen(self, passive: Array) -> Array:
        angular, turn = self.angular[: self.passive], pi / self.interval
        first = jnp.where(angular, jnp.sin(turn * passive), super()._seen(passive))
        return jnp.concatenate([first, jnp.where(angular, jnp.cos(turn * passive), 0.0)])

    def _splined(self, active: Array, raw: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        angular = self.angular[self.passive :]
        log_scale = jnp.where(angular, 0.0, log_scale)
        active, log_slope = spline.forward(active, raw, self.interval, angular)
        active = active * jnp.exp(log_scale) + shift
        return jnp.where(angular, spline.wrapped(active, self.interval), active), log_slope + log_scale

    def _unsplined(self, active: Array, raw: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        angular = self.angular[self.passive :]
        log_scale = jnp.where(angular, 0.0, log_scale)
        active, log_slope = spline.inverse((active - shift) * jnp.exp(-log_scale), raw, self.interval, angular)
        return active, log_slope - log_scale


class CircularLatent(AbstractDistribution):
    """Uniform on the circle for angles, another latent for the rest."""

    rest: AbstractDistribution
    angles: tuple[int, ...] = eqx.field(static=True)
    interval: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    @property
    def _others(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.shape[0]), self.angles)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        return self.rest._log_prob(x[self._others], condition) - len(self.angles) * jnp.log(2.0 * self.interval)

    def _sample(self, key: Array, condition: Array | None = None) -> Array:
        one, two = jax.random.split(key)
        turned = jax.random.uniform(one, (len(self.angles),), minval=-self.interval, maxval=self.interval)
        x = jnp.zeros(self.shape).at[np.array(self.angles, int)].set(turned)
        return x.at[self._others].set(self.rest._sample(two, condition))


@dataclass(frozen=True)
class CircularFlow:
    """Spline couplings for vectors of which some coordinates are angles in radians; the density is periodic in them.

    Args:
        shape: Shape of one state, a vector.
        condition: The condition whose chart the flow sees.
        angles: Which coordinates are angles.
        blocks: Number of coupling layers.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval), in units of the scaled data; it is also the half circle.
        reach: Part of the interval that the data fill, of coordinates that are no angles.
        network: Conditioner of each coupling.
        latent: Base distribution of the coordinates that are no angles.
        unroll: Layers per iteration of the compiled scan; 0 lets the backend decide.
    """

    shape: tuple[int, ...]
    condition: Condition
    angles: tuple[int, ...]
    blocks: int = 12
    bins: int = 8
    interval: float = 4.0
    reach: float = 0.8
    network: MLP | ResidualMLP = field(default_factory=ResidualMLP)
    latent: Normal | PowerScaled = field(default_factory=Normal)
    unroll: int = 0

    def __post_init__(self) -> None:
        check_integers(self, blocks=1, bins=2)
        if len(self.shape) != 1 or self.shape[0] < 2:
            raise TradeError(f"CircularFlow needs a vector of 2 or more entries, got shape {self.shape}.")
        (dim,) = self.shape
        if len(set(self.angles)) != len(self.angles) or not all(0 <= i < dim for i in self.angles):
            raise TradeError(f"CircularFlow angles must be different coordinates below {dim}, got {self.angles}.")
        if not 0 < len(self.angles) < dim:
            raise TradeError(f"CircularFlow needs some angles and some other coordinates, got {self.angles}.")

    def build(self, key: Array) -> Flow:
        """Make the flow; it starts as the identity up to a permutation."""
        (dim,) = self.shape
        key_layers, key_order = jax.random.split(key)
        angular = np.isin(np.arange(dim), self.angles)
        # Which coordinates are angles must be known layer by layer: the permutations come first.
        flags, orders = [angular], []
        for k in jax.random.split(key_order, self.blocks):
            orders.append(np.asarray(alternating_permutation(k, dim, dim // 2)))
            flags.append(orders[-1] @ flags[-1] > 0)

        options: dict[str, Any] = {"network": self.network, "bins": self.bins, "interval": self.interval}

        def layer(k: Array, angular: Array, order: Array) -> CircularCoupling:
            return CircularCoupling(k, angular, 1, permutation=order, **options)

        keys = jax.random.split(key_layers, self.blocks)
        layers = eqx.filter_vmap(layer)(keys, jnp.asarray(np.array(flags[:-1])), jnp.asarray(np.array(orders)))
        stack = Stack(layers, self.unroll or default_unroll(self.blocks))
        scaled = Standardise(
            self.shape, reach=self.reach * self.interval, angles=self.angles, half_circle=self.interval
        )
        turned = tuple(int(i) for i in np.flatnonzero(flags[-1]))
        rest = self.latent.build((dim - len(self.angles),), 1, self.condition)
        latent = CircularLatent(
            shape=self.shape, cond_shape=rest.cond_shape, rest=rest, angles=turned, interval=self.interval
        )
        return Flow(latent, Chain([stack, scaled]), self)
