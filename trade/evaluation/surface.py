"""log Z over several axes: a surface, by importance sampling or by integration along two paths; along any one path."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.abstract_target import AbstractTarget
from trade.axes import Axes
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.evaluation.free_energy import grid_with, log_mean_weight, thermodynamic_integration
from trade.model import Model, draw
from trade.sampling.importance import check_pair, weighted_samples


@dataclass(frozen=True)
class FreeEnergySurface:
    """log Z(c) - log Z(reference) on a grid over several axes, with standard errors.

    Args:
        axes: The condition.
        lines: The values of each axis, increasing.
        log_z: log Z(c) - log Z(reference), one dimension for each axis.
        error: Its standard error.
        reference: The point at which the surface is zero; it is on the grid.
    """

    axes: Axes
    lines: tuple[np.ndarray, ...]
    log_z: np.ndarray
    error: np.ndarray
    reference: tuple[float, ...]

    @property
    def c(self) -> np.ndarray:
        """The points of the grid, of shape (..., axes)."""
        return np.stack(np.meshgrid(*self.lines, indexing="ij"), axis=-1)

    def at(self, c: Any) -> tuple[float, float]:
        """Value and error at a point, interpolated linearly in the chart.

        Args:
            c: A point, as a mapping or by position.

        Returns:
            log Z(c) - log Z(reference), and its standard error.
        """
        u = np.asarray(self.axes.chart(np.array(self.axes.check(c))), np.float64)
        lines = [axis.charted(line) for (_, axis), line in zip(self.axes.axes, self.lines, strict=True)]
        u = np.clip(u, [line[0] for line in lines], [line[-1] for line in lines])
        interpolator = scipy.interpolate.RegularGridInterpolator
        value, error = (float(interpolator(lines, v)(u)[0]) for v in (self.log_z, self.error))
        return value, error


def surface_by_importance(
    model: Model,
    target: AbstractTarget,
    key: Array,
    *,
    reference: tuple[float, ...],
    points: int = 9,
    samples: int = 10_000,
) -> FreeEnergySurface:
    """log Z(c) = log E_{p_θ}[q/p_θ], at each point of a grid on its own.

    Args:
        model: A model whose condition has several axes.
        target: The family of densities.
        key: A JAX random key.
        reference: The point at which the surface is zero.
        points: Values on each axis; those of the reference are added to them.
        samples: Samples at each point.

    Returns:
        The surface.
    """
    axes, lines, reference = _grid(model, target, reference, points)
    check.count(samples, (), "samples")
    shape = tuple(map(len, lines))
    places = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(lines))
    found = [
        log_mean_weight(weighted_samples(model, target, k, samples, tuple(c)).log_weight)
        for k, c in zip(jax.random.split(check.random_key(key), len(places)), places, strict=True)
    ]
    values, errors = (np.array([f[i] for f in found]).reshape(shape) for i in range(2))
    zero = _index(lines, reference)
    error = np.hypot(errors, errors[zero])
    error[zero] = 0.0
    return FreeEnergySurface(axes, lines, values - values[zero], error, reference)


def surface_by_integration(
    model: Model,
    target: AbstractTarget,
    key: Array,
    *,
    reference: tuple[float, ...],
    points: int = 9,
    samples: int = 4_000,
) -> FreeEnergySurface:
    """∫ Ē(u)·du from the reference to each point of a grid, along two paths parallel to the axes.

    One takes the axes in their order, the other in the reverse. The value is the mean of the two, and half of their
    difference is part of the error, beside those of sampling and quadrature.

    Args:
        model: A model whose condition has several axes.
        target: The family of densities.
        key: A JAX random key.
        reference: The point at which the surface is zero.
        points: Values on each axis; those of the reference are added to them.
        samples: Samples at each point.

    Returns:
        The surface.
    """
    axes, lines, reference = _grid(model, target, reference, points)
    n = check.count(samples, model.shape, "samples", 2)
    shape, zero = tuple(map(len, lines)), _index(lines, reference)
    charts = [axis.charted(line) for (_, axis), line in zip(axes.axes, lines, strict=True)]
    places = np.stack(np.meshgrid(*charts, indexing="ij"), axis=-1).reshape(-1, len(lines))
    keys = jax.random.split(check.random_key(key), len(places))
    directions = jnp.eye(len(lines))
    at = jnp.asarray(places, float)
    found = [_slopes(model.flow, target, u, directions, k, n) for u, k in zip(at, keys, strict=True)]
    mean, error = (np.array([f[i] for f in found], np.float64).reshape(*shape, -1) for i in range(2))
    parts = [
        _along_lines(charts[a], np.moveaxis(mean[..., a], a, -1), np.moveaxis(error[..., a], a, -1), zero[a])
        for a in range(len(lines))
    ]
    parts = [tuple(np.moveaxis(v, -1, a) for v in part) for a, part in enumerate(parts)]
    paths = [_path(parts, zero, order) for order in (range(len(lines)), reversed(range(len(lines))))]
    value = 0.5 * (paths[0][0] + paths[1][0])
    spread = 0.5 * np.abs(paths[0][0] - paths[1][0])
    sampled = np.maximum(paths[0][1], paths[1][1])
    return FreeEnergySurface(axes, lines, value, np.hypot(sampled, spread), reference)


def _along_lines(u: np.ndarray, mean: np.ndarray, error: np.ndarray, zero: int) -> tuple[np.ndarray, np.ndarray]:
    """Integrals along the last axis from its entry ``zero``, and their errors."""
    flat = [
        thermodynamic_integration(u, u, m, e, float(u[zero]))
        for m, e in zip(mean.reshape(-1, len(u)), error.reshape(-1, len(u)), strict=True)
    ]
    return tuple(np.stack([getattr(f, name) for f in flat]).reshape(mean.shape) for name in ("log_z", "error"))  # pyright: ignore


def _path(parts: list[Any], zero: tuple[int, ...], order: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sum of integrals along axes in an order: those still to come stand at the reference."""
    order = list(order)
    value, variance = 0.0, 0.0
    for place, axis in enumerate(order):
        later = order[place + 1 :]
        where = tuple(slice(zero[a], zero[a] + 1) if a in later else slice(None) for a in range(len(order)))
        value, variance = value + parts[axis][0][where], variance + parts[axis][1][where] ** 2
    return np.asarray(value), np.sqrt(variance)


def along_path(
    model: Model, target: AbstractTarget, key: Array, path: Sequence[Any], *, points: int = 17, samples: int = 4_000
) -> Estimate:
    """log Z at the end of a path less that at its beginning, by the integral of Ē(u)·du along it.

    Args:
        model: A model whose condition has several axes.
        target: The family of densities.
        key: A JAX random key.
        path: Two points or more, joined by straight lines in the chart.
        points: Conditions on each of the lines, both ends among them.
        samples: Samples at each.

    Returns:
        The difference, with its error from sampling and quadrature.
    """
    axes = _axes(model, target)
    corners = [np.asarray(axes.chart(np.array(axes.check(p, "point of the path"))), np.float64) for p in path]
    if len(corners) < 2:
        raise TradeError(f"A path must have two points or more, got {len(corners)}.")
    points, n = check.integer(points, "points", 5), check.count(samples, model.shape, "samples", 2)
    t, value, variance = np.linspace(0.0, 1.0, points), 0.0, 0.0
    for i, (start, stop) in enumerate(pairwise(corners)):
        u = jnp.asarray(start + t[:, None] * (stop - start), float)
        keys = jax.random.split(jax.random.fold_in(check.random_key(key), i), points)
        direction = jnp.asarray(stop - start, float)[None]
        found = [_slopes(model.flow, target, v, direction, k, n) for v, k in zip(u, keys, strict=True)]
        mean, error = (np.array([f[j][0] for f in found], np.float64) for j in range(2))
        part = thermodynamic_integration(t, t, mean, error, 0.0)
        value, variance = value + float(part.log_z[-1]), variance + float(part.error[-1]) ** 2
    return Estimate(value, math.sqrt(variance))


def log_partition_gradient(
    model: Model, target: AbstractTarget, key: Array, c: Any, *, samples: int = 10_000, observation: Any = None
) -> dict[str, Estimate]:
    """∂ log Z/∂c at one condition, axis by axis: E[∂_c log q] over weighted samples.

    Of log q = -E/T it is ⟨E⟩/T², of -P V it is -⟨V⟩: mean energies, volumes and magnetisations.

    Args:
        model: The model; its condition may have one axis.
        target: The family of densities.
        key: A JAX random key.
        c: The condition.
        samples: How many.
        observation: The observation, for a model that takes one.

    Returns:
        By the name of the axis: the derivative in the unit of c, and its error.
    """
    weighted = weighted_samples(model, target, key, samples, c, observation)
    at = jnp.asarray(model.condition.check(c), weighted.x.dtype)
    y = None if observation is None else jnp.asarray(observation, weighted.x.dtype)
    slopes = np.asarray(_derivatives(target, weighted.x, at, y), np.float64).reshape(samples, -1)
    log_w = np.asarray(weighted.log_weight, np.float64)
    w = np.exp(log_w - log_w.max())
    w = w / w.sum()
    slopes = np.where(w[:, None] > 0, slopes, 0.0)
    mean = w @ slopes
    error = np.sqrt(np.sum((w[:, None] * (slopes - mean)) ** 2, axis=0))
    return {name: Estimate(float(m), float(e)) for name, m, e in zip(model.condition.names, mean, error, strict=True)}


@eqx.filter_jit
def _derivatives(target: AbstractTarget, x: Array, c: Array, y: Array | None) -> Array:
    return jax.vmap(lambda v: target.condition_derivative(v, c, y))(x)


@eqx.filter_jit
def _slopes(
    flow: AbstractDistribution, target: AbstractTarget, u: Array, directions: Array, key: Array, n: int
) -> tuple[Array, Array]:
    """Means of the derivatives of log q along some directions in the chart, and their errors."""
    x, log_p = jax.vmap(lambda k: draw(flow, k, u))(jax.random.split(key, n))
    log_q = jax.vmap(lambda v: target.log_density_at(v, u))(x)
    slopes = jax.vmap(lambda v: jax.vmap(lambda d: target.score(v, u, None, d))(directions))(x)
    w = jax.nn.softmax(log_q - log_p)[:, None]
    slopes = jnp.where(w > 0, slopes, 0.0)  # outside the support there is no derivative
    mean = jnp.sum(w * slopes, axis=0)
    return mean, jnp.sqrt(jnp.sum((w * (slopes - mean)) ** 2, axis=0))


def _axes(model: Model, target: AbstractTarget) -> Axes:
    check_pair(model, target, observed=False)
    axes = model.condition
    if not isinstance(axes, Axes):
        raise TradeError("A surface needs a condition with several axes, trade.Axes: this model's has one.")
    return axes


def _grid(
    model: Model, target: AbstractTarget, reference: Any, points: int
) -> tuple[Axes, tuple[np.ndarray, ...], tuple[float, ...]]:
    axes = _axes(model, target)
    reference = axes.check(reference, "reference")
    points = check.integer(points, "points", 4)
    return axes, tuple(grid_with(axis, r, points) for (_, axis), r in zip(axes.axes, reference, strict=True)), reference


def _index(lines: tuple[np.ndarray, ...], reference: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(int(np.argmin(np.abs(line - r))) for line, r in zip(lines, reference, strict=True))
