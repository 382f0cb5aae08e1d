"""From a distribution that can be sampled to any density: the geometric path between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import Normal, Uniform
from small_problems import KEY, LinearGaussian

from trade import Adam, Condition, Schedule, TradeError, bridge, fit
from trade.objectives.density import TrueDensity
from trade.targets import Bridge


def narrow(x):
    """N(1, 1/4), not normalised: log Z = log(2π/4)/2."""
    return -2.0 * jnp.sum((x - 1.0) ** 2)


def test_the_path_is_linear_in_c_from_the_base_to_the_density():
    target = bridge(narrow, Normal(jnp.zeros(2), 3.0))
    x = jnp.array([0.3, -1.2])
    start, end = float(target.base.log_prob(x)), float(narrow(x))
    for c in (0.0, 0.25, 1.0):
        np.testing.assert_allclose(target.log_density(x, jnp.asarray(c)), (1.0 - c) * start + c * end, rtol=1e-5)
        np.testing.assert_allclose(target.condition_derivative(x, jnp.asarray(c)), end - start, rtol=1e-5)
    assert target.condition == Condition(0.0, 1.0, scale="linear", boundary=(0.0,))
    assert target.shape == (2,)


def test_a_number_is_the_deviation_of_a_gaussian():
    target = bridge(narrow, 2.5, shape=3)
    assert target.shape == (3,)
    x = np.asarray(target.sample(KEY, 20_000, 0.0))
    np.testing.assert_allclose(x.std(axis=0), 2.5, rtol=0.03)
    expected = jax.scipy.stats.norm.logpdf(jnp.ones(3), 0.0, 2.5).sum()
    np.testing.assert_allclose(target.log_density(jnp.ones(3), jnp.asarray(0.0)), expected, rtol=1e-5)


def test_outside_the_support_of_the_density_the_path_is_finite():
    """At c = 0 such a state belongs to the base; at c = 1 it has next to no weight."""
    target = bridge(lambda x: jnp.where(x[0] > 0.0, -x[0], -jnp.inf), 2.0, shape=(1,))
    x = jnp.array([-1.0])
    log_q, score = TrueDensity().evaluate(None, _Problem(target), x, jnp.asarray(-1.0), None, jnp.ones(()))
    np.testing.assert_allclose(log_q, target.base.log_prob(x), rtol=1e-5)
    assert np.isfinite(score)
    assert float(target.log_density(x, jnp.asarray(1.0))) < -1000.0


class _Problem:
    def __init__(self, target):
        self.target, self.condition = target, target.condition


def test_it_can_be_sampled_at_its_base_alone():
    with pytest.raises(TradeError, match="at c = 0 alone"):
        bridge(narrow, 1.0, shape=(2,)).sample(KEY, 3, 0.5)


def test_angles_and_bounds_are_said_of_it():
    target = bridge(narrow, Uniform(-jnp.pi * jnp.ones(2), jnp.pi), angles=(0,), bounds=(None, (-4.0, 4.0)))
    assert (target.angles, target.bounds) == ((0,), (None, (-4.0, 4.0)))
    assert isinstance(target, Bridge)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3.0,), {"shape": (1,)}, "log_density must be a function"),
        ((narrow,), {}, "needs the shape of a state"),
        ((narrow, 0.0), {"shape": (1,)}, "positive standard deviation"),
        ((narrow, True), {"shape": (1,)}, "positive standard deviation"),
        ((narrow, "wide"), {"shape": (1,)}, "positive standard deviation"),
        ((narrow, LinearGaussian()), {}, "unconditional flowjax distribution"),
        ((narrow, Normal(jnp.zeros(2))), {"shape": (3,)}, "shape must be that of the base"),
        ((lambda x: x,), {"shape": (2,)}, "must return a scalar"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(TradeError, match=message):
        bridge(*arguments, **options)


def test_a_density_is_reached_without_data_and_its_log_z_is_found():
    """A Gaussian at c = 1 from one that is six times as wide: each c has one, which the flow can be, but for its mean.

    Precision is 1/9 at c = 0 and 4 at c = 1: under weights the estimate is exact whatever the flow misses.
    """
    target = bridge(narrow, 3.0, shape=(1,))
    options = {"steps": 400, "optimiser": Adam(0.02), "schedule": Schedule(50, 50, 1000), "evaluation_samples": 200}
    run = fit(target, flow=LinearGaussian(), progress=False, **options)
    weighted = run.weighted(KEY, 20_000, 1.0)
    assert weighted.ess > 0.5
    log_z = float(jax.scipy.special.logsumexp(weighted.log_weight) - jnp.log(20_000.0))
    np.testing.assert_allclose(log_z, 0.5 * np.log(2 * np.pi / 4), atol=0.05)
    np.testing.assert_allclose(weighted.mean(lambda x: x[0]), 1.0, atol=0.05)
