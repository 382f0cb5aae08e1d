import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, gaussian_family, small_flow

from trade import Model, Target
from trade.sampling.importance import log_density_batch, weighted_samples

TARGET = gaussian_family()
N, C = 20_000, 0.6


@pytest.fixture(scope="module")
def weighted():
    """Samples of N(0, 1) weighted to N(0, c)."""
    model = Model(small_flow((1,), TARGET.condition, conditional=False), TARGET.condition)
    return weighted_samples(model, TARGET, KEY, N, C)


def test_weights_are_the_ratio_of_the_densities(weighted):
    x = np.asarray(weighted.x[:, 0], np.float64)
    np.testing.assert_allclose(weighted.log_prob, -(x**2) / 2 - 0.5 * np.log(2 * np.pi), atol=1e-4)
    np.testing.assert_allclose(weighted.log_weight, -(x**2) / (2 * C) - np.asarray(weighted.log_prob), atol=1e-4)


def test_effective_sample_size_is_the_known_one(weighted):
    # ∫ q²/p = 1/sqrt(c (2 - c)) for normalised densities
    assert abs(weighted.ess - np.sqrt(C * (2 - C))) < 0.01


def test_weighted_means_are_those_of_the_target(weighted):
    moments = weighted.mean(lambda x: jnp.array([x[0], x[0] ** 2, x[0] ** 4]))
    errors = 5 * np.array([C, 2 * C**2, 96 * C**4]) ** 0.5 / np.sqrt(weighted.ess * N)
    assert np.all(np.abs(moments - np.array([0.0, C, 3 * C**2])) < errors)
    np.testing.assert_allclose(weighted.mean(lambda x: 1.0), 1.0, rtol=1e-4)


def test_resampled_states_have_the_target_variance(weighted):
    x = np.asarray(weighted.resample(jax.random.key(3), N))
    assert x.shape == (N, 1)
    assert abs(x.var() - C) < 5 * np.sqrt(2 / (0.5 * N)) * C
    assert set(x[:, 0]) <= set(np.asarray(weighted.x)[:, 0])


def test_observation_reaches_target_and_flow():
    target = Target(lambda x, c, y: -jnp.sum((x - y[0]) ** 2) / c, (1,), TARGET.condition, observation_shape=(1,))
    flow = small_flow((1,), target.condition, observation_size=1)
    model = Model(flow, target.condition, observation_shape=(1,))
    weighted = weighted_samples(model, target, KEY, 8, C, observation=[0.5])
    x = np.asarray(weighted.x[:, 0])
    np.testing.assert_allclose(weighted.log_weight + weighted.log_prob, -((x - 0.5) ** 2) / C, rtol=1e-4)
    batch = log_density_batch(target, weighted.x, jnp.float32(C), jnp.array([0.5]))
    np.testing.assert_allclose(batch, -((x - 0.5) ** 2) / C, rtol=1e-4)
