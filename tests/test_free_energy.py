import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import AbstractDistribution
from small_problems import KEY, gaussian_family, small_flow

from trade import Condition, Model, TradeError
from trade.evaluation.free_energy import (
    FreeEnergy,
    bennett,
    by_importance,
    by_integration,
    evidence,
    thermodynamic_integration,
)
from trade.flows import PowerScaled
from trade.targets import PowerPosterior

TARGET = gaussian_family()
REFERENCE = 1.1
METHODS = {"importance": by_importance, "integration": by_integration}
POINTS, SAMPLES = 9, 1000


def exact(c):
    """log Z(c) - log Z(reference) of the Gaussian family."""
    return 0.5 * np.log(np.asarray(c) / REFERENCE)


def normal_model(exponent):
    """N(0, c^exponent): the target itself at 1."""
    latent = PowerScaled(exponent)
    return Model(small_flow((1,), TARGET.condition, conditional=False, latent=latent), TARGET.condition)


@pytest.fixture(scope="module")
def true_model():
    return normal_model(1.0)


@pytest.fixture(scope="module")
def rough_model():
    return normal_model(0.6)


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def curve(method, model, key=KEY, reference=REFERENCE):
    return method(model, TARGET, key, reference=reference, points=POINTS, samples=SAMPLES)


def test_importance_is_exact_where_the_model_is(true_model):
    result = curve(by_importance, true_model)
    np.testing.assert_allclose(result.log_z, exact(result.c), atol=1e-5)
    assert np.all(result.error < 1e-5)


def test_integration_from_the_true_model_has_only_sampling_noise(true_model):
    result = curve(by_integration, true_model)
    np.testing.assert_allclose(result.log_z, exact(result.c), atol=0.03)
    assert np.all(np.abs(result.log_z - exact(result.c)) <= 4 * result.error)


def test_curve_agrees_with_the_exact_one_within_its_error(method, rough_model):
    result = curve(method, rough_model)
    deviation = np.abs(result.log_z - exact(result.c))
    assert np.all(deviation <= 4 * result.error)
    assert np.all(deviation < 0.05)


def test_curve_is_zero_at_the_reference_and_uncertain_elsewhere(method, rough_model):
    result = curve(method, rough_model)
    zero = list(result.c).index(REFERENCE)
    assert len(result.c) == POINTS + 1
    assert np.all(np.diff(result.c) > 0)
    assert (result.c[0], result.c[-1]) == (0.5, 2.0)
    assert result.log_z[zero] == result.error[zero] == 0.0
    away = np.arange(len(result.c)) != zero
    assert np.all(result.error[away] > 0.0)
    assert result.reference == REFERENCE


def test_errors_are_those_of_repeated_estimates(method, rough_model):
    curves = [curve(method, rough_model, k) for k in jax.random.split(KEY, 24)]
    for end in (0, -1):
        values, errors = (np.array([getattr(c, name)[end] for c in curves]) for name in ("log_z", "error"))
        assert 0.6 < values.std(ddof=1) / errors.mean() < 1.5
        assert abs(values.mean() - exact(curves[0].c[end])) < 4 * errors.mean() / np.sqrt(24)


@pytest.mark.parametrize("reference", [0.5, 2.0, 1.0])
def test_reference_on_the_grid_is_not_doubled(method, rough_model, reference):
    result = curve(method, rough_model, reference=reference)
    assert len(result.c) == POINTS
    assert result.log_z[list(result.c).index(reference)] == 0.0


def test_reference_with_rounding_is_not_doubled(method, rough_model):
    reference = float(TARGET.condition.unchart(0.25))  # a grid point, but for float32
    result = curve(method, rough_model, reference=reference)
    assert len(result.c) == POINTS
    assert reference in result.c


def test_reference_outside_is_refused(method, rough_model):
    with pytest.raises(TradeError, match="reference 3 lies outside"):
        curve(method, rough_model, reference=3.0)


def test_too_few_points_are_refused(method, rough_model):
    with pytest.raises(TradeError, match="points must be an integer of at least 5, got 4"):
        method(rough_model, TARGET, KEY, reference=1.0, points=4)


def test_at_interpolates_value_and_error():
    result = FreeEnergy(np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.1, 0.2]), 1.0)
    assert result.at(3.0) == pytest.approx((2.0, 0.15))


def test_slopes_make_few_points_enough():
    """log Z = sinh(u) from cosh at seven points, with and without its derivative there."""
    u = np.linspace(-3.0, 3.0, 7)
    exact, nothing = np.sinh(u), np.zeros(7)
    with_slopes = thermodynamic_integration(u, u, np.cosh(u), nothing, 0.0, np.sinh(u))
    without = thermodynamic_integration(u, u, np.cosh(u), nothing, 0.0)
    np.testing.assert_allclose(with_slopes.log_z, exact, atol=0.015)
    assert np.abs(without.log_z - exact).max() > 3 * np.abs(with_slopes.log_z - exact).max()


class ConjugatePosterior(AbstractDistribution):
    """The power posterior of ψ ~ N(0, 1), y ~ N(ψ, 1) in closed form, as a flow that is narrower by a factor."""

    shape: tuple[int, ...] = (1,)
    cond_shape: tuple[int, ...] = (2,)
    factor: float = 1.0

    def _normal(self, condition):
        beta = 0.5 * (condition[0] + 1.0)
        return beta * condition[1] / (1.0 + beta), self.factor / jnp.sqrt(1.0 + beta)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, *self._normal(condition)).sum()

    def _sample(self, key, condition=None):
        mean, scale = self._normal(condition)
        return mean + scale * jax.random.normal(key, (1,))


CONJUGATE = PowerPosterior(
    lambda psi: jax.scipy.stats.norm.logpdf(psi).sum(),
    lambda y, psi: jax.scipy.stats.norm.logpdf(y, psi).sum(),
    shape=(1,),
    observation_shape=(1,),
    condition=Condition(0.0, 1.0, scale="linear", boundary=(1.0,)),
)


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_evidence_of_a_conjugate_model(factor):
    """log p(y) = log N(y; 0, 2), also when the weights have something to correct."""
    model = Model(ConjugatePosterior(factor=factor), CONJUGATE.condition, (1,))
    for y in (-2.0, 0.3, 4.0):
        value, error = evidence(model, CONJUGATE, KEY, [y])
        deviation = abs(value - jax.scipy.stats.norm.logpdf(y, 0.0, np.sqrt(2.0)))
        assert deviation < 0.02
        assert deviation < 2 * error < 0.06


def test_evidence_error_shows_a_model_that_misses_the_posterior():
    """At half the width the weights have no variance to speak of in theory: the two estimates part."""
    model = Model(ConjugatePosterior(factor=0.5), CONJUGATE.condition, (1,))
    assert evidence(model, CONJUGATE, KEY, [4.0], samples=2000).error > 0.02


def test_evidence_refuses_a_range_that_does_not_reach_the_prior(true_model):
    with pytest.raises(TradeError, match="power of the likelihood that the evidence needs 0 lies outside"):
        evidence(true_model, TARGET, KEY)
    model = Model(ConjugatePosterior(), CONJUGATE.condition, (1,))
    with pytest.raises(TradeError, match="points must be an integer of at least 5, got 3"):
        evidence(model, CONJUGATE, KEY, [1.0], points=3)
    with pytest.raises(TradeError, match="observation"):
        evidence(model, CONJUGATE, KEY)


def test_bennett_finds_a_known_ratio_and_its_error():
    """Two normals of different widths, with different numbers of samples; one clash says -1e30."""
    random, found = np.random.default_rng(0), []

    def gain(x):  # log q1/q0 of N(1.5, 0.7²) and N(0, 1), neither normalised
        return -0.5 * ((x - 1.5) / 0.7) ** 2 + 0.5 * x**2

    for _ in range(100):
        forward = np.append(gain(random.normal(0.0, 1.0, 2000)), -1e30)
        found.append(bennett(forward, gain(random.normal(1.5, 0.7, 5000))))
    values, errors = np.array(found).T
    assert abs(values.mean() - np.log(0.7)) < 0.01
    np.testing.assert_allclose(values.std(ddof=1), errors.mean(), rtol=0.25)


def test_bennett_without_overlap_has_no_finite_error():
    random = np.random.default_rng(0)
    forward, backward = random.normal(-5000.0, 1.0, 1000), random.normal(5000.0, 1.0, 1000)
    value, error = bennett(forward, backward)
    assert error == np.inf
    assert abs(value) < 5000.0
