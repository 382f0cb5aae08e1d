"""The lattice action: against a loop written from its formula, autodiff, and its own symmetries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import precision

from trade import TradeError
from trade.targets import ScalarField

KAPPA = 0.27


def slow_action(x, kappa, coupling):
    """S = Σ_x [-2κ Σ_μ φ_x φ_{x+μ} + (1 - 2λ) φ_x² + λ φ_x⁴], site by site."""
    total = 0.0
    for site in np.ndindex(x.shape):
        for axis in range(x.ndim):
            neighbour = list(site)
            neighbour[axis] = (neighbour[axis] + 1) % x.shape[axis]
            total -= 2 * kappa * x[site] * x[tuple(neighbour)]
        total += (1 - 2 * coupling) * x[site] ** 2 + coupling * x[site] ** 4
    return total


@pytest.fixture(params=[(4, 2), (2, 3), (6, 1)], ids=str)
def target(request):
    with precision(np.float64):
        yield ScalarField(request.param[0], coupling=0.1, dimensions=request.param[1])


def field(target, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(target.shape))


def test_action_is_the_formula(target):
    x = field(target)
    expected = slow_action(np.asarray(x), KAPPA, 0.1)
    np.testing.assert_allclose(target.action(x, KAPPA), expected, rtol=1e-12)
    np.testing.assert_allclose(target.log_density(x, KAPPA), -expected, rtol=1e-12)


def test_derivatives_agree_with_autodiff(target):
    x, kappa = field(target), jnp.asarray(KAPPA)
    np.testing.assert_allclose(
        target.condition_derivative(x, kappa), jax.grad(target.log_density, argnums=1)(x, kappa), rtol=1e-12
    )
    np.testing.assert_allclose(target.drift(x, kappa), jax.grad(target.log_density)(x, kappa), atol=1e-12)


def test_symmetries_leave_the_action_alone_and_reach_every_image(target):
    x = field(target)
    images = jax.vmap(lambda k: target.symmetry(k, x))(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(jax.vmap(lambda v: target.action(v, KAPPA))(images), target.action(x, KAPPA), rtol=1e-9)
    if target.shape == (4, 4):  # signs, mirrors, exchange of the axes, translations
        assert len(np.unique(np.round(np.asarray(images).reshape(4000, -1), 9), axis=0)) == 2 * 4 * 2 * 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 5}, "length must be an even number"),
        ({"length": 0}, "length must be an even number"),
        ({"coupling": 0.0}, "coupling must be positive"),
        ({"dimensions": 0}, "dimensions must be a positive integer"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(TradeError, match=message):
        ScalarField(**options)
