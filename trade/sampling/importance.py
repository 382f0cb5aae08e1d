"""Importance weights: flow samples as weighted samples of the target."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from trade.ess import kish_ess
from trade.model import Model
from trade.target import AbstractTarget


class Weighted(NamedTuple):
    """Samples of the flow with the weights that make them samples of the target.

    Args:
        x: The samples.
        log_prob: log p_θ(x|c).
        log_weight: log q(x|c) - log p_θ(x|c), not normalised.
        ess: Relative effective sample size of the weights.
    """

    x: Array
    log_prob: Array
    log_weight: Array
    ess: float

    def mean(self, function: Callable[[Array], Array]) -> Array:
        """The weighted mean of a function of one state."""
        return jnp.tensordot(jax.nn.softmax(self.log_weight), jax.vmap(function)(self.x), axes=1)

    def resample(self, key: Array, n: int) -> Array:
        """n unweighted samples, drawn with replacement by their weights."""
        return jax.random.choice(key, self.x, (n,), p=jax.nn.softmax(self.log_weight))


@eqx.filter_jit
def log_density_batch(target: AbstractTarget, x: Array, c: Array, y: Array | None = None) -> Array:
    """log q(x|c) of a batch of states at one condition."""
    return jax.vmap(lambda v: target.log_density(v, c, y))(x)


def weighted_samples(
    model: Model, target: AbstractTarget, key: Array, n: int, c: float, observation: ArrayLike | None = None
) -> Weighted:
    """Draw n samples of the model at c and weight them to the target."""
    x, log_prob = model.sample_and_log_prob(key, n, c, observation)
    y = None if observation is None else jnp.asarray(observation)
    log_weight = log_density_batch(target, x, jnp.asarray(c, dtype=x.dtype), y) - log_prob
    return Weighted(x, log_prob, log_weight, float(kish_ess(log_weight)))
