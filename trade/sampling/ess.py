"""The effective sample size."""

import jax
import jax.numpy as jnp
from jax import Array


def kish_ess(log_weights: Array) -> Array:
    """Kish's relative effective sample size (Σw)² / (n Σw²), along the last axis, in (0, 1].

    A weight that is not finite makes the result NaN: it must not hide.

    Example:
        >>> float(kish_ess(jnp.log(jnp.array([1.0, 1.0, 0.0, 0.0]))))
        0.5
    """
    n = log_weights.shape[-1]
    bad = jnp.any(jnp.isnan(log_weights) | (log_weights == jnp.inf), axis=-1)
    log_sum = jax.nn.logsumexp(log_weights, axis=-1)
    log_sum_squares = jax.nn.logsumexp(2.0 * log_weights, axis=-1)
    return jnp.where(bad, jnp.nan, jnp.exp(2.0 * log_sum - log_sum_squares) / n)
