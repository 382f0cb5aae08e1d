"""``fit``: TRADE learns, resumes bit for bit, trains seeds together, and refuses what it cannot use."""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flowjax.distributions import StandardNormal
from small_problems import (
    LinearGaussian,
    cast,
    data_at,
    ending_run,
    family,
    log_normal,
    minus_quadratic,
    random_gaussian,
    small_flow,
    stateful_run,
)

from trade import Adam, Condition, Schedule, Target, Trade, TradeError, fit, load
from trade.flows import PowerScaledNormal, SplineFlow
from trade.objectives import ForwardKL, Gradient, ReverseKL
from trade.objectives.term import Outcome, Term
from trade.targets import PowerPosterior
from trade.training import Watch
from trade.training.checkpoint import Checkpoints
from trade.training.log import read_metrics


def flows_of(run):
    return [m.flow for m in (*run.final, *run.best)]


def check_identical(one, two):
    pairs = zip(jax.tree.leaves(flows_of(one)), jax.tree.leaves(flows_of(two)), strict=True)
    for a, b in pairs:
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# --- TRADE learns (Section 4: the boundary and the derivative fix p(x|c) everywhere)

UNSEEN = (0.25, 0.35, 0.5, 0.7)
FAMILY = family(0.25, 1.0, boundary=())


def exact_kl(model, c):
    """KL(N(0, c) ‖ p_θ(·|c)) by quadrature (Eq. 2)."""
    x = np.sqrt(c) * np.linspace(-8.0, 8.0, 2001)
    log_p = log_normal(x, 0.0, c)
    log_model = np.asarray(model.log_prob(x[:, None], c), np.float64)
    return float(np.sum(np.exp(log_p) * (log_p - log_model)) * (x[1] - x[0]))


def train_spline(objective, out):
    """A conditional spline flow on a standard normal latent, with data at c = 1 alone."""
    return fit(
        FAMILY,
        {1.0: data_at(1.0, n=4096)},
        flow=lambda key: small_flow((1,), FAMILY.condition, key),
        objective=objective,
        steps=400,
        optimiser=Adam(1e-2),
        schedule=Schedule(report=100, evaluate=200, checkpoint=400),
        evaluation_samples=500,
        out=out,
        progress=False,
    )


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    objective = Trade(Gradient(conditions_per_step=8, points_per_condition=32), ForwardKL(128), start=0)
    directory = tmp_path_factory.mktemp("runs") / "learned"
    return train_spline(objective, directory), directory


def test_trade_learns_conditions_it_has_no_data_at(learned):
    """Eq. 20: after a short training the exact KL is below 0.01 at conditions never seen in data."""
    run, _ = learned
    kls = {c: exact_kl(run.model, c) for c in (*UNSEEN, 1.0)}
    assert max(kls.values()) < 0.01, kls


def test_without_the_gradient_term_they_are_not_learned(tmp_path):
    """The same flow, data and training with Eq. 2 alone: the boundary is learned, the rest is not."""
    run = train_spline(ForwardKL(128), tmp_path / "run")
    assert exact_kl(run.model, 1.0) < 0.01
    for c in UNSEEN:  # hardly better than the model of c = 1 would be
        assert exact_kl(run.model, c) > 0.7 * 0.5 * (c - 1.0 - np.log(c))


def test_metrics_show_what_happened(learned):
    run, directory = learned
    assert [row["step"] for row in run.metrics] == [100, 200, 200, 300, 400, 400]
    losses = [row for row in run.metrics if "gradient" in row]
    assert losses[-1]["gradient"][0] < losses[0]["gradient"][0]
    assert run.metrics[-1]["ess@0.25"][0] > 0.9  # Kish ESS of a model this close
    assert all(row["skipped"] == [0] for row in losses)
    assert read_metrics(directory / "metrics.jsonl") == run.metrics


def test_run_directory_loads_to_the_same_density(learned):
    run, directory = learned
    loaded = load(directory, target=FAMILY)
    x = np.linspace(-3.0, 3.0, 2001)[:, None]
    for c in (0.25, 0.6, 1.0):
        np.testing.assert_array_equal(loaded.model.log_prob(x, c), run.model.log_prob(x, c))
    check_identical(run, loaded)
    assert loaded.metrics == run.metrics
    assert loaded.model.condition == Condition(0.25, 1.0, boundary=(1.0,))  # filled in from the data
    with pytest.raises(TradeError, match="target"):
        load(directory).weighted(jax.random.key(0), 10, 0.5)


# --- Killed and resumed


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The uninterrupted run."""
    directory = tmp_path_factory.mktemp("runs") / "reference"
    return stateful_run(out=directory), directory


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from small_problems import stateful_run
from trade.training.checkpoint import Checkpoints

save = Checkpoints.save

def slow_save(self, step, tree):
    save(self, step, tree)
    time.sleep(0.2)  # a run that lasts: 20 checkpoints

Checkpoints.save = slow_save
stateful_run(out=sys.argv[1])
"""


def test_killed_run_resumes_to_bit_identical_parameters(reference, tmp_path):
    """kill -9 at a random moment after the first checkpoint; the rest of the run is as if nothing had happened."""
    whole, directory = reference
    script, out = tmp_path / "killed.py", tmp_path / "killed"
    script.write_text(KILLED)
    process = subprocess.Popen([sys.executable, script, out, Path(__file__).parent], stderr=subprocess.PIPE)
    delay = random.uniform(0.0, 2.0)
    try:
        deadline = time.monotonic() + 180.0
        while not (out / "checkpoint.json").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay)
    finally:
        process.kill()
    _, errors = process.communicate()
    assert process.returncode == -9, (delay, errors.decode()[-2000:])
    assert (out / "checkpoint.json").exists()
    assert not (out / "model.json").exists()

    resumed = stateful_run(out=out, resume=True)
    check_identical(whole, resumed)
    assert resumed.metrics == whole.metrics, delay
    for name in ("metrics.jsonl", "model.json", "checkpoint.json", "run.json"):
        assert (out / name).read_text() == (directory / name).read_text(), (name, delay)
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in directory.iterdir())


def test_reference_run_moves_every_state(reference):
    """The comparison above would mean little if nothing happened in the run."""
    run, directory = reference
    steps = [row["step"] for row in run.metrics if "forward_kl" in row]
    assert steps == list(range(10, 301, 10))
    weights = [row["lambda"][0] for row in run.metrics if "lambda" in row]
    assert weights[:2] == [0.0, 0.0]  # the second term begins at step 20
    assert len(set(weights[2:])) > 5
    assert [row["step"] for row in run.metrics if "validation_nll" in row] == [50, 100, 150, 200, 250, 300]
    names = sorted(p.name for p in directory.iterdir())
    models = ["best-0.eqx", "final-0.eqx"]
    assert names == sorted(
        [
            *models,
            "checkpoint-000000300.eqx",
            "checkpoint.json",
            "metrics.jsonl",
            "model.json",
            "run.json",
            "verdict.json",
        ]
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run of the default objective that ends by itself."""
    directory = tmp_path_factory.mktemp("runs") / "ended"
    return ending_run(out=directory), directory


def test_a_run_of_the_default_objective_ends_by_itself(ended):
    """Before its budget, with the range reached, and a model that is right everywhere."""
    run, directory = ended
    last = run.metrics[-1]["step"]
    assert 200 < last < 400
    assert json.loads((directory / "checkpoint.json").read_text())["step"] == last
    losses = [row for row in run.metrics if "reached" in row]
    reached = [row["reached"][0] for row in losses]
    assert reached[5] == 0.0  # the propagation begins at step 60
    assert np.all(np.diff(reached[6:]) > -0.01)
    assert reached[-1] > 0.999
    assert any("lost" in row for row in run.metrics)  # or the trust in the next test would be one throughout
    assert len({row["lambda"][0] for row in losses[6:]}) > 10
    for c in (0.25, 0.5, 1.0):
        assert exact_kl(run.model, c) < 0.01


@pytest.mark.parametrize("checkpoint", [1, 3, 4, 7, 13, 14, 15, 18, 21])
def test_a_run_that_ends_by_itself_resumes_bit_for_bit(ended, tmp_path, monkeypatch, checkpoint):
    """Killed after any of its checkpoints: before the propagation, damped, at the frontier, while the rate falls."""
    whole, directory = ended
    save, left = Checkpoints.save, iter(range(checkpoint - 1, -1, -1))

    def killed(self, step, tree):
        save(self, step, tree)
        if next(left) == 0:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoints, "save", killed)
        ending_run(out=out)
    assert json.loads((out / "checkpoint.json").read_text())["step"] == 15 * checkpoint
    resumed = ending_run(out=out, resume=True)
    check_identical(whole, resumed)
    assert resumed.metrics == whole.metrics
    for name in ("metrics.jsonl", "model.json", "checkpoint.json", "run.json"):
        assert (out / name).read_text() == (directory / name).read_text(), name


def test_resume_refuses_other_settings(reference):
    """Steps, objective, optimiser, data and seed must be those of the run."""
    _, directory = reference
    arguments = {"optimiser": Adam(0.02), "out": directory, "resume": True, "progress": False}
    with pytest.raises(TradeError, match="cannot be resumed: its objective was"):
        fit(family(), {1.0: data_at(1.0)}, flow=random_gaussian, objective=ForwardKL(32), steps=300, **arguments)
    with pytest.raises(TradeError, match="cannot be resumed: its seed was 0, now it is 3"):
        stateful_run(out=directory, resume=True, seed=3)
    with pytest.raises(TradeError, match="cannot be resumed: its data was"):
        stateful_run(out=directory, resume=True, held_out=0.3)


def test_resume_needs_a_run_to_resume(tmp_path):
    with pytest.raises(TradeError, match="is not a directory"):
        stateful_run(out=tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing").exists()


# --- Several seeds


def test_seeds_as_one_program_equal_single_runs(reference):
    """Two seeds in one ``vmap`` are the runs with seed 0 and seed 1."""
    together = stateful_run(seeds=2)
    alone = [reference[0], stateful_run(seed=1)]
    assert len(together.final) == len(together.best) == 2
    for i, single in enumerate(alone):
        for name in ("mean", "slope", "log_scale", "rate"):
            for kind in ("final", "best"):
                got, expected = (getattr(getattr(r, kind)[k].flow, name) for r, k in ((together, i), (single, 0)))
                np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-4, err_msg=f"{kind} {name} of seed {i}")
    for row, one, two in zip(together.metrics, alone[0].metrics, alone[1].metrics, strict=True):
        assert row["step"] == one["step"] == two["step"]
        if "forward_kl" in row:
            np.testing.assert_allclose(row["forward_kl"], [one["forward_kl"][0], two["forward_kl"][0]], rtol=1e-3)
    different = np.abs(np.asarray(together.final[0].flow.mean - together.final[1].flow.mean))
    assert different.max() > 1e-4


def test_seeds_of_the_default_objective_have_frontiers_of_their_own_and_end_together():
    """Two seeds end when both have nothing to gain; the first is the run it would be alone, as long as that lasts."""
    calm = Watch(patience=0.05, gain=0.02)
    together, single = ending_run(seeds=2, watch=calm), ending_run(watch=calm)
    assert 200 < together.metrics[-1]["step"] < 400
    losses = [row for row in together.metrics if "lambda" in row]
    assert losses[-1]["lambda"] == [10.0, 10.0]  # data stepped back
    for row, alone in zip(together.metrics[:30], single.metrics[:30], strict=True):
        for name in set(alone) - {"step"}:
            np.testing.assert_allclose(row[name][0], alone[name][0], rtol=2e-3, atol=2e-3, err_msg=name)
    for model in together.best:
        assert max(exact_kl(model, c) for c in (0.25, 0.5, 1.0)) < 0.01
    assert float(jnp.abs(together.best[0].flow.mean - together.best[1].flow.mean)[0]) > 1e-4


# --- Model selection (Appendices B.6 and C.3)


@dataclass(frozen=True)
class Drift(Term):
    """Moves the mean at a constant pace: past the truth, and away from it."""

    name = "drift"

    def loss(self, flow, state, problem, clock, key):
        return jnp.sum(flow.mean), Outcome(state, jnp.asarray(jnp.nan))


def drifting_run(**options):
    schedule = Schedule(report=100, evaluate=5, checkpoint=100)
    options = {"flow": LinearGaussian(mean=2.0), "objective": Drift(), "optimiser": Adam(0.1), **options}
    target = options.pop("target", family())
    return fit(target, {1.0: data_at(1.0)}, steps=100, schedule=schedule, progress=False, **options)


def test_best_model_and_final_model_are_both_kept(tmp_path):
    """The mean drifts from 2 to below -2; the validation NLL is lowest near 0, long before the end."""
    validation = {1.0: data_at(1.0, seed=5), 0.5: data_at(0.5, seed=6)}
    run = drifting_run(validation=validation, out=tmp_path, evaluation_samples=16)
    scores = [(row["validation_nll"][0], row["step"]) for row in run.metrics if "validation_nll" in row]
    best_score, best_step = min(scores)
    assert 5 < best_step < 95
    assert float(run.final[0].flow.mean[0]) < -1.5
    assert abs(float(run.best[0].flow.mean[0])) < 0.5
    assert run.model is run.best[0]
    mean_nll = np.mean([-np.mean(run.best[0].log_prob(x, c)) for c, x in validation.items()])
    np.testing.assert_allclose(mean_nll, best_score, rtol=1e-4)
    loaded = load(tmp_path, flow=LinearGaussian())
    check_identical(run, loaded)


def test_without_validation_held_out_data_and_weights_choose():
    """Half a nat of drift in the mean costs much of both, and the model with the lowest sum is kept."""
    run = drifting_run(evaluation_samples=500)
    rows = [row for row in run.metrics if "held_out_nll" in row]
    best = min(rows, key=lambda row: row["held_out_nll"][0])
    assert abs(float(run.best[0].flow.mean[0])) < 0.5
    assert float(run.final[0].flow.mean[0]) < -1.5
    assert abs(best["step"] - 20) < 20


@dataclass(frozen=True)
class Stuck(Drift):
    """The same, and half of the range is never reached."""

    def loss(self, flow, state, problem, clock, key):
        value, outcome = super().loss(flow, state, problem, clock, key)
        return value, outcome._replace(notes={"reached": jnp.asarray(0.5)})


@pytest.mark.parametrize("known", [True, False])
def test_validation_data_choose_whatever_is_known_of_the_density_and_reached(known):
    """They are exact at conditions of their own: nothing else can judge a model better."""
    nothing = PowerPosterior(lambda x: -0.5 * (x**2).sum(), shape=(1,))
    options = {"target": family() if known else nothing, "objective": Stuck(), "evaluation_samples": 16}
    run = drifting_run(validation={1.0: data_at(1.0, seed=5)}, **options)
    assert float(run.final[0].flow.mean[0]) < -1.5
    assert abs(float(run.best[0].flow.mean[0])) < 0.5


def test_where_nothing_can_be_measured_the_final_model_is_the_best():
    """No held-out data, no density, no validation data."""
    nothing = PowerPosterior(lambda x: -0.5 * (x**2).sum(), shape=(1,))
    run = drifting_run(target=nothing, held_out=0.0)
    assert run.best == run.final
    assert not any("held_out_nll" in row or "ess_least" in row for row in run.metrics)


# --- What fit refuses

GOOD = data_at(1.0, n=16)
BAD = GOOD.copy()
FREE = Target(minus_quadratic, (1,), Condition(0.25, 1.0))
BAD[3] = np.nan
TWO = family(boundary=(0.25, 1.0))
TWO_CONDITIONS = PowerScaledNormal((1,), (2,), FAMILY.condition, 1.0, 1.0)
REFUSED = {
    "data of the wrong shape": ({"data": {1.0: data_at(1.0, d=2)}}, r"data at c = 1 must have shape \(n, 1\)"),
    "data without a state axis": ({"data": {1.0: GOOD[:, 0]}}, "data at c = 1 must have shape"),
    "data that are not numbers": ({"data": {1.0: "samples"}}, "data at c = 1 must be an array of numbers"),
    "NaN in the data": ({"data": {1.0: BAD}}, "data at c = 1 has 1 of 16 samples with NaN"),
    "empty data": ({"data": {1.0: GOOD[:0]}}, "data at c = 1 is empty"),
    "data out of range": ({"data": {1.5: GOOD}}, "data condition 1.5 lies outside"),
    "data at no number": ({"data": {"warm": GOOD}}, "data condition must be a number"),
    "data at no boundary": ({"data": {0.5: GOOD}}, "data was given at c = 0.5, which is no boundary"),
    "data that are no dictionary": ({"data": GOOD}, "data must be a dictionary"),
    "data with an observation": ({"data": {1.0: (GOOD, GOOD)}}, "data at c = 1 must be samples without"),
    "a missing boundary": ({"target": TWO}, "data is missing at a boundary value, c = 0.25"),
    "no data at all": ({"data": None}, "needs data"),
    "all data held out": ({"held_out": 1.0}, "held_out must be a fraction of the data"),
    "less than nothing held out": ({"held_out": -0.1}, "held_out must be a fraction of the data"),
    "some data held out": ({"held_out": "some"}, "held_out must be a fraction of the data"),
    "no minutes": ({"minutes": 0.0}, "minutes must be positive"),
    "a recipe of another shape": (
        {"flow": SplineFlow((2,), FAMILY.condition, blocks=1)},
        r"flow has states of shape \(2,\)",
    ),
    "validation of the wrong shape": ({"validation": {0.5: data_at(1.0, d=2)}}, "validation at c = 0.5 must have"),
    "validation out of range": ({"validation": {9.0: GOOD}}, "validation condition 9 lies outside"),
    "validation that is no dictionary": ({"validation": GOOD}, "validation must be a dictionary"),
    "a flow of the wrong shape": ({"flow": LinearGaussian(d=2)}, r"flow has states of shape \(2,\)"),
    "a flow of the wrong condition": (
        {"flow": TWO_CONDITIONS},
        r"flow must be conditioned on a vector of shape \(1,\)",
    ),
    "no flow": ({"flow": 3}, "flow must be a recipe such as .* got 3"),
    "a function that makes no flow": ({"flow": lambda key: "flow"}, "flow must be a flowjax distribution, got str"),
    "a flow with NaN": ({"flow": LinearGaussian(mean=np.nan)}, "flow has NaN"),
    "no target": ({"target": lambda x, c: -(x**2) / c}, "target must be a trade.Target"),
    "no objective": ({"objective": "trade"}, "objective must be"),
    "an objective whose parentheses were forgotten": ({"objective": Trade}, "objective must be"),
    "a recipe whose parentheses were forgotten": ({"flow": SplineFlow}, "flow must be a recipe"),
    "a flow function that fails": ({"flow": lambda key: 1 / 0}, "flow failed: .*division by zero"),
    "a flow that does not see the condition": ({"flow": StandardNormal((1,))}, "flow does not see the condition"),
    "a flow in half precision": (
        {"flow": cast(LinearGaussian(), jnp.float16)},
        "flow must have parameters in float32 or float64, got float16",
    ),
    "an optimiser that is a number": ({"optimiser": 1e-3}, "optimiser must be"),
    "an optimiser that is a word": ({"optimiser": "adam"}, "optimiser must be"),
    "an optimiser whose parentheses were forgotten": ({"optimiser": Adam}, "optimiser must be"),
    "a schedule that is a number": ({"schedule": 100}, "schedule must be"),
    "a watch that is a number": ({"watch": 0.1}, "watch must be"),
    "minutes in words": ({"minutes": "ten"}, "minutes must be"),
    "NaN minutes": ({"minutes": float("nan")}, "minutes must be"),
    "True steps": ({"steps": True}, "steps must be a positive integer, got True"),
    "a seed and a half": ({"seed": 1.5}, "seed must be an integer"),
    "a seed in words": ({"seed": "one"}, "seed must be an integer"),
    "no seed": ({"seed": None}, "seed must be an integer"),
    "a negative seed": ({"seed": -1}, "seed must be an integer"),
    "a seed that would wrap to another": ({"seed": 2**32}, "seed must be an integer"),
    "True seeds": ({"seeds": True}, "seeds must be"),
    "half a seed": ({"seeds": 0.5}, "seeds must be"),
    "no samples to evaluate": ({"evaluation_samples": 0}, "evaluation_samples must be"),
    "too many samples to evaluate": ({"evaluation_samples": 10**12}, "evaluation_samples"),
    "evaluation at no number": ({"evaluate_at": "cold"}, "evaluation condition must be a number"),
    "NaN held out": ({"held_out": float("nan")}, "held_out must be a fraction"),
    "True held out": ({"held_out": True}, "held_out must be a fraction"),
    "a propagation that begins after the end": ({"objective": Trade(start=7)}, "Trade start must come before"),
    "out that is no path": ({"out": 3}, "out must be the path of a directory"),
    "an empty out": ({"out": ""}, "out must be the path of a directory"),
    "notes that are no dictionary": ({"notes": "why"}, "notes must be a dictionary"),
    "three arrays of data": ({"data": {1.0: (GOOD, GOOD, GOOD)}}, "data at c = 1 must be"),
    "complex data": ({"data": {1.0: GOOD + 1j}}, "data at c = 1 must be an array of real numbers"),
    "numbers in words": ({"data": {1.0: GOOD.astype(str)}}, "data at c = 1 must be an array of numbers"),
    "ragged data": ({"data": {1.0: [[1.0], [1.0, 2.0]]}}, "data at c = 1 must"),
    "data at nearly equal conditions": ({"target": FREE, "data": {1.0: GOOD, 1.0 - 1e-9: GOOD}}, "twice at c = 1"),
    "a density that is zero at all data": (
        {"target": Target(lambda x, c: jnp.where(x[0] > 99, 1.0, -jnp.inf) * c, (1,), Condition(0.25, 1.0))},
        "log density is not finite at any",
    ),
    "a derivative that is another's": (
        {"target": Target(minus_quadratic, (1,), FAMILY.condition, condition_derivative=lambda x, c: (x**2).sum())},
        "condition_derivative is not the derivative of log_density",
    ),
    "no steps": ({"steps": 0}, "steps must be a positive integer, got 0"),
    "half steps": ({"steps": 1.5}, "steps must be"),
    "steps in words": ({"steps": "ten"}, "steps must be"),
    "no seeds": ({"seeds": 0}, "seeds must be"),
    "resume without out": ({"resume": True}, "resume=True needs the run directory as out"),
    "evaluation out of range": ({"evaluate_at": (7.0,)}, "evaluation condition 7 lies outside"),
    "reverse KL out of range": ({"objective": ReverseKL(at=7.0)}, "ReverseKL condition 7 lies outside"),
    "a target that c does not change": (
        {"target": Target(lambda x, c: -(x**2).sum() + c, (1,), Condition(0.25, 1.0))},
        "dependence of log_density on c is constant",
    ),
}


def call(**options):
    arguments = {"flow": LinearGaussian(), "target": family(), "data": {1.0: GOOD}, "steps": 2, **options}
    return fit(progress=False, **arguments)


@pytest.mark.parametrize("what", REFUSED)
def test_fit_refuses(what):
    """One sentence that names the argument, before anything is compiled."""
    options, message = REFUSED[what]
    with pytest.raises(TradeError, match=message) as error:
        call(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["fit", "save"])
def test_out_that_already_holds_a_run_is_refused(reference, tmp_path, kind):
    run, directory = reference
    if kind == "save":
        directory = tmp_path / "saved"
        run.save(directory)
    before = {p.name: p.read_bytes() for p in directory.iterdir()}
    with pytest.raises(TradeError, match="already holds a run"):
        call(out=directory)
    assert {p.name: p.read_bytes() for p in directory.iterdir()} == before


ACCEPTED = {
    "a NumPy integer of steps": {"steps": np.int64(2)},
    "a NumPy integer of a seed": {"seed": np.uint8(3)},
    "one condition to evaluate at": {"evaluate_at": 0.5},
    "an array of conditions": {"evaluate_at": np.array([0.5, 0.7])},
    "a transformation of Optax": {"optimiser": optax.adam(1e-3)},
    "a chain of Optax": {"optimiser": optax.chain(optax.clip(1.0), optax.sgd(1e-3))},
    "single precision": {"data": {1.0: GOOD.astype(np.float32)}},
    "half precision": {"data": {1.0: GOOD.astype(np.float16)}},
    "integers": {"data": {1.0: np.arange(-8, 8)[:, None]}},
    "a condition that is an array of no dimension": {"data": {np.float32(1.0): GOOD}},
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_fit_accepts(what):
    run = call(**ACCEPTED[what])
    assert run.metrics[-1]["step"] == 2


def test_a_transformation_of_optax_is_applied_as_it_is():
    """Two steps of plain gradient descent, by hand."""
    run = call(optimiser=optax.sgd(0.1), objective=ForwardKL(16), steps=1, held_out=0.0)
    flow = LinearGaussian()
    assert run.settings["optimiser"]["class"] == "Given"
    mean = float(run.final[0].flow.mean[0])
    assert mean != float(flow.mean[0])
    assert np.sign(mean) == np.sign(GOOD.mean()) or abs(mean) < 0.05
    slow = call(optimiser=optax.sgd(0.05), objective=ForwardKL(16), steps=1, held_out=0.0)
    np.testing.assert_allclose(2 * float(slow.final[0].flow.mean[0]), mean, rtol=1e-4)
