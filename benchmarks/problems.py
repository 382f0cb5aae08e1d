"""The problems of the zoo: densities of the kinds users have, each with exact or independent truth.

The defaults are chosen on the seen half and must then work on the unseen half, with no option set. Densities are JAX
functions of one state; truths are NumPy in float64, share no code with the densities, and stay out of the targets, so
that no training can use them.
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
from scipy.special import expit, gammaln, ive, logsumexp

from trade import Condition, Target
from trade.abstract_target import AbstractTarget
from trade.experiments.cache import cached
from trade.sampling.mcmc import MarkovChains
from trade.targets import PowerPosterior, ScalarField

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


class _Truth(NamedTuple):
    """log Z, and samples from a NumPy generator."""

    log_z: Callable[[float], float]
    draw: Draw


def _problem(name: str, make: Callable[[], AbstractTarget], truth: _Truth, about: str, unseen: bool) -> ZooProblem:
    def sample(key: Array, n: int, c: float) -> Array:
        # NumPy's generator: with JAX's float32 numbers the cells of a fine grid could not all be drawn.
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return jnp.asarray(truth.draw(rng, n, float(c)), float)

    def data(target: AbstractTarget, key: Array) -> dict[float, Array]:
        return {c: sample(jax.random.fold_in(key, i), SAMPLES, c) for i, c in enumerate(target.condition.boundary)}

    return ZooProblem(name, unseen, make, data, lambda c: float(truth.log_z(float(c))), sample, about)


class _Grid:
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


def _line(log_q: Callable[[np.ndarray, float], np.ndarray], low: float, high: float) -> Callable[[float], _Grid]:
    """A density of one coordinate at each c."""
    return lru_cache(maxsize=8)(lambda c: _Grid(lambda x: log_q(x, c), [(low, high)], 40_000))


def _ring() -> ZooProblem:
    def log_density(x: Array, c: Array) -> Array:
        radius = jnp.sqrt(jnp.sum(x**2) + 1e-12)  # differentiable at the origin
        return -0.5 * ((radius - c) / 0.1) ** 2

    radial = _line(lambda r, c: np.log(r) - 0.5 * ((r - c) / 0.1) ** 2, 0.0, 6.0)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        angle = rng.uniform(-np.pi, np.pi, n)
        return radial(c).draw(rng, n) * np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    make = partial(Target, log_density, (2,), Condition(1.0, 3.0, scale="linear", boundary=1.0))
    about = "a ring in the plane, d = 2; its radius from 1 to 3, data at 1"
    return _problem("ring", make, _Truth(lambda c: radial(c).log_z + LOG_2PI, draw), about, unseen=False)


def _correlation() -> ZooProblem:
    d = 10

    def log_density(x: Array, c: Array) -> Array:
        return -0.5 * (jnp.sum(x**2) - c * jnp.sum(x) ** 2 / (1.0 + (d - 1) * c)) / (1.0 - c)

    def log_z(c: float) -> float:
        return 0.5 * (d * LOG_2PI + (d - 1) * np.log1p(-c) + np.log1p((d - 1) * c))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return np.sqrt(1.0 - c) * rng.standard_normal((n, d)) + np.sqrt(c) * rng.standard_normal((n, 1))

    make = partial(Target, log_density, (d,), Condition(0.0, 0.95, scale="linear", boundary=0.0))
    about = "a Gaussian with equal correlations, d = 10; the correlation from 0 to 0.95, data at 0"
    return _problem("correlation", make, _Truth(log_z, draw), about, unseen=False)


def _funnel() -> ZooProblem:
    d = 5

    def log_density(x: Array, c: Array) -> Array:
        v, rest = x[0], x[1:]
        return -0.5 * (v / c) ** 2 - 0.5 * jnp.exp(-v) * jnp.sum(rest**2) - 0.5 * (d - 1) * v

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        v = c * rng.standard_normal((n, 1))
        return np.concatenate([v, np.exp(0.5 * v) * rng.standard_normal((n, d - 1))], axis=1)

    make = partial(Target, log_density, (d,), Condition(0.5, 2.0, boundary=1.0))
    about = "Neal's funnel, d = 5; the width of its log variance from 0.5 to 2, data at 1"
    return _problem("funnel", make, _Truth(lambda c: 0.5 * d * LOG_2PI + np.log(c), draw), about, unseen=False)


def _mixture(
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
    return _problem(name, make, _Truth(lambda c: logsumexp(log_start + c * slope), draw), about, unseen)


def _mode_lost() -> ZooProblem:
    return _mixture(
        "mode-lost",
        [[-3.0, 0.0], [3.0, 1.0]],
        [[[1.0, 0.6], [0.6, 0.8]], [[0.3, -0.1], [-0.1, 0.5]]],
        [0.5, 0.5],
        [0.9999, 0.0001],
        "two Gaussians, d = 2; the weight of one falls from 0.5 at c = 0, the data, to 0.0001 at c = 1",
        unseen=False,
    )


def _many_well() -> ZooProblem:
    pairs = 16

    def log_density(x: Array, c: Array) -> Array:
        first, second = x[0::2], x[1::2]
        return jnp.sum(-(first**4) + 4.0 * first**2 + 0.5 * first - 0.5 * second**2) / c

    well = _line(lambda x, c: (-(x**4) + 4.0 * x**2 + 0.5 * x) / c, -5.0, 5.0)

    def log_z(c: float) -> float:
        return pairs * (well(c).log_z + 0.5 * (LOG_2PI + np.log(c)))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        first = well(c).draw(rng, n * pairs).reshape(n, pairs)
        return np.stack([first, np.sqrt(c) * rng.standard_normal((n, pairs))], axis=-1).reshape(n, 2 * pairs)

    make = partial(Target, log_density, (2 * pairs,), Condition(0.6, 1.0, boundary=1.0))
    about = "sixteen double wells and as many Gaussians, d = 32; the temperature from 0.6 to 1, data at 1"
    return _problem("many-well-32", make, _Truth(log_z, draw), about, unseen=False)


def _xy_chain() -> ZooProblem:
    d = 12

    def log_density(x: Array, c: Array) -> Array:
        return c * jnp.sum(jnp.cos(x - jnp.roll(x, -1)))

    def log_z(c: float) -> float:
        orders = np.arange(-60, 61)
        return d * (LOG_2PI + c) + np.log(np.sum(ive(orders, c) ** d))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        """An open chain has independent steps; the bond that closes it decides whether it is kept."""
        kept = np.zeros((0, d))
        while len(kept) < n:
            steps = rng.vonmises(0.0, c, (4 * n, d - 1))
            start = rng.uniform(-np.pi, np.pi, (4 * n, 1))
            chain = start + np.concatenate([np.zeros_like(start), np.cumsum(steps, axis=1)], axis=1)
            closed = rng.random(4 * n) < np.exp(c * (np.cos(chain[:, -1] - chain[:, 0]) - 1.0))
            kept = np.concatenate([kept, chain[closed]])
        return np.mod(kept[:n] + np.pi, 2.0 * np.pi) - np.pi

    condition = Condition(0.0, 1.5, scale="linear", boundary=0.0)
    make = partial(Target, log_density, (d,), condition, angles=tuple(range(d)))
    about = "an XY chain closed to a ring, 12 angles; the inverse temperature from 0 to 1.5, data at 0"
    return _problem("xy-chain", make, _Truth(log_z, draw), about, unseen=False)


def _posterior(
    name: str,
    prior: tuple[Callable[[Array], Array], Callable[[np.random.Generator, int], np.ndarray]],
    log_likelihood: Callable[[Array], Array],
    d: int,
    truth: _Truth,
    about: str,
    unseen: bool,
) -> ZooProblem:
    """A power posterior from draws of its prior at β = 0; ``prior`` is its log density and its sampler."""
    log_prior, from_prior = prior

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return from_prior(rng, n) if c == 0.0 else truth.draw(rng, n, c)

    condition = Condition(0.0, 1.0, scale="linear", boundary=0.0)
    make = partial(PowerPosterior, log_prior, log_likelihood, shape=(d,), condition=condition)
    return _problem(name, make, _Truth(truth.log_z, draw), about, unseen)


def _normal_prior(
    mean: list[float], sd: list[float]
) -> tuple[Callable[[Array], Array], Callable[[np.random.Generator, int], np.ndarray]]:
    m, s = np.array(mean), np.array(sd)

    def log_prior(x: Array) -> Array:
        return -0.5 * jnp.sum(((x - m) / s) ** 2 + LOG_2PI) - np.log(s).sum()

    return log_prior, lambda rng, n: m + s * rng.standard_normal((n, len(m)))


def _normal_prior_truth(
    mean: list[float], sd: list[float], log_likelihood: Callable[..., np.ndarray], cells: int = 80
) -> _Truth:
    """The truth of a power posterior of three parameters with normal priors, on a grid."""

    def log_q(c: float, *x: np.ndarray) -> np.ndarray:
        prior = sum(-0.5 * ((v - m) / s) ** 2 - np.log(s) - 0.5 * LOG_2PI for v, m, s in zip(x, mean, sd, strict=True))
        return prior + c * log_likelihood(*x)

    box = [(m - 8.0 * s, m + 8.0 * s) for m, s in zip(mean, sd, strict=True)]
    grid = lru_cache(maxsize=8)(lambda c: _Grid(partial(log_q, c), box, cells))
    return _Truth(lambda c: grid(c).log_z, lambda rng, n, c: grid(c).draw(rng, n))


def _eight_schools() -> ZooProblem:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mu_sd, tau_sd = 5.0, 10.0
    half_normal = np.log(2.0 / tau_sd) - 0.5 * LOG_2PI

    def log_prior(x: Array) -> Array:
        mu, log_tau, theta = x[0], x[1], x[2:]
        of_mu = -0.5 * (mu / mu_sd) ** 2 - 0.5 * LOG_2PI - np.log(mu_sd)
        of_tau = half_normal - 0.5 * (jnp.exp(log_tau) / tau_sd) ** 2 + log_tau
        of_theta = jnp.sum(-0.5 * ((theta - mu) * jnp.exp(-log_tau)) ** 2 - log_tau - 0.5 * LOG_2PI)
        return of_mu + of_tau + of_theta

    def log_likelihood(x: Array) -> Array:
        return jnp.sum(-0.5 * ((y - x[2:]) / error) ** 2 - np.log(error) - 0.5 * LOG_2PI)

    def of_mu(c: float, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """With θ integrated out: the precisions of what the schools say of μ, and the precision and mean of μ."""
        weight = c / (error**2 + c * tau[..., None] ** 2)
        precision = 1.0 / mu_sd**2 + weight.sum(-1)
        return weight, precision, (weight * y).sum(-1) / precision

    def log_q(t: np.ndarray, c: float) -> np.ndarray:
        tau = np.exp(t)
        weight, precision, mean = of_mu(c, tau)
        schools = c * (LOG_2PI + 2.0 * np.log(error)) + np.log1p(c * (tau[..., None] / error) ** 2) + weight * y**2
        of_tau = half_normal - 0.5 * (tau / tau_sd) ** 2 + t
        return of_tau - 0.5 * schools.sum(-1) - 0.5 * np.log(mu_sd**2 * precision) + 0.5 * precision * mean**2

    log_tau = _line(log_q, -40.0, 5.0)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        t = log_tau(c).draw(rng, n)
        tau = np.exp(t)
        _, precision, mean = of_mu(c, tau[:, 0])
        mu = (mean + rng.standard_normal(n) / np.sqrt(precision))[:, None]
        total = error**2 + c * tau**2
        theta = mu + c * tau**2 / total * (y - mu) + tau * error / np.sqrt(total) * rng.standard_normal((n, 8))
        return np.concatenate([mu, t, theta], axis=1)

    truth = _Truth(lambda c: log_tau(c).log_z, draw)
    prior = log_prior, lambda rng, n: draw(rng, n, 0.0)
    about = "eight schools, centred, d = 10 with log τ; the power of the likelihood from 0, the prior, to 1"
    return _posterior("eight-schools", prior, log_likelihood, 10, truth, about, unseen=False)


def _gaussian_process() -> ZooProblem:
    n, jitter = 30, 1e-4  # the jitter is part of the model, so that float32 can factorise it
    x = np.linspace(0.0, 1.0, n)
    y = np.sin(8.0 * x) + 0.5 * x + 0.25 * np.random.default_rng(8).standard_normal(n)
    squares = (x[:, None] - x) ** 2
    mean, sd = [np.log(0.2), 0.0, np.log(0.3)], [0.5, 0.5, 0.5]

    def log_likelihood(x: Array) -> Array:
        length, amplitude, noise = jnp.exp(x)
        kernel = amplitude**2 * (jnp.exp(-0.5 * squares / length**2) + jitter * jnp.eye(n)) + noise**2 * jnp.eye(n)
        factor = jnp.linalg.cholesky(kernel)
        white = jax.scipy.linalg.solve_triangular(factor, jnp.asarray(y, x.dtype), lower=True)
        return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diag(factor))) - 0.5 * n * LOG_2PI

    def on_grid(log_length: np.ndarray, log_amplitude: np.ndarray, log_noise: np.ndarray) -> np.ndarray:
        """The eigenvectors depend on the length alone."""
        lengths = np.exp(log_length).reshape(-1, 1, 1)
        values, vectors = np.linalg.eigh(np.exp(-0.5 * squares / lengths**2))
        seen = np.einsum("lij,i->lj", vectors, y) ** 2
        total = np.zeros(())
        for i in range(n):
            spread = np.exp(2.0 * log_amplitude) * (values[:, i, None, None] + jitter) + np.exp(2.0 * log_noise)
            total = total - 0.5 * (seen[:, i, None, None] / spread + np.log(spread) + LOG_2PI)
        return total

    truth = _normal_prior_truth(mean, sd, on_grid)
    about = "log length, amplitude and noise of a Gaussian process of 30 points, d = 3; the power of the likelihood"
    return _posterior("gaussian-process", _normal_prior(mean, sd), log_likelihood, 3, truth, about, unseen=False)


def _pressure() -> ZooProblem:
    d, depth = 6, 2.0

    def log_density(x: Array, c: Array) -> Array:
        inverse = jnp.exp(-4.0 * x)
        return jnp.sum(-4.0 * depth * inverse * (inverse - 1.0) - c * jnp.exp(x) + x)

    gap = _line(lambda s, c: -4.0 * depth * (np.exp(-8.0 * s) - np.exp(-4.0 * s)) - c * np.exp(s) + s, -1.0, 7.0)
    truth = _Truth(lambda c: d * gap(c).log_z, lambda rng, n, c: gap(c).draw(rng, n * d).reshape(n, d))
    make = partial(Target, log_density, (d,), Condition(0.2, 3.0, boundary=1.0))
    about = "log spacings of six particles that attract their neighbour, d = 6; the pressure from 0.2 to 3, data at 1"
    return _problem("pressure", make, truth, about, unseen=False)


def _curved() -> ZooProblem:
    width = 0.3

    def log_density(x: Array, c: Array) -> Array:
        s, b = 0.5 * 4.0**c, 0.25 * 4.0**c
        first, second = x[0::2], x[1::2]
        return -0.5 * jnp.sum((first / s) ** 2 + ((second - b * (first**2 - s**2)) / width) ** 2)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        s, b = 0.5 * 4.0**c, 0.25 * 4.0**c
        first = s * rng.standard_normal((n, 2))
        second = b * (first**2 - s**2) + width * rng.standard_normal((n, 2))
        return np.stack([first, second], axis=-1).reshape(n, 4)

    make = partial(Target, log_density, (4,), Condition(0.0, 1.0, scale="linear", boundary=0.0))
    truth = _Truth(lambda c: 2.0 * (LOG_2PI + np.log(0.5 * 4.0**c * width)), draw)
    about = "two bananas, d = 4; width and curvature grow fourfold with c from 0, the data, to 1"
    return _problem("curved", make, truth, about, unseen=False)


def _student_t() -> ZooProblem:
    d, nu = 4, 5.0
    scale = np.array([[1.0, 0.5, 0.0, -0.3], [0.5, 2.0, 0.4, 0.0], [0.0, 0.4, 0.5, 0.1], [-0.3, 0.0, 0.1, 1.0]])
    precision, root = np.linalg.inv(scale), np.linalg.cholesky(scale)

    def log_density(x: Array, c: Array) -> Array:
        return -0.5 * c * (nu + d) * jnp.log1p(x @ precision @ x / nu)

    def degrees(c: float) -> float:
        """A power of a t is a t with other degrees of freedom, its scale multiplied by ν over them."""
        return c * (nu + d) - d

    def log_z(c: float) -> float:
        ratio = gammaln(0.5 * degrees(c)) - gammaln(0.5 * (degrees(c) + d))
        return ratio + 0.5 * d * np.log(nu * np.pi) + 0.5 * np.linalg.slogdet(scale)[1]

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return rng.standard_normal((n, d)) @ root.T * np.sqrt(nu / rng.chisquare(degrees(c), (n, 1)))

    make = partial(Target, log_density, (d,), Condition(0.8, 3.0, boundary=1.0))
    about = "a Student t of 5 degrees of freedom, d = 4; its power from 0.8 to 3, data at 1"
    return _problem("student-t", make, _Truth(log_z, draw), about, unseen=True)


def _mueller_brown() -> ZooProblem:
    height = 0.1 * np.array([-200.0, -100.0, -170.0, 15.0])
    a, b = np.array([-1.0, -1.0, -6.5, 0.7]), np.array([0.0, 0.0, 11.0, 0.6])
    c_, x0, y0 = np.array([-10.0, -10.0, -6.5, 0.7]), np.array([1.0, 0.0, -0.5, -1.0]), np.array([0.0, 0.5, 1.5, 1.0])

    def log_density(x: Array, c: Array) -> Array:
        u, v = x[0] - x0, x[1] - y0
        return -jnp.sum(height * jnp.exp(a * u**2 + b * u * v + c_ * v**2)) / c

    def log_q(c: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        energy = np.zeros(())
        for i in range(4):
            u, v = x - x0[i], y - y0[i]
            energy = energy + height[i] * np.exp(a[i] * u**2 + b[i] * u * v + c_[i] * v**2)
        return -energy / c

    grid = lru_cache(maxsize=8)(lambda c: _Grid(partial(log_q, c), [(-4.0, 4.0), (-4.0, 6.0)], 800))
    truth = _Truth(lambda c: grid(c).log_z, lambda rng, n, c: grid(c).draw(rng, n))
    make = partial(Target, log_density, (2,), Condition(1.0, 3.0, boundary=3.0))
    about = "the Müller-Brown potential over 10, d = 2; the temperature from 1 to 3, data at 3"
    return _problem("mueller-brown", make, truth, about, unseen=True)


def _mode_gained() -> ZooProblem:
    return _mixture(
        "mode-gained",
        [[-3.0, -1.0], [2.0, 3.0], [3.0, -3.0]],
        [[[1.0, 0.3], [0.3, 0.5]], [[0.4, -0.2], [-0.2, 0.6]], [[0.5, 0.2], [0.2, 0.4]]],
        [0.55, 0.448, 0.002],
        [0.2, 0.15, 0.65],
        "three Gaussians, d = 2; the weight of one grows from 0.002 at c = 0, the data, to 0.65 at c = 1",
        unseen=True,
    )


def _bounded_prior() -> ZooProblem:
    trials, counts = np.array([30.0, 40.0, 50.0]), np.array([25.0, 19.0, 12.0])

    def log_density(x: Array, c: Array) -> Array:
        p = jnp.clip(x, 1e-6, 1.0 - 1e-6)  # the logarithms stay finite on the boundaries
        p = jnp.stack([p[0], p[0] * p[1], p[1] * p[2]])
        inside = jnp.all((x >= 0.0) & (x <= 1.0))
        return jnp.where(inside, c * jnp.sum(counts * jnp.log(p) + (trials - counts) * jnp.log1p(-p)), -1e4)

    def log_q(c: float, *logits: np.ndarray) -> np.ndarray:
        """In logits, where the density vanishes smoothly at the edges."""
        p = [expit(z) for z in logits]
        jacobian = sum(-np.logaddexp(0.0, z) - np.logaddexp(0.0, -z) for z in logits)
        chances = zip((p[0], p[0] * p[1], p[1] * p[2]), trials, counts, strict=True)
        return jacobian + c * sum(k * np.log(q) + (n - k) * np.log1p(-q) for q, n, k in chances)

    grid = lru_cache(maxsize=8)(lambda c: _Grid(partial(log_q, c), [(-26.0, 26.0)] * 3, 100))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        x = rng.random((n, 3)) if c == 0.0 else expit(grid(c).draw(rng, n))
        return np.clip(x, 1e-7, 1.0 - 1e-7)  # float32 would round some onto the boundaries

    condition = Condition(0.0, 1.0, scale="linear", boundary=0.0)
    make = partial(Target, log_density, (3,), condition, bounds=((0.0, 1.0),) * 3)
    truth = _Truth(lambda c: grid(c).log_z, draw)
    about = "three probabilities from binomial counts of their products, a unit cube; the power of the likelihood"
    return _problem("bounded-prior", make, truth, about, unseen=True)


def _gaussian_chain() -> ZooProblem:
    d, mass = 64, 0.2
    bonds = np.diff(np.eye(d), axis=0)
    values, vectors = np.linalg.eigh(bonds.T @ bonds)

    def log_density(x: Array, c: Array) -> Array:
        return -0.5 * mass * jnp.sum(x**2) - 0.5 * c * jnp.sum(jnp.diff(x) ** 2)

    def log_z(c: float) -> float:
        return 0.5 * (d * LOG_2PI - np.log(mass + c * values).sum())

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return (rng.standard_normal((n, d)) / np.sqrt(mass + c * values)) @ vectors.T

    make = partial(Target, log_density, (d,), Condition(0.2, 20.0, boundary=2.0))
    about = "an open chain of springs, d = 64; their stiffness from 0.2 to 20, data at 2"
    return _problem("gaussian-chain-64", make, _Truth(log_z, draw), about, unseen=True)


def _phi4() -> ZooProblem:
    target = ScalarField(6, 0.5, condition=Condition(0.20, 0.27, boundary=0.24))
    chains = MarkovChains()

    def sample(key: Array, n: int, c: float) -> Array:
        settings = {"target": target.config(), "kappa": c, "n": n, "key": jax.random.key_data(key).tolist()}
        settings["chains"] = chains
        return jnp.asarray(cached("zoo-phi4", settings, lambda: {"x": chains.sample(target, key, n, c)[0]})["x"])

    def data(target: AbstractTarget, key: Array) -> dict[float, Array]:
        return {c: sample(key, 20_000, c) for c in target.condition.boundary}

    about = "a scalar field on a 6 x 6 lattice, d = 36; the hopping parameter from 0.20 to 0.27, HMC at 0.24"
    return ZooProblem("phi4", True, lambda: target, data, None, sample, about)


def _ode() -> ZooProblem:
    substeps, interval, error = 8, 0.5, 0.15
    times = interval * np.arange(1, 13)
    mean, sd = [0.0, np.log(10.0), 0.0], [0.5, 0.5, 0.5]

    def log_size(log_r: np.ndarray, log_capacity: np.ndarray, log_start: np.ndarray, t: float) -> np.ndarray:
        """Of the population at time t, in closed form."""
        return log_capacity - np.log1p(np.expm1(log_capacity - log_start) * np.exp(-np.exp(log_r) * t))

    noise = error * np.random.default_rng(17).standard_normal(len(times))
    one = np.array([1.2, 8.0, 0.7])
    y = np.array([float(log_size(*np.log(one), t)) for t in times]) + noise

    def log_likelihood(x: Array) -> Array:
        r, capacity, start = jnp.exp(x)
        h = interval / substeps

        def slope(size: Array) -> Array:
            return r * size * (1.0 - size / capacity)

        def step(size: Array, _: None) -> tuple[Array, Array]:
            k1 = slope(size)
            k2 = slope(size + 0.5 * h * k1)
            k3 = slope(size + 0.5 * h * k2)
            size = size + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + slope(size + h * k3))
            return size, size

        path = jax.lax.scan(step, start, length=substeps * len(times))[1][substeps - 1 :: substeps]
        seen = jnp.log(jnp.maximum(path, 1e-6))  # an integrator that has failed may go below zero
        return jnp.sum(-0.5 * ((y - seen) / error) ** 2 - np.log(error) - 0.5 * LOG_2PI)

    def on_grid(*x: np.ndarray) -> np.ndarray:
        squares = sum(((log_size(*x, t) - v) / error) ** 2 for t, v in zip(times, y, strict=True))
        return -0.5 * squares - len(y) * (np.log(error) + 0.5 * LOG_2PI)

    truth = _normal_prior_truth(mean, sd, on_grid)
    about = "log rate, capacity and start of logistic growth, integrated, d = 3; the power of the likelihood"
    return _posterior("ode", _normal_prior(mean, sd), log_likelihood, 3, truth, about, unseen=True)


def _alchemical() -> ZooProblem:
    stiffness, depth, soft = 2.0, 1.5, 0.5

    def log_density(x: Array, c: Array) -> Array:
        distance = jnp.sum((x[:3] - x[3:]) ** 2)
        core = 1.0 / (soft * (1.0 - c) + distance**3)
        return -0.5 * stiffness * jnp.sum(x**2) - 4.0 * depth * c * core * (core - 1.0)

    def log_q(r: np.ndarray, c: float) -> np.ndarray:
        """Of the length of (x1 - x2)/√2, independent of its direction and of (x1 + x2)/√2."""
        core = soft * (1.0 - c) + 8.0 * r**6
        return 2.0 * np.log(r) - 0.5 * stiffness * r**2 - 4.0 * depth * c * (core**-2 - 1.0 / core)

    radial = _line(log_q, 0.0, 10.0)

    def log_z(c: float) -> float:
        return radial(c).log_z + np.log(4.0 * np.pi) + 1.5 * (LOG_2PI - np.log(stiffness))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        direction = rng.standard_normal((n, 3))
        apart = radial(c).draw(rng, n) * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        centre = rng.standard_normal((n, 3)) / np.sqrt(stiffness)
        return np.concatenate([centre + apart, centre - apart], axis=1) / np.sqrt(2.0)

    make = partial(Target, log_density, (6,), Condition(0.0, 1.0, scale="linear", boundary=0.0))
    about = "two particles in one trap, d = 6; their soft-core Lennard-Jones force from 0, the data, to 1"
    return _problem("alchemical", make, _Truth(log_z, draw), about, unseen=True)


def _logistic_regression() -> ZooProblem:
    d, rows, nu = 9, 60, 12.0
    rng = np.random.default_rng(19)
    features = np.concatenate([np.ones((rows, 1)), rng.standard_normal((rows, d - 1))], axis=1)
    chance = expit(features @ np.array([0.3, 1.5, -1.0, 0.5, 0.0, 0.0, 2.0, -0.5, 0.2]))
    signed = np.where(rng.random(rows) < chance, 1.0, -1.0)[:, None] * features
    prior = _normal_prior([0.0] * d, [1.0] * d)

    def log_likelihood(x: Array) -> Array:
        return -jnp.sum(jax.nn.softplus(-(jnp.asarray(signed, x.dtype) @ x)))

    def log_q(x: np.ndarray, c: float) -> np.ndarray:
        return -0.5 * ((x**2).sum(-1) + d * LOG_2PI) - c * np.logaddexp(0.0, -x @ signed.T).sum(-1)

    def student(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_normal((n, d)) * np.sqrt(nu / rng.chisquare(nu, (n, 1)))

    def weigh(
        z: np.ndarray, c: float, mean: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The states of Student draws, and the log weights there of q and of the Gaussian."""
        root, squares = np.linalg.cholesky(covariance), (z**2).sum(-1)
        x = mean + z @ root.T
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * np.log(nu * np.pi)
        log_t = constant - 0.5 * (nu + d) * np.log1p(squares / nu)
        log_gauss = -0.5 * (squares + d * LOG_2PI)
        return x, log_q(x, c) - log_t + np.log(np.diag(root)).sum(), log_gauss - log_t

    @lru_cache(maxsize=64)
    def moments(c: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance: at first of Laplace's method, then by importance sampling."""
        mean, precision = np.zeros(d), np.eye(d)
        for _ in range(50):
            p = expit(-signed @ mean)
            precision = np.eye(d) + c * (signed.T * (p * (1.0 - p))) @ signed
            mean = mean + np.linalg.solve(precision, c * signed.T @ p - mean)
        x, log_weight, _ = weigh(student(np.random.default_rng(0), 50_000), c, mean, np.linalg.inv(precision))
        weight = np.exp(log_weight - logsumexp(log_weight))
        return weight @ x, np.cov(x.T, aweights=weight)

    @lru_cache(maxsize=64)
    def log_z(c: float) -> float:
        """By importance sampling, to 3e-4: mirrored draws, and a Gaussian whose integral is known, take noise away."""
        z = student(np.random.default_rng(1), 100_000)
        _, log_weight, log_gauss = weigh(np.concatenate([z, -z]), c, *moments(c))
        q, gauss = (np.exp(w - log_weight.max()).reshape(2, -1).mean(0) for w in (log_weight, log_gauss))
        covariance = np.cov(q, gauss)
        excess = gauss.mean() - np.exp(-log_weight.max())
        return np.log(q.mean() - covariance[0, 1] / covariance[1, 1] * excess) + log_weight.max()

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        """By rejection, with the largest weight among many draws for the bound, which is nearly the bound."""
        top = weigh(student(np.random.default_rng(1), 100_000), c, *moments(c))[1].max()
        kept = np.zeros((0, d))
        while len(kept) < n:
            x, log_weight, _ = weigh(student(rng, 2 * n), c, *moments(c))
            kept = np.concatenate([kept, x[np.log(rng.random(len(x))) < log_weight - top]])
        return kept[:n]

    about = "coefficients of a logistic regression on 60 rows, d = 9; the power of the likelihood"
    truth = _Truth(log_z, draw)
    return _posterior("logistic-regression", prior, log_likelihood, d, truth, about, unseen=True)


def _tilted_well() -> ZooProblem:
    def log_density(x: Array, c: Array) -> Array:
        return jnp.sum(-2.0 * (x**4 - 3.0 * x**2) + c * x)

    well = _line(lambda x, c: -2.0 * (x**4 - 3.0 * x**2) + c * x, -4.0, 4.0)
    make = partial(Target, log_density, (1,), Condition(-2.0, 2.0, scale="linear", boundary=0.0))
    truth = _Truth(lambda c: well(c).log_z, lambda rng, n, c: well(c).draw(rng, n))
    about = "a double well, d = 1; its tilt from -2 to 2, data at 0"
    return _problem("tilted-well", make, truth, about, unseen=True)


PROBLEMS: tuple[ZooProblem, ...] = (
    _ring(),
    _correlation(),
    _funnel(),
    _mode_lost(),
    _many_well(),
    _xy_chain(),
    _eight_schools(),
    _gaussian_process(),
    _pressure(),
    _curved(),
    _student_t(),
    _mueller_brown(),
    _mode_gained(),
    _bounded_prior(),
    _gaussian_chain(),
    _phi4(),
    _ode(),
    _alchemical(),
    _logistic_regression(),
    _tilted_well(),
)
