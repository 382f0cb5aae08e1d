"""The training loop: what is due when, what is logged, what is kept, and how it ends."""

import json
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_problems import LinearGaussian, data_at, family, problem_of

from trade import Adam, NonFiniteError, Schedule, Trade, fit
from trade.devices import ONE
from trade.fit import stack
from trade.objectives import Fixed
from trade.objectives.term import Outcome, Term
from trade.training import OneCycle, Watch
from trade.training.checkpoint import Checkpoints
from trade.training.log import MetricsLog, read_metrics
from trade.training.loop import Trained, train
from trade.training.optimiser import Given
from trade.training.state import Program, all_finite, begin, no_means, run_chunk
from trade.training.watch import Judged
from trade.training.windows import Windows

KEY = jax.random.key(19)
PROBLEM = problem_of(family(), data_at(1.0))
WINDOWS = Windows(PROBLEM, None, ONE)
FLOW = LinearGaussian(mean=3.0)


@dataclass(frozen=True)
class StepNumber(Term):
    """The loss is the number of the step; NaN, at c = 0.7, from ``first`` to before ``last``."""

    first: int = -1
    last: int = -1
    name = "number"

    def init(self, key, problem):
        return {"sum": jnp.zeros(())}

    def loss(self, flow, state, problem, clock, key):
        bad = (clock.step >= self.first) & (clock.step < self.last)
        value = clock.step + 0.0 * jnp.sum(flow.mean) + 1e-3 * jnp.sum((flow.mean - 1.0) ** 2)
        value = jnp.where(bad, jnp.nan, value)
        return value, Outcome({"sum": state["sum"] + value}, jnp.where(bad, 0.7, jnp.nan))


NO_STATES = np.zeros((1, 0))
OPTIONS = {"seeds": None, "directory": None, "resume": False, "progress": False, "key": KEY}


def judged(score=None, held_out=NO_STATES, learned=NO_STATES, **values):
    """What an evaluation returns, one entry a seed."""
    score = None if score is None else np.atleast_1d(np.asarray(score, float))
    return Judged({k: np.atleast_1d(v) for k, v in values.items()}, score, held_out, learned)


def no_evaluation(flows, key):
    return judged()


def run(objective=StepNumber(), steps=30, schedule=Schedule(10, 100, 100), evaluate=no_evaluation, **options):  # noqa: B008
    program = Program(objective, options.pop("optimiser", Adam(0.1)), steps)
    start, watch = begin(program, FLOW, PROBLEM, KEY), options.pop("watch", Watch())
    return train(program, start, WINDOWS, schedule, watch, evaluate=evaluate, **{**OPTIONS, **options})


def like(program):
    """What a checkpoint is loaded into."""
    learner = begin(program, FLOW, PROBLEM, KEY)
    watched = Watch().begin(learner.flow, 1, program.steps, judged())
    return Trained(learner, watched, no_means(learner.guard.losses))


def same(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


# --- What is due, and what is logged


def test_next_stop_is_the_nearest_thing_due():
    schedule = Schedule(report=10, evaluate=15, checkpoint=7)
    stops, step = [], 0
    while step < 32:
        step = schedule.next_stop(step, 32)
        stops.append(step)
    assert stops == [7, 10, 14, 15, 20, 21, 28, 30, 32]


def test_rows_hold_the_mean_of_their_own_steps(tmp_path):
    """Steps 0-9, 10-19, 20-26: means 4.5, 14.5, 23; other things that are due do not split them."""
    _, log = run(steps=27, schedule=Schedule(10, 4, 7), directory=tmp_path)
    rows = [row for row in log.rows if "number" in row]
    assert [row["step"] for row in rows] == [10, 20, 27]
    np.testing.assert_allclose([row["number"][0] for row in rows], [4.5, 14.5, 23.0], atol=0.01)
    assert [row["step"] for row in log.rows if "number" not in row] == [4, 8, 12, 16, 20, 24, 27]
    assert read_metrics(tmp_path / "metrics.jsonl") == log.rows


def test_skipped_steps_are_counted_and_left_out_of_the_means():
    """NaN at steps 12 and 13: the second row is the mean of the other eight."""
    trained, log = run(StepNumber(12, 14))
    rows = [row for row in log.rows if "number" in row]
    assert [row["skipped"] for row in rows] == [[0], [2], [2]]
    expected = [4.5, np.mean([10, 11, 14, 15, 16, 17, 18, 19]), 24.5]
    np.testing.assert_allclose([row["number"][0] for row in rows], expected, atol=0.01)
    assert int(trained.learners.guard.skipped) == 2
    np.testing.assert_allclose(trained.learners.objective["sum"], sum(range(30)) - 25, atol=0.2)


def test_metrics_file_is_strict_json_and_survives_a_cut_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append({"step": 1, "a": [float("nan"), 2.0], "b": float("inf")})
    log.append({"step": 2, "a": [1.0, 2.0]})
    with path.open("a") as file:
        file.write('{"step": 3, "a": [1.')
    text = path.read_text()
    assert "NaN" not in text
    assert json.loads(text.splitlines()[0]) == {"step": 1, "a": [None, 2.0], "b": None}
    assert [row["step"] for row in read_metrics(path)] == [1, 2]
    resumed = MetricsLog(path, resume_at=1)
    resumed.append({"step": 2, "again": 1})
    assert [row["step"] for row in read_metrics(path)] == [1, 2]
    assert read_metrics(path)[1] == {"step": 2, "again": 1}
    assert MetricsLog(path).rows == []  # a new run starts a new file
    assert path.read_text() == ""


# --- Interrupted and resumed


def interrupted(evaluate, after):
    """An evaluation that is killed at one of its calls; the first one is before the first step."""
    calls = iter(range(1000))

    def until(flows, key):
        if next(calls) == after:
            raise KeyboardInterrupt
        return evaluate(flows, key)

    return until


@pytest.mark.parametrize("stop_after", [9, 17])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_after):
    """Also when the last checkpoint (step 7 or 14) lies in the middle of a row's steps."""
    schedule = Schedule(report=10, evaluate=1000, checkpoint=7)
    whole, log = run(schedule=schedule, directory=tmp_path / "whole")

    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        run(schedule=Schedule(10, stop_after, 7), directory=broken, evaluate=interrupted(no_evaluation, 1))
    resumed, log_resumed = run(schedule=schedule, directory=broken, resume=True)
    assert same(whole, resumed)
    assert log_resumed.rows == log.rows
    assert (broken / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    whole, log = run(directory=tmp_path)
    again, log_again = run(directory=tmp_path, resume=True)
    assert same(whole, again)
    assert log_again.rows == log.rows


# --- Model selection (Appendices B.6 and C.3: the lowest mean validation NLL)


def test_best_model_is_the_one_with_the_lowest_score():
    """Scores 5, 2, 4, NaN at steps 10, 20, 30, 40: the flow at step 20 is kept, and so is the last one."""
    seen, scores = [], iter([1.0, 5.0, 2.0, 4.0, float("nan")])  # of the first flow nothing is kept

    def evaluate(flows, key):
        seen.append(flows)
        score = next(scores)
        return judged(score, validation_nll=score)

    trained, log = run(steps=40, schedule=Schedule(100, 10, 100), evaluate=evaluate)
    assert same(trained.watched.best, seen[2])
    assert same(trained.learners.flow, seen[4])
    assert not same(seen[2], seen[4])
    np.testing.assert_array_equal(trained.watched.score, [2.0])
    assert [row["validation_nll"] for row in log.rows if "validation_nll" in row] == [[5.0], [2.0], [4.0], [None]]


def test_best_model_is_chosen_seed_by_seed():
    """Two seeds whose best scores come at different times."""
    program = Program(StepNumber(), Adam(0.1), 20)
    flows = [LinearGaussian(mean=3.0), LinearGaussian(mean=-3.0)]
    start = stack([begin(program, flow, PROBLEM, KEY) for flow in flows])
    seen, scores = [], iter([[0.0, 0.0], [1.0, 9.0], [2.0, 8.0]])

    def evaluate(flows, key):
        seen.append(flows)
        return judged(next(scores), np.zeros((2, 0)), np.zeros((2, 0)))

    options = {**OPTIONS, "seeds": 2, "evaluate": evaluate}
    trained, _ = train(program, start, WINDOWS, Schedule(100, 10, 100), Watch(), **options)
    np.testing.assert_array_equal(trained.watched.best.mean[0], seen[1].mean[0])
    np.testing.assert_array_equal(trained.watched.best.mean[1], seen[2].mean[1])
    np.testing.assert_array_equal(trained.watched.score, [1.0, 8.0])


def test_without_a_score_the_last_model_is_the_best():
    trained, _ = run(schedule=Schedule(100, 10, 100))
    assert same(trained.watched.best, trained.learners.flow)


# --- The end: the whole range is reached, and nothing more is gained


@dataclass(frozen=True)
class Reaching(Term):
    """Pulls the mean towards one, which takes it twenty steps; says how much of the range is reached."""

    part: float = 1.0
    name = "reaching"

    def loss(self, flow, state, problem, clock, key):
        loss = jnp.sum((flow.mean - 1.0) ** 2)
        return loss, Outcome(state, jnp.asarray(jnp.nan), notes={"reached": jnp.asarray(self.part)})


def distance(flows, key):
    """The score is how far the mean still has to go, in nats of no meaning."""
    left = np.atleast_1d(np.asarray(jnp.abs(flows.mean - 1.0).sum(axis=-1)))
    return judged(left, left=left)


PATIENT = Watch(patience=0.1, gain=0.3, cooling=0.25)  # of 200 steps: 20 without a gain, then a third of what was


def reaching_run(part=1.0, **options):
    options = {"watch": PATIENT, "evaluate": distance, "schedule": Schedule(5, 5, 7), **options}
    return run(Reaching(part), 200, options.pop("schedule"), **options)


def rates(trained, steps, optimiser):
    """The learning rate at each step, as the run knows it at its end."""
    return [float(optimiser.rate(jnp.asarray(s), 200, trained.watched.cooling)) for s in range(steps)]


def test_a_run_ends_when_the_range_is_reached_and_nothing_is_gained():
    """20 steps after the last gain the rate falls to zero, over a quarter of the whole run, and the run is over."""
    trained, log = reaching_run()
    gained, mark = 0, np.inf
    for row in log.rows:
        if row.get("left", [np.inf])[0] < mark - 0.3:
            gained, mark = row["step"], row["left"][0]
    assert int(trained.watched.improved[0]) == gained
    assert 10 < gained < 40
    begin_at, end = (int(v) for v in trained.watched.cooling)
    assert begin_at == gained + 20
    assert end == begin_at + begin_at // 3
    assert log.rows[-1]["step"] == end < 100
    falling = rates(trained, end, Adam(0.1))
    np.testing.assert_allclose(falling[10 : begin_at + 1], 0.1, rtol=1e-6)  # risen over the first 10 steps
    assert falling[-1] < 0.02 * 0.1
    assert np.all(np.diff(falling[begin_at:]) < 0)
    assert max(row["step"] for row in log.rows if "left" in row) == end  # the last state is judged too


def test_an_objective_that_says_nothing_of_a_range_ends_when_nothing_is_gained():
    """The mean of a boundary term alone: it has one condition, and is there at once."""
    trained, log = run(StepNumber(), 200, Schedule(5, 5, 7), lambda flows, key: judged(1.0), watch=PATIENT)
    assert [int(v) for v in trained.watched.cooling] == [25, 33]  # the first evaluation was at step 5
    assert log.rows[-1]["step"] == 33


def test_without_a_score_nothing_is_known_of_gains_and_the_budget_is_spent():
    trained, log = run(StepNumber(), 200, Schedule(5, 5, 7), no_evaluation, watch=PATIENT)
    assert log.rows[-1]["step"] == 200
    assert [int(v) for v in trained.watched.cooling] == [150, 200]


@pytest.mark.parametrize("why", ["not all of the range", "a score that still falls"])
def test_otherwise_it_goes_on_to_the_end_of_its_budget(why):
    """The rate then falls over the last quarter."""
    if why == "not all of the range":
        trained, log = reaching_run(0.99)
    else:
        scores = iter(range(1000, 0, -1))
        trained, log = reaching_run(evaluate=lambda flows, key: judged(next(scores)))
    assert log.rows[-1]["step"] == 200
    assert [int(v) for v in trained.watched.cooling] == [150, 200]


def test_one_cycle_never_ends_early():
    """Its rate is a function of the budget: cut short, a run would end at a large one."""
    trained, log = reaching_run(optimiser=OneCycle(0.1))
    assert int(trained.watched.improved[0]) < 100  # there was nothing more to gain
    assert log.rows[-1]["step"] == 200


def test_seeds_end_together_when_the_last_of_them_has_nothing_to_gain():
    """One seed has its best score at step 10, the other at step 60, of which the run waits 20 more."""
    program = Program(Reaching(), Adam(0.1), 200)
    start = stack([begin(program, flow, PROBLEM, KEY) for flow in (FLOW, FLOW)])
    calls = iter(range(1000))

    def evaluate(flows, key):
        step = 5 * next(calls)
        return judged([-min(step, 10), -min(step, 60)], np.zeros((2, 0)), np.zeros((2, 0)))

    options = {**OPTIONS, "seeds": 2, "evaluate": evaluate}
    trained, log = train(program, start, WINDOWS, Schedule(5, 5, 100), PATIENT, **options)
    np.testing.assert_array_equal(trained.watched.improved, [10, 60])
    assert [int(v) for v in trained.watched.cooling] == [80, 106]
    assert log.rows[-1]["step"] == 106


@pytest.mark.parametrize("minutes", [1e-9, 1e9])
def test_minutes_end_a_run_and_leave_time_for_the_rate_to_fall(minutes):
    """At the first evaluation, step 30, time is up: the rate falls over ten more steps, a quarter of the run."""
    watch = replace(PATIENT, minutes=minutes)
    trained, log = reaching_run(0.0, watch=watch, schedule=Schedule(10, 30, 100))
    expected = [30, 40] if minutes < 1 else [150, 200]
    assert [int(v) for v in trained.watched.cooling] == expected
    assert log.rows[-1]["step"] == expected[1]


@pytest.fixture(scope="module")
def reached_whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return *reaching_run(directory=directory), directory


@pytest.mark.parametrize("killed_at", [2, 5, 8, 10, 11])
def test_a_run_that_ends_early_resumes_bit_for_bit(reached_whole, tmp_path, killed_at):
    """Killed while it learns, while it waits, and after the rate began to fall; the end was not known before."""
    whole, log, directory = reached_whole
    with pytest.raises(KeyboardInterrupt):
        reaching_run(directory=tmp_path, evaluate=interrupted(distance, killed_at))
    resumed, log_resumed = reaching_run(directory=tmp_path, resume=True)
    assert same(whole, resumed)
    assert log_resumed.rows == log.rows
    for name in ("metrics.jsonl", "checkpoint.json"):
        assert (tmp_path / name).read_text() == (directory / name).read_text()


def test_it_was_killed_before_and_after_the_rate_began_to_fall(reached_whole):
    """The comparison above would mean less if it were not: evaluations come every five steps."""
    begin_at, end = (int(v) for v in reached_whole[0].watched.cooling)
    assert begin_at > 5 * 8
    assert begin_at < 5 * 11 < end


def test_steps_are_compiled_once_and_resumed_steps_too(tmp_path):
    """Whatever the run decides on its way; the trace that sees the shape of the loss is that of the step."""
    traced = []

    @dataclass(frozen=True)
    class Counted(Reaching):
        def loss(self, *arguments):
            traced.append(1)
            return super().loss(*arguments)

    options = {"watch": PATIENT, "directory": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        run(Counted(), 200, Schedule(5, 5, 7), interrupted(distance, 8), **options)
    assert len(traced) == 1
    run(Counted(), 200, Schedule(5, 5, 7), distance, resume=True, **options)
    assert len(traced) == 1


# --- The boundary that is being lost


@pytest.mark.parametrize("what", ["lost", "memorised", "kept"])
def test_the_propagation_is_damped_while_the_boundary_is_lost(what, tmp_path):
    """Held-out and learned data both get worse by a nat at the third and fourth of six evaluations."""
    calls, noise = iter(range(100)), np.random.default_rng(0).standard_normal((1, 50))
    worse = {"lost": (1.0, 1.0), "memorised": (1.0, -1.0), "kept": (0.0, 0.0)}[what]

    def evaluate(flows, key):
        change = 1.0 if next(calls) in (3, 4) else 0.0
        held_out, learned = (2.0 + noise + change * w for w in worse)
        return judged(float(held_out.mean()), held_out, learned)

    objective = Trade(Reaching(0.0), StepNumber(), Fixed(4.0), start=0)
    trained, log = run(objective, 60, Schedule(10, 10, 100), evaluate, directory=tmp_path)
    lost = {row["step"] for row in log.rows if "lost" in row}
    if what == "lost":
        assert lost == {30, 40}
        assert int(trained.watched.damped[0]) == 2
        np.testing.assert_allclose(
            trained.learners.trust, 0.25 * 2.0**0.5 * 2.0**0.5, rtol=1e-5
        )  # two times half way back
    else:
        assert lost == set()
        assert float(trained.learners.trust) == 1.0


@pytest.mark.parametrize("optimiser", [Adam(0.1), Given(optax.adam(0.1))])
def test_a_boundary_that_is_lost_beyond_repair_is_gone_back_to(optimiser):
    """From the best flow, with moments as at the beginning; a schedule of Optax's own goes on."""
    seen = []

    def evaluate(flows, key):
        states = np.full((1, 50), 9.0 if len(seen) == 3 else 2.0)
        seen.append(flows)
        return judged(float(len(seen)), states, states)

    objective = Trade(Reaching(0.0), StepNumber(), Fixed(4.0), start=0)
    trained, log = run(objective, 30, Schedule(10, 10, 100), evaluate, optimiser=optimiser)
    assert [row["step"] for row in log.rows if "lost" in row] == [30]
    assert same(trained.learners.flow, seen[2])
    assert not same(trained.learners.flow, seen[3])
    fresh = begin(Program(objective, optimiser, 30), FLOW, PROBLEM, KEY).optimiser
    assert same(trained.learners.optimiser, fresh) == isinstance(optimiser, Adam)


@pytest.mark.parametrize(("start", "weighted"), [(0, True), (0, False), (100, True)])
def test_the_propagation_is_trusted_more_where_data_are_learned_by_heart(start, weighted):
    """If there is a density, once it has begun: learned data are a nat more likely than held-out ones."""
    noise = np.random.default_rng(0).standard_normal((1, 50))

    def evaluate(flows, key):
        return judged(0.0, noise + 1.0, noise)._replace(weighted=weighted)

    objective = Trade(Reaching(0.0), StepNumber(), Fixed(4.0), start=start)
    trained, _ = run(objective, 30, Schedule(10, 10, 100), evaluate)
    expected = 2.0**1.5 if weighted and start == 0 else 1.0
    np.testing.assert_allclose(trained.learners.trust, expected, rtol=1e-5)


def test_before_the_propagation_begins_no_boundary_is_lost():
    """It is being learned, and may get worse for a while."""
    calls = iter(range(100))

    def evaluate(flows, key):
        states = np.full((1, 50), float(next(calls)))
        return judged(0.0, states, states)

    objective = Trade(Reaching(0.0), StepNumber(), Fixed(4.0), start=20)
    trained, log = run(objective, 40, Schedule(10, 10, 100), evaluate)
    assert [row["step"] for row in log.rows if "lost" in row] == [30, 40]
    np.testing.assert_allclose(trained.learners.trust, 0.25)


def test_trust_reaches_the_objective():
    """What is damped at an evaluation is the weight of the steps after it."""
    calls = iter(range(100))

    def evaluate(flows, key):
        states = np.full((1, 50), 3.0 if next(calls) == 2 else 2.0)
        return judged(0.0, states, states)

    objective = Trade(Reaching(0.0), StepNumber(), Fixed(4.0), start=0)
    _, log = run(objective, 40, Schedule(10, 10, 100), evaluate)
    assert [row["lambda"][0] for row in log.rows if "lambda" in row] == pytest.approx([4.0, 4.0, 2.0, 2.0 * 2**0.5])


# --- A run that cannot go on


def test_persistent_nan_stops_the_run_and_keeps_a_good_state(tmp_path):
    """The message names the term and c; the checkpoint is the state before, finite, and can be resumed from."""
    schedule = Schedule(report=5, evaluate=100, checkpoint=100, patience=5)
    with pytest.raises(NonFiniteError, match=r"step 15 of 30 after 6 .* the number term was nan at c = 0\.7") as error:
        run(StepNumber(9, 99), schedule=schedule, directory=tmp_path)
    assert "\n" not in str(error.value)

    step, kept = Checkpoints(tmp_path).load(like(Program(StepNumber(9, 99), Adam(0.1), 30)))
    assert step == 15
    assert bool(all_finite((kept.learners.flow, kept.learners.optimiser, kept.learners.objective, kept.watched.best)))
    first_nine = run_first(9)
    assert same(kept.learners.flow, first_nine.flow)
    assert same(kept.learners.optimiser, first_nine.optimiser)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["skipped"] == [1]


def run_first(steps):
    """The learner after the first steps of a run of 30."""
    program = Program(StepNumber(9, 99), Adam(0.1), 30)
    start = like(program)
    chunk = jnp.asarray(0), jnp.asarray(steps), start.watched.cooling
    return run_chunk(program, start.learners, PROBLEM, *chunk, many=False)[0]


def test_fewer_bad_steps_than_the_patience_do_not_stop_a_run():
    trained, _ = run(StepNumber(9, 14), schedule=Schedule(report=7, patience=6))
    assert int(trained.learners.guard.skipped) == 5
    assert int(trained.learners.guard.consecutive) == 0


def test_fit_names_the_term_of_the_full_loss_and_keeps_a_loadable_run(tmp_path):
    """Eq. 20 with a second term that is NaN from step 20 on."""
    objective = Trade(StepNumber(20, 999), FixedPull(), start=0)
    schedule = Schedule(report=10, evaluate=10, checkpoint=10, patience=8)
    options = {"optimiser": Adam(0.1), "schedule": schedule, "out": tmp_path, "progress": False}
    options |= {"flow": FLOW, "objective": objective, "steps": 100, "evaluation_samples": 16}
    arguments = (family(), {1.0: data_at(1.0)})
    with pytest.raises(NonFiniteError, match=r"the number term was nan at c = 0\.7") as error:
        fit(*arguments, **options)
    assert "pull" not in str(error.value)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["step"] == 30
    with pytest.raises(NonFiniteError, match="step 40 of 100 after 20"):  # it resumes, and ends the same way
        fit(*arguments, resume=True, **options)


@dataclass(frozen=True)
class FixedPull(Term):
    """Pulls the mean towards one."""

    name = "pull"

    def loss(self, flow, state, problem, clock, key):
        return jnp.sum((flow.mean - 1.0) ** 2), Outcome(state, jnp.asarray(jnp.nan))


def test_a_gradient_that_is_not_finite_is_told_apart():
    @dataclass(frozen=True)
    class Kink(Term):
        name = "kink"

        def loss(self, flow, state, problem, clock, key):
            return jnp.sum(jnp.sqrt(flow.slope)), Outcome(state, jnp.asarray(jnp.nan))  # slope is 0

    with pytest.raises(NonFiniteError, match="losses were finite but their gradient was not"):
        run(Kink(), schedule=Schedule(report=10, patience=5))


def test_learner_arrays_are_all_that_a_checkpoint_needs(tmp_path):
    """Nothing that changes from step to step hides outside the arrays."""
    trained, _ = run(directory=tmp_path)
    empty = jax.tree.map(lambda a: jnp.zeros_like(a) if eqx.is_array(a) else a, trained)
    assert same(Checkpoints(tmp_path).load(empty)[1], trained)
