"""The training loop: what is due when, what is logged, what is kept, and how it ends."""

import json
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussians import LinearGaussian, data_at, family, problem_of

from trade import Adam, NonFiniteError, Schedule, Trade, fit
from trade.fit import stack
from trade.objectives.term import Outcome, Term
from trade.training.checkpoint import Checkpoints
from trade.training.loop import at_start, train
from trade.training.metrics import MetricsLog, read_metrics
from trade.training.state import Program, all_finite, begin, run_chunk

KEY = jax.random.key(19)
PROBLEM = problem_of(family(), data_at(1.0))
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


def no_evaluation(flows, key):
    return {}


def run(objective=StepNumber(), steps=30, schedule=Schedule(10, 100, 100), evaluate=no_evaluation, **options):  # noqa: B008
    program = Program(objective, Adam(0.1), steps)
    start = at_start(begin(program, FLOW, PROBLEM, KEY), None)
    options = {"seeds": None, "directory": None, "resume": False, "progress": False, "key": KEY, **options}
    return train(program, start, PROBLEM, schedule, evaluate=evaluate, **options)


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


@pytest.mark.parametrize("stop_after", [9, 17])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_after):
    """Also when the last checkpoint (step 7 or 14) lies in the middle of a row's steps."""
    schedule = Schedule(report=10, evaluate=1000, checkpoint=7)
    whole, log = run(schedule=schedule, directory=tmp_path / "whole")

    def interrupt(flows, key):
        raise KeyboardInterrupt

    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        run(schedule=Schedule(10, stop_after, 7), directory=broken, evaluate=interrupt)
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
    seen, scores = [], iter([5.0, 2.0, 4.0, float("nan")])

    def evaluate(flows, key):
        seen.append(flows)
        return {"validation_nll": np.array([next(scores)])}

    trained, log = run(steps=40, schedule=Schedule(100, 10, 100), evaluate=evaluate)
    assert same(trained.best, seen[1])
    assert same(trained.learners.flow, seen[3])
    assert not same(seen[1], seen[3])
    np.testing.assert_array_equal(trained.best_score, [2.0])
    assert [row["validation_nll"] for row in log.rows if "validation_nll" in row] == [[5.0], [2.0], [4.0], [None]]


def test_best_model_is_chosen_seed_by_seed():
    """Two seeds whose best scores come at different times."""
    program = Program(StepNumber(), Adam(0.1), 20)
    flows = [LinearGaussian(mean=3.0), LinearGaussian(mean=-3.0)]
    start = at_start(stack([begin(program, flow, PROBLEM, KEY) for flow in flows]), 2)
    seen, scores = [], iter([[1.0, 9.0], [2.0, 8.0]])

    def evaluate(flows, key):
        seen.append(flows)
        return {"validation_nll": np.array(next(scores))}

    options = {"directory": None, "resume": False, "progress": False, "key": KEY}
    trained, _ = train(program, start, PROBLEM, Schedule(100, 10, 100), seeds=2, evaluate=evaluate, **options)
    np.testing.assert_array_equal(trained.best.mean[0], seen[0].mean[0])
    np.testing.assert_array_equal(trained.best.mean[1], seen[1].mean[1])
    np.testing.assert_array_equal(trained.best_score, [1.0, 8.0])


# --- A run that cannot go on


def test_persistent_nan_stops_the_run_and_keeps_a_good_state(tmp_path):
    """The message names the term and c; the checkpoint is the state before, finite, and can be resumed from."""
    schedule = Schedule(report=5, evaluate=100, checkpoint=100, patience=5)
    with pytest.raises(NonFiniteError, match=r"step 15 of 30 after 6 .* the number term was nan at c = 0\.7") as error:
        run(StepNumber(9, 99), schedule=schedule, directory=tmp_path)
    assert "\n" not in str(error.value)

    program = Program(StepNumber(9, 99), Adam(0.1), 30)
    like = at_start(begin(program, FLOW, PROBLEM, KEY), None)
    step, kept = Checkpoints(tmp_path).load(like)
    assert step == 15
    assert bool(all_finite((kept.learners.flow, kept.learners.optimiser, kept.learners.objective, kept.best)))
    first_nine = run_first(9)
    assert same(kept.learners.flow, first_nine.flow)
    assert same(kept.learners.optimiser, first_nine.optimiser)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["skipped"] == [1]


def run_first(steps):
    """The learner after the first steps of a run of 30."""
    program = Program(StepNumber(9, 99), Adam(0.1), 30)
    learner = begin(program, FLOW, PROBLEM, KEY)
    return run_chunk(program, learner, PROBLEM, jnp.asarray(0), jnp.asarray(steps), many=False)[0]


def test_fewer_bad_steps_than_the_patience_do_not_stop_a_run():
    trained, _ = run(StepNumber(9, 14), schedule=Schedule(report=7, patience=6))
    assert int(trained.learners.guard.skipped) == 5
    assert int(trained.learners.guard.consecutive) == 0


def test_fit_names_the_term_of_the_full_loss_and_keeps_a_loadable_run(tmp_path):
    """Eq. 20 with a second term that is NaN from step 20 on."""
    objective = Trade(StepNumber(20, 999), FixedPull(), start=0)
    schedule = Schedule(report=10, evaluate=10, checkpoint=10, patience=8)
    options = {"optimiser": Adam(0.1), "schedule": schedule, "out": tmp_path, "progress": False}
    arguments = (FLOW, family(), {1.0: data_at(1.0)}, objective, 100)
    with pytest.raises(NonFiniteError, match=r"the number term was nan at c = 0\.7") as error:
        fit(*arguments, evaluation_samples=16, **options)
    assert "pull" not in str(error.value)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["step"] == 30
    with pytest.raises(NonFiniteError, match="step 40 of 100 after 20"):  # it resumes, and ends the same way
        fit(*arguments, evaluation_samples=16, resume=True, **options)


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
    like = jax.tree.map(lambda a: jnp.zeros_like(a) if eqx.is_array(a) else a, trained)
    assert same(Checkpoints(tmp_path).load(like)[1], trained)
