"""Importance weights: flow samples as weighted samples of the target."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_condition import ConditionLike
from trade.abstract_target import AbstractTarget, check_target
from trade.errors import TradeError
from trade.ess import kish_ess
from trade.flows.whiten import within
from trade.model import Model


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
        """The weighted mean of a function of one state.

        Args:
            function: ``f(x)``, an array of any shape.

        Returns:
            The mean, of the shape that the function gives.
        """
        check.function(function, "function", "one state")
        values = check.called("function", jax.vmap(function), self.x)
        return jnp.tensordot(jax.nn.softmax(self.log_weight), values, axes=1)

    def resample(self, key: Array, n: int) -> Array:
        """n unweighted samples, drawn with replacement by their weights.

        Args:
            key: A JAX random key.
            n: How many.

        Returns:
            States of shape (n, *shape).
        """
        chance = jax.nn.softmax(self.log_weight)
        if not bool(jnp.isfinite(chance).all()):
            raise TradeError("The samples cannot be drawn by their weights: some are NaN, or none is finite.")
        return jax.random.choice(check.random_key(key), self.x, (check.count(n, self.x.shape[1:]),), p=chance)


@eqx.filter_jit
def _within_batch(flow: AbstractDistribution, x: Array, log_q: Array) -> Array:
    return jax.vmap(lambda v, value: within(flow, v, value))(x, log_q)


@eqx.filter_jit
def log_density_batch(target: AbstractTarget, x: Array, c: Array, y: Array | None = None) -> Array:
    """log q(x|c) of a batch of states at one condition."""
    return jax.vmap(lambda v: target.log_density(v, c, y))(x)


def log_target(
    model: Model, target: AbstractTarget, x: Array, c: ConditionLike, observation: ArrayLike | None = None
) -> Array:
    """log q(x|c) of samples of a model: minus infinity for what is no state of the target.

    Args:
        model: The model that they are samples of, at any condition.
        target: The family of densities.
        x: The samples.
        c: The condition of the density.
        observation: The observation, for a target that takes one.

    Returns:
        One number per sample.
    """
    y = None if observation is None else jnp.asarray(observation, x.dtype)
    at = jnp.asarray(model.condition.check(c), dtype=x.dtype)
    return _within_batch(model.flow, x, log_density_batch(target, x, at, y))


def check_pair(model: object, target: object, *, observed: bool = True) -> None:
    """Refuse a model and a target that do not belong together."""
    check.instance(model, Model, "model", "a trade.Model")
    check_target(target, observed=observed)
    for name in ("shape", "observation_shape"):
        one, two = getattr(model, name), getattr(target, name)
        if one != two:
            raise TradeError(f"model and target must have the same {name}, got {one} and {two}.")


def weighted_samples(
    model: Model, target: AbstractTarget, key: Array, n: int, c: ConditionLike, observation: ArrayLike | None = None
) -> Weighted:
    """Draw n samples of the model at c and weight them to the target; what is no state of it has no weight.

    Args:
        model: The model.
        target: The family of densities.
        key: A JAX random key.
        n: How many.
        c: The condition.
        observation: The observation, for a model that takes one.

    Returns:
        The samples, with weights and their ESS.
    """
    check_pair(model, target)
    x, log_prob = model.sample_and_log_prob(key, n, c, observation)
    log_weight = log_target(model, target, x, c, observation) - log_prob
    return Weighted(x, log_prob, log_weight, float(kish_ess(log_weight)))
