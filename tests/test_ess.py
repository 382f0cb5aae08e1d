import jax.numpy as jnp
import numpy as np
import pytest

from trade.ess import kish_ess


@pytest.mark.parametrize("level", [0.0, -1e4, 1e4])
def test_equal_weights_count_fully(level):
    np.testing.assert_allclose(kish_ess(jnp.full(50, level)), 1.0, rtol=1e-5)


def test_one_dominant_weight_counts_once():
    np.testing.assert_allclose(kish_ess(jnp.zeros(50).at[7].set(1e3)), 1 / 50, rtol=1e-5)


def test_weights_of_zero_do_not_count():
    log_w = jnp.log(jnp.array([1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(kish_ess(log_w), 0.75, rtol=1e-6)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_log_normal_weights_have_the_known_size(sigma):
    # E[w]²/E[w²] = exp(-σ²); the delta method gives the error of the estimate.
    n = 100_000
    log_w = sigma * np.random.default_rng(0).standard_normal(n)
    w = np.exp(log_w - sigma**2 / 2)
    expected = np.exp(-(sigma**2))
    influence = expected * (2 * w - w**2 / np.exp(sigma**2))
    error = influence.std() / np.sqrt(n)
    assert abs(float(kish_ess(jnp.asarray(log_w, jnp.float32))) - expected) < 5 * error


def test_size_does_not_depend_on_the_normalisation():
    log_w = jnp.asarray(np.random.default_rng(0).standard_normal(64), jnp.float32)
    np.testing.assert_allclose(kish_ess(log_w + 300.0), kish_ess(log_w), rtol=1e-3)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_bad_weight_shows(bad):
    assert np.isnan(kish_ess(jnp.zeros(50).at[7].set(bad)))


def test_no_weight_at_all_shows():
    assert np.isnan(kish_ess(jnp.full(50, -jnp.inf)))


def test_rows_are_separate():
    rows = jnp.stack([jnp.zeros(4), jnp.array([0.0, -jnp.inf, -jnp.inf, -jnp.inf]), jnp.full(4, jnp.nan)])
    np.testing.assert_allclose(kish_ess(rows), [1.0, 0.25, np.nan])
