"""Where in c, decided by the model's own weights: regions that grow outward as fast as they allow."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest
from small_problems import clock_at, problem_of

from trade import Axes, Condition, Target, TradeError
from trade.objectives import Frontier, Gradient
from trade.objectives.condition_samplers import Seen
from trade.objectives.frontier import FrontierState
from trade.objectives.rays import Rays

KEY = jax.random.key(23)
START, TOTAL = 20, 220  # the term's own time is 200 steps
FRONTIER = Frontier(crossing=0.4, threshold=0.3, retreat=0.25, memory=0.5)
CONDITIONS = 24
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
    u = jnp.zeros((len(ess), *ALL[name].condition.u_shape))
    return frontier.update(state, u, seen(ess), ALL[name], clock_at(100, TOTAL, START))


def update(frontier, state, name, ess):
    """One update; an ESS for each decided condition, or one for all. There are others, which do not matter."""
    decided = jnp.broadcast_to(jnp.asarray(ess, float), fixed(ALL[name]))
    return _update(frontier, state, name, jnp.concatenate([decided, jnp.full(CONDITIONS - len(decided), jnp.nan)]))


def ends_of(name, reach):
    """Lower and upper end of the interval around each boundary value, from the parts of the rays."""
    rays = Rays.of(ALL[name].condition)
    tips = np.asarray(rays.at(jnp.arange(len(rays.home)), jnp.asarray(reach)))[..., 0]
    found = np.stack([rays.boundary[:, 0], rays.boundary[:, 0]], axis=1)
    found[rays.home, (rays.span[:, 0] > 0).astype(int)] = tips
    return found


def begin(name, frontier=FRONTIER):
    return frontier.init(ALL[name])


def state_at(name, *ends):
    """Intervals in the middle of a run, with an ESS at the threshold."""
    rays, ends = Rays.of(ALL[name].condition), np.asarray(ends, float)
    tips = ends[rays.home, (rays.span[:, 0] > 0).astype(int)]
    return begin(name)._replace(reach=jnp.asarray((tips - rays.boundary[rays.home, 0]) / rays.span[:, 0], float))


# --- What moves, and how fast


def test_every_interval_begins_as_its_boundary_value():
    state = begin("two")
    np.testing.assert_allclose(ends_of("two", state.reach), [[-0.7, -0.7], [0.4, 0.4]], atol=1e-6)
    assert float(FRONTIER.notes(state, TWO)["reached"]) == 0.0
    assert float(FRONTIER.notes(state, TWO)["boundary_ess"]) == 0.0


def test_ends_move_outward_above_the_threshold_and_back_below_it():
    """The wall first, then the lower end, then the upper one: 0.9 and 0.1, averaged half with the threshold 0.3."""
    state = update(FRONTIER, state_at("inside", [-0.3, 0.6]), "inside", [0.0, 0.9, 0.1])
    np.testing.assert_allclose(state.ess, [0.6, 0.2], rtol=1e-6)
    np.testing.assert_allclose(ends_of("inside", state.reach), [[-0.3 - STEP, 0.6 - 0.25 * STEP]], atol=1e-6)


def test_the_running_ess_decides_and_not_the_newest():
    """0.9 twice is an average of 0.75; one 0.05 after it leaves 0.4, above the threshold, the next one does not."""
    state, ends = state_at("upper", [0.0, 1.0]), []
    for ess in (0.9, 0.9, 0.05, 0.05):
        state = update(FRONTIER, state, "upper", ess)
        ends.append(float(ends_of("upper", state.reach)[0, 0]))
    np.testing.assert_allclose(np.diff(ends, prepend=0.0) / STEP, [-1.0, -1.0, -1.0, 0.25], rtol=1e-4)


def test_exactly_the_threshold_is_not_enough():
    state = update(FRONTIER, state_at("upper", [0.0, 1.0]), "upper", 0.3)
    np.testing.assert_allclose(ends_of("upper", state.reach)[0, 0], 0.25 * STEP, atol=1e-6)


def test_nan_counts_as_no_weight_at_all():
    """It neither moves an end outward nor spreads into the state."""
    state = update(FRONTIER, state_at("inside", [-0.3, 0.6]), "inside", jnp.nan)
    np.testing.assert_allclose(state.ess, [0.15, 0.15], rtol=1e-6)
    np.testing.assert_array_equal(state.home, [0.0])
    np.testing.assert_allclose(ends_of("inside", state.reach), [[-0.3 + 0.25 * STEP, 0.6 - 0.25 * STEP]], atol=1e-6)


@pytest.mark.parametrize("crossing", [0.2, 0.5])
def test_with_perfect_weights_the_range_is_crossed_in_the_time_it_says(crossing):
    """From one end of the range to the other in ``crossing`` of the term's own 200 steps, and no sooner."""
    frontier = Frontier(crossing)
    state, steps = begin("upper", frontier), round(crossing * (TOTAL - START))
    for _ in range(steps - 1):
        state = update(frontier, state, "upper", 1.0)
    np.testing.assert_allclose(frontier.notes(state, UPPER)["reached"], 1.0 - 1.0 / steps, atol=1e-3)
    state = update(frontier, state, "upper", 1.0)
    np.testing.assert_allclose(frontier.notes(state, UPPER)["reached"], 1.0, atol=1e-5)


def test_a_boundary_value_at_the_end_of_the_range_has_one_end_that_moves():
    for name, end, wall in (("upper", 0, 1.0), ("lower", 1, -1.0)):
        assert fixed(ALL[name]) == 2
        state = begin(name)
        for _ in range(5):
            state = update(FRONTIER, state, name, 1.0)
        ends = ends_of(name, state.reach)
        np.testing.assert_allclose(ends[0, 1 - end], wall, atol=1e-6)
        np.testing.assert_allclose(abs(float(ends[0, end]) - wall), 5 * STEP, rtol=1e-4)


def random_walk(name, seed, steps=60):
    """Ends after each of many updates, with an ESS that is good or bad at random, and big steps."""
    frontier = Frontier(crossing=0.05, memory=0.01, retreat=1.0)
    problem = ALL[name]

    def one(state, ess):
        state = frontier.update(state, jnp.zeros(len(ess)), seen(ess), problem, clock_at(100, TOTAL, START))
        return state, state.reach

    chance = 0.5 + 0.4 * np.sin(np.arange(steps) / 5.0)[:, None]  # now most move outward, now most move back
    ess = (np.random.default_rng(seed).random((steps, CONDITIONS)) < chance).astype(float)
    found = jax.jit(lambda s: jax.lax.scan(one, s, jnp.asarray(ess)))(frontier.init(problem))[1]
    return np.stack([ends_of(name, reach) for reach in found])


@pytest.mark.parametrize("name", ALL)
def test_ends_stay_in_the_range_on_their_side_of_their_boundary_value_and_apart(name):
    """Whatever the weights do; neighbours go no farther than each other's boundary value."""
    boundaries, slack = np.asarray(ALL[name].condition.boundary_u), 1e-6
    for seed in range(3):
        low, high = np.moveaxis(random_walk(name, seed), -1, 0)
        assert low.min() >= -1.0 - slack
        assert high.max() <= 1.0 + slack
        assert np.all(low <= boundaries + slack), (low - boundaries).max()
        assert np.all(high >= boundaries - slack), (high - boundaries).min()
        assert np.all(high[:, :-1] <= boundaries[1:] + slack)
        assert np.all(low[:, 1:] >= boundaries[:-1] - slack)
        assert max(np.ptp(low), np.ptp(high)) > 0.3  # they did move


def test_neighbours_grow_towards_each_other_and_meet():
    """Gap 1.1 between two boundaries, closed from both sides at the same pace; each goes on to the other's place."""
    state = begin("two")
    for _ in range(22):
        state = update(FRONTIER, state, "two", 1.0)
    np.testing.assert_allclose(ends_of("two", state.reach), [[-1.0, -0.15], [-0.15, 0.95]], atol=1e-5)
    np.testing.assert_allclose(FRONTIER.notes(state, TWO)["reached"], 0.975, atol=1e-3)
    for _ in range(50):
        state = update(FRONTIER, state, "two", 1.0)
    np.testing.assert_allclose(ends_of("two", state.reach), [[-1.0, 0.4], [-0.7, 1.0]], atol=1e-5)
    np.testing.assert_allclose(FRONTIER.notes(state, TWO)["reached"], 1.0, atol=1e-5)


def test_where_one_side_is_held_the_other_goes_on():
    """The upper interval cannot grow downward: the lower one comes nearly all the way."""
    state = begin("two")
    for _ in range(100):
        state = update(
            FRONTIER, state, "two", [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
        )  # boundaries; lower and upper end of each
    ends = ends_of("two", state.reach)
    np.testing.assert_allclose(ends[0], [-1.0, 0.4], atol=STEP)
    np.testing.assert_allclose(ends[1, 1], 1.0, atol=1e-5)
    np.testing.assert_allclose(FRONTIER.notes(state, TWO)["reached"], 1.0, atol=STEP)


def test_notes_tell_the_part_reached_and_the_worst_boundary():
    state = state_at("two", [-0.9, -0.5], [0.3, 1.0])._replace(home=jnp.array([0.8, 0.6]))
    notes = FRONTIER.notes(state, TWO)
    np.testing.assert_allclose(notes["reached"], 0.5 * (0.4 + 0.7), atol=2e-3)
    np.testing.assert_allclose(notes["boundary_ess"], 0.6, rtol=1e-6)
    state = update(FRONTIER, state, "two", [0.2, 1.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(state.home, [0.5, 0.8], rtol=1e-6)


# --- Which conditions are drawn


@pytest.mark.parametrize("name", ALL)
def test_first_come_the_boundary_values_and_the_ends_that_move(name):
    problem, n = ALL[name], CONDITIONS
    state = begin(name)
    for _ in range(4):
        state = update(FRONTIER, state, name, 1.0)
    u = np.asarray(FRONTIER.sample(state, KEY, n, problem, clock_at(100, TOTAL, START)))
    boundaries, ends = np.asarray(problem.condition.boundary_u), ends_of(name, state.reach)
    moved = ends.ravel()[np.abs(ends - boundaries[:, None]).ravel() > 1e-6]
    assert len(moved) == moving(problem)
    np.testing.assert_allclose(u[: fixed(problem)], np.concatenate([boundaries, moved]), atol=1e-6)
    inside = (u[:, None] >= ends[:, 0] - 1e-6) & (u[:, None] <= ends[:, 1] + 1e-6)
    assert np.all(inside.any(axis=1))
    assert len(u) == n


ENDS = {
    "one": ("inside", [[-0.6, 0.3]]),
    "two": ("two", [[-1.0, -0.6], [0.3, 0.5]]),
    "met": ("two", [[-1.0, -0.15], [-0.15, 1.0]]),
    "all": ("two", [[-1.0, 0.4], [-0.7, 1.0]]),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_rest_is_uniform_on_the_intervals(case):
    """Also where they are of different lengths, and where they touch."""
    name, ends = ENDS[case]
    problem, n = ALL[name], 4000
    state = state_at(name, *ends)
    ends = np.array([[-1.0, 1.0]]) if case == "all" else np.asarray(ends, float)  # what is reached twice counts once
    u = np.asarray(FRONTIER.sample(state, KEY, n, problem, clock_at(100, TOTAL, START)), np.float64)[fixed(problem) :]
    lengths = ends[:, 1] - ends[:, 0]

    def distribution(t):
        return np.clip(np.asarray(t)[..., None] - ends[:, 0], 0.0, lengths).sum(axis=-1) / lengths.sum()

    assert kstest(u, distribution).pvalue > 1e-3
    assert np.all(((u[:, None] >= ends[:, 0] - 1e-5) & (u[:, None] <= ends[:, 1] + 1e-5)).any(axis=1))


@pytest.mark.parametrize(("name", "least"), [("upper", 3), ("inside", 3), ("two", 4), ("ends", 4)])
def test_too_few_conditions_are_refused_in_one_sentence(name, least):
    """The boundary values leave none for a tip and one more."""
    state, clock = begin(name), clock_at(100, TOTAL, START)
    assert len(FRONTIER.sample(state, KEY, least, ALL[name], clock)) == least
    with pytest.raises(TradeError, match=f"needs more than {least - 1} conditions") as error:
        FRONTIER.sample(state, KEY, least - 1, ALL[name], clock)
    assert "\n" not in str(error.value)


def test_seeds_have_frontiers_of_their_own():
    """Under vmap: a good seed goes on, a bad one goes back, and each samples its own interval."""
    start = state_at("inside", [-0.3, 0.6])
    states = jax.tree.map(lambda v: jnp.stack([v, v]), start)
    ess = jnp.stack([jnp.ones(8), jnp.zeros(8)])
    clock = clock_at(100, TOTAL, START)
    moved = jax.vmap(lambda s, e: FRONTIER.update(s, jnp.zeros(8), seen(e), INSIDE, clock))(states, ess)
    assert isinstance(moved, FrontierState)
    for i, expected in enumerate(([[-0.3 - STEP, 0.6 + STEP]], [[-0.3 + 0.25 * STEP, 0.6 - 0.25 * STEP]])):
        np.testing.assert_allclose(ends_of("inside", moved.reach[i]), expected, atol=1e-6)
    u = jax.vmap(lambda s: FRONTIER.sample(s, KEY, 8, INSIDE, clock))(moved)
    np.testing.assert_allclose(u[:, 1:3], [ends_of("inside", r)[0] for r in moved.reach], atol=1e-6)
    assert np.all(np.asarray(u[0, 3:]) != np.asarray(u[1, 3:]))


# --- Several axes


def plane_with(*boundaries, axes=2):
    """Boundary points at these chart coordinates, on two axes or more."""
    line = Condition(-1.0, 1.0, scale="linear")
    condition = Axes({f"c{i}": line for i in range(axes)}, boundary=list(boundaries))
    return problem_of(Target(lambda x, c: -(x**2).sum() * c.c0, (1,), condition))


CENTRE, CORNER, PAIR = plane_with((0.0, 0.0)), plane_with((-1.0, -1.0)), plane_with((-0.5, 0.0), (0.5, 0.0))
CUBE = plane_with((0.2, -1.0, 0.0), axes=3)
PLANES = {"centre": CENTRE, "corner": CORNER, "pair": PAIR, "cube": CUBE}


@pytest.mark.parametrize("name", PLANES)
def test_rays_end_on_the_surface_of_the_range_or_abreast_of_another_boundary_value(name):
    rays = Rays.of(PLANES[name].condition)
    tips = np.asarray(rays.at(jnp.arange(len(rays.home)), jnp.ones(len(rays.home))))
    assert np.abs(tips).max() <= 1.0 + 1e-6
    on_surface = np.abs(np.abs(tips).max(axis=1) - 1.0) < 1e-5
    away = rays.boundary[None] - rays.boundary[rays.home][:, None]
    abreast = np.abs(np.sum((tips[:, None] - rays.boundary[None]) * away, axis=-1)) < 1e-5
    other = np.arange(len(rays.boundary)) != rays.home[:, None]
    assert np.all(on_surface | (abreast & other).any(axis=1))
    assert len(np.unique(np.round(np.column_stack([rays.home, rays.span]), 5), axis=0)) == len(rays.home)


@pytest.mark.parametrize("name", PLANES)
def test_what_is_reached_is_a_region_whose_size_is_known(name):
    """Of one boundary value and rays reached to a half, 1/2ᵏ of the range; of all of it, everything."""
    rays = Rays.of(PLANES[name].condition)
    axes = rays.boundary.shape[1]
    full = jnp.ones(len(rays.home))
    assert float(rays.part(full)) == 1.0
    assert float(rays.part(0.0 * full)) == 0.0
    if len(rays.boundary) == 1:
        np.testing.assert_allclose(rays.part(0.5 * full), 0.5**axes, atol=0.02)


def test_a_direction_that_cannot_go_on_does_not_hold_the_others():
    """In the plane, with no weights in the corner (1, 1): all but what lies towards it is reached."""
    problem, frontier = CENTRE, Frontier(crossing=0.2, memory=0.5)
    state, rays = frontier.init(problem), Rays.of(problem.condition)
    towards = rays.span @ np.ones(2) / np.linalg.norm(rays.span, axis=1) / np.sqrt(2.0)

    @jax.jit
    def step(state, key, i):
        clock = clock_at(i, 400)
        u = frontier.sample(state, key, 16, problem, clock)
        bad = u.sum(axis=1) > 1.0
        return frontier.update(state, u, Seen(jnp.zeros(16), jnp.where(bad, 0.0, 1.0)), problem, clock), u

    for i in range(300):
        state, u = step(state, jax.random.fold_in(KEY, i), i)
    assert np.asarray(state.reach)[towards < 0.3].min() == 1.0
    assert np.asarray(state.reach)[towards > 0.99].max() < 0.6
    assert 0.6 < float(frontier.notes(state, problem)["reached"]) < 0.95
    assert u.shape == (16, 2)
    assert np.asarray(u).sum(axis=1).max() < 1.2


def test_two_boundary_points_share_the_plane():
    """Together they reach everything, and what both have reached counts once."""
    problem, frontier = PAIR, Frontier(crossing=0.2)
    state = frontier.init(problem)

    @jax.jit
    def step(state, i):
        clock = clock_at(i, 400)
        return frontier.update(state, jnp.zeros((16, 2)), Seen(jnp.zeros(16), jnp.ones(16)), problem, clock)

    for i in range(300):
        state = step(state, i)
    assert float(frontier.notes(state, problem)["reached"]) == 1.0
    u = np.asarray(Rays.of(problem.condition).inside(state.reach, KEY, 4000))
    for values in u.T:
        assert kstest(values, "uniform", args=(-1.0, 2.0)).statistic < 0.04


@pytest.mark.parametrize("name", PLANES)
def test_conditions_fill_what_is_reached(name):
    problem = PLANES[name]
    rays, n = Rays.of(problem.condition), 4000
    reach = jnp.full(len(rays.home), 0.5)
    u = np.asarray(rays.inside(reach, KEY, n))
    assert u.shape == (n, rays.boundary.shape[1])
    assert np.abs(u).max() <= 1.0
    if len(rays.boundary) == 1:
        box = 0.5 * (np.array([-1.0, 1.0])[:, None] - rays.boundary[0]) + rays.boundary[0]
        assert np.all((u >= box[0] - 1e-5) & (u <= box[1] + 1e-5))
        for values, low, high in zip(u.T, *box, strict=True):
            assert kstest(values, "uniform", args=(low, high - low)).statistic < 0.04


def test_tips_take_turns_where_conditions_are_few():
    """Of the 26 rays of a cube a few at each step, and all of them within a few steps."""
    frontier, state = Frontier(), Frontier().init(CUBE)
    count = len(state.reach)
    state = state._replace(reach=jnp.arange(1.0, count + 1.0) / (2.0 * count))
    tips = np.asarray(Rays.of(CUBE.condition).at(jnp.arange(count), state.reach))
    visited = set()
    for i in range(10):
        u = np.asarray(frontier.sample(state, KEY, 8, CUBE, clock_at(i, 100)))
        visited |= {j for j, tip in enumerate(tips) if np.abs(u - tip).max(axis=1).min() < 1e-6}
    assert visited == set(range(count))


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
