"""Densities on grids, for pictures."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from trade.abstract_target import AbstractTarget
from trade.errors import UnknownError
from trade.model import Model
from trade.sampling.importance import log_density_batch

Range = tuple[float, float]


def range_of(samples: ArrayLike, outside: float = 1e-3, room: float = 0.05) -> Range:
    """An interval that holds nearly all samples of one coordinate, with some room around.

    Args:
        samples: Numbers; those that are not finite do not count.
        outside: Part of them that may lie beyond either end.
        room: Added at each end, as a part of the length.
    """
    values = np.asarray(samples, np.float64).ravel()
    values = values[np.isfinite(values)]
    if not len(values):
        return -1.0, 1.0
    low, high = np.quantile(values, [outside, 1.0 - outside])
    wide = high - low if high > low else max(abs(high), 1.0) * 1e-3
    return float(low - room * wide), float(high + room * wide)


def squared(ranges: Sequence[Range]) -> list[Range]:
    """Two ranges of similar length made equally long, so that a square picture has one scale."""
    lengths = [high - low for low, high in ranges]
    if len(ranges) != 2 or max(lengths) > 3.0 * min(lengths):
        return list(ranges)
    half = 0.5 * max(lengths)
    return [(0.5 * (low + high) - half, 0.5 * (low + high) + half) for low, high in ranges]


def density_grid(
    density: Model | AbstractTarget,
    c: float,
    ranges: Sequence[Range],
    points: int = 240,
    observation: ArrayLike | None = None,
) -> np.ndarray:
    """The density of a model or target in the middle of equal cells.

    Args:
        density: A model, or a target: normalised by its log Z where that is known exactly, else over the grid.
        c: The condition.
        ranges: One interval for each coordinate.
        points: Cells along each.
        observation: The observation, if the density takes one.

    Returns:
        An array with one axis a coordinate; zero where the density is not finite.
    """
    axes = [np.linspace(a, b, points, endpoint=False) + 0.5 * (b - a) / points for a, b in ranges]
    x = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(ranges)), dtype=float)
    if isinstance(density, Model):
        log_p = np.asarray(density.log_prob(x, c, observation), np.float64)
    else:
        y = None if observation is None else jnp.asarray(observation, float)
        log_q = np.asarray(log_density_batch(density, x, jnp.asarray(c, dtype=float), y), np.float64)
        log_p = log_q - _log_z(density, c, log_q, ranges, observation)
    p = np.exp(np.where(np.isfinite(log_p), log_p, -np.inf))
    return p.reshape([points] * len(ranges))


def _log_z(
    target: AbstractTarget, c: float, log_q: np.ndarray, ranges: Sequence[Range], observation: ArrayLike | None
) -> float:
    if observation is None:
        try:
            return target.log_partition(c)
        except UnknownError:
            pass
    finite = log_q[np.isfinite(log_q)]
    if not len(finite):
        return 0.0
    top = finite.max()
    volume = np.prod([high - low for low, high in ranges])
    return float(top + np.log(np.exp(finite - top).sum() * volume / len(log_q)))


def pooled(grid: np.ndarray) -> np.ndarray:
    """Means over two by two cells: what is narrower than a pixel keeps its mass."""
    n = len(grid) // 2
    return grid.reshape(n, 2, n, 2).mean(axis=(1, 3))
