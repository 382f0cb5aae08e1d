"""Markov chains: the right distribution, honest diagnostics, and refusal where they have not mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import gaussian_family

from trade import Condition, Target, TradeError
from trade.sampling import mcmc
from trade.sampling.mcmc import MarkovChains, _diagnose
from trade.targets import LennardJones

KEY = jax.random.key(1)


@pytest.mark.parametrize("kernel", ["hmc", "langevin"])
def test_samples_of_a_gaussian_have_its_moments(kernel):
    chains = MarkovChains(kernel, chains=100, integration_steps=4, pilot=400)
    x, mixing = chains.sample(gaussian_family(2), KEY, 4000, 0.7)
    x = np.asarray(x, np.float64)
    assert x.shape == (4000, 2)
    # Four standard errors of the mean and of the variance of 4000 independent samples.
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=4 * np.sqrt(0.7 / 4000))
    np.testing.assert_allclose(x.var(axis=0), 0.7, atol=4 * 0.7 * np.sqrt(2 / 4000))
    assert mixing.rhat < 1.05
    assert mixing.thinning >= 2 * mixing.autocorrelation - 1
    assert 0.5 < mixing.acceptance <= 1.0


def test_a_random_symmetry_reaches_the_mode_the_chains_did_not():
    """Two far modes, exchanged by a symmetry: each chain stays in one, and what is watched has mixed all the same."""

    def log_density(x, c):
        return -jnp.sum((jnp.abs(x) - 10.0) ** 2) / (2.0 * c)

    def flip(key, x):
        return jnp.where(jax.random.bernoulli(key), x, -x)

    target = Target(log_density, (1,), Condition(0.5, 1.0), symmetry=flip)
    x = np.asarray(MarkovChains(chains=20, integration_steps=4, pilot=200).sample(target, KEY, 2000, 1.0)[0])
    assert abs((x > 0).mean() - 0.5) < 0.05


def test_chains_that_have_not_mixed_are_refused():
    """Two far modes of different energy, and no symmetry: log q tells that the chains differ."""

    def log_density(x, c):
        return jnp.logaddexp(-jnp.sum((x - 8.0) ** 2), -0.5 - jnp.sum((x + 8.0) ** 2) / 100.0) / c

    target = Target(log_density, (1,), Condition(0.5, 1.0))
    with pytest.raises(TradeError, match="have not mixed after 40 trajectories"):
        MarkovChains(chains=40, integration_steps=2, pilot=40).sample(target, KEY, 100, 1.0)


def test_diagnosis_knows_the_autocorrelation_of_an_autoregressive_chain():
    """x' = ρ x + noise has the integrated autocorrelation time (1 + ρ) / (1 - ρ)."""
    rng, rho = np.random.default_rng(0), 0.8
    x = np.zeros((64, 1500, 1))
    for t in range(1, 1500):
        x[:, t] = rho * x[:, t - 1] + rng.standard_normal((64, 1))
    rhat, autocorrelation = _diagnose(x[:, 500:])
    assert rhat < 1.02
    np.testing.assert_allclose(autocorrelation, 9.0, rtol=0.15)
    apart = x[:, 500:] + 3.0 * rng.standard_normal((64, 1, 1))
    assert _diagnose(apart)[0] > 1.2


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kernel": "gibbs"}, "kernel must be 'hmc' or 'langevin'"), ({"chains": 1}, "chains must be an integer")],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(TradeError, match=message):
        MarkovChains(**options)


def test_no_samples_are_refused():
    with pytest.raises(TradeError, match="n must be an integer of at least 1, got 0"):
        MarkovChains().sample(gaussian_family(1), KEY, 0, 1.0)


def test_no_chain_stays_where_forces_are_too_strong_for_the_step_size(monkeypatch):
    """Random displacements of a crystal bring particles too close: steps as long as in the end leave chains there."""
    target = LennardJones((1, 1, 2))
    chains = MarkovChains(chains=128, pilot=100)
    _, mixing = chains.sample(target, jax.random.key(0), 128, (0.45, 3.0))
    assert mixing.rhat < 1.05
    monkeypatch.setattr(mcmc, "SMALLEST", 1.0)
    with pytest.raises(TradeError, match="have not mixed"):
        chains.sample(target, jax.random.key(0), 128, (0.45, 3.0))
