"""What importance weights say of themselves: how many count, how heavy their tail is, and what they make of log Z."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

FEWEST = 10.0  # weights that count
NEAR = 0.3  # of the largest weight, of a mean to which all are near: no tail can be seen there
LARGEST_KHAT = 0.7  # beyond it neither a mean weight nor its error can be believed (Vehtari et al., arXiv 1507.02646)


class Quality(NamedTuple):
    """What a set of weights is worth.

    Args:
        ess: Kish's relative effective sample size.
        ess_error: Its standard error.
        largest: The largest single weight, as a part of their sum.
        khat: Shape of the tail, by a fit of a generalised Pareto distribution; from 0.5 on the variance is infinite.
        log_z: Logarithm of the mean weight.
        log_z_error: Its standard error; infinite where ``khat`` says that it cannot be known.
    """

    ess: float
    ess_error: float
    largest: float
    khat: float
    log_z: float
    log_z_error: float


def quality(log_weight: ArrayLike) -> Quality:
    """What a set of log weights is worth; one that is no number counts as zero, an infinite one spoils all.

    Args:
        log_weight: Unnormalised log weights, of any shape.

    Returns:
        The effective sample size, the tail, log Z, and their errors.
    """
    log_w = np.asarray(log_weight, np.float64).ravel()
    log_w = np.where(np.isnan(log_w), -np.inf, log_w)
    n, top = len(log_w), log_w.max(initial=-np.inf)
    if not np.isfinite(top):
        return Quality(0.0, 0.0, 1.0, np.inf, float(top), np.inf)
    w = np.exp(log_w - top)
    mean, square = w.mean(), (w**2).mean()
    # The delta method, for log(mean² / square).
    spread = (2.0 * w / mean - w**2 / square).std()
    ess = mean**2 / square
    # Of few weights no tail can be told; and where none is far from the mean there is none.
    khat = np.inf if ess * n < min(FEWEST, n) else 0.0 if mean > NEAR else pareto_khat(log_w)
    error = np.inf if n < 2 or khat > LARGEST_KHAT else w.std(ddof=1) / mean / np.sqrt(n)
    return Quality(
        float(ess),
        float(ess * spread / np.sqrt(n)),
        float(1.0 / w.sum()),
        khat,
        float(top + np.log(mean)),
        float(error),
    )


def pareto_khat(log_weight: np.ndarray) -> float:
    """The shape k̂ of the tail of weights; infinite for too few to tell.

    Args:
        log_weight: Unnormalised log weights, of shape (n,).

    Returns:
        The shape.
    """
    if len(log_weight) < 25 or not np.isfinite(log_weight.max()):
        return float("inf")
    return float(_psis()(np.asarray(log_weight - log_weight.max(), np.float32))[1])


@cache
def _psis() -> Any:
    """BlackJAX's Pareto smoothing, compiled; its import takes a second."""
    from blackjax.diagnostics import psis_weights  # noqa: PLC0415

    return jax.jit(psis_weights)
