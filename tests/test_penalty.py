"""How a residual is measured: squared (Eq. 19), Huber (Appendices B.6 and C.3), or Cauchy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trade import TradeError
from trade.objectives import Cauchy, Huber, Squared

RESIDUALS = jnp.array([-3.0, -0.5, -0.1, 0.0, 0.1, 0.5, 3.0])


def test_squared_by_hand():
    """Eq. 19."""
    np.testing.assert_allclose(Squared()(RESIDUALS), [9.0, 0.25, 0.01, 0.0, 0.01, 0.25, 9.0], rtol=1e-6)


def test_huber_by_hand():
    """r²/2 up to δ = 0.5, then δ(|r| - δ/2): 0.5 (3 - 0.25) = 1.375 at 3."""
    expected = [1.375, 0.125, 0.005, 0.0, 0.005, 0.125, 1.375]
    np.testing.assert_allclose(Huber(0.5)(RESIDUALS), expected, rtol=1e-6)


@pytest.mark.parametrize("delta", [0.1, 1.0, 10.0])
def test_huber_pull_is_the_residual_clipped_at_delta(delta):
    """The derivative is r inside and ±δ outside: no single point pulls harder than δ."""
    points = jnp.array([-1e6, -2.0, -0.05, 0.05, 2.0, 1e6])
    pull = jax.vmap(jax.grad(Huber(delta)))(points)
    np.testing.assert_allclose(pull, np.clip(points, -delta, delta), rtol=1e-5)


def test_cauchy_by_hand_and_its_pull():
    """δ²/2 log(1 + (r/δ)²); the derivative r / (1 + (r/δ)²) is largest at δ and dies out beyond, without overflow."""
    np.testing.assert_allclose(Cauchy(2.0)(RESIDUALS), 2.0 * np.log1p(np.asarray(RESIDUALS) ** 2 / 4.0), rtol=1e-5)
    points = jnp.array([0.01, 2.0, 200.0, 1e30, -1e30])
    pull = jax.vmap(jax.grad(Cauchy(2.0)))(points)
    np.testing.assert_allclose(pull, [0.01, 1.0, 200.0 / 10_001.0, 0.0, 0.0], rtol=1e-3, atol=1e-12)
    assert np.isfinite(Cauchy(2.0)(points)).all()


@pytest.mark.parametrize("norm", [Huber, Cauchy])
@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_threshold_that_is_not_positive_is_refused(norm, delta):
    with pytest.raises(TradeError, match="delta"):
        norm(delta)
