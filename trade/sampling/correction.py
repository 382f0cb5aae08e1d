"""From flow samples to a Markov chain whose stationary distribution is the target, exactly."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_target import AbstractTarget, check_target
from trade.errors import TradeError
from trade.sampling.importance import Weighted


class Chain(NamedTuple):
    """An independence Metropolis chain.

    Args:
        x: Its states.
        acceptance: Part of the proposals that was accepted.
        autocorrelation: Integrated autocorrelation time, in steps: the largest over the observables log q and
            ∂_c log q.
    """

    x: Array
    acceptance: float
    autocorrelation: float


def metropolis(proposed: Weighted, target: AbstractTarget, key: Array, c: float) -> Chain:
    """The chain that goes through weighted samples at c in their order and accepts each by its weight.

    The proposals do not depend on the state, so that they can be drawn all at once.

    Args:
        proposed: What ``weighted_samples`` gave at c.
        target: The family of densities.
        key: A JAX random key.
        c: The condition.

    Returns:
        The chain, with as many states as there were samples.
    """
    check.instance(proposed, Weighted, "proposed", "what weighted_samples returns")
    check_target(target, observed=False)
    key, c = check.random_key(key), target.condition.check(c)
    n = len(proposed.log_weight)
    if n < 2:
        raise TradeError(f"A chain needs at least 2 samples, got {n}.")
    log_uniform = np.log(np.asarray(jax.random.uniform(key, (n,))))
    index = accepted_index(np.asarray(proposed.log_weight), log_uniform)
    x = proposed.x[index]
    seen = np.asarray(_watched(target, x, jnp.asarray(c, x.dtype)), np.float64)
    times = [integrated_autocorrelation(s) for s in seen.T]
    return Chain(x, float(np.mean(np.diff(index) != 0)), max(times))


@eqx.filter_jit
def _watched(target: AbstractTarget, x: Array, c: Array) -> Array:
    return jax.vmap(lambda v: jnp.hstack([target.log_density(v, c), target.condition_derivative(v, c)]))(x)


def accepted_index(log_weight: np.ndarray, log_uniform: np.ndarray) -> np.ndarray:
    """Which proposal the chain is at after each step; it begins at the first."""
    index, current = np.zeros(len(log_weight), int), 0
    for i, (weight, threshold) in enumerate(zip(log_weight.tolist(), log_uniform.tolist(), strict=True)):
        if threshold < weight - log_weight[current]:
            current = i
        index[i] = current
    return index


def integrated_autocorrelation(values: np.ndarray, window: float = 5.0) -> float:
    """1 + 2 Σ ρ(t), summed up to the first lag that is ``window`` times the sum so far (Madras and Sokal).

    Args:
        values: A quantity along a chain, of shape (n,).
        window: Length of the sum, in autocorrelation times.

    Returns:
        The autocorrelation time in steps, at least 1.
    """
    values = np.asarray(check.array(values, "values", (-1,), finite=True), np.float64)
    window = check.number(window, "window", 0, open_low=True)
    centred = values - values.mean()
    n = len(centred)
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariance = np.fft.irfft(power)[:n] / np.arange(n, 0, -1)
    if not covariance[0] > 0:
        return 1.0
    sums = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    enough = np.arange(n) >= window * sums
    return float(max(sums[np.argmax(enough)] if enough.any() else sums[-1], 1.0))
