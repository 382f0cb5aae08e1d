"""log Z(c) by importance sampling at each c, by the integral of Ē(u) = d log Z/du, and by Bennett's method."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_target import AbstractTarget
from trade.condition import Condition, check_condition
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.evaluation.weights import quality
from trade.model import Model, draw
from trade.objectives.expectation import self_normalised
from trade.sampling.importance import check_pair, weighted_samples


@dataclass(frozen=True)
class FreeEnergy:
    """log Z(c) - log Z(reference) over a range of conditions, with standard errors.

    Args:
        c: Conditions.
        log_z: log Z(c) - log Z(reference).
        error: Its standard error.
        reference: The condition at which the curve is zero.
    """

    c: np.ndarray
    log_z: np.ndarray
    error: np.ndarray
    reference: float

    def at(self, c: float) -> tuple[float, float]:
        """Value and error at a condition within those of the curve, interpolated linearly.

        Args:
            c: The condition.

        Returns:
            log Z(c) - log Z(reference), and its standard error.
        """
        low, high = float(np.min(self.c)), float(np.max(self.c))
        c = check.number(c, "The condition", takes="a number")
        slack = 1e-6 * (high - low)  # rounding
        if not low - slack <= c <= high + slack:
            raise TradeError(f"The condition {c:g} lies outside the range of the curve, [{low:g}, {high:g}].")
        return float(np.interp(c, self.c, self.log_z)), float(np.interp(c, self.c, self.error))


def by_importance(
    model: Model, target: AbstractTarget, key: Array, *, reference: float, points: int = 33, samples: int = 10_000
) -> FreeEnergy:
    """log Z(c) = log E_{p_θ}[q/p_θ], at each condition on its own.

    Args:
        model: The model.
        target: The family of densities.
        key: A JAX random key.
        reference: The condition at which the curve is zero.
        points: Number of conditions over the range; the reference is added to them.
        samples: Samples at each of them.

    Returns:
        The curve.
    """
    check.random_key(key)
    check.count(samples, (), "samples")
    grid = _grid(model, reference, points)
    values, errors = [], []
    for k, c in zip(jax.random.split(key, len(grid)), grid, strict=True):
        value, error = log_mean_weight(weighted_samples(model, target, k, samples, float(c)).log_weight)
        values.append(value)
        errors.append(error)
    values, errors = np.array(values), np.array(errors)
    zero = int(np.argmin(np.abs(grid - reference)))
    error = np.where(np.arange(len(grid)) == zero, 0.0, np.hypot(errors, errors[zero]))
    return FreeEnergy(grid, values - values[zero], error, reference)


def log_mean_weight(log_weight: ArrayLike) -> Estimate:
    """log Z as the logarithm of the mean importance weight, with its standard error: infinite where it is not known.

    Args:
        log_weight: Unnormalised log weights, of any shape.

    Returns:
        log Z, and its error.
    """
    found = quality(log_weight)
    return Estimate(found.log_z, found.log_z_error)


def bennett(forward: ArrayLike, backward: ArrayLike) -> Estimate:
    """log Z1/Z0 from samples of both densities (Bennett 1976), with its standard error: infinite without any overlap.

    Args:
        forward: log q1/q0 over samples of 0.
        backward: log q1/q0 over samples of 1.

    Returns:
        log Z1/Z0, and its error.
    """
    one, two = (
        np.asarray(check.array(v, name, (-1,)), np.float64)
        for v, name in ((forward, "forward"), (backward, "backward"))
    )
    if min(len(one), len(two)) < 2 or np.isnan(one).any() or np.isnan(two).any():
        raise TradeError("bennett needs two samples or more of both densities, without NaN.")
    shift = np.log(len(two) / len(one))

    def parts(log_z: float) -> tuple[np.ndarray, np.ndarray]:
        return scipy.special.expit(one - log_z + shift), scipy.special.expit(log_z - two - shift)

    def excess(log_z: float) -> float:
        a, b = parts(log_z)
        return a.sum() - b.sum()

    # Where every sample says more, or every sample less: the answer lies between. A clash may say -1e30.
    both, wide = np.concatenate([one, two]), np.abs(shift) + np.log(len(one) + len(two)) + 1.0
    low, high = np.clip([both.min() - wide, both.max() + wide], np.median(both) - 1e6, np.median(both) + 1e6)
    log_z = float(scipy.optimize.brentq(excess, low, high, xtol=1e-10, maxiter=200))  # pyright: ignore
    found = parts(log_z)
    if min(a.sum() for a in found) < 1.0:  # not one sample's worth in common
        return Estimate(log_z, math.inf)
    return Estimate(log_z, float(np.sqrt(sum(a.var(ddof=1) / a.mean() ** 2 / len(a) for a in found))))


def by_ladder(beta: np.ndarray, energies: np.ndarray) -> float:
    """log Z at the first of several temperatures less that at the last, by Bennett's method from rung to rung.

    Args:
        beta: Inverse temperatures, in the inverse unit of the energies.
        energies: Energies of samples at each of them, along the first axis.

    Returns:
        The difference of log Z.
    """
    total = 0.0
    for i in range(len(beta) - 1):
        step = beta[i + 1] - beta[i]
        total += bennett(step * energies[i + 1].ravel(), step * energies[i].ravel()).value
    return total


def by_integration(
    model: Model, target: AbstractTarget, key: Array, *, reference: float, points: int = 65, samples: int = 4_000
) -> FreeEnergy:
    """∫ Ē(u) du from the reference, with Ē(u) = E[∂_u log q] by SNIS from the model (Eq. 25).

    The error is statistical, plus what the integral over every other point says of the quadrature.

    Args:
        model: The model.
        target: The family of densities.
        key: A JAX random key.
        reference: The condition at which the curve is zero.
        points: Number of conditions over the range; the reference is added to them.
        samples: Samples at each of them.

    Returns:
        The curve.
    """
    grid = _grid(model, reference, points)
    u = np.asarray(model.condition.chart(grid), np.float64)
    mean, error, _ = _expectations(model, target, u, None, key, samples)
    return thermodynamic_integration(grid, u, mean, error, reference)


def evidence(
    model: Model,
    target: AbstractTarget,
    key: Array,
    observation: ArrayLike | None = None,
    *,
    points: int = 33,
    samples: int = 20_000,
) -> Estimate:
    """log p(y) = ∫₀¹ E_β[log p(y|ψ)] dβ, for a power posterior with a likelihood and a normalised prior.

    The condition must reach from β = 0 to 1 on a linear scale. Beside the integral there is importance sampling at
    β = 1, which knows nothing of other powers. The value is that of the two with the smaller error (sampling and
    quadrature). What they differ by beyond their noise is part of it, and so is the rounding of log q.

    Args:
        model: A flow trained over β.
        target: Its target, such as ``trade.targets.PowerPosterior``; at β = 0 it is the prior.
        key: A JAX random key.
        observation: The y whose evidence is wanted, when the target takes one.
        points: Powers at which the expectation is taken; they crowd near the prior, where it changes most.
        samples: Samples at each of them.

    Returns:
        log p(y), and its error.
    """
    check_pair(model, target)
    condition = check_condition(model.condition, single="the evidence")
    for power in (0.0, 1.0):
        condition.check(power, "power of the likelihood that the evidence needs")
    points, samples = check.integer(points, "points", 5), check.count(samples, model.shape, "samples", 2)
    key_integral, key_weights = jax.random.split(check.random_key(key))
    log_weight = weighted_samples(model, target, key_weights, samples, 1.0, observation).log_weight
    weighted = log_mean_weight(log_weight)
    y = None if observation is None else jnp.asarray(observation, float)
    beta = np.linspace(0.0, 1.0, points) ** 3 if condition.knee is None else condition.grid(points)
    u = condition.chart(beta)
    slope = np.asarray(jax.vmap(jax.grad(condition.unchart))(u), np.float64)
    # log q is linear in β: the variance of its derivative in β is the slope of the mean.
    mean, error, variance = _expectations(model, target, np.asarray(u, np.float64), y, key_integral, samples)
    curve = thermodynamic_integration(beta, beta, mean / slope, error / slope, 0.0, variance / slope**2)
    integral = Estimate(float(curve.log_z[-1]), float(curve.error[-1]))
    best = min(integral, weighted, key=lambda e: e.error)
    noise = float(np.linalg.norm([e.error for e in (integral, weighted) if np.isfinite(e.error)]))
    apart = max(abs(integral.value - weighted.value) - 2.0 * noise, 0.0)
    rounding = float(jnp.finfo(log_weight.dtype).eps) * max(abs(best.value), 1.0)
    return Estimate(best.value, float(np.linalg.norm([best.error, apart, rounding])))


def thermodynamic_integration(
    c: np.ndarray,
    u: np.ndarray,
    mean: np.ndarray,
    error: np.ndarray,
    reference: float,
    slope: np.ndarray | None = None,
) -> FreeEnergy:
    """log Z from the means of ∂_u log q at some conditions, wherever their samples came from.

    Args:
        c: Conditions, increasing, the reference among them.
        u: Any coordinate of them (the chart, or c itself), in which the derivative is taken.
        mean: E[∂_u log q] at each.
        error: Their standard errors.
        reference: Where the curve is zero.
        slope: Derivative of the mean in u, where it is known: it makes few conditions enough. For log q
            linear in u it is the variance of ∂_u log q.

    Returns:
        The curve, at the given conditions.
    """
    given = {"c": c, "u": u, "mean": mean, "error": error} | ({} if slope is None else {"slope": slope})
    arrays = {k: np.asarray(check.array(v, k, finite=True), np.float64) for k, v in given.items()}
    if any(v.ndim != 1 or len(v) != len(arrays["c"]) or len(v) < 2 for v in arrays.values()):
        raise TradeError(f"thermodynamic_integration needs vectors of one length for {', '.join(given)}, two or more.")
    c, u, mean, error = (arrays[k] for k in ("c", "u", "mean", "error"))
    slope = arrays.get("slope")
    if not (np.diff(u) > 0).all():
        raise TradeError("thermodynamic_integration needs conditions that increase.")
    reference = check.number(reference, "reference", c.min(), c.max())
    zero = int(np.argmin(np.abs(c - reference)))
    log_z = _primitive(u, mean, slope)
    every_other = np.unique(np.concatenate([np.arange(0, len(u), 2), [zero, len(u) - 1]]))
    coarse = _primitive(u[every_other], mean[every_other], None if slope is None else slope[every_other], at=u)
    log_z, coarse = log_z - log_z[zero], coarse - coarse[zero]
    variance = [np.sum((_trapezoid_weights(u, zero, i) * error) ** 2) for i in range(len(u))]
    # A cubic rule at half the spacing has about a sixteenth of the error.
    return FreeEnergy(c, log_z, np.hypot(np.sqrt(variance), (log_z - coarse) / 15.0), reference)


def _primitive(u: np.ndarray, f: np.ndarray, slope: np.ndarray | None, at: np.ndarray | None = None) -> np.ndarray:
    """The integral of the cubic through (u, f), with these slopes or those of the smoothest one."""
    splines = scipy.interpolate
    curve = splines.CubicSpline(u, f) if slope is None else splines.CubicHermiteSpline(u, f, slope)
    return curve.antiderivative()(u if at is None else at)


def _trapezoid_weights(u: np.ndarray, zero: int, i: int) -> np.ndarray:
    weights, half = np.zeros(len(u)), np.diff(u) / 2.0
    low, high = min(i, zero), max(i, zero)
    weights[low:high] += half[low:high]
    weights[low + 1 : high + 1] += half[low:high]
    return weights


def _expectations(
    model: Model, target: AbstractTarget, u: np.ndarray, y: Array | None, key: Array, n: int
) -> tuple[np.ndarray, ...]:
    """Mean of ∂_u log q at every u, its standard error, and the variance of a single one."""
    check_pair(model, target)
    key, n = check.random_key(key), check.count(n, model.shape, "samples", 2)
    found = [
        _expectation(model.flow, target, u_i, y, k, n)
        for u_i, k in zip(jnp.asarray(u, float), jax.random.split(key, len(u)), strict=True)
    ]
    return tuple(np.array(values, np.float64) for values in zip(*found, strict=True))


@eqx.filter_jit
def _expectation(
    flow: AbstractDistribution, target: AbstractTarget, u: Array, y: Array | None, key: Array, n: int
) -> tuple[Array, Array, Array]:
    x, log_p = jax.vmap(lambda k: draw(flow, k, u, y))(jax.random.split(key, n))
    log_q = jax.vmap(lambda v: target.log_density_at(v, u, y))(x)
    score = jax.vmap(lambda v: target.score(v, u, y))(x)
    w = jax.nn.softmax(log_q - log_p)
    mean = self_normalised(log_q, log_p, score)
    away = score - mean
    return mean, jnp.sqrt(jnp.sum((w * away) ** 2)), jnp.sum(w * away**2)


def _grid(model: Model, reference: float, points: int) -> np.ndarray:
    check.instance(model, Model, "model", "a trade.Model")
    condition = check_condition(model.condition, single="a curve of log Z")
    points = check.integer(points, "points", 5)
    return grid_with(condition, condition.check(reference, "reference"), points)


def grid_with(condition: Condition, reference: float, points: int) -> np.ndarray:
    """An even grid with a reference on it, which replaces a grid point that it only misses by rounding.

    Args:
        condition: One axis.
        reference: A condition.
        points: Number of conditions, without the reference.

    Returns:
        The conditions, increasing.
    """
    grid = condition.grid(points)
    return np.unique(np.append(grid[np.abs(grid - reference) > 1e-3 * np.gradient(grid)], reference))
