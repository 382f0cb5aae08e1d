"""Forward KL divergence and negative log-likelihood, with errors."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_target import AbstractTarget, check_target
from trade.errors import TradeError
from trade.model import Model
from trade.sampling.importance import check_pair, log_density_batch


class Estimate(NamedTuple):
    """A number and its standard error.

    Args:
        value: The number.
        error: Its standard error.
    """

    value: float
    error: float


def bootstrap(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray] | None = None, sets: int = 200, seed: int = 0
) -> Estimate:
    """The mean (or another statistic along axis 0) of values, with a bootstrap standard error.

    Args:
        values: One entry per sample along the first axis.
        statistic: From such an array to a number; the mean by default.
        sets: Bootstrap sets.
        seed: Seed of the bootstrap.

    Returns:
        The statistic of all values, and its error.
    """
    values = np.asarray(check.array(values, "values"), dtype=np.float64)
    if values.ndim == 0 or not len(values):
        raise TradeError(f"values must be one number per sample, and one or more of them, got shape {values.shape}.")
    if statistic is not None:
        check.function(statistic, "statistic", "the values")
    sets = check.integer(sets, "sets", 2)
    of = statistic or (lambda v: v.mean(axis=0))
    value = check.number(check.called("statistic", of, values), "The statistic of the values")
    rng = np.random.default_rng(check.integer(seed, "seed", 0))
    draws = [of(values[rng.integers(0, len(values), len(values))]) for _ in range(sets)]
    return Estimate(value, float(np.std(draws, ddof=1)))


def negative_log_likelihood(model: Model, x: Array, c: float, *, sets: int = 200) -> Estimate:
    """-E[log p_θ(x|c)] over samples of the target.

    Args:
        model: The model.
        x: The samples, of shape (n, *shape).
        c: The condition.
        sets: Bootstrap sets.

    Returns:
        The mean in nats, and its error.
    """
    check.instance(model, Model, "model", "a trade.Model")
    x = check.array(x, "x", (-1, *model.shape))
    return bootstrap(-np.asarray(model.log_prob(x, c)), sets=sets)


def forward_kl(model: Model, target: AbstractTarget, x: Array, c: float, *, sets: int = 200) -> Estimate:
    """E[log p(x|c) - log p_θ(x|c)] over exact samples, for targets with a known log Z.

    Args:
        model: The model.
        target: A target that knows its log Z.
        x: The samples, of shape (n, *shape).
        c: The condition.
        sets: Bootstrap sets.

    Returns:
        The divergence in nats, and its error.
    """
    check_pair(model, target, observed=False)
    x = jnp.asarray(check.array(x, "x", (-1, *model.shape)), float)
    at = jnp.asarray(target.condition.check(c), dtype=x.dtype)
    log_q = np.asarray(log_density_batch(target, x, at), np.float64)
    return bootstrap(log_q - target.log_partition(c) - np.asarray(model.log_prob(x, c), np.float64), sets=sets)


def grid_kl(
    model: Model, target: AbstractTarget, c: float, extent: float, points: int, *, dropped: float = 1e-7
) -> float:
    """The forward KL by quadrature on the square [-extent, extent]² of a 2-D target.

    The density is normalised on the same grid, and cells that together hold less than
    ``dropped`` of the mass are not visited: that is what makes a fine grid cheap.

    Args:
        model: The model, or anything with its ``log_prob``.
        target: A target with states of shape (2,).
        c: The condition.
        extent: Half a side of the square.
        points: Grid points along each side.
        dropped: Part of the mass that is not visited.

    Returns:
        The divergence in nats.
    """
    check.member(model, "model", "a trade.Model", "log_prob")
    check_target(target, observed=False)
    if target.shape != (2,):
        raise TradeError(f"grid_kl needs a target of shape (2,), got {target.shape}.")
    extent, c = check.number(extent, "extent", 0, open_low=True), target.condition.check(c)
    points, dropped = check.integer(points, "points", 2), check.number(dropped, "dropped", 0, 1, open_high=True)
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
