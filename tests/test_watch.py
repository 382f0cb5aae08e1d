"""What a run decides between chunks: which state is the best, whether the boundary is lost, when to end."""

import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import LinearGaussian

from trade import TradeError
from trade.fit import stack
from trade.training import Watch
from trade.training.optimiser import Cooling
from trade.training.watch import Judged, Stopwatch

STEPS, N = 1000, 400
WATCH = Watch(patience=0.1, gain=0.01, cooling=0.2, significance=3.0, slack=0.05, damping=0.25)
RANDOM = np.random.default_rng(0)
TWO_SEEDS = {"begun": True, "reached": 1.0, "many": True}
FIRST = RANDOM.normal(2.0, 1.0, (1, N))  # negative log-likelihoods of single states


def judged(score, held_out=FIRST, learned=FIRST):
    score = None if score is None else np.atleast_1d(np.asarray(score, float))
    return Judged({}, score, np.asarray(held_out), np.asarray(learned))


def flow(mean):
    return LinearGaussian(mean)


def after(*evaluations, watch=WATCH, every=10, begun=True, reached=1.0):
    """What is remembered after evaluations every ten steps, of flows with mean 0, 1, 2..."""
    watched, lost = watch.begin(flow(-1.0), 1, STEPS, evaluations[0]), None
    for i, found in enumerate(evaluations):
        now = {"begun": begun, "reached": reached, "many": False}
        watched, lost = watch.compare(watched, flow(float(i)), found, every * (i + 1), **now)
    return watched, lost


# --- The best state


def test_the_lowest_score_is_kept_and_a_nan_is_not():
    watched, _ = after(judged(3.0), judged(1.0), judged(np.nan), judged(2.0))
    assert float(watched.best.mean[0]) == 1.0
    assert float(watched.score[0]) == 1.0


def test_a_small_gain_is_kept_and_not_waited_for():
    """Each step 0.004 lower: of the first, the fourth and the seventh the run takes notice."""
    watched, _ = after(*[judged(1.0 - 0.004 * i) for i in range(9)])
    assert float(watched.best.mean[0]) == 8.0
    assert int(watched.improved[0]) == 70
    np.testing.assert_allclose(watched.mark, 1.0 - 0.024, rtol=1e-6)
    np.testing.assert_allclose(watched.score, 1.0 - 0.032, rtol=1e-6)


def test_without_a_score_the_newest_state_is_kept():
    watched, lost = after(judged(None), judged(None))
    assert float(watched.best.mean[0]) == 1.0
    assert not lost.any()


def test_where_the_score_knows_the_boundary_alone_the_newest_is_kept_until_the_range_is_reached():
    """Without a density: a model that fits the boundary, and nothing else, must not be chosen."""
    scores = [judged(1.0), judged(2.0), judged(3.0)]
    assert float(after(*scores, reached=0.9)[0].best.mean[0]) == 2.0
    assert float(after(*scores, reached=1.0)[0].best.mean[0]) == 0.0
    weighted = [found._replace(weighted=True) for found in scores]
    assert float(after(*weighted, reached=0.9)[0].best.mean[0]) == 0.0
    watched, _ = after(*scores, reached=0.9)
    for step, score in ((40, 2.9), (50, 2.95)):  # once it is reached, those before do not count any more
        now = {"begun": True, "reached": 1.0, "many": False}
        watched, _ = WATCH.compare(watched, flow(float(step)), judged(score), step, **now)
    assert float(watched.best.mean[0]) == 40.0


def test_patience_begins_when_the_range_is_reached_where_the_score_knows_the_boundary_alone():
    """A boundary that was best before the propagation began says nothing of when there is no more to gain."""
    watched, _ = after(judged(1.0), judged(2.0), judged(3.0), reached=0.9)
    now = {"begun": True, "reached": 1.0, "many": False}
    watched, _ = WATCH.compare(watched, flow(4.0), judged(2.9), 40, **now)
    assert int(watched.improved[0]) >= 30


def test_each_seed_keeps_its_own():
    watched = WATCH.begin(stack([flow(0.0), flow(0.0)]), 2, STEPS, judged([0, 0], np.zeros((2, 0)), np.zeros((2, 0))))
    for step, scores in ((10, [1.0, 5.0]), (20, [2.0, 4.0])):
        found = judged(scores, np.zeros((2, 0)), np.zeros((2, 0)))
        watched, _ = WATCH.compare(watched, stack([flow(step), flow(-step)]), found, step, **TWO_SEEDS)
    np.testing.assert_array_equal(watched.best.mean[:, 0], [10.0, -20.0])
    np.testing.assert_array_equal(watched.score, [1.0, 4.0])
    np.testing.assert_array_equal(watched.improved, [10, 20])


def test_a_state_that_loses_the_boundary_is_not_the_best():
    """Its score may be low: its ESS away from the boundary is high, where a mode is forgotten."""
    for reached in (1.0, 0.5):  # also where the newest would be the best: a score that knows the boundary alone
        watched, lost = after(judged(3.0), judged(1.0, FIRST + 0.2, FIRST + 0.2), reached=reached)
        assert lost.all()
        assert float(watched.best.mean[0]) == 0.0
        assert float(watched.score[0]) == 3.0


# --- The boundary


def rises(held_out, learned):
    """Whether the boundary is taken for lost when both rise by so much, state by state."""
    watched, lost = after(judged(1.0), judged(1.0, FIRST + held_out, FIRST + learned))
    assert int(watched.damped[0]) == int(lost[0])
    return bool(lost[0])


def test_the_boundary_is_lost_when_held_out_and_learned_data_get_worse():
    """Held-out data alone get worse when data are memorised: then less of the density would help no one."""
    assert rises(0.1, 0.1)
    assert not rises(0.1, 0.0)
    assert not rises(0.1, -0.3)
    assert not rises(0.0, 0.1)


def test_a_rise_within_the_slack_or_within_noise_is_none():
    """0.05 nats, or three standard errors of the paired difference if they are more."""
    assert not rises(0.04, 0.04)
    noise = RANDOM.standard_normal((1, N))
    noise = (noise - noise.mean()) / noise.std()  # a paired difference of mean zero and deviation one
    assert not rises(0.1 + 2.0 * noise, 0.1 + 2.0 * noise)  # 0.1 nats of error
    assert rises(0.4 + 2.0 * noise, 0.4 + 2.0 * noise)
    shuffled = FIRST[:, RANDOM.permutation(N)]  # the same numbers of other states: no rise at all
    assert not rises(shuffled - FIRST, shuffled - FIRST)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_likelihood_that_is_not_finite_is_a_loss(bad):
    worse = FIRST.copy()
    worse[0, 3] = bad
    assert rises(worse - FIRST, worse - FIRST)


@pytest.mark.parametrize(
    ("rise", "expected"), [(0.2, False), (1.9, False), (2.1, True), (np.inf, True), (np.nan, True)]
)
def test_a_boundary_is_lost_beyond_repair_from_so_many_nats_on(rise, expected):
    before, _ = after(judged(1.0))
    now = judged(0.5, FIRST + rise, FIRST + rise)
    _, lost = WATCH.compare(before, flow(9.0), now, 20, begun=True, reached=1.0, many=False)
    assert lost.all()
    assert WATCH.ruined(before, now, lost).tolist() == [expected]
    assert WATCH.ruined(before, now, np.array([False])).tolist() == [False]  # held-out data alone: memorised


def test_states_are_compared_with_the_best_so_far_and_not_with_the_last():
    """0.04 worse each time is within the slack, but not three times of it."""
    steps = [judged(1.0, FIRST + 0.04 * i, FIRST + 0.04 * i) for i in range(3)]
    assert not after(*steps[:2])[1].any()
    watched, lost = after(*steps)
    assert lost.all()
    np.testing.assert_allclose(watched.held_out, FIRST, rtol=1e-6)
    better, _ = after(judged(1.0), judged(1.0, FIRST - 0.5, FIRST - 0.4))
    np.testing.assert_allclose(better.held_out, FIRST - 0.5, rtol=1e-6)
    np.testing.assert_allclose(better.learned, FIRST - 0.4, rtol=1e-6)


def test_before_the_propagation_begins_the_boundary_is_what_it_is():
    """Its learning rises and falls; nothing is lost, and later states are compared with the last of these."""
    steps = [judged(1.0), judged(1.0, FIRST + 0.5, FIRST + 0.5)]
    watched, lost = after(*steps, begun=False)
    assert not lost.any()
    np.testing.assert_allclose(watched.held_out, FIRST + 0.5, rtol=1e-6)
    later = {"begun": True, "reached": 1.0, "many": False}
    assert not WATCH.compare(watched, flow(2.0), steps[1], 30, **later)[1].any()
    worse = judged(1.0, FIRST + 0.6, FIRST + 0.6)
    assert WATCH.compare(watched, flow(2.0), worse, 30, **later)[1].all()


def test_one_seed_that_was_never_finite_does_not_hide_the_loss_of_another():
    """Two seeds: the second has a held-out state of no likelihood from the start."""
    start, worse = np.concatenate([FIRST, FIRST]), np.concatenate([FIRST + 0.2, FIRST])
    for states in (start, worse):
        states[1, 0] = np.inf
    watched = WATCH.begin(stack([flow(0.0), flow(0.0)]), 2, STEPS, judged([0.0, 0.0], start, start))
    lost = None
    for step, states in ((10, start), (20, worse)):
        found = judged([1.0, 1.0], states, states)
        flows = stack([flow(0.0), flow(0.0)])
        watched, lost = WATCH.compare(watched, flows, found, step, **TWO_SEEDS)
    assert bool(lost[0])


def test_data_are_learned_by_heart_when_others_of_their_kind_are_less_likely():
    """By more than three standard errors of the difference of two means: here 3 · (2/400)^(1/2) = 0.21 nats."""
    learned = (FIRST - FIRST.mean()) / FIRST.std()
    held_out = learned[:, RANDOM.permutation(N)]
    for gap, expected in ((0.15, False), (0.3, True), (-0.3, False)):
        assert WATCH.memorises(judged(1.0, held_out + gap, learned)).tolist() == [expected]
    both = judged([1.0, 1.0], np.concatenate([held_out, held_out + 1.0]), np.concatenate([learned, learned]))
    assert WATCH.memorises(both).tolist() == [False, True]
    assert WATCH.memorises(judged(1.0, np.zeros((1, 0)), np.zeros((1, 0)))).tolist() == [False]


def trusted(trust, lost=(False,), memorises=(False,)):
    return WATCH.trusted(jnp.asarray(trust, float), np.asarray(lost), np.asarray(memorises))


def test_trust_is_damped_and_comes_back_half_as_fast():
    """A quarter each time; then doubled, up to one."""
    trust = trusted(jnp.ones(2), [True, False], [False, False])
    np.testing.assert_allclose(trust, [0.25, 1.0])
    for expected in ([0.5, 1.0], [1.0, 1.0], [1.0, 1.0]):
        trust = trusted(trust, [False, False], [False, False])
        np.testing.assert_allclose(trust, expected, rtol=1e-6)


def test_trust_grows_while_data_are_memorised_and_falls_back_slowly():
    """Doubled, from one at least, up to ten; and less is lost of it each time than was gained."""
    np.testing.assert_allclose(trusted([0.5, 1.0, 8.0], [False] * 3, [True] * 3), [2.0, 2.0, 10.0], rtol=1e-6)
    np.testing.assert_allclose(trusted([2.0], [False], [False]), 2.0 * 0.25**0.1, rtol=1e-6)
    np.testing.assert_allclose(trusted([1.05], [False], [False]), 1.0, rtol=1e-6)
    np.testing.assert_allclose(trusted([8.0], [True], [True]), 2.0, rtol=1e-6)  # a boundary that is lost comes first


def test_trust_has_a_least_value_and_its_type():
    np.testing.assert_allclose(trusted([0.06], [True]), 0.05, rtol=1e-6)
    one = trusted(1.0, [True])
    assert one.shape == ()
    assert float(one) == 0.25
    assert not one.weak_type  # or the steps would compile again
    assert one.dtype == jnp.ones(()).dtype


# --- The end


class Still:
    """A stopwatch that shows what it is told."""

    def __init__(self, seconds=1.0, rate=10.0):
        self.seconds, self._rate = seconds, rate

    def rate(self, step):
        return self._rate


def ends(step, improved=0, reached=1.0, clock=None, watch=WATCH, cooling=None, **options):
    """When the rate falls, decided at a step, with the last gain at another."""
    watched = watch.begin(flow(0.0), 1, STEPS, judged(0.0))
    watched = eqx.tree_at(lambda w: w.improved, watched, jnp.full(1, improved))
    if cooling is not None:
        watched = eqx.tree_at(lambda w: w.cooling, watched, Cooling(*map(jnp.asarray, cooling)))
    options = {"may_end_early": True, **options}
    return tuple(int(v) for v in watch.ends(watched, step, STEPS, reached, clock or Still(), **options))


WHOLE = (800, STEPS)  # the last fifth of the budget


def test_the_rate_falls_over_the_last_part_of_the_budget_at_the_latest():
    assert ends(10) == WHOLE
    assert ends(100, improved=90) == WHOLE


def test_it_falls_as_soon_as_patience_is_over():
    """A hundred steps without a gain; then a fifth of the whole run, which is a quarter of what was."""
    assert ends(299, improved=200) == WHOLE
    assert ends(300, improved=200) == (300, 375)
    assert ends(440, improved=200) == (440, 550)


def test_it_waits_for_the_whole_range():
    for reached in (-1.0, 0.0, 0.5, 0.999, float("nan")):
        assert ends(700, reached=reached) == WHOLE
    assert ends(700, reached=0.9995) == (700, 875)


def test_once_begun_it_is_not_decided_again():
    assert ends(350, improved=340, cooling=(300, 375)) == (300, 375)
    assert ends(370, improved=0, cooling=(300, 375)) == (300, 375)
    assert ends(900, improved=0) == WHOLE


def test_it_ends_within_the_budget():
    assert ends(799, improved=0) == (799, 998)
    late = Watch(patience=0.1, cooling=0.5)
    assert ends(499, improved=0, watch=late) == (499, 998)


def test_a_schedule_that_knows_its_end_is_left_alone():
    assert ends(700, may_end_early=False) == WHOLE


@pytest.mark.parametrize(("seconds", "expected"), [(49.0, WHOLE), (51.0, (400, 500))])
def test_time_is_left_for_the_rate_to_fall(seconds, expected):
    """One minute; at step 400 a hundred steps more, at ten a second, take ten seconds."""
    watch = Watch(cooling=0.2, minutes=1.0)
    assert ends(400, improved=400, reached=0.0, clock=Still(seconds), watch=watch) == expected


def test_stopwatch_leaves_out_the_first_chunk(monkeypatch):
    """Compilation takes a hundred seconds; then forty steps take eight."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Stopwatch()
    assert clock.compiling
    now[0] += 100.0
    clock.restart(20)
    assert not clock.compiling
    now[0] += 8.0
    assert clock.seconds == 8.0
    assert clock.rate(60) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "options",
    [
        {"cooling": 0.0},
        {"cooling": 1.0},
        {"patience": 0.0},
        {"patience": 1.5},
        {"damping": 0.0},
        {"minutes": 0.0},
        {"minutes": float("nan")},
        {"ruin": -1.0},
        {"ruin": np.ones(2)},
    ],
)
def test_bad_options_are_refused(options):
    name = next(iter(options))
    with pytest.raises(TradeError, match=name):
        Watch(**options)
