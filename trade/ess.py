"""The effective sample size."""

import jax.numpy as jnp
from jax import Array


def kish_ess(log_weights: Array) -> Array:
    """Kish's relative effective sample size (Σw)² / (n Σw²), along the last axis, in (0, 1].

    A weight that is not finite makes the result NaN: it must not hide.

    Example:
        >>> float(kish_ess(jnp.log(jnp.array([1.0, 1.0, 0.0, 0.0]))))
        0.5
    """
    # Relative to the largest weight: log weights may be large, and infinity minus itself is NaN.
    weights = jnp.exp(log_weights - jnp.max(log_weights, axis=-1, keepdims=True))
    return jnp.sum(weights, axis=-1) ** 2 / jnp.sum(weights**2, axis=-1) / log_weights.shape[-1]
