"""Calibration and the classifier test, on cases whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trade import Condition, Model, TradeError
from trade.evaluation.calibration import coverage, ranks, uniformity_error
from trade.evaluation.classifier import c2st
from trade.flows import Normal
from trade.flows.recipes import SplineFlow

KEY = jax.random.key(0)
CONDITION = Condition(0.5, 2.0, scale="log", boundary=(1.0,))


@pytest.fixture(scope="module")
def standard_normal():
    """A fresh flow: a standard normal whatever is observed."""
    flow = SplineFlow((2,), CONDITION, observation_size=2, blocks=1, latent=Normal()).build(KEY)
    return Model(flow, CONDITION, (2,))


def first(x, y):
    return x[:1]


@pytest.mark.parametrize("width", [1.0, 0.5, 2.0])
def test_coverage_of_a_model_that_is_right_too_wide_or_too_narrow(standard_normal, width):
    """Truths of another width than the model's: the largest deviation follows from two normal distributions."""
    truth = width * jax.random.normal(jax.random.key(1), (4000, 2))
    found = ranks(standard_normal, first, truth, jnp.zeros((4000, 2)), KEY, 200, 1.0, batch=1500)
    curve = coverage(found[:, 0])
    levels = np.linspace(0.001, 0.999, 999)
    quantile = np.asarray(jax.scipy.stats.norm.ppf(0.5 + levels / 2))
    exact = np.max(np.abs(2 * np.asarray(jax.scipy.stats.norm.cdf(quantile / width)) - 1 - levels))
    np.testing.assert_allclose(curve.error, exact, atol=0.03)
    assert curve.observed[0] == 0.0 and curve.observed[-1] == 1.0
    assert (curve.low <= curve.observed + 1e-12).all() and (curve.observed <= curve.high + 1e-12).all()
    assert (uniformity_error(found[:, 0]) < 0.03) == (width == 1.0)


def test_ranks_need_pairs(standard_normal):
    with pytest.raises(TradeError, match="as many parameters as observations"):
        ranks(standard_normal, first, jnp.zeros((3, 2)), jnp.zeros((2, 2)), KEY, 10, 1.0)
    blind = Model(SplineFlow((2,), CONDITION, blocks=1).build(KEY), CONDITION)
    with pytest.raises(TradeError, match="takes an observation"):
        ranks(blind, first, jnp.zeros((2, 2)), jnp.zeros((2, 2)), KEY, 10, 1.0)


def test_distance_of_ranks_to_the_uniform():
    np.testing.assert_allclose(uniformity_error(np.full(10, 0.5)), 0.5)
    np.testing.assert_allclose(uniformity_error((np.arange(100) + 0.5) / 100), 0.005)


def test_classifier_tells_shifted_normals_apart_as_well_as_is_possible():
    """The best accuracy for two unit normals a distance d apart is Φ(d/2)."""
    one, two = jax.random.normal(jax.random.key(1), (2, 4000, 2))
    assert abs(c2st(one, two, KEY, steps=1000) - 0.5) < 0.025
    best = float(jax.scipy.stats.norm.cdf(0.5))
    assert abs(c2st(one, two + jnp.array([1.0, 0.0]), KEY, steps=1000) - best) < 0.02
    with pytest.raises(TradeError, match="two arrays of one shape"):
        c2st(one, two[:10], KEY)
