"""Are posteriors as wide as they say? Ranks of the truth among samples of the model (Appendix B.4)."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.model import Model, draw

Statistic = Callable[[Array, Array], Array]  # f(ψ, y): a vector of quantities


class Coverage(NamedTuple):
    """How often central intervals hold the truth.

    Args:
        nominal: Levels of the intervals.
        observed: Part of the truths inside.
        low: Lower end of the 95 % bootstrap band.
        high: Upper end.
        error: Largest deviation of observed from nominal.
    """

    nominal: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    error: float


def ranks(
    model: Model, statistic: Statistic, x: Array, y: Array, key: Array, samples: int, c: float, *, batch: int = 1024
) -> np.ndarray:
    """Where the truth lies among samples of p_θ(ψ|y, c), of each pair (ψ, y) and each quantity, in (0, 1).

    A calibrated model gives uniform ranks (simulation-based calibration); ties are broken at random.

    Args:
        model: A model that takes an observation.
        statistic: ``f(ψ, y)``, a vector of quantities.
        x: The true parameters, one entry per pair.
        y: Their observations, drawn at the power c.
        key: A JAX random key.
        samples: Samples of the model for each pair.
        c: The condition.
        batch: Pairs at once.

    Returns:
        Ranks of shape (pairs, quantities).
    """
    check.instance(model, Model, "model", "a trade.Model")
    if model.observation_shape is None:
        raise TradeError("Ranks need a model that takes an observation.")
    check.function(statistic, "statistic", "(ψ, y)")
    key, samples, batch = check.random_key(key), check.integer(samples, "samples"), check.integer(batch, "batch")
    x = jnp.asarray(check.array(x, "x", (-1, *model.shape)), float)
    y = jnp.asarray(check.array(y, "y", (-1, *model.observation_shape)), float)
    if len(x) != len(y):
        raise TradeError(f"Ranks need as many parameters as observations, got {len(x)} and {len(y)}.")
    u = jnp.asarray(model.condition.chart(model.condition.check(c)))
    check.called("statistic", jax.eval_shape, statistic, x[0], y[0])
    batch = min(batch, len(x))
    parts = []
    for start in range(0, len(x), batch):
        # The last batch is filled up, so that all share one compilation.
        index = np.arange(start, start + batch) % len(x)
        keys = jax.random.split(jax.random.fold_in(key, start), batch)
        found = _ranks(model.flow, statistic, x[index], y[index], keys, u, samples)
        parts.append(np.asarray(found)[: len(x) - start])
    return np.concatenate(parts)


@eqx.filter_jit
def _ranks(flow: eqx.Module, statistic: Statistic, x: Array, y: Array, keys: Array, u: Array, samples: int) -> Array:
    def one(x: Array, y: Array, key: Array) -> Array:
        key_draw, key_tie = jax.random.split(key)
        drawn, _ = jax.vmap(lambda k: draw(flow, k, u, y))(jax.random.split(key_draw, samples))  # pyright: ignore
        values, truth = jax.vmap(lambda v: statistic(v, y))(drawn), statistic(x, y)
        below = jnp.sum(values < truth, axis=0)
        return (below + jax.random.uniform(key_tie, truth.shape)) / (samples + 1)

    return jax.vmap(one)(x, y, keys)


def coverage(found: np.ndarray, *, levels: int = 101, sets: int = 100, seed: int = 0) -> Coverage:
    """From ranks of one quantity: central intervals, outward from the median, with bootstrap bands.

    Args:
        found: The ranks, of shape (pairs,).
        levels: Number of levels of the intervals, evenly spaced from 0 to 1.
        sets: Bootstrap sets.
        seed: Seed of the bootstrap.

    Returns:
        How often each interval holds the truth.
    """
    found = _ranks_of(found)
    nominal = np.linspace(0.0, 1.0, check.integer(levels, "levels", 2))
    sets, seed = check.integer(sets, "sets", 2), check.integer(seed, "seed", 0)
    needed = np.abs(2.0 * found - 1.0)  # level of the interval that just holds the truth
    counts, _ = np.histogram(needed, nominal)
    observed = np.concatenate([[0.0], np.cumsum(counts)]) / len(needed)
    drawn = np.random.default_rng(seed).multinomial(len(needed), counts / len(needed), size=sets)
    curves = np.concatenate([np.zeros((sets, 1)), np.cumsum(drawn, axis=1)], axis=1) / len(needed)
    low, high = np.quantile(curves, [0.025, 0.975], axis=0)
    return Coverage(nominal, observed, low, high, float(np.max(np.abs(observed - nominal))))


def _ranks_of(found: np.ndarray) -> np.ndarray:
    ranks = np.asarray(check.array(found, "found", (-1,)), np.float64)
    if not ((ranks >= 0.0) & (ranks <= 1.0)).all():
        raise TradeError("found must be ranks of one quantity, from 0 to 1.")
    return ranks


def uniformity_error(found: np.ndarray) -> float:
    """Largest distance between the distribution of ranks and the uniform one (Kolmogorov).

    Args:
        found: Ranks of one quantity, of shape (pairs,).

    Returns:
        The distance, from 0 to 1.
    """
    ordered, n = np.sort(_ranks_of(found)), len(found)
    steps = np.arange(n + 1) / n
    return float(max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1])))
