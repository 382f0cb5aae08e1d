"""Observables of a lattice field, with jackknife errors, from plain or weighted samples (Appendix B.6)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_condition import ConditionLike
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.targets.scalar_field import ScalarField


def jackknife(
    moments: np.ndarray, weights: np.ndarray, function: Callable[[np.ndarray], np.ndarray], blocks: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """A function of weighted means, and the jackknife error of each of its entries.

    Args:
        moments: One row per sample, one column per quantity.
        weights: Weights of the samples, not necessarily normalised.
        function: From the means of the columns to the entries.
        blocks: Samples are left out one block at a time.

    Returns:
        The entries, and their errors.
    """
    moments = np.asarray(check.array(moments, "moments"), np.float64)
    blocks = check.integer(blocks, "blocks", 2)
    check.function(function, "function", "the means")
    if moments.ndim != 2:
        raise TradeError(f"moments must have one row per sample and one column a quantity, got shape {moments.shape}.")
    weights = np.asarray(check.array(weights, "weights", (len(moments),), finite=True), np.float64)
    if len(moments) < 2 * blocks:
        raise TradeError(f"A jackknife with {blocks} blocks needs at least {2 * blocks} samples, got {len(moments)}.")
    parts = np.array_split(np.arange(len(moments)), blocks)
    sums = np.stack([weights[p] @ moments[p] for p in parts])
    totals = np.array([weights[p].sum() for p in parts])
    value = check.called("function", function, sums.sum(axis=0) / totals.sum())
    without = np.stack(
        [function((sums.sum(axis=0) - s) / (totals.sum() - t)) for s, t in zip(sums, totals, strict=True)]
    )
    return value, np.sqrt((blocks - 1) * without.var(axis=0))


NAMES = ("magnetisation", "action", "susceptibility", "binder")


def observables(
    target: ScalarField, x: Array, c: ConditionLike, log_weight: Array | None = None
) -> dict[str, Estimate]:
    """⟨|m|⟩, action per site, susceptibility and Binder cumulant at a condition.

    Args:
        target: The field theory.
        x: Samples, of shape (n, *lattice).
        c: The hopping parameter κ, or κ and λ where the target has both.
        log_weight: Logarithms of importance weights; without them every sample counts the same.

    Returns:
        Values and errors, by the names in ``NAMES``.
    """
    check.instance(target, ScalarField, "target", "a trade.targets.ScalarField")
    at = target.condition.check(c) if target.condition.u_shape else check.number(c, "kappa")
    x = jnp.asarray(check.array(x, "x", (-1, *target.shape)), float)
    moments = np.asarray(_moments(target, x, jnp.asarray(at, x.dtype)), np.float64)
    log_w = np.zeros(len(x))
    if log_weight is not None:
        log_w = np.asarray(check.array(log_weight, "log_weight", (len(x),)), np.float64)
        if np.isnan(log_w).any() or not np.isfinite(log_w.max()):
            raise TradeError("log_weight must be logarithms of weights, at least one of them finite, without NaN.")
    sites = target.sites

    def derived(mean: np.ndarray) -> np.ndarray:
        m, m2, m4, action = mean
        return np.array([m, action, sites * (m2 - m**2), 1.0 - m4 / (3.0 * m2**2)])

    value, error = jackknife(moments, np.exp(log_w - log_w.max()), derived)
    return {name: Estimate(float(v), float(e)) for name, v, e in zip(NAMES, value, error, strict=True)}


@eqx.filter_jit
def _moments(target: ScalarField, x: Array, c: Array) -> Array:
    def one(v: Array) -> Array:
        m = jnp.abs(v.mean())
        return jnp.stack([m, m**2, m**4, target.action(v, c) / target.sites])

    return jax.lax.map(one, x, batch_size=4096)
