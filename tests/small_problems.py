"""What the test files share: a conditional Gaussian whose every quantity has a formula, the family it can learn, and
small flows with noise on their trainable arrays."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution

from trade import Adam, Condition, Schedule, Target, Trade, fit
from trade.flows import MLP, SplineFlow
from trade.objectives import CausalGrid, ForwardKL, Gradient, GradientNorm, GridExpectation
from trade.objectives.term import Clock, Problem, is_untrained
from trade.targets import boltzmann
from trade.training import Watch

KEY = jax.random.key(0, impl="rbg")  # compiles much faster than the default
TINY = MLP(width=8, depth=1)


class LinearGaussian(AbstractDistribution):
    """p(x|u) = N(mean + slope u, exp(log_scale + rate u)²): the cheapest flow there is."""

    mean: jax.Array
    slope: jax.Array
    log_scale: jax.Array
    rate: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, mean=0.0, slope=0.0, log_scale=0.0, rate=0.0, d=1):
        self.mean, self.slope, self.log_scale, self.rate = (
            jnp.full(d, v, dtype=float) for v in (mean, slope, log_scale, rate)
        )
        self.shape, self.cond_shape = (d,), (1,)

    def location(self, u):
        return self.mean + self.slope * u

    def deviation(self, u):
        return jnp.exp(self.log_scale + self.rate * u)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, self.location(condition[0]), self.deviation(condition[0])).sum()

    def _sample(self, key, condition=None):
        return self.location(condition[0]) + self.deviation(condition[0]) * jax.random.normal(key, self.shape)


def log_normal(x, mean=0.0, variance=1.0):
    """The log density of a one-dimensional normal, in NumPy."""
    return -0.5 * (np.asarray(x) - mean) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)


def minus_quadratic(x, c):
    return -(x**2).sum() / (2.0 * c)


@cache
def family(low=0.25, high=1.0, boundary=(1.0,), d=1, **options):
    """log q(x|c) = -|x|²/(2c), so that p(x|c) = N(0, c); the same object each time, to compile once."""
    options = {"rebuild": boltzmann, "log_partition": lambda c: 0.5 * d * np.log(2.0 * np.pi * c), **options}
    return Target(minus_quadratic, (d,), Condition(low, high, boundary=boundary), **options)


def data_at(c, n=512, d=1, seed=0):
    """Samples of N(0, c)."""
    return np.sqrt(c) * np.random.default_rng(seed).standard_normal((n, d))


def problem_of(target, *data):
    return Problem(target, target.condition, tuple(jnp.asarray(x, dtype=float) for x in data))


def clock_at(step=0, total=100, start=0):
    return Clock(jnp.asarray(step), total, start)


@dataclass(frozen=True)
class At:
    """A condition sampler that always gives the same chart coordinates."""

    u: tuple[float, ...]

    def init(self, problem):
        return ()

    def sample(self, state, key, n, problem, clock):
        return jnp.resize(jnp.asarray(self.u), n)

    def update(self, state, u, seen, problem, clock):
        return state

    def notes(self, state, problem):
        return {}


def is_close_mean(value, exact, deviation, n, factor=4.5):
    """Whether a mean of n draws lies within a few standard errors of its exact value."""
    return abs(float(value) - exact) < factor * deviation / np.sqrt(n)


def random_gaussian(key):
    """A flow as a function of a key."""
    return LinearGaussian(*(0.3 * jax.random.normal(key, (4,))))


def stateful_run(**options):
    """A run in which everything that can have a state has one; what is due falls on different steps."""
    gradient = Gradient(
        CausalGrid(5),
        expectation=GridExpectation(points=5, every=7, samples=16),
        conditions_per_step=2,
        points_per_condition=8,
    )
    return fit(
        family(),
        {1.0: data_at(1.0)},
        flow=random_gaussian,
        objective=Trade(gradient, ForwardKL(32), GradientNorm(every=5), start=20),
        steps=300,
        optimiser=Adam(0.02),
        validation={0.4: data_at(0.4, n=64, seed=1)},
        schedule=Schedule(report=10, evaluate=50, checkpoint=15),
        evaluation_samples=64,
        progress=False,
        **options,
    )


def ending_run(**options):
    """The default objective, small, on data of a family it can learn: it ends by itself, before its budget."""
    watch = Watch(patience=0.05, gain=0.02, slack=0.0, significance=0.0)  # every rise of the boundary is a loss
    options = {"flow": random_gaussian, "watch": watch, **options}
    return fit(
        family(),
        {1.0: data_at(1.0, n=2000)},
        objective=Trade(Gradient(conditions_per_step=4, points_per_condition=32), ForwardKL(64)),
        steps=400,
        optimiser=Adam(0.02),
        schedule=Schedule(report=10, evaluate=10, checkpoint=15),
        evaluation_samples=64,
        progress=False,
        **options,
    )


def precision(dtype) -> AbstractContextManager:
    """Everything built inside has this dtype."""
    return jax.enable_x64(dtype == np.float64)


def noisy(tree, scale=0.15, seed=0):
    """The tree with noise on its trainable arrays; permutations and Standardise stay as they are."""
    rng = np.random.default_rng(seed)

    def move(leaf):
        trainable = eqx.is_inexact_array(leaf)
        return jnp.asarray(leaf + scale * rng.standard_normal(leaf.shape), leaf.dtype) if trainable else leaf

    return jax.tree.map(move, tree, is_leaf=is_untrained)


def cast(tree, dtype):
    """The tree with its floating-point arrays in another precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def small_flow(shape, condition, key=KEY, **options):
    """A flow of few small blocks, as built: the identity up to a permutation."""
    options = {"blocks": 2, "bins": 4, "network": TINY, **options}
    return SplineFlow(shape, condition, **options).build(key)


def gaussian_family(d=1, low=0.5, high=2.0, **options):
    """The family with an exact sampler."""

    def sample(key, n, c):
        return jnp.sqrt(c) * jax.random.normal(key, (n, d))

    return family(low, high, d=d, sampler=sample, **options)


def all_finite(tree) -> bool:
    """Whether every number of a pytree is finite."""
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))
