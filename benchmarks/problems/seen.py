"""The half of the zoo on which defaults may be chosen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ive

from benchmarks.problems.truth import (
    LOG_2PI,
    Truth,
    ZooProblem,
    mixture,
    normal_prior,
    normal_prior_truth,
    on_a_line,
    posterior,
    problem,
)
from trade import Condition, Target


def ring() -> ZooProblem:
    """A ring whose radius grows."""

    def log_density(x: Array, c: Array) -> Array:
        radius = jnp.sqrt(jnp.sum(x**2) + 1e-12)  # differentiable at the origin
        return -0.5 * ((radius - c) / 0.1) ** 2

    radial = on_a_line(lambda r, c: np.log(r) - 0.5 * ((r - c) / 0.1) ** 2, 0.0, 6.0)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        angle = rng.uniform(-np.pi, np.pi, n)
        return radial(c).draw(rng, n) * np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    make = partial(Target, log_density, (2,), Condition(1.0, 3.0, scale="linear", boundary=1.0))
    about = "a ring in the plane, d = 2; its radius from 1 to 3, data at 1"
    return problem("ring", make, Truth(lambda c: radial(c).log_z + LOG_2PI, draw), about, unseen=False)


def correlation() -> ZooProblem:
    """A Gaussian whose coordinates become correlated."""
    d = 10

    def log_density(x: Array, c: Array) -> Array:
        return -0.5 * (jnp.sum(x**2) - c * jnp.sum(x) ** 2 / (1.0 + (d - 1) * c)) / (1.0 - c)

    def log_z(c: float) -> float:
        return 0.5 * (d * LOG_2PI + (d - 1) * np.log1p(-c) + np.log1p((d - 1) * c))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        return np.sqrt(1.0 - c) * rng.standard_normal((n, d)) + np.sqrt(c) * rng.standard_normal((n, 1))

    make = partial(Target, log_density, (d,), Condition(0.0, 0.95, scale="linear", boundary=0.0))
    about = "a Gaussian with equal correlations, d = 10; the correlation from 0 to 0.95, data at 0"
    return problem("correlation", make, Truth(log_z, draw), about, unseen=False)


def funnel() -> ZooProblem:
    """Neal's funnel."""
    d = 5

    def log_density(x: Array, c: Array) -> Array:
        v, rest = x[0], x[1:]
        return -0.5 * (v / c) ** 2 - 0.5 * jnp.exp(-v) * jnp.sum(rest**2) - 0.5 * (d - 1) * v

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        v = c * rng.standard_normal((n, 1))
        return np.concatenate([v, np.exp(0.5 * v) * rng.standard_normal((n, d - 1))], axis=1)

    make = partial(Target, log_density, (d,), Condition(0.5, 2.0, boundary=1.0))
    about = "Neal's funnel, d = 5; the width of its log variance from 0.5 to 2, data at 1"
    return problem("funnel", make, Truth(lambda c: 0.5 * d * LOG_2PI + np.log(c), draw), about, unseen=False)


def mode_lost() -> ZooProblem:
    """A mixture that loses a mode."""
    return mixture(
        "mode-lost",
        [[-3.0, 0.0], [3.0, 1.0]],
        [[[1.0, 0.6], [0.6, 0.8]], [[0.3, -0.1], [-0.1, 0.5]]],
        [0.5, 0.5],
        [0.9999, 0.0001],
        "two Gaussians, d = 2; the weight of one falls from 0.5 at c = 0, the data, to 0.0001 at c = 1",
        unseen=False,
    )


def many_well() -> ZooProblem:
    """Sixteen double wells beside sixteen normals."""
    pairs = 16

    def log_density(x: Array, c: Array) -> Array:
        first, second = x[0::2], x[1::2]
        return jnp.sum(-(first**4) + 4.0 * first**2 + 0.5 * first - 0.5 * second**2) / c

    well = on_a_line(lambda x, c: (-(x**4) + 4.0 * x**2 + 0.5 * x) / c, -5.0, 5.0)

    def log_z(c: float) -> float:
        return pairs * (well(c).log_z + 0.5 * (LOG_2PI + np.log(c)))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        first = well(c).draw(rng, n * pairs).reshape(n, pairs)
        return np.stack([first, np.sqrt(c) * rng.standard_normal((n, pairs))], axis=-1).reshape(n, 2 * pairs)

    make = partial(Target, log_density, (2 * pairs,), Condition(0.6, 1.0, boundary=1.0))
    about = "sixteen double wells and as many Gaussians, d = 32; the temperature from 0.6 to 1, data at 1"
    return problem("many-well-32", make, Truth(log_z, draw), about, unseen=False)


def xy_chain() -> ZooProblem:
    """Spins of an XY chain."""
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
    return problem("xy-chain", make, Truth(log_z, draw), about, unseen=False)


def eight_schools() -> ZooProblem:
    """The eight schools from their prior."""
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

    log_tau = on_a_line(log_q, -40.0, 5.0)

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        t = log_tau(c).draw(rng, n)
        tau = np.exp(t)
        _, precision, mean = of_mu(c, tau[:, 0])
        mu = (mean + rng.standard_normal(n) / np.sqrt(precision))[:, None]
        total = error**2 + c * tau**2
        theta = mu + c * tau**2 / total * (y - mu) + tau * error / np.sqrt(total) * rng.standard_normal((n, 8))
        return np.concatenate([mu, t, theta], axis=1)

    truth = Truth(lambda c: log_tau(c).log_z, draw)
    prior = log_prior, lambda rng, n: draw(rng, n, 0.0)
    about = "eight schools, centred, d = 10 with log τ; the power of the likelihood from 0, the prior, to 1"
    return posterior("eight-schools", prior, log_likelihood, 10, truth, about, unseen=False)


def gaussian_process() -> ZooProblem:
    """Length, amplitude and noise of a Gaussian process."""
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

    truth = normal_prior_truth(mean, sd, on_grid)
    about = "log length, amplitude and noise of a Gaussian process of 30 points, d = 3; the power of the likelihood"
    return posterior("gaussian-process", normal_prior(mean, sd), log_likelihood, 3, truth, about, unseen=False)


def pressure() -> ZooProblem:
    """Spacings of six particles under a pressure."""
    d, depth = 6, 2.0

    def log_density(x: Array, c: Array) -> Array:
        inverse = jnp.exp(-4.0 * x)
        return jnp.sum(-4.0 * depth * inverse * (inverse - 1.0) - c * jnp.exp(x) + x)

    gap = on_a_line(lambda s, c: -4.0 * depth * (np.exp(-8.0 * s) - np.exp(-4.0 * s)) - c * np.exp(s) + s, -1.0, 7.0)
    truth = Truth(lambda c: d * gap(c).log_z, lambda rng, n, c: gap(c).draw(rng, n * d).reshape(n, d))
    make = partial(Target, log_density, (d,), Condition(0.2, 3.0, boundary=1.0))
    about = "log spacings of six particles that attract their neighbour, d = 6; the pressure from 0.2 to 3, data at 1"
    return problem("pressure", make, truth, about, unseen=False)


def curved() -> ZooProblem:
    """Two bananas whose width and curvature grow."""
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
    truth = Truth(lambda c: 2.0 * (LOG_2PI + np.log(0.5 * 4.0**c * width)), draw)
    about = "two bananas, d = 4; width and curvature grow fourfold with c from 0, the data, to 1"
    return problem("curved", make, truth, about, unseen=False)
