"""E[∂_u log q] by self-normalised importance sampling (Section 4.3.4, Eqs. 24-25), against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import LinearGaussian, clock_at, data_at, log_normal, problem_of

from trade import Condition, Target, TradeError
from trade.objectives import (
    BatchExpectation,
    EnergyFree,
    FromBoundaryModel,
    FromData,
    FromModel,
    Gradient,
    GridExpectation,
    TrueDensity,
)
from trade.objectives.expectation import Drawn, GridState, Snapshot, Where, self_normalised
from trade.targets import boltzmann

KEY = jax.random.key(5)
SAMPLES = 20_000
BASES = [FromModel(), FromBoundaryModel(), FromData()]
IDS = ["FromModel", "FromBoundaryModel", "FromData"]
CONDITION = Condition(0.5, 1.0, boundary=(1.0,))
SLOPE = 0.5 * np.log(2.0)  # d log c / du
X = np.linspace(-6.0, 6.0, 4001)


def energy(x):
    return 0.5 * x**2 + 0.25 * x**4


QUARTIC = Target(lambda x, c: -energy(x).sum() / c, (1,), CONDITION, rebuild=boltzmann)
FLOW = LinearGaussian(mean=0.1, log_scale=-0.3, rate=0.1)  # near the target, but not the target


def quadrature(u):
    """∫ p(x|u) ∂_u log q dx with ∂_u log q = E(x)/c · d log c/du."""
    c = np.asarray(CONDITION.unchart(u), np.float64)[..., None]
    weights = np.exp(-energy(X) / c)
    return ((weights * energy(X)).sum(-1) / weights.sum(-1)) / c[..., 0] * SLOPE


def exact_data(n=50_000):
    """Samples of exp(-E) from the inverse of its distribution function."""
    cdf = np.cumsum(np.exp(-energy(X)))
    return np.interp(np.random.default_rng(1).uniform(size=(n, 1)), cdf / cdf[-1], X)


PROBLEM = problem_of(QUARTIC, exact_data())
SNAPSHOT = Snapshot(FLOW, PROBLEM, TrueDensity())
POINTS = jnp.array([-1.0, -0.3, 1.0])
AT_POINTS = Where(POINTS, None, jnp.ones_like(POINTS))
NOTHING_DRAWN = Drawn(jnp.zeros((3, 2, 1)), *jnp.zeros((3, 3, 2)))


def test_self_normalised_by_hand():
    """Eq. 25 with weights 1 : 2 : 3, and unchanged when either density is multiplied by a constant."""
    log_q, log_base = jnp.log(jnp.array([1.0, 4.0, 1.5])), jnp.log(jnp.array([1.0, 2.0, 0.5]))
    values = jnp.array([6.0, 3.0, -2.0])
    np.testing.assert_allclose(self_normalised(log_q, log_base, values), 1.0, rtol=1e-6)
    np.testing.assert_allclose(self_normalised(log_q + 500.0, log_base - 300.0, values), 1.0, rtol=1e-4)


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_batch_expectation_agrees_with_quadrature(base):
    """Eqs. 24-25: every base gives the same expectation under the target, not under the base."""
    expectation = BatchExpectation(base, samples=SAMPLES)
    got = expectation.estimate((), SNAPSHOT, AT_POINTS, NOTHING_DRAWN, KEY)
    exact = quadrature(POINTS)
    np.testing.assert_allclose(got, exact, rtol=0.04)
    x, _ = base.draw(SNAPSHOT, Where(POINTS[:1], None, jnp.ones(1)), SAMPLES, KEY)
    unweighted = float(np.mean(energy(np.asarray(x)))) / 0.5 * SLOPE
    assert abs(unweighted - exact[0]) > 0.15 * exact[0]  # the weights do matter


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_grid_expectation_agrees_with_quadrature(base):
    """Section 4.3.4: the stored values on the grid."""
    expectation = GridExpectation(points=4, samples=SAMPLES, base=base)
    state = expectation.refresh(expectation.init(PROBLEM), SNAPSHOT, clock_at(0), KEY)
    grid = expectation.grid(PROBLEM)
    np.testing.assert_allclose(state.values, quadrature(grid), rtol=0.04)
    assert bool(state.filled)


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_energy_free_expectation_agrees_with_the_formula(base):
    """Section 4.3.5: with log q = (c0/c) log p_θ(x|c0) and p_θ(·|c0) = N(m, s²), p(x|c) = N(m, s² c/c0).

    Then E[∂_u log q] = -(c0/c) u'(log c) E[log p_θ(x|c0)], and that mean is known.
    """
    flow = LinearGaussian(mean=0.5, log_scale=-0.2)
    data = 0.5 + np.exp(-0.2) * data_at(1.0, n=50_000)  # what such a flow would have been trained on
    got = BatchExpectation(base, samples=SAMPLES).estimate(
        (),
        Snapshot(flow, problem_of(QUARTIC, data), EnergyFree()),
        AT_POINTS,
        NOTHING_DRAWN,
        KEY,
    )
    c = np.asarray(CONDITION.unchart(POINTS), np.float64)
    mean_log_p0 = -0.5 * np.log(2.0 * np.pi * np.exp(-0.4)) - 0.5 * c
    np.testing.assert_allclose(got, -SLOPE / c * mean_log_p0, rtol=0.03)


@pytest.mark.parametrize("u", [-0.9, 0.4, 0.6])
def test_energy_free_density_is_the_power_of_the_flow_at_the_nearest_boundary(u):
    """Section 4.3.5: E(x) = -T0 log p_θ(x|T0), from the boundary value nearest in the chart."""
    condition = Condition(0.5, 2.0, boundary=(0.5, 2.0))
    problem = problem_of(Target(lambda x, c: -energy(x).sum() / c, (1,), condition, rebuild=boltzmann))
    flow = LinearGaussian(mean=0.3, slope=0.5, log_scale=0.1, rate=0.2)
    u0 = 1.0 if u > 0 else -1.0
    c, c0 = 2.0**u, 2.0**u0
    x = np.array([0.7])
    log_p0 = log_normal(x[0], 0.3 + 0.5 * u0, np.exp(2.0 * (0.1 + 0.2 * u0)))
    log_q, score = EnergyFree().evaluate(flow, problem, jnp.asarray(x), jnp.asarray(u), None, jnp.ones(()))
    np.testing.assert_allclose(log_q, log_p0 * c0 / c, rtol=1e-5)
    np.testing.assert_allclose(score, -np.log(2.0) * log_p0 * c0 / c, rtol=1e-5)


def test_energy_free_needs_a_rule():
    problem = problem_of(Target(lambda x, c: -energy(x).sum() / c, (1,), CONDITION))
    with pytest.raises(TradeError, match="energy-free rule"):
        EnergyFree().evaluate(FLOW, problem, jnp.zeros(1), jnp.zeros(()), None, jnp.ones(()))


def test_batch_expectation_reuses_the_evaluation_points():
    """Eq. 25 by hand on given points: with ``samples=None`` no others are drawn."""
    x = jnp.array([[[0.0], [1.0], [2.0]]])
    log_p = jnp.log(jnp.array([[0.5, 0.2, 0.1]]))
    e = energy(np.array([0.0, 1.0, 2.0]))
    drawn = Drawn(x, log_p, -jnp.asarray(e)[None], SLOPE * jnp.asarray(e)[None])  # log q and its derivative at c = 1
    got = BatchExpectation().estimate((), SNAPSHOT, Where(jnp.array([1.0]), None, jnp.ones(1)), drawn, KEY)
    weights = np.exp(-e) / np.array([0.5, 0.2, 0.1])
    np.testing.assert_allclose(got, [SLOPE * np.sum(weights * e) / weights.sum()], rtol=1e-5)


def test_grid_is_refreshed_now_and_then_and_averaged():
    """Section 4.3.4: the first estimate counts in full, later ones with weight 1 - ema, every ``every`` steps."""
    expectation = GridExpectation(points=4, every=10, samples=50, ema=0.75)
    keys = jax.random.split(KEY)

    @jax.jit
    def refresh(state, step, key):
        return expectation.refresh(state, SNAPSHOT, clock_at(step, 100, 30), key)

    state = refresh(expectation.init(PROBLEM), 30, keys[0])
    fresh = refresh(expectation.init(PROBLEM), 30, keys[1])
    assert np.all(state.values > 0.0)
    same = refresh(state, 39, keys[1])
    np.testing.assert_array_equal(same.values, state.values)
    later = refresh(state, 40, keys[1])
    np.testing.assert_allclose(later.values, 0.75 * state.values + 0.25 * fresh.values, rtol=1e-5)
    assert np.max(np.abs(later.values - state.values)) > 1e-4


def test_grid_values_are_interpolated_in_the_chart():
    expectation = GridExpectation(points=5)
    grid = np.asarray(expectation.grid(PROBLEM))
    state = GridState(jnp.asarray(grid**3), jnp.ones((), bool))
    u = jnp.array([grid[0], 0.5 * (grid[1] + grid[2]), 0.25 * grid[2] + 0.75 * grid[3], 1.0])
    got = expectation.estimate(state, SNAPSHOT, Where(u, None, jnp.ones_like(u)), NOTHING_DRAWN, KEY)
    by_hand = [-1.0, 0.5 * (grid[1] ** 3 + grid[2] ** 3), 0.25 * grid[2] ** 3 + 0.75 * grid[3] ** 3, 1.0]
    np.testing.assert_allclose(got, by_hand, atol=1e-5)


def test_expectations_that_cannot_serve_an_observation_are_refused():
    target = Target(lambda x, c, y: -energy(x - y).sum() / c, (1,), CONDITION, observation_shape=(1,))
    problem = problem_of(target, data_at(1.0))
    with pytest.raises(TradeError, match="GridExpectation"):
        GridExpectation().init(problem)
    with pytest.raises(TradeError, match="FromData"):
        FromData().draw(
            Snapshot(FLOW, problem, TrueDensity()), Where(jnp.zeros(1), jnp.zeros((1, 1)), jnp.ones(1)), 4, KEY
        )


def test_one_point_is_not_enough_for_a_batch_expectation():
    with pytest.raises(TradeError, match="points_per_condition=1"):
        Gradient(points_per_condition=1)
    Gradient(points_per_condition=1, expectation=BatchExpectation(samples=8), reweighted=0.0)
    Gradient(points_per_condition=1, expectation=GridExpectation(), reweighted=0.0)
