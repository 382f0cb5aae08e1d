"""Forward KL divergence and negative log-likelihood, with errors."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import TradeError
from trade.model import Model
from trade.sampling.importance import log_density_batch
from trade.target import AbstractTarget


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


def bootstrap(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray] | None = None, sets: int = 200, seed: int = 0
) -> Estimate:
    """The mean (or another statistic along axis 0) of values, with a bootstrap standard error."""
    values = np.asarray(values, dtype=np.float64)
    statistic = statistic or (lambda v: v.mean(axis=0))
    rng = np.random.default_rng(seed)
    draws = [statistic(values[rng.integers(0, len(values), len(values))]) for _ in range(sets)]
    return Estimate(float(statistic(values)), float(np.std(draws, ddof=1)))


def negative_log_likelihood(model: Model, x: Array, c: float, *, sets: int = 200) -> Estimate:
    """-E[log p_θ(x|c)] over samples of the target."""
    return bootstrap(-np.asarray(model.log_prob(x, c)), sets=sets)


def forward_kl(model: Model, target: AbstractTarget, x: Array, c: float, *, sets: int = 200) -> Estimate:
    """E[log p(x|c) - log p_θ(x|c)] over exact samples, for targets with a known log Z."""
    log_q = np.asarray(log_density_batch(target, jnp.asarray(x), jnp.asarray(c, dtype=x.dtype)), np.float64)
    return bootstrap(log_q - target.log_partition(c) - np.asarray(model.log_prob(x, c), np.float64), sets=sets)


def grid_kl(
    model: Model, target: AbstractTarget, c: float, extent: float, points: int, *, dropped: float = 1e-7
) -> float:
    """The forward KL by quadrature on the square [-extent, extent]² of a 2-D target.

    The density is normalised on the same grid, and cells that together hold less than
    ``dropped`` of the mass are not visited: that is what makes a fine grid cheap.
    """
    if target.shape != (2,):
        raise TradeError(f"grid_kl needs a target of shape (2,), got {target.shape}.")
    axis = np.linspace(-extent, extent, points)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_q = np.asarray(log_density_batch(target, jnp.asarray(x, dtype=float), jnp.asarray(c, dtype=float)))
    weights = np.exp(log_q.astype(np.float64) - log_q.max())
    weights /= weights.sum()
    log_p = np.log(np.maximum(weights, 1e-300)) - 2 * np.log(axis[1] - axis[0])
    order = np.argsort(weights)
    kept = order[np.cumsum(weights[order]) > dropped]
    log_model = np.asarray(model.log_prob(x[kept], c), np.float64)
    return float(np.sum(weights[kept] * (log_p[kept] - log_model)) / weights[kept].sum())
