"""What is measured while a model trains: ESS over the range, and the likelihood of data it did not see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import LinearGaussian, data_at, family, log_normal, problem_of, small_flow

from trade import Condition, Target
from trade.evaluation.monitor import LEAST_ESS, Monitor
from trade.fit import stack
from trade.objectives.term import Problem
from trade.targets import PowerPosterior

KEY = jax.random.key(31)
TRAINED, APART = data_at(1.0, n=300), jnp.asarray(data_at(1.0, n=40, seed=1), float)
PROBLEM = problem_of(family(), TRAINED)
EXACT = LinearGaussian(log_scale=-0.5 * np.log(2.0), rate=0.5 * np.log(2.0))  # N(0, c), as c = 2^(u-1)
GRID = np.geomspace(0.25, 1.0, 9)
SAMPLES = 4000


def monitor(problem=PROBLEM, held_out=((APART, None),), validation=None, at=(0.25, 1.0), **options):
    options = {"many": False, "samples": SAMPLES, **options}
    return Monitor(problem, tuple(held_out), validation or {}, at, **options)


def exact_ess(variance, c):
    """Kish's ESS of N(0, variance) weighted to N(0, c): 1 / ∫ q²/p."""
    return np.sqrt(c * (2.0 * variance - c)) / variance


def test_the_score_of_the_exact_model_is_its_likelihood_of_held_out_data():
    """All weights are equal, and add nothing."""
    found = monitor()(EXACT, KEY)
    nll = -log_normal(np.asarray(APART, np.float64)).ravel()
    np.testing.assert_allclose(found.held_out[0], nll, rtol=1e-4)
    np.testing.assert_allclose(found.learned[0], -log_normal(TRAINED[:40]).ravel(), rtol=1e-4)
    np.testing.assert_allclose(found.score, nll.mean(), rtol=1e-3)
    assert set(found.values) == {"ess@0.25", "ess@1", "ess_least", "held_out_nll"}
    np.testing.assert_allclose([found.values[k][0] for k in ("ess@0.25", "ess@1", "ess_least")], 1.0, atol=1e-3)
    np.testing.assert_allclose(found.values["held_out_nll"], nll.mean(), rtol=1e-4)


def test_ess_is_that_of_the_weights_over_the_whole_range():
    """A model that does not follow c is N(0, 1) everywhere: its ESS has a formula, and its mean logarithm too."""
    found = monitor()(LinearGaussian(), KEY)
    exact = exact_ess(1.0, GRID)
    assert exact.min() < 0.7
    np.testing.assert_allclose(found.values["ess@0.25"], exact[0], rtol=0.05)
    np.testing.assert_allclose(found.values["ess_least"], exact.min(), rtol=0.05)
    nll = found.held_out.mean()
    np.testing.assert_allclose(found.score, nll - 0.5 * np.log(exact).mean(), atol=0.02)


def test_conditions_asked_for_are_reported_and_count():
    found = monitor(at=(0.3, 0.7))(LinearGaussian(), KEY)
    np.testing.assert_allclose(found.values["ess@0.3"], exact_ess(1.0, 0.3), rtol=0.05)
    np.testing.assert_allclose(found.values["ess@0.7"], exact_ess(1.0, 0.7), rtol=0.05)
    assert "ess@1" not in found.values
    assert len(monitor(at=(0.3, 0.7)).grid) == 11


@pytest.mark.parametrize("bad", [-jnp.inf, jnp.nan])
def test_weights_that_are_none_leave_a_finite_score(bad):
    """The target is empty, or no number, below c = 1/2: the score is bad, but a later one can be better."""

    def empty_when_cold(x, c):
        return jnp.where(c < 0.5, bad, -(x**2).sum() / (2.0 * c))

    target = Target(empty_when_cold, (1,), family().condition)
    found = monitor(problem_of(target, TRAINED))(EXACT, KEY)
    assert np.isfinite(found.score).all()
    cold = np.sum(GRID < 0.5 - 1e-6) / len(GRID)
    np.testing.assert_allclose(found.score - found.held_out.mean(), -0.5 * np.log(LEAST_ESS) * cold, rtol=0.01)


def test_validation_data_decide_alone():
    """The mean over conditions, however many states each has; held-out data are measured all the same."""
    states = {c: jnp.asarray(data_at(c, n=n, seed=3), float) for c, n in ((0.4, 30), (0.8, 90))}
    found = monitor(validation={c: (x, None) for c, x in states.items()})(LinearGaussian(0.2), KEY)
    each = [-log_normal(np.asarray(x, np.float64), 0.2).mean() for x in states.values()]
    np.testing.assert_allclose(found.score, np.mean(each), rtol=1e-4)
    np.testing.assert_array_equal(found.values["validation_nll"], found.score)
    assert found.held_out.shape == (1, 40)


def test_two_boundaries_are_scored_where_they_are():
    """Held-out data of each boundary value at its own condition, in order."""
    problem = problem_of(family(boundary=(0.25, 1.0)), data_at(0.25, n=200), data_at(1.0, n=200))
    cold = jnp.asarray(data_at(0.25, n=20, seed=4), float)
    found = monitor(problem, [(cold, None), (APART, None)])(EXACT, KEY)
    expected = np.concatenate([-log_normal(cold, 0.0, 0.25).ravel(), -log_normal(APART).ravel()])
    np.testing.assert_allclose(found.held_out[0], expected, rtol=1e-3)
    assert found.learned.shape == (1, 60)


def test_seeds_are_judged_each_by_itself():
    """Each gets what it would get alone, with the same states."""
    flows = [EXACT, LinearGaussian(0.5)]
    together = monitor(many=True)(stack(flows), KEY)
    for i, flow in enumerate(flows):
        alone = monitor()(flow, KEY)
        np.testing.assert_allclose(together.score[i], alone.score[0], rtol=1e-4)
        np.testing.assert_allclose(together.held_out[i], alone.held_out[0], rtol=1e-4)
        np.testing.assert_allclose(together.learned[i], alone.learned[0], rtol=1e-4)
        for name, value in alone.values.items():
            np.testing.assert_allclose(together.values[name][i], value[0], rtol=1e-4)


@pytest.mark.parametrize("many", [False, True])
def test_without_held_out_data_the_ess_decides_and_without_a_density_nothing_does(many):
    flows = stack([EXACT, EXACT]) if many else EXACT
    seeds = 2 if many else 1
    found = monitor(held_out=(), many=many)(flows, KEY)
    assert found.held_out.shape == found.learned.shape == (seeds, 0)
    np.testing.assert_allclose(found.score, np.zeros(seeds), atol=1e-3)

    class NoDensity(Target):
        @property
        def has_density(self):
            return False

    free = problem_of(NoDensity(lambda x, c: -(x**2).sum() / c, (1,), family().condition), TRAINED)
    nothing = monitor(free, held_out=(), many=many)(flows, KEY)
    assert (nothing.score, nothing.values) == (None, {})
    assert nothing.held_out.shape == (seeds, 0)


def test_observations_go_with_their_states_and_the_ess_is_an_average_over_some():
    """p(x|y, β) of x ~ N(0, 1), y ~ N(x, 1): at β = 1 it is N(y/2, 1/2); the flow knows neither y nor β."""
    target = PowerPosterior(
        lambda x: -0.5 * (x**2).sum(),
        lambda y, x: -0.5 * ((y - x) ** 2).sum(),
        shape=(1,),
        observation_shape=(1,),
        condition=Condition(0.5, 2.0, boundary=(1.0,)),
    )
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 1))
    y = x + random.standard_normal((60, 1))
    x, y = jnp.asarray(x, float), jnp.asarray(y, float)
    problem = Problem(target, target.condition, (x[20:],), (y[20:],))
    flow = small_flow((1,), target.condition, observation_size=1)
    found = monitor(problem, [(x[:20], y[:20])], at=(0.5, 1.0), samples=500)(flow, KEY)
    np.testing.assert_allclose(found.held_out[0], -log_normal(np.asarray(x[:20])).ravel(), rtol=1e-3)
    np.testing.assert_allclose(found.learned[0], -log_normal(np.asarray(x[20:40])).ravel(), rtol=1e-3)

    def ess(y, beta):
        """Of N(0, 1) weighted to the posterior, by quadrature."""
        grid = np.linspace(-8, 8, 4001)
        p = np.exp(log_normal(grid))
        q = np.exp(-0.5 * grid**2 - 0.5 * beta * (y - grid) ** 2)
        return (q.sum() ** 2 / (q**2 / p).sum()) / p.sum()

    at_half = [ess(float(v), 0.5) for v in np.asarray(y[:20]).ravel()]
    assert min(at_half) - 0.1 < float(found.values["ess@0.5"][0]) < max(at_half) + 0.1
    assert monitor(problem, (), at=(0.5,))(flow, KEY).score is None  # no observation at hand to condition on
