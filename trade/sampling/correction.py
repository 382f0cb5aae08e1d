"""From flow samples to a Markov chain whose stationary distribution is the target, exactly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import TradeError
from trade.model import Model
from trade.sampling.importance import weighted_samples
from trade.target import AbstractTarget


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


def metropolis(model: Model, target: AbstractTarget, key: Array, n: int, c: float) -> Chain:
    """n steps of a chain that proposes samples of the model at c and accepts by their weights.

    The proposals do not depend on the state, so that they are drawn all at once.
    """
    if not isinstance(n, int) or n < 2:
        raise TradeError(f"A chain needs at least 2 steps, got n = {n!r}.")
    key_samples, key_accept = jax.random.split(key)
    proposed = weighted_samples(model, target, key_samples, n, c)
    index = np.asarray(accepted_index(proposed.log_weight, key_accept))
    x = proposed.x[index]
    at = jnp.asarray(c, x.dtype)
    seen = jax.vmap(lambda v: jnp.stack([target.log_density(v, at), target.condition_derivative(v, at)]))(x)
    times = [integrated_autocorrelation(np.asarray(s, np.float64)) for s in seen.T]
    return Chain(x, float(np.mean(np.diff(index) != 0)), max(times))


@jax.jit
def accepted_index(log_weight: Array, key: Array) -> Array:
    """Which proposal the chain is at after each step; it begins at the first."""

    def step(current: Array, proposal: tuple[Array, Array]) -> tuple[Array, Array]:
        i, log_uniform = proposal
        current = jnp.where(log_uniform < log_weight[i] - log_weight[current], i, current)
        return current, current

    log_uniform = jnp.log(jax.random.uniform(key, log_weight.shape))
    numbers = jnp.arange(len(log_weight))
    return jax.lax.scan(step, jnp.zeros((), numbers.dtype), (numbers, log_uniform))[1]


def integrated_autocorrelation(values: np.ndarray, window: float = 5.0) -> float:
    """1 + 2 Σ ρ(t), summed up to the first lag that is ``window`` times the sum so far (Madras and Sokal)."""
    centred = values - values.mean()
    n = len(centred)
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariance = np.fft.irfft(power)[:n] / np.arange(n, 0, -1)
    if not covariance[0] > 0:
        return 1.0
    sums = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    enough = np.arange(n) >= window * sums
    return float(max(sums[np.argmax(enough)] if enough.any() else sums[-1], 1.0))
