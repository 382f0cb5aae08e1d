"""The zoo's truths against its densities: NumPy's integrals and samplers on one side, JAX's functions on the other."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY

from benchmarks.problems import PROBLEMS

ZOO = {p.name: p for p in PROBLEMS}
EXACT = [p.name for p in PROBLEMS if p.log_z is not None]
ALL = [pytest.param(p.name, marks=[pytest.mark.slow] if p.name == "phi4" else []) for p in PROBLEMS]
SIGMAS, N = 5.0, 10_000


@cache
def target(name):
    return ZOO[name].make()


@cache
def data(name):
    """The boundary value and the data there."""
    ((c0, x),) = ZOO[name].data(target(name), KEY).items()
    return c0, x


@cache
def functions(name):
    """log q, ∂_c log q and ∂_x log q of a batch."""
    one = target(name)
    scores = jax.grad(one.log_density)
    return tuple(jax.jit(jax.vmap(f, in_axes=(0, None))) for f in (one.log_density, one.condition_derivative, scores))


def values(f, x, c):
    return np.asarray(f(x, jnp.asarray(c, float)), np.float64)


def samples(name, c, n=N):
    c0, x = data(name)
    return x[:n] if c == c0 else ZOO[name].sample(jax.random.fold_in(KEY, round(1000 * c) % 65_521), n, c)


def conditions(name):
    """The boundary value, both ends and two values between, without the end where a mode has no samples left."""
    values = {data(name)[0], *target(name).condition.grid(4).tolist()}
    return sorted(values - {1.0} if name == "mode-lost" else values)


def within(x, expected):
    """Whether the mean over the first axis is the expected one, up to its standard error."""
    error = np.std(x, axis=0, ddof=1) / np.sqrt(len(x))
    return np.all(np.abs(np.mean(x, axis=0) - expected) < SIGMAS * error + 1e-4)


def test_half_of_the_problems_are_unseen():
    assert len(ZOO) == len(PROBLEMS) >= 16
    assert 2 * sum(p.unseen for p in PROBLEMS) == len(PROBLEMS)
    assert all(p.about and "\n" not in p.about for p in PROBLEMS)


@pytest.mark.parametrize("name", ALL)
def test_data_lie_where_the_density_is_finite(name):
    c0, x = data(name)
    condition = target(name).condition
    assert condition.boundary == (c0,)
    assert x.shape == (20_000 if name == "phi4" else 50_000, *target(name).shape)
    assert x.dtype == jnp.float32
    assert np.isfinite(x).all()
    for c in (c0, condition.low, condition.high):
        assert all(np.isfinite(values(f, x[:N], c)).all() for f in functions(name))


@pytest.mark.parametrize("name", EXACT)
def test_samples_depend_on_the_key_alone(name):
    first, second, other = (ZOO[name].sample(jax.random.key(i), 50, target(name).condition.low) for i in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.any(np.asarray(first) == np.asarray(other))


def vector_field(name, x):
    """A field v and the ∂_i v_i; it is tangent to a wall, periodic in angles, and of finite variance."""
    if name == "xy-chain":
        steps = x - np.roll(x, -1, axis=1)
        return np.sin(steps), np.cos(steps)
    if name == "bounded-prior":
        return x * (1 - x), 1 - 2 * x
    v, slope = x.copy(), np.ones_like(x)
    if name == "eight-schools":
        mu, tau = x[:, 0], np.exp(x[:, 1])
        slope[:, 0] = tau**2 / (1 + tau**2)
        v[:, 0] = mu * slope[:, 0]
        v[:, 2:] = x[:, 2:] - mu[:, None]
    return v, slope


@pytest.mark.parametrize("name", ALL)
def test_samples_follow_the_density(name):
    """E[v_i ∂_i log q + ∂_i v_i] = 0 in every coordinate, which knows nothing of log Z."""
    for c in conditions(name):
        x = samples(name, c)
        v, slope = vector_field(name, np.asarray(x, np.float64))
        assert within(v * values(functions(name)[2], x, c) + slope, 0.0), c


@pytest.mark.parametrize(
    ("name", "c", "weight"),
    [("mode-lost", 0.0, 0.5), ("mode-lost", 1.0, 1e-4), ("mode-gained", 0.0, 0.002), ("mode-gained", 1.0, 0.65)],
)
def test_a_mode_has_its_weight(name, c, weight):
    n = 400_000
    x = np.asarray(ZOO[name].sample(KEY, n, c))
    inside = (x[:, 0] > 1.2) & ((x[:, 1] < 0.0) if name == "mode-gained" else True)
    assert abs(inside.mean() - weight) < SIGMAS * np.sqrt(weight / n) + 0.01 * weight


def derivative(f, c, low, high):
    """Of f at c, within the range, to second order."""
    h = 3e-4 * (high - low)
    if low + h <= c <= high - h:
        return (f(c + h) - f(c - h)) / (2 * h)
    h = h if c < low + h else -h
    return (-3 * f(c) + 4 * f(c + h) - f(c + 2 * h)) / (2 * h)


@pytest.mark.parametrize("name", EXACT)
def test_log_z_has_the_mean_derivative_of_the_density(name):
    condition = target(name).condition
    for c in conditions(name):
        expected = derivative(ZOO[name].log_z, c, condition.low, condition.high)
        assert within(values(functions(name)[1], samples(name, c), c), expected), c


@pytest.mark.parametrize("name", EXACT)
def test_ratios_of_densities_have_the_ratio_of_z(name):
    """E_c[q(x|c')/q(x|c)] = Z(c')/Z(c), as far to both sides as the weights allow."""
    log_q, score, _ = functions(name)
    condition = target(name).condition
    for c in conditions(name):
        x = samples(name, c)
        step = min(0.5 / np.std(values(score, x, c)), 0.1 * (condition.high - condition.low))
        for there in (max(c - step, condition.low), min(c + step, condition.high)):
            if there != c:
                expected = ZOO[name].log_z(there) - ZOO[name].log_z(c)
                assert within(np.exp(values(log_q, x, there) - values(log_q, x, c) - expected), 1.0), (c, there)


# log Z itself, not only how it changes


def integral(log_q, box, points):
    """log ∫ q over a box, by the rule of midpoints."""
    axes = [low + (high - low) / points * (np.arange(points) + 0.5) for low, high in box]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(box))
    values = np.asarray(log_q(jnp.asarray(grid, float)), np.float64)
    return np.log(np.sum(np.exp(values - values.max()))) + values.max() + np.log(np.prod(np.diff(box) / points))


@pytest.mark.parametrize("name", [name for name in EXACT if ZOO[name].make().shape in ((1,), (2,), (3,))])
def test_log_z_is_the_integral_in_few_dimensions(name):
    condition = target(name).condition
    for c in (condition.low, condition.high):
        x = np.asarray(samples(name, c))
        low, high = x.min(axis=0), x.max(axis=0)
        reach = 0.25 * (high - low)
        box = np.stack([low - reach, high + reach], axis=-1)
        if name == "bounded-prior":
            box = np.array([[0.0, 1.0]] * 3)
        found = integral(lambda x, c=c: functions(name)[0](x, c), box, 60 if len(box) == 3 else 500)
        np.testing.assert_allclose(found, ZOO[name].log_z(c), atol=2e-3)


@pytest.mark.parametrize(("name", "block", "box"), [("many-well-32", 2, (-7.0, 7.0)), ("pressure", 1, (-1.0, 6.0))])
def test_log_z_is_the_sum_over_independent_parts(name, block, box):
    (d,), one = target(name).shape, target(name)
    for c in (one.condition.low, one.condition.high):
        rest = jnp.zeros(d)
        log_q = jax.vmap(lambda x, c=c, rest=rest: one.log_density(rest.at[:block].set(x), c))
        at_rest = float(one.log_density(rest, c))
        found = at_rest + d // block * (integral(log_q, np.array([box] * block), 500) - at_rest)
        np.testing.assert_allclose(found, ZOO[name].log_z(c), atol=2e-3)


def gaussian(x, mean, variance):
    return -0.5 * ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance))


def inner_density(name, x):
    """log of a normalised density within the reach of the samples' own."""
    if name == "funnel":
        return gaussian(x[:, 0], 0.0, 0.8) + gaussian(x[:, 1:], 0.0, 0.8 * np.exp(x[:, :1])).sum(axis=1)
    if name == "eight-schools":
        mu, t = x[:, :1], x[:, 1:2]
        schools = gaussian(x[:, 2:], mu, 0.8 * np.exp(2 * t))
        return (gaussian(mu, 0.0, 16.0) + gaussian(t, 1.5, 0.5)).sum(axis=1) + schools.sum(axis=1)
    if name == "xy-chain":
        return np.full(len(x), -12 * np.log(2 * np.pi))
    mean, root = x.mean(axis=0), np.linalg.cholesky(0.8 * np.cov(x.T))
    return gaussian(np.linalg.solve(root, (x - mean).T).T, 0.0, 1.0).sum(axis=1) - np.log(np.diag(root)).sum()


INNER = ["correlation", "funnel", "xy-chain", "eight-schools", "curved", "student-t", "gaussian-chain-64"]


@pytest.mark.parametrize("name", [*INNER, "alchemical", "logistic-regression"])
def test_log_z_is_that_of_the_density_in_many_dimensions(name):
    """E_p[φ/q] = 1/Z for every normalised φ, here one that lies within p."""
    far = {"correlation": 0.95, "gaussian-chain-64": 20.0, "student-t": 3.0, "logistic-regression": 1.0}
    for c in {data(name)[0], far.get(name, data(name)[0])}:
        x = samples(name, c, 50_000)
        ratio = np.exp(
            inner_density(name, np.asarray(x, np.float64)) - values(functions(name)[0], x, c) + ZOO[name].log_z(c)
        )
        assert ratio.std() < 5.0  # or the test could not fail
        assert within(ratio, 1.0), c


def test_every_problem_with_a_truth_has_its_log_z_tested():
    few = [name for name in EXACT if target(name).shape[0] <= 3]
    assert {*few, "many-well-32", "pressure", *INNER, "alchemical", "logistic-regression"} == set(EXACT)
