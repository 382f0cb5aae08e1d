"""Where in c, decided by the model's own weights: intervals that grow outward as fast as they allow."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import clock_at, problem_of
from scipy.stats import kstest

from trade import Condition, Target, TradeError
from trade.objectives import Frontier, Gradient
from trade.objectives.condition_samplers import Seen
from trade.objectives.frontier import FrontierState

KEY = jax.random.key(23)
START, TOTAL = 20, 220  # the term's own time is 200 steps
FRONTIER = Frontier(crossing=0.4, threshold=0.3, retreat=0.25, memory=0.5)
STEP = 2.0 / 80  # of an end that moves outward: the range in 0.4 of 200 steps


def problem_with(*boundaries):
    """Boundary values at these chart coordinates."""
    condition = Condition(-1.0, 1.0, scale="linear", boundary=boundaries)
    return problem_of(Target(lambda x, c: -(x**2).sum() * c, (1,), condition))


INSIDE, UPPER, LOWER = problem_with(0.2), problem_with(1.0), problem_with(-1.0)
TWO, THREE, BOTH_ENDS = problem_with(-0.7, 0.4), problem_with(-0.9, 0.0, 0.5), problem_with(-1.0, 1.0)
ALL = {"inside": INSIDE, "upper": UPPER, "lower": LOWER, "two": TWO, "three": THREE, "ends": BOTH_ENDS}


def moving(problem):
    """How many ends have somewhere to go."""
    boundaries = np.asarray(problem.condition.boundary_u)
    return 2 * len(boundaries) - int(boundaries[0] == -1.0) - int(boundaries[-1] == 1.0)


def fixed(problem):
    """How many conditions are decided: the boundary values and the ends that move."""
    return len(problem.condition.boundary_u) + moving(problem)


def seen(ess):
    """An ESS at each condition; the losses do not matter."""
    return Seen(jnp.full(len(ess), jnp.nan), jnp.asarray(ess, float))


@partial(jax.jit, static_argnums=(0, 2))
def _update(frontier, state, name, ess):
    return frontier.update(state, jnp.zeros(len(ess)), seen(ess), ALL[name], clock_at(100, TOTAL, START))


def update(frontier, state, name, ess):
    """One update; an ESS for each decided condition, or one for all."""
    return _update(frontier, state, name, jnp.broadcast_to(jnp.asarray(ess, float), fixed(ALL[name])))


def begin(name, frontier=FRONTIER):
    return frontier.init(ALL[name])


def state_at(name, *ends):
    """Intervals in the middle of a run, with an ESS at the threshold."""
    return begin(name)._replace(ends=jnp.asarray(ends, float))


# --- What moves, and how fast


def test_every_interval_begins_as_its_boundary_value():
    state = begin("two")
    np.testing.assert_allclose(state.ends, [[-0.7, -0.7], [0.4, 0.4]], atol=1e-6)
    assert float(FRONTIER.notes(state, TWO)["reached"]) == 0.0
    assert float(FRONTIER.notes(state, TWO)["boundary_ess"]) == 0.0


def test_ends_move_outward_above_the_threshold_and_back_below_it():
    """The wall first, then the lower end, then the upper one: 0.9 and 0.1, averaged half with the threshold 0.3."""
    state = update(FRONTIER, state_at("inside", [-0.3, 0.6]), "inside", [0.0, 0.9, 0.1])
    np.testing.assert_allclose(state.ess, [[0.6, 0.2]], rtol=1e-6)
    np.testing.assert_allclose(state.ends, [[-0.3 - STEP, 0.6 - 0.25 * STEP]], atol=1e-6)


def test_the_running_ess_decides_and_not_the_newest():
    """0.9 twice is an average of 0.75; one 0.05 after it leaves 0.4, above the threshold, the next one does not."""
    state, ends = state_at("upper", [0.0, 1.0]), []
    for ess in (0.9, 0.9, 0.05, 0.05):
        state = update(FRONTIER, state, "upper", ess)
        ends.append(float(state.ends[0, 0]))
    np.testing.assert_allclose(np.diff(ends, prepend=0.0) / STEP, [-1.0, -1.0, -1.0, 0.25], rtol=1e-4)


def test_exactly_the_threshold_is_not_enough():
    state = update(FRONTIER, state_at("upper", [0.0, 1.0]), "upper", 0.3)
    np.testing.assert_allclose(state.ends[0, 0], 0.25 * STEP, atol=1e-6)


def test_nan_counts_as_no_weight_at_all():
    """It neither moves an end outward nor spreads into the state."""
    state = update(FRONTIER, state_at("inside", [-0.3, 0.6]), "inside", jnp.nan)
    np.testing.assert_allclose(state.ess, [[0.15, 0.15]], rtol=1e-6)
    np.testing.assert_array_equal(state.home, [0.0])
    np.testing.assert_allclose(state.ends, [[-0.3 + 0.25 * STEP, 0.6 - 0.25 * STEP]], atol=1e-6)


@pytest.mark.parametrize("crossing", [0.2, 0.5])
def test_with_perfect_weights_the_range_is_crossed_in_the_time_it_says(crossing):
    """From one end of the range to the other in ``crossing`` of the term's own 200 steps, and no sooner."""
    frontier = Frontier(crossing)
    state, steps = begin("upper", frontier), round(crossing * (TOTAL - START))
    for _ in range(steps - 1):
        state = update(frontier, state, "upper", 1.0)
    np.testing.assert_allclose(frontier.notes(state, UPPER)["reached"], 1.0 - 1.0 / steps, atol=1e-4)
    state = update(frontier, state, "upper", 1.0)
    np.testing.assert_allclose(frontier.notes(state, UPPER)["reached"], 1.0, atol=1e-5)


def test_a_boundary_value_at_the_end_of_the_range_has_one_end_that_moves():
    for name, end, wall in (("upper", 0, 1.0), ("lower", 1, -1.0)):
        assert fixed(ALL[name]) == 2
        state = begin(name)
        for _ in range(5):
            state = update(FRONTIER, state, name, 1.0)
        np.testing.assert_allclose(state.ends[0, 1 - end], wall, atol=1e-6)
        np.testing.assert_allclose(abs(float(state.ends[0, end]) - wall), 5 * STEP, rtol=1e-4)


def random_walk(name, seed, steps=60):
    """Ends after each of many updates, with an ESS that is good or bad at random, and big steps."""
    frontier = Frontier(crossing=0.05, memory=0.01, retreat=1.0)
    problem = ALL[name]

    def one(state, ess):
        state = frontier.update(state, jnp.zeros(len(ess)), seen(ess), problem, clock_at(100, TOTAL, START))
        return state, state.ends

    chance = 0.5 + 0.4 * np.sin(np.arange(steps) / 5.0)[:, None]  # now most move outward, now most move back
    ess = (np.random.default_rng(seed).random((steps, fixed(problem))) < chance).astype(float)
    return np.asarray(jax.jit(lambda s: jax.lax.scan(one, s, jnp.asarray(ess)))(frontier.init(problem))[1])


@pytest.mark.parametrize("name", ALL)
def test_ends_stay_in_the_range_on_their_side_of_their_boundary_value_and_apart(name):
    """Whatever the weights do; neighbours meet and do not cross."""
    boundaries, slack = np.asarray(ALL[name].condition.boundary_u), 1e-6
    for seed in range(3):
        low, high = np.moveaxis(random_walk(name, seed), -1, 0)
        assert low.min() >= -1.0 - slack
        assert high.max() <= 1.0 + slack
        assert np.all(low <= boundaries + slack), (low - boundaries).max()
        assert np.all(high >= boundaries - slack), (high - boundaries).min()
        assert np.all(high[:, :-1] <= low[:, 1:] + slack)
        assert max(np.ptp(low), np.ptp(high)) > 0.3  # they did move


def test_neighbours_grow_towards_each_other_and_meet():
    """Gap 1.1 between two boundaries, closed from both sides at the same pace: they meet in its middle, and stay."""
    state = begin("two")
    for _ in range(100):
        state = update(FRONTIER, state, "two", 1.0)
    np.testing.assert_allclose(state.ends, [[-1.0, -0.15], [-0.15, 1.0]], atol=1e-5)
    np.testing.assert_allclose(FRONTIER.notes(state, TWO)["reached"], 1.0, atol=1e-5)


def test_where_one_side_is_held_the_other_goes_on():
    """The upper interval cannot grow downward: the lower one comes nearly all the way."""
    state = begin("two")
    for _ in range(100):
        state = update(FRONTIER, state, "two", [1.0, 1.0, 1.0, 0.0, 1.0, 1.0])  # boundaries, lower ends, upper ends
    np.testing.assert_allclose(state.ends[0], [-1.0, 0.4], atol=STEP)
    np.testing.assert_allclose(state.ends[1, 1], 1.0, atol=1e-5)
    np.testing.assert_allclose(FRONTIER.notes(state, TWO)["reached"], 1.0, atol=STEP)


def test_notes_tell_the_part_reached_and_the_worst_boundary():
    state = state_at("two", [-0.9, -0.5], [0.3, 1.0])._replace(home=jnp.array([0.8, 0.6]))
    notes = FRONTIER.notes(state, TWO)
    np.testing.assert_allclose(notes["reached"], 0.5 * (0.4 + 0.7), rtol=1e-5)
    np.testing.assert_allclose(notes["boundary_ess"], 0.6, rtol=1e-6)
    state = update(FRONTIER, state, "two", [0.2, 1.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(state.home, [0.5, 0.8], rtol=1e-6)


# --- Which conditions are drawn


@pytest.mark.parametrize("name", ALL)
def test_first_come_the_boundary_values_and_the_ends_that_move(name):
    problem, n = ALL[name], 20
    state = begin(name)
    for _ in range(4):
        state = update(FRONTIER, state, name, 1.0)
    u = np.asarray(FRONTIER.sample(state, KEY, n, problem, clock_at(100, TOTAL, START)))
    boundaries, ends = np.asarray(problem.condition.boundary_u), np.asarray(state.ends)
    lower = ends[:, 0][(boundaries > -1.0) | (np.arange(len(boundaries)) > 0)]
    upper = ends[:, 1][(boundaries < 1.0) | (np.arange(len(boundaries)) < len(boundaries) - 1)]
    np.testing.assert_allclose(u[: fixed(problem)], np.concatenate([boundaries, lower, upper]), atol=1e-6)
    inside = (u[:, None] >= ends[:, 0] - 1e-6) & (u[:, None] <= ends[:, 1] + 1e-6)
    assert np.all(inside.any(axis=1))
    assert len(u) == n


ENDS = {"one": ("inside", [[-0.6, 0.3]]), "two": ("two", [[-1.0, -0.6], [0.3, 0.5]]), "met": ("two", [[-1, 0], [0, 1]])}


@pytest.mark.parametrize("case", ENDS)
def test_the_rest_is_uniform_on_the_intervals(case):
    """Also where they are of different lengths, and where they touch."""
    name, ends = ENDS[case]
    problem, ends, n = ALL[name], np.asarray(ends, float), 4000
    state = state_at(name, *ends)
    u = np.asarray(FRONTIER.sample(state, KEY, n, problem, clock_at(100, TOTAL, START)), np.float64)[fixed(problem) :]
    lengths = ends[:, 1] - ends[:, 0]

    def distribution(t):
        return np.clip(np.asarray(t)[..., None] - ends[:, 0], 0.0, lengths).sum(axis=-1) / lengths.sum()

    assert kstest(u, distribution).pvalue > 1e-3
    assert np.all(((u[:, None] >= ends[:, 0] - 1e-5) & (u[:, None] <= ends[:, 1] + 1e-5)).any(axis=1))


@pytest.mark.parametrize(("name", "least"), [("upper", 3), ("inside", 4), ("two", 7), ("ends", 5)])
def test_too_few_conditions_are_refused_in_one_sentence(name, least):
    """The boundary values and the moving ends leave none to draw."""
    state, clock = begin(name), clock_at(100, TOTAL, START)
    assert len(FRONTIER.sample(state, KEY, least, ALL[name], clock)) == least
    with pytest.raises(TradeError, match=f"needs more than {least - 1} conditions") as error:
        FRONTIER.sample(state, KEY, least - 1, ALL[name], clock)
    assert "\n" not in str(error.value)


def test_seeds_have_frontiers_of_their_own():
    """Under vmap: a good seed goes on, a bad one goes back, and each samples its own interval."""
    start = state_at("inside", [-0.3, 0.6])
    states = jax.tree.map(lambda v: jnp.stack([v, v]), start)
    ess = jnp.stack([jnp.ones(3), jnp.zeros(3)])
    clock = clock_at(100, TOTAL, START)
    moved = jax.vmap(lambda s, e: FRONTIER.update(s, jnp.zeros(3), seen(e), INSIDE, clock))(states, ess)
    assert isinstance(moved, FrontierState)
    for i, expected in enumerate(([[-0.3 - STEP, 0.6 + STEP]], [[-0.3 + 0.25 * STEP, 0.6 - 0.25 * STEP]])):
        np.testing.assert_allclose(moved.ends[i], expected, atol=1e-6)
    u = jax.vmap(lambda s: FRONTIER.sample(s, KEY, 8, INSIDE, clock))(moved)
    np.testing.assert_allclose(u[:, 1:3], moved.ends[:, 0], atol=1e-6)
    assert np.all(np.asarray(u[0, 3:]) != np.asarray(u[1, 3:]))


def test_state_has_the_types_it_keeps():
    """A weak type, or one that changes, would compile the training loop twice."""
    for name in ("inside", "two"):
        state = begin(name)
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
        new = update(FRONTIER, state, name, 1.0)
        assert [leaf.dtype for leaf in jax.tree.leaves(new)] == [leaf.dtype for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "Frontier threshold"),
        ({"threshold": 1.0}, "Frontier threshold"),
        ({"memory": 1.0}, "Frontier memory"),
        ({"crossing": 0.0}, "Frontier crossing"),
        ({"retreat": -0.1}, "retreat"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(TradeError, match=message):
        Frontier(**options)


def test_it_is_the_default():
    assert Gradient().conditions == Frontier()
