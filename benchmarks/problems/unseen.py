"""The half of the zoo that no setting was chosen on: the defaults must work here as they are."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import expit, gammaln, logsumexp

from benchmarks.problems.truth import (
    LOG_2PI,
    Grid,
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
from trade.abstract_target import AbstractTarget
from trade.experiments.cache import cached
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField


def student_t() -> ZooProblem:
    """A Student's t with correlations."""
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
    return problem("student-t", make, Truth(log_z, draw), about, unseen=True)


def mueller_brown() -> ZooProblem:
    """The Müller-Brown potential."""
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

    grid = lru_cache(maxsize=8)(lambda c: Grid(partial(log_q, c), [(-4.0, 4.0), (-4.0, 6.0)], 800))
    truth = Truth(lambda c: grid(c).log_z, lambda rng, n, c: grid(c).draw(rng, n))
    make = partial(Target, log_density, (2,), Condition(1.0, 3.0, boundary=3.0))
    about = "the Müller-Brown potential over 10, d = 2; the temperature from 1 to 3, data at 3"
    return problem("mueller-brown", make, truth, about, unseen=True)


def mode_gained() -> ZooProblem:
    """A mixture that gains a mode."""
    return mixture(
        "mode-gained",
        [[-3.0, -1.0], [2.0, 3.0], [3.0, -3.0]],
        [[[1.0, 0.3], [0.3, 0.5]], [[0.4, -0.2], [-0.2, 0.6]], [[0.5, 0.2], [0.2, 0.4]]],
        [0.55, 0.448, 0.002],
        [0.2, 0.15, 0.65],
        "three Gaussians, d = 2; the weight of one grows from 0.002 at c = 0, the data, to 0.65 at c = 1",
        unseen=True,
    )


def bounded_prior() -> ZooProblem:
    """Three probabilities in a unit cube."""
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

    grid = lru_cache(maxsize=8)(lambda c: Grid(partial(log_q, c), [(-26.0, 26.0)] * 3, 100))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        x = rng.random((n, 3)) if c == 0.0 else expit(grid(c).draw(rng, n))
        return np.clip(x, 1e-7, 1.0 - 1e-7)  # float32 would round some onto the boundaries

    condition = Condition(0.0, 1.0, scale="linear", boundary=0.0)
    make = partial(Target, log_density, (3,), condition, bounds=((0.0, 1.0),) * 3)
    truth = Truth(lambda c: grid(c).log_z, draw)
    about = "three probabilities from binomial counts of their products, a unit cube; the power of the likelihood"
    return problem("bounded-prior", make, truth, about, unseen=True)


def gaussian_chain() -> ZooProblem:
    """A chain of sixty-four springs."""
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
    return problem("gaussian-chain-64", make, Truth(log_z, draw), about, unseen=True)


def phi4() -> ZooProblem:
    """A lattice field with a coupling of order one."""
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


def ode() -> ZooProblem:
    """Rate, capacity and start of logistic growth."""
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

    truth = normal_prior_truth(mean, sd, on_grid)
    about = "log rate, capacity and start of logistic growth, integrated, d = 3; the power of the likelihood"
    return posterior("ode", normal_prior(mean, sd), log_likelihood, 3, truth, about, unseen=True)


def alchemical() -> ZooProblem:
    """Two particles whose interaction is switched on."""
    stiffness, depth, soft = 2.0, 1.5, 0.5

    def log_density(x: Array, c: Array) -> Array:
        distance = jnp.sum((x[:3] - x[3:]) ** 2)
        core = 1.0 / (soft * (1.0 - c) + distance**3)
        return -0.5 * stiffness * jnp.sum(x**2) - 4.0 * depth * c * core * (core - 1.0)

    def log_q(r: np.ndarray, c: float) -> np.ndarray:
        """Of the length of (x1 - x2)/√2, independent of its direction and of (x1 + x2)/√2."""
        core = soft * (1.0 - c) + 8.0 * r**6
        return 2.0 * np.log(r) - 0.5 * stiffness * r**2 - 4.0 * depth * c * (core**-2 - 1.0 / core)

    radial = on_a_line(log_q, 0.0, 10.0)

    def log_z(c: float) -> float:
        return radial(c).log_z + np.log(4.0 * np.pi) + 1.5 * (LOG_2PI - np.log(stiffness))

    def draw(rng: np.random.Generator, n: int, c: float) -> np.ndarray:
        direction = rng.standard_normal((n, 3))
        apart = radial(c).draw(rng, n) * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        centre = rng.standard_normal((n, 3)) / np.sqrt(stiffness)
        return np.concatenate([centre + apart, centre - apart], axis=1) / np.sqrt(2.0)

    make = partial(Target, log_density, (6,), Condition(0.0, 1.0, scale="linear", boundary=0.0))
    about = "two particles in one trap, d = 6; their soft-core Lennard-Jones force from 0, the data, to 1"
    return problem("alchemical", make, Truth(log_z, draw), about, unseen=True)


def logistic_regression() -> ZooProblem:
    """Nine coefficients of a logistic regression."""
    d, rows, nu = 9, 60, 12.0
    rng = np.random.default_rng(19)
    features = np.concatenate([np.ones((rows, 1)), rng.standard_normal((rows, d - 1))], axis=1)
    chance = expit(features @ np.array([0.3, 1.5, -1.0, 0.5, 0.0, 0.0, 2.0, -0.5, 0.2]))
    signed = np.where(rng.random(rows) < chance, 1.0, -1.0)[:, None] * features
    prior = normal_prior([0.0] * d, [1.0] * d)

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
    truth = Truth(log_z, draw)
    return posterior("logistic-regression", prior, log_likelihood, d, truth, about, unseen=True)


def tilted_well() -> ZooProblem:
    """A double well that tilts."""

    def log_density(x: Array, c: Array) -> Array:
        return jnp.sum(-2.0 * (x**4 - 3.0 * x**2) + c * x)

    well = on_a_line(lambda x, c: -2.0 * (x**4 - 3.0 * x**2) + c * x, -4.0, 4.0)
    make = partial(Target, log_density, (1,), Condition(-2.0, 2.0, scale="linear", boundary=0.0))
    truth = Truth(lambda c: well(c).log_z, lambda rng, n, c: well(c).draw(rng, n))
    about = "a double well, d = 1; its tilt from -2 to 2, data at 0"
    return problem("tilted-well", make, truth, about, unseen=True)
