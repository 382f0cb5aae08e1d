from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from small_problems import KEY

from trade import Condition, Target, TradeError
from trade.abstract_target import AbstractTarget
from trade.targets import Augmented, GaussianMixture, MultiWell, multiwell, six_modes

# The Gaussian mixture


@cache
def six():
    return six_modes()


@cache
def brute_force(c):
    """log Z, mean and covariance of the six-mode target at c, on a fine grid, from SciPy's densities alone."""
    means, covariances, weights = (np.asarray(p) for p in six().parameters)
    reach = 10.0 / np.sqrt(min(c, 1.0))
    x, y = np.linspace(-6 - reach, 6 + reach, 1400), np.linspace(-6 - reach, 8 + reach, 1300)
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    modes = zip(means, covariances, weights, strict=True)
    density = sum(w * multivariate_normal(m, s).pdf(grid) for m, s, w in modes) ** c
    total = density.sum()
    mean = np.einsum("xy,xyi->i", density, grid) / total
    covariance = np.einsum("xy,xyi,xyj->ij", density, grid - mean, grid - mean) / total
    return np.log(total * (x[1] - x[0]) * (y[1] - y[0])), mean, covariance


POWERS = [4.8, 1.0, 0.2]


@pytest.mark.parametrize("c", POWERS)
def test_mixture_log_partition_agrees_with_brute_force(c):
    np.testing.assert_allclose(six().log_partition(c), brute_force(c)[0], atol=1e-5)


def test_mixture_is_normalised_at_one():
    assert abs(six().log_partition(1.0)) < 1e-8
    one = GaussianMixture([[0.0], [3.0]], [[[1.0]], [[0.25]]], weights=[1.0, 3.0])
    assert abs(one.log_partition(1.0)) < 1e-8


def test_power_of_one_gaussian_has_a_closed_log_partition():
    # ∫ N(x; 0, s²)^c = (2π s²)^((1-c)/2) c^(-1/2)
    one = GaussianMixture([[2.0]], [[[0.49]]])
    for c in (0.2, 3.0):
        expected = 0.5 * (1 - c) * np.log(2 * np.pi * 0.49) - 0.5 * np.log(c)
        np.testing.assert_allclose(one.log_partition(c), expected, atol=1e-8)


@pytest.mark.parametrize("c", POWERS)
def test_mixture_samples_have_the_moments_of_the_density(c):
    n = 20_000
    x = np.asarray(six().sample(KEY, n, c), np.float64)
    _, mean, covariance = brute_force(c)
    assert x.shape == (n, 2)
    assert np.all(np.abs(x.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(covariance) / n))
    products = np.einsum("ni,nj->nij", x - mean, x - mean)
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 5 * products.std(axis=0) / np.sqrt(n))


def test_mixture_samples_depend_on_the_key_alone():
    first, second = (np.asarray(six().sample(jax.random.key(1), 50, 0.5)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.any(np.asarray(six().sample(jax.random.key(2), 50, 0.5)) == first)


def test_mixture_log_density_is_the_power_of_the_mixture():
    target = GaussianMixture([[0.0, 1.0], [2.0, -1.0]], [np.eye(2), [[0.5, 0.2], [0.2, 0.3]]], weights=[3.0, 1.0])
    x = np.random.default_rng(0).standard_normal((20, 2)) * 3
    first = multivariate_normal([0.0, 1.0], np.eye(2)).pdf(x)
    second = multivariate_normal([2.0, -1.0], [[0.5, 0.2], [0.2, 0.3]]).pdf(x)
    value = jax.vmap(lambda v: target.log_density(v, 2.5))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(value, 2.5 * np.log(0.75 * first + 0.25 * second), rtol=1e-4)


def test_mixture_is_rebuilt_from_its_config():
    again = GaussianMixture(**six().config())
    assert again.condition == six().condition
    for mine, theirs in zip(again.parameters, six().parameters, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("target", [six_modes, MultiWell], ids=["mixture", "multi-well"])
def test_given_derivative_and_energy_free_rule_are_those_of_the_density(target):
    target = target()
    x = jnp.asarray(np.random.default_rng(0).standard_normal(target.shape), jnp.float32)
    c, c0 = jnp.float32(0.7), jnp.float32(1.0)
    automatic = AbstractTarget.condition_derivative(target, x, c)
    np.testing.assert_allclose(target.condition_derivative(x, c), automatic, rtol=1e-5)
    rebuilt = target.rebuild(target.log_density(x, c0), x, c, c0)
    np.testing.assert_allclose(rebuilt, target.log_density(x, c), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]), "symmetric and positive definite"),
        (([[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]]), "symmetric and positive definite"),
        (([[0.0, 0.0]], [[[1.0, 0.0], [0.0, 0.0]]]), "symmetric and positive definite"),
        (([[0.0, 0.0]], [[[np.nan, 0.0], [0.0, 1.0]]]), "symmetric and positive definite"),
        (([[0.0, 0.0]], [np.eye(3)]), "means .* and covariances"),
        (([0.0, 0.0], [np.eye(2)]), "means .* and covariances"),
        (([[0.0, 0.0]], [np.eye(2), np.eye(2)]), "means .* and covariances"),
        (([[0.0], [1.0]], np.ones((2, 1, 1)), Condition(0.5, 2.0), [1.0, -1.0]), "weights must be 2 positive"),
        (([[0.0], [1.0]], np.ones((2, 1, 1)), Condition(0.5, 2.0), [1.0]), "weights must be 2 positive"),
    ],
)
def test_bad_mixture_is_refused(arguments, message):
    with pytest.raises(TradeError, match=message):
        GaussianMixture(*arguments)


def test_mixture_refuses_what_it_does_not_know():
    with pytest.raises(TradeError, match="d = 1 and 2 only, got d = 3"):
        GaussianMixture(np.zeros((1, 3)), [np.eye(3)]).log_partition(1.0)
    with pytest.raises(TradeError, match="outside"):
        six().sample(KEY, 5, 10.0)


# The multi-well

TILTED = MultiWell(d=3, a=0.6, b=-3.0, c=0.7, condition=Condition(0.4, 3.0))


def quadrature(target, temperature, power=0):
    """∫ x^power exp(-E(x)/T) dx for one coordinate, by Riemann sum."""
    x = np.linspace(-7.0, 7.0, 70_001)
    return np.sum(x**power * np.exp(-(target.a * x + target.b * x**2 + target.c * x**4) / temperature)) * (x[1] - x[0])


def test_multiwell_has_the_entropies_of_the_paper():
    target = MultiWell()
    assert target.shape == (5,)
    np.testing.assert_allclose(target.entropy(0.5), 2.2067, atol=1e-3)
    np.testing.assert_allclose(target.entropy(1.0), 4.3616, atol=1e-3)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_multiwell_log_partition_agrees_with_brute_force(temperature):
    expected = 3 * np.log(quadrature(TILTED, temperature))
    np.testing.assert_allclose(TILTED.log_partition(temperature), expected, rtol=1e-8)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_multiwell_samples_have_the_moments_of_the_density(temperature):
    n = 20_000
    x = np.asarray(TILTED.sample(KEY, n, temperature), np.float64)
    assert x.shape == (n, 3)
    for power in (1, 2, 3, 4):
        expected = quadrature(TILTED, temperature, power) / quadrature(TILTED, temperature)
        assert np.all(np.abs((x**power).mean(axis=0) - expected) < 5 * (x**power).std(axis=0) / np.sqrt(n))
    assert np.all(np.abs(np.corrcoef(x.T) - np.eye(3)) < 5 / np.sqrt(n))


def test_multiwell_entropy_is_the_mean_log_density_of_its_samples():
    x = TILTED.sample(KEY, 20_000, 1.0)
    surprise = -np.asarray(jax.vmap(lambda v: TILTED.log_density(v, 1.0))(x)) + TILTED.log_partition(1.0)
    assert abs(surprise.mean() - TILTED.entropy(1.0)) < 5 * surprise.std() / np.sqrt(len(x))


def test_multiwell_log_density_is_minus_energy_over_temperature():
    x = np.array([0.5, -1.0, 2.0])
    energy = sum(0.6 * v - 3.0 * v**2 + 0.7 * v**4 for v in x)
    np.testing.assert_allclose(TILTED.log_density(jnp.asarray(x), 0.4), -energy / 0.4, rtol=1e-5)


def test_multiwell_never_samples_the_end_of_its_table(monkeypatch):
    # A float32 uniform is exactly zero once in 2^23 draws; the state must still be one that occurs.
    monkeypatch.setattr(multiwell.jax.random, "uniform", lambda key, shape: jnp.zeros(shape))
    x = np.asarray(MultiWell(d=1).sample(KEY, 3, 1.0), np.float64)
    energy = -4 * x**2 + x**4
    assert np.all(energy + 4.0 < 25.0)


def test_multiwell_is_rebuilt_from_its_config():
    assert MultiWell(**TILTED.config()) == TILTED


@pytest.mark.parametrize(
    ("arguments", "message"), [({"d": 0}, "d must"), ({"d": 1.5}, "d must"), ({"c": 0.0}, "c must")]
)
def test_bad_multiwell_is_refused(arguments, message):
    with pytest.raises(TradeError, match=message):
        MultiWell(**arguments)


# Augmented targets


def test_augmented_target_adds_a_scaled_normal():
    inner = MultiWell(d=2)
    target = Augmented(inner, extra=3, exponent=1.0)
    assert target.shape == (5,)
    assert target.condition == inner.condition
    x, c = np.random.default_rng(0).standard_normal(5), 0.6
    expected = float(inner.log_density(jnp.asarray(x[:2]), jnp.asarray(c)))
    expected += multivariate_normal(np.zeros(3), c * np.eye(3)).logpdf(x[2:])
    np.testing.assert_allclose(target.log_density(jnp.asarray(x), jnp.asarray(c)), expected, rtol=1e-5)
    assert target.log_partition(c) == inner.log_partition(c)


def test_augmented_samples_are_exact():
    target = Augmented(MultiWell(d=2), extra=2, exponent=-1.0)
    x = np.asarray(target.sample(KEY, 20_000, 0.5))
    assert x.shape == (20_000, 4)
    np.testing.assert_allclose(x[:, 2:].var(axis=0), 2.0, rtol=0.05)
    inner = np.asarray(target.inner.sample(KEY, 20_000, 0.5))
    np.testing.assert_allclose((x[:, :2] ** 2).mean(), (inner**2).mean(), rtol=0.02)
    log_extra = multivariate_normal(np.zeros(2), 2.0 * np.eye(2)).logpdf(x[:, 2:])
    np.testing.assert_allclose(target.extra_entropy(0.5), -log_extra.mean(), atol=0.03)


def test_augmented_coordinates_are_turned_and_keep_their_distribution():
    inner = Target(lambda x, c: -(x**2).sum() / c, (1,), Condition(0.5, 1.0), symmetry=lambda _, x: -x)
    target = Augmented(inner, extra=4)
    x = jnp.array([0.3, 1.0, 0.0, 0.0, 0.0])
    turned = np.asarray(jax.vmap(lambda k: target.symmetry(k, x))(jax.random.split(KEY, 4000)))
    assert target.has_symmetry
    np.testing.assert_allclose(turned[:, 0], -0.3, rtol=1e-6)  # that of the inner target
    np.testing.assert_allclose(np.linalg.norm(turned[:, 1:], axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.cov(turned[:, 1:].T), np.eye(4) / 4.0, atol=0.02)  # all directions alike
    log_q = [float(target.log_density(jnp.asarray(v), jnp.asarray(0.7))) for v in (x, turned[0])]
    np.testing.assert_allclose(*log_q, rtol=1e-5)


def test_augmented_refuses_what_it_cannot_extend():
    with pytest.raises(TradeError, match="extra"):
        Augmented(MultiWell(d=2), extra=0)
    with pytest.raises(TradeError, match="vectors"):
        Augmented(Target(lambda x, c: -(x**2).sum() / c, (2, 2), Condition(0.5, 1.0)), extra=1)


def test_what_is_known_of_states_is_known_of_augmented_ones():
    """Angles and bounds of the states themselves, which come first; extra coordinates have neither."""
    inner = Target(lambda x, c: -(x**2).sum() / c, (2,), Condition(0.5, 1.0), angles=(0,), bounds=(None, (0.0, 1.0)))
    target = Augmented(inner, extra=2)
    assert target.angles == (0,)
    assert target.bounds == (None, (0.0, 1.0), None, None)
    assert (Augmented(MultiWell(d=2), extra=2).angles, Augmented(MultiWell(d=2), extra=2).bounds) == ((), ())
