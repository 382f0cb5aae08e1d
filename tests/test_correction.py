"""The independence Metropolis chain: accepted by weights, exact in the end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import gaussian_family, small_flow

from trade import Model, TradeError
from trade.sampling.correction import accepted_index, integrated_autocorrelation, metropolis
from trade.sampling.importance import weighted_samples

KEY = jax.random.key(0)


def test_index_follows_the_rule_step_by_step():
    log_weight = np.array([0.0, -1.0, -1.0, 2.0, 1.0, 1.0, 1.5])
    log_uniform = np.array([-9.0, -0.9, -1.1, -0.01, -0.9, -1.1, -0.01])
    np.testing.assert_array_equal(accepted_index(log_weight, log_uniform), [0, 0, 2, 3, 3, 5, 6])


def test_equal_weights_accept_everything():
    np.testing.assert_array_equal(accepted_index(np.zeros(20), np.full(20, -1e-9)), np.arange(20))


def test_chain_has_the_distribution_of_the_target_and_not_of_the_model():
    """A model that is a standard normal at every c, and a target of variance 0.6."""
    target = gaussian_family(1)
    model = Model(small_flow((1,), target.condition), target.condition)
    chain = metropolis(weighted_samples(model, target, KEY, 40_000, 0.6), target, KEY, 0.6)
    assert chain.x.shape == (40_000, 1)
    assert 0.5 < chain.acceptance < 0.95
    assert 1.0 < chain.autocorrelation < 10.0
    assert abs(float(jnp.var(chain.x)) - 0.6) < 0.03
    with pytest.raises(TradeError, match="at least 2 samples"):
        metropolis(weighted_samples(model, target, KEY, 1, 0.6), target, KEY, 0.6)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregressive_chain(rho):
    rng = np.random.default_rng(1)
    x = np.zeros(100_000)
    for t in range(1, len(x)):
        x[t] = rho * x[t - 1] + rng.standard_normal()
    np.testing.assert_allclose(integrated_autocorrelation(x), (1 + rho) / (1 - rho), rtol=0.1)


def test_autocorrelation_of_a_constant_is_one():
    assert integrated_autocorrelation(np.ones(10)) == 1.0
