"""What a problem of the zoo is, and exact truths that several share.

Truths are NumPy in float64, share no code with the densities, and stay out of the targets, so that no training can use
them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.ndimage import map_coordinates, spline_filter
from scipy.special import logsumexp

from trade import Condition, Target
from trade.abstract_target import AbstractTarget
from trade.targets import PowerPosterior

SAMPLES = 50_000  # at the boundary


LOG_2PI = float(np.log(2.0 * np.pi))


Draw = Callable[[np.random.Generator, int, float], np.ndarray]


@dataclass(frozen=True)
class ZooProblem:
    """One problem and what is known of it.

    Args:
        name: Its name in tables.
        unseen: Whether it was never used to choose a setting.
        make: The target, whose condition has its boundary value.
        data: ``(target, key)``: samples at the boundary value.
        log_z: log Z(c) of the target's own unnormalised density, None where it is not known.
        sample: ``(key, n, c)``: samples at any condition.
        about: One line on what it is.
    """

    name: str
    unseen: bool
    make: Callable[[], AbstractTarget]
    data: Callable[[AbstractTarget, Array], dict[float, Array]]
    log_z: Callable[[float], float] | None
    sample: Callable[[Array, int, float], Array] | None
    about: str


class Truth(NamedTuple):
    """log Z, and samples from a NumPy generator."""

    log_z: Callable[[float], float]
    draw: Draw


def problem(name: str, make: Callable[[], AbstractTarget], truth: Truth, about: str, unseen: bool) -> ZooProblem:
    """A problem whose data at the boundary are exact samples."""

    def sample(key: Array, n: int, c: float) -> Array:
        # NumPy's generator: with JAX's float32 numbers the cells of a fine grid could not all be drawn.
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return jnp.asarray(truth.draw(rng, n, float(c)), float)

    def data(target: AbstractTarget, key: Array) -> dict[float, Array]:
        return {c: sample(jax.random.fold_in(key, i), SAMPLES, c) for i, c in enumerate(target.condition.boundary)}

    return ZooProblem(name, unseen, make, data, lambda c: float(truth.log_z(float(c))), sample, about)


class Grid:
    """A density of one to three coordinates in equal cells: its integral and samples.

    The integral of a smooth density that vanishes at the edges converges faster than any power of the cell.

    Args:
        log_q: ``f(x, y, ...)``: the log density on arrays that broadcast.
        box: Low and high of each coordinate; shrunk to where the density is not negligible.
        cells: Along each coordinate.
    """

    def __init__(self, log_q: Callable[..., np.ndarray], box: list[tuple[float, float]], cells: int) -> None:
        self.low, self.high = np.array(box, float).T
        for _ in range(3):
            self._evaluate(log_q, max(cells // 2, 40))
            near = self.log_q > self.log_q.max() - 25.0
            inside = [np.flatnonzero(near.any(axis=_others(near.ndim, i))) for i in range(near.ndim)]
            low = self.low + self.width * np.maximum([i[0] - 1 for i in inside], 0)
            self.high = np.minimum(self.low + self.width * [i[-1] + 2 for i in inside], self.high)
            self.low = low
        self._evaluate(log_q, cells)
        self.log_z = float(logsumexp(self.log_q) + np.log(self.width).sum())
        self._sum = np.cumsum(np.exp(self.log_q - self.log_q.max()))

    def _evaluate(self, log_q: Callable[..., np.ndarray], cells: int) -> None:
        self.width = (self.high - self.low) / cells
        axes = [low + width * (np.arange(cells) + 0.5) for low, width in zip(self.low, self.width, strict=True)]
        self.log_q = np.asarray(log_q(*np.meshgrid(*axes, indexing="ij", sparse=True)))

    @cached_property
    def _spline(self) -> np.ndarray:
        return spline_filter(self.log_q, mode="nearest")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n samples, one row each: uniform in a cell, then kept or not by how the density varies within it."""
        kept, top = np.zeros((0, self.log_q.ndim)), None
        while len(kept) < n:
            flat = np.searchsorted(self._sum, rng.random(max(2 * n, 50_000)) * self._sum[-1], side="right")
            cell = np.stack(np.unravel_index(flat, self.log_q.shape), axis=-1)
            place = cell + rng.random(cell.shape)
            there = map_coordinates(self._spline, place.T - 0.5, mode="nearest", prefilter=False)
            log_ratio = there - self.log_q.ravel()[flat]
            top = log_ratio.max() if top is None else top
            place = place[np.log(rng.random(len(place))) < log_ratio - top]
            kept = np.concatenate([kept, self.low + self.width * place])
        return kept[:n]


def _others(axes: int, i: int) -> tuple[int, ...]:
    return tuple(j for j in range(axes) if j != i)


def on_a_line(log_q: Callable[[np.ndarray, float], np.ndarray], low: float, high: float) -> Callable[[float], Grid]:
    """A density of one coordinate at each c."""
    return lru_cache(maxsize=8)(lambda c: Grid(lambda x: log_q(x, c), [(low, high)], 40_000))


def mixture(
    name: str, means: list, covariances: list, start: list[float], end: list[float], about: str, unseen: bool
) -> ZooProblem:
    """Gaussians whose log weights are linear in c, from ``start`` at 0 (the data) to ``end`` at 1."""
    mean, covariance, log_start = np.array(means), np.array(covariances), np.log(start)
    slope = np.log(end) - log_start
    precision, root = np.linalg.inv(covariance), np.linalg.cholesky(covariance)
    constant = log_start - 0.5 * np.linalg.slogdet(2.0 * np.pi * covariance)[1]

    def log_density(x: Array, c: Array) -> Array:
        offset = x - mean
        squares = jnp.einsum("ki,kij,kj->k", offset, precision, offset)
        return jax.nn.logsumexp(constant + c * slope - 0.5 * squares)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        weight = np.exp(log_start + c * slope)
        mode = rng.choice(len(weight), n, p=weight / weight.sum())
        return mean[mode] + np.einsum("nij,nj->ni", root[mode], rng.standard_normal((n, mean.shape[1])))

    make = partial(Target, log_density, (mean.shape[1],), Condition(0.0, 1.0, scale="linear", boundary=0.0))
    return problem(name, make, Truth(lambda c: logsumexp(log_start + c * slope), draw), about, unseen)


def posterior(
    name: str,
    prior: tuple[Callable[[Array], Array], Callable[[np.random.Generator, int], np.ndarray]],
    log_likelihood: Callable[[Array], Array],
    d: int,
    truth: Truth,
    about: str,
    unseen: bool,
) -> ZooProblem:
    """A power posterior from draws of its prior at β = 0; ``prior`` is its log density and its sampler."""
    log_prior, from_prior = prior

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return from_prior(rng, n) if c == 0.0 else truth.draw(rng, n, c)

    condition = Condition(0.0, 1.0, scale="linear", boundary=0.0)
    make = partial(PowerPosterior, log_prior, log_likelihood, shape=(d,), condition=condition)
    return problem(name, make, Truth(truth.log_z, draw), about, unseen)


def normal_prior(
    mean: list[float], sd: list[float]
) -> tuple[Callable[[Array], Array], Callable[[np.random.Generator, int], np.ndarray]]:
    """Independent normals: their log density, and a sampler."""
    m, s = np.array(mean), np.array(sd)

    def log_prior(x: Array) -> Array:
        return -0.5 * jnp.sum(((x - m) / s) ** 2 + LOG_2PI) - np.log(s).sum()

    return log_prior, lambda rng, n: m + s * rng.standard_normal((n, len(m)))


def normal_prior_truth(
    mean: list[float], sd: list[float], log_likelihood: Callable[..., np.ndarray], cells: int = 80
) -> Truth:
    """The truth of a power posterior of three parameters with normal priors, on a grid."""

    def log_q(c: float, *x: np.ndarray) -> np.ndarray:
        prior = sum(-0.5 * ((v - m) / s) ** 2 - np.log(s) - 0.5 * LOG_2PI for v, m, s in zip(x, mean, sd, strict=True))
        return prior + c * log_likelihood(*x)

    box = [(m - 8.0 * s, m + 8.0 * s) for m, s in zip(mean, sd, strict=True)]
    grid = lru_cache(maxsize=8)(lambda c: Grid(partial(log_q, c), box, cells))
    return Truth(lambda c: grid(c).log_z, lambda rng, n, c: grid(c).draw(rng, n))
