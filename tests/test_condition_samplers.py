"""Where in c: the widening schedule (Appendix B.2), the growing interval (C.3), causality weights (Eqs. 21-22)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest
from small_problems import clock_at, family, problem_of

from trade import Condition, Target, TradeError
from trade.objectives import CausalGrid, Frontier, GrowingInterval, Widening
from trade.objectives.condition_samplers import Seen

N = 4000  # every sampler draws this many: one compilation each
KEY = jax.random.key(3)
START, MIDDLE, END = clock_at(10, 110, 10), clock_at(60, 110, 10), clock_at(110, 110, 10)


def problem_with(*boundary, low=0.25, high=2.0, scale="log"):
    condition = Condition(low, high, scale=scale, boundary=boundary)
    return problem_of(Target(lambda x, c: -(x**2).sum() / c, (1,), condition))


INSIDE = problem_with(1.0)  # c0 = 1 in [1/4, 2]: a third of the logarithmic range lies above it
MIDWAY = problem_with(np.sqrt(0.5))  # u0 = 0
TWO_WALLS = problem_with(-0.7, 0.7, low=-1.0, high=1.0, scale="linear")


def draw(sampler, problem, clock, state=()):
    return np.asarray(sampler.sample(state, KEY, N, problem, clock), np.float64)


# --- Widening: Appendix B.2


@pytest.mark.parametrize(("clock", "expected"), [(START, 0.01), (MIDDLE, np.sqrt(0.01 * 1.5)), (END, 1.5)])
def test_skew_is_geometric_in_the_own_time_of_the_term(clock, expected):
    """Appendix B.2: ζ = exp(log s_min + t/t_max (log s_max - log s_min)), t from the start of the term."""
    np.testing.assert_allclose(Widening(0.01, 1.5).skew(clock), expected, rtol=1e-5)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_skew_one_is_uniform_in_the_chart(scale):
    """Appendix B.2: ζ = 1 gives a log-uniform condition, whatever c0 is."""
    u = draw(Widening(1.0, 1.0), problem_with(1.0, scale=scale), START)
    assert u.min() >= -1.0
    assert u.max() <= 1.0
    assert kstest(u, "uniform", args=(-1.0, 2.0)).pvalue > 1e-3


@pytest.mark.parametrize("zeta", [0.1, 0.5, 3.0])
def test_distance_from_the_boundary_has_the_stated_law(zeta):
    """Appendix B.2: the fraction of the way to the end is 1 - r^ζ, so P(below t) = 1 - (1-t)^(1/ζ)."""
    u, u0 = draw(Widening(zeta, zeta), INSIDE, MIDDLE), 1.0 / 3.0
    fraction = np.where(u > u0, (u - u0) / (1.0 - u0), (u0 - u) / (1.0 + u0))
    assert kstest(fraction, lambda t: 1.0 - (1.0 - np.clip(t, 0.0, 1.0)) ** (1.0 / zeta)).pvalue > 1e-3


@pytest.mark.parametrize("clock", [START, END], ids=["start", "end"])
def test_share_above_c0_is_the_bernoulli_probability(clock):
    """Appendix B.2: w ~ B((log c_max - log c0)/(log c_max - log c_min)) = log 2 / log 8 at all times."""
    above = np.mean(draw(Widening(), INSIDE, clock) > 1.0 / 3.0)
    assert abs(above - 1.0 / 3.0) < 4.0 * np.sqrt(2.0 / 9.0 / N)


def test_widening_starts_near_c0_and_ends_at_the_far_ends():
    first, last = (np.abs(draw(Widening(), INSIDE, clock) - 1.0 / 3.0) for clock in (START, END))
    assert np.quantile(first, 0.9) < 0.05
    assert np.median(last) > 0.3


def test_boundary_at_an_end_is_left_to_one_side_only():
    u = draw(Widening(1.0, 1.0), problem_with(2.0), START)
    assert u.max() <= 1.0
    assert kstest(u, "uniform", args=(-1.0, 2.0)).pvalue > 1e-3


def test_two_boundaries_are_drawn_equally_often():
    u = draw(Widening(0.001, 0.001), TWO_WALLS, START)
    assert np.all(np.minimum(np.abs(u - 0.7), np.abs(u + 0.7)) < 0.05)
    assert abs(np.mean(u > 0) - 0.5) < 4.0 * np.sqrt(0.25 / N)


@pytest.mark.parametrize("skews", [(0.0, 1.0), (2.0, 1.0)])
def test_widening_refuses_skews_that_do_not_widen(skews):
    with pytest.raises(TradeError, match="s_min"):
        Widening(*skews)


# --- GrowingInterval: Appendix C.3, "TRADE Without Grid"


@pytest.mark.parametrize(
    ("full_at", "clock", "low", "high"),
    [
        (1.0, START, 1 / 3, 1 / 3),
        (1.0, MIDDLE, -1 / 3, 2 / 3),  # half way from 1/3 to -1, and from 1/3 to 1
        (1.0, END, -1.0, 1.0),
        (0.5, clock_at(35, 110, 10), -1 / 3, 2 / 3),
        (0.5, MIDDLE, -1.0, 1.0),
        (0.5, END, -1.0, 1.0),
        (0.0, START, -1.0, 1.0),
    ],
)
def test_borders_move_linearly_to_the_full_range(full_at, clock, low, high):
    """Appendix C.3: uniform in log c, the borders grow linearly, the full range at the end."""
    u = draw(GrowingInterval(full_at), INSIDE, clock)
    assert u.min() >= low - 1e-6
    assert u.max() <= high + 1e-6
    if high > low:
        assert kstest(u, "uniform", args=(low, high - low)).pvalue > 1e-3


def test_interval_starts_between_two_boundaries():
    u = draw(GrowingInterval(), TWO_WALLS, START)
    assert kstest(u, "uniform", args=(-0.7, 1.4)).pvalue > 1e-3


def test_full_range_from_the_start_needs_no_boundary():
    u = draw(GrowingInterval(full_at=0.0), problem_with(), START)
    assert kstest(u, "uniform", args=(-1.0, 2.0)).pvalue > 1e-3


def test_widening_without_a_boundary_is_refused():
    with pytest.raises(TradeError, match="no boundary value"):
        draw(Widening(), problem_with(), START)


# --- CausalGrid: Eqs. 21-22

LOSSES = jnp.array([0.5, 0.4, 0.3, 0.2, 0.1])


def five_points(problem, **options):
    """The sampler whose grid has five points: a boundary value may take the place of one of them."""
    samplers = [CausalGrid(points, **options) for points in (5, 6)]
    return next(s for s in samplers if len(s.grid(problem)) == 5)


def test_weights_with_the_boundary_at_the_upper_end():
    """Eq. 22 by hand: the sums of the losses from the right end up to each point, times -ε."""
    got = five_points(problem_with(2.0), epsilon=2.0).log_weights(LOSSES, problem_with(2.0), START)
    np.testing.assert_allclose(got, [-3.0, -2.0, -1.2, -0.6, -0.2], rtol=1e-5)


def test_weights_with_the_boundary_at_the_lower_end():
    got = five_points(problem_with(0.25), epsilon=2.0).log_weights(LOSSES, problem_with(0.25), START)
    np.testing.assert_allclose(got, [-1.0, -1.8, -2.4, -2.8, -3.0], rtol=1e-5)


def test_weights_with_the_boundary_inside():
    """Eq. 22 by hand: losses accumulate outward on both sides of c0, which is the third point."""
    sampler = five_points(MIDWAY, epsilon=1.0)
    np.testing.assert_allclose(sampler.grid(MIDWAY)[2], 0.0, atol=1e-6)
    got = sampler.log_weights(LOSSES, MIDWAY, START)
    np.testing.assert_allclose(got, [-1.2, -0.7, -0.3, -0.5, -0.6], rtol=1e-5)


@pytest.mark.parametrize(("clock", "strength"), [(START, 2.0), (MIDDLE, 1.0), (END, 0.5)])
def test_weights_of_two_boundaries_with_factor_between_and_decay(clock, strength):
    """Eq. 22 and Appendix B.6: ε decays to 1/4 exponentially, and is 1/10 of that between the boundaries."""
    sampler = CausalGrid(7, epsilon=2.0, decay=0.25, between=0.1)
    np.testing.assert_allclose(sampler.grid(TWO_WALLS), [-1, -0.7, -0.5, 0, 0.5, 0.7, 1], atol=1e-6)
    losses = jnp.array([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    # From the left wall (second point), from the right one (sixth), whichever costs less; the
    # losses of the three points between them count a tenth.
    accumulated = [13.0, 6.0, min(6.5, 3.2), min(6.9, 2.7), min(7.2, 2.3), 2.0, 3.0]
    got = sampler.log_weights(losses, TWO_WALLS, clock)
    np.testing.assert_allclose(got, -strength * np.array(accumulated), rtol=1e-5)


@pytest.mark.parametrize("c", np.geomspace(0.3, 1.9, 12))
def test_a_boundary_itself_never_counts_as_between(c):
    """Rounding of a boundary in the chart must not put it inside the interval between boundaries."""
    problem = problem_with(c, 1.99)
    sampler = CausalGrid(12, between=0.0)
    boundaries = np.searchsorted(sampler.grid(problem), np.asarray(problem.condition.boundary_chart()) - 1e-4)
    got = sampler.log_weights(jnp.ones(len(sampler.grid(problem))), problem, START)
    np.testing.assert_allclose(got[boundaries], -1.0, rtol=1e-6)


def test_zero_epsilon_is_uniform():
    np.testing.assert_array_equal(five_points(MIDWAY, epsilon=0.0).log_weights(LOSSES, MIDWAY, START), np.zeros(5))


def test_points_are_drawn_with_the_weights():
    """Eq. 22: the share of each grid point among the draws, within four standard errors."""
    problem = problem_with(2.0)
    sampler = five_points(problem, epsilon=2.0)
    grid = np.asarray(sampler.grid(problem))
    u = draw(sampler, problem, START, LOSSES)
    weights = np.exp([-3.0, -2.0, -1.2, -0.6, -0.2])
    expected = weights / weights.sum()
    share = np.array([np.mean(np.abs(u - v) < 1e-6) for v in grid])
    np.testing.assert_allclose(share.sum(), 1.0)  # nothing but grid points
    assert np.all(np.abs(share - expected) < 4.0 * np.sqrt(expected * (1.0 - expected) / N))


def test_running_loss_by_hand():
    """Section 4.3.2: exponential average at visited points (the mean of two draws), others as they were."""
    sampler = five_points(MIDWAY, ema=0.9)
    state, visited = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), sampler.grid(MIDWAY)[jnp.array([1, 3, 1])]
    seen = Seen(jnp.array([2.0, 10.0, 4.0]), jnp.ones(3))
    new = sampler.update(state, visited, seen, MIDWAY, START)
    np.testing.assert_allclose(new, [1.0, 0.9 * 2.0 + 0.1 * 3.0, 3.0, 0.9 * 4.0 + 0.1 * 10.0, 5.0], rtol=1e-6)


@pytest.mark.parametrize("boundary", [(1.1,), (0.6, 1.1)])
def test_grid_has_the_number_of_points_asked_for_and_its_boundary(boundary):
    problem = problem_with(*boundary)
    sampler = CausalGrid(20, initial=7.0)
    grid, boundaries = np.asarray(sampler.grid(problem)), np.asarray(problem.condition.boundary_chart())
    assert len(grid) == 20
    assert np.all(np.min(np.abs(grid[:, None] - boundaries), axis=0) < 1e-6)
    np.testing.assert_array_equal(sampler.init(problem), np.full(20, 7.0))


@pytest.mark.parametrize(("options", "name"), [({"points": 1}, "points"), ({"ema": 1.0}, "ema")])
def test_causal_grid_refuses_bad_options(options, name):
    with pytest.raises(TradeError, match=name):
        CausalGrid(**options)


def test_samplers_run_under_jit():
    """The grid must be known while tracing."""
    problem = problem_of(family())
    for sampler in (Widening(), GrowingInterval(), CausalGrid(5), Frontier()):
        state = sampler.init(problem)

        def step(state, sampler=sampler):
            u = sampler.sample(state, KEY, 4, problem, START)
            return u, sampler.update(state, u, Seen(jnp.ones(4), jnp.ones(4)), problem, START)

        u, new = jax.jit(step)(state)
        assert bool(jnp.all(jnp.isfinite(u)))
        assert jax.tree.structure(new) == jax.tree.structure(state)
