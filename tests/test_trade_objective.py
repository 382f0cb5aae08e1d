"""The full loss (Eq. 20): both terms, when the second begins, and every member of every axis."""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import LinearGaussian, clock_at, data_at, family, problem_of

import trade
from trade import Adam, Trade, TradeError
from trade.objectives import (
    BatchExpectation,
    Cauchy,
    CausalGrid,
    EnergyFree,
    Fixed,
    ForwardKL,
    FromBoundaryModel,
    FromData,
    FromModel,
    Frontier,
    Gradient,
    GradientNorm,
    GridExpectation,
    GrowingInterval,
    Huber,
    ModelPoints,
    Ramp,
    ReverseKL,
    Reweighted,
    Squared,
    StepBack,
    Sum,
    TrueDensity,
    Widening,
)
from trade.objectives.term import Outcome, Term
from trade.training.optimiser import Cooling
from trade.training.state import Program, advance, all_finite, begin

KEY = jax.random.key(13)
COOLING = Cooling(jnp.asarray(7), jnp.asarray(10))
FLOW = LinearGaussian(mean=0.4, slope=0.3, log_scale=-0.2, rate=0.1)
PROBLEM = problem_of(family(), data_at(1.0))
TWO = problem_of(family(boundary=(0.25, 1.0)), data_at(0.25), data_at(1.0))


# --- Eq. 20 and ``start``, on terms whose gradients are known


@dataclass(frozen=True)
class OfMean(Term):
    """m²: its gradient is 2m with respect to the mean, and nothing else."""

    name = "of_mean"

    def loss(self, flow, state, problem, clock, key):
        return jnp.sum(flow.mean**2), Outcome(state, jnp.asarray(jnp.nan))


@dataclass(frozen=True)
class OfSlope(Term):
    """3b; its state remembers how often it ran, and its own progress at the last time."""

    name = "of_slope"

    def init(self, key, problem):
        return {"runs": jnp.zeros(()), "progress": jnp.full((), -1.0)}

    def loss(self, flow, state, problem, clock, key):
        new = {"runs": state["runs"] + 1.0, "progress": clock.progress}
        return 3.0 * jnp.sum(flow.slope), Outcome(new, jnp.asarray(0.5))


def run_toy(objective, step, total=10):
    state = objective.init(KEY, PROBLEM)
    return objective.value_and_grad(FLOW, state, PROBLEM, clock_at(step, total), KEY)


@pytest.mark.parametrize("weight", [0.0, 0.25, 2.0])
def test_gradient_is_that_of_the_weighted_sum(weight):
    """Eq. 20: L = L_boundary + λ L_grad."""
    report, grads, state = run_toy(Trade(OfSlope(), OfMean(), Fixed(weight), start=0), 0)
    np.testing.assert_allclose([grads.mean[0], grads.slope[0]], [0.8, 3.0 * weight], rtol=1e-6)
    expected = {"of_mean": 0.16, "of_slope": 0.9, "lambda": weight}
    assert {k: float(v) for k, v in report.losses.items()} == pytest.approx(expected)
    assert float(state[1]["runs"]) == 1.0


def test_balanced_gradients_are_equally_long():
    """Appendix B.1: λ = ‖g_b‖/‖g_g‖ = 0.8/3, so both contributions have length 0.8."""
    report, grads, _ = run_toy(Trade(OfSlope(), OfMean(), GradientNorm(ema=0.0), start=0), 0)
    np.testing.assert_allclose(report.losses["lambda"], 0.8 / 3.0, rtol=1e-5)
    np.testing.assert_allclose([grads.mean[0], grads.slope[0]], [0.8, 0.8], rtol=1e-5)


@pytest.mark.parametrize(
    ("start", "total", "first"), [(0, 10, 0), (0.0, 10, 0), (0.3, 10, 3), (0.2, 1000, 200), (3, 10, 3), (40, 1000, 40)]
)
def test_start_is_a_fraction_or_a_step(start, total, first):
    assert Trade(start=start).first_step(total) == first


@pytest.mark.parametrize("start", [0.3, 3])
def test_second_term_is_off_before_its_start(start):
    """Appendix B.6: first the boundary alone, then the full objective."""
    objective = Trade(OfSlope(), OfMean(), Fixed(2.0), start=start)
    before, grads, state = run_toy(objective, 2)
    assert (float(before.losses["of_slope"]), float(before.losses["lambda"])) == (0.0, 0.0)
    assert np.isnan(before.suspects["of_slope"])
    np.testing.assert_allclose([grads.mean[0], grads.slope[0]], [0.8, 0.0], rtol=1e-6)
    assert {k: float(v) for k, v in state[1].items()} == {"runs": 0.0, "progress": -1.0}

    for step, progress in ((3, 0.0), (10, 1.0)):
        after, grads, state = run_toy(objective, step)
        np.testing.assert_allclose(after.losses["of_slope"], 0.9, rtol=1e-6)
        np.testing.assert_allclose([grads.mean[0], grads.slope[0]], [0.8, 6.0], rtol=1e-6)
        assert {k: float(v) for k, v in state[1].items()} == {"runs": 1.0, "progress": progress}


def test_causal_grid_waits_for_the_start():
    """The same with the real gradient term: no state moves before the start."""
    objective = Trade(Gradient(CausalGrid(5), conditions_per_step=2, points_per_condition=4), ForwardKL(8), start=2)
    initial = objective.init(KEY, PROBLEM)
    run = jax.jit(lambda step: objective.value_and_grad(FLOW, initial, PROBLEM, clock_at(step, 10), KEY))
    losses, _, states = zip(*[run(step) for step in (1, 2)], strict=True)
    assert float(losses[0].losses["gradient"]) == 0.0
    assert float(losses[1].losses["gradient"]) > 0.0
    np.testing.assert_array_equal(states[0][1][0], initial[1][0])
    assert np.any(np.asarray(states[1][1][0]) != np.asarray(initial[1][0]))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"propagation": "gradient"}, "propagation"),
        ({"boundary": None}, "boundary"),
        ({"start": -1}, "start"),
        ({"start": True}, "start"),
        ({"start": "soon"}, "start"),
    ],
)
def test_trade_refuses_bad_options(options, name):
    with pytest.raises(TradeError, match=f"Trade {name}"):
        Trade(**options)


# --- Every member of every axis, one at a time


def gradient(**options):
    return Gradient(**{"conditions_per_step": 3, "points_per_condition": 8, **options})


def with_gradient(**options):
    return Trade(gradient(**options), ForwardKL(32), start=0)


def grid(base):
    return with_gradient(expectation=GridExpectation(points=4, every=1, samples=8, base=base))


MEMBERS = {
    "conditions=Frontier": with_gradient(conditions=Frontier(0.5)),
    "conditions=Widening": with_gradient(conditions=Widening(0.5, 1.5)),
    "conditions=GrowingInterval": with_gradient(conditions=GrowingInterval(0.5)),
    "conditions=CausalGrid": with_gradient(conditions=CausalGrid(4)),
    "expectation=Batch(FromModel)": with_gradient(expectation=BatchExpectation(FromModel(), samples=8)),
    "expectation=Batch(FromBoundaryModel)": with_gradient(expectation=BatchExpectation(FromBoundaryModel())),
    "expectation=Batch(FromData)": with_gradient(expectation=BatchExpectation(FromData())),
    "expectation=Grid(FromModel)": grid(FromModel()),
    "expectation=Grid(FromBoundaryModel)": grid(FromBoundaryModel()),
    "expectation=Grid(FromData)": grid(FromData()),
    "density=TrueDensity": with_gradient(density=TrueDensity()),
    "density=EnergyFree": with_gradient(density=EnergyFree()),
    "penalty=Squared": with_gradient(penalty=Squared()),
    "penalty=Huber": with_gradient(penalty=Huber(0.1)),
    "penalty=Cauchy": with_gradient(penalty=Cauchy(0.1)),
    "points=noise": with_gradient(points=ModelPoints(noise=0.1, symmetries=True), reweighted=0.0),
    "points=own": with_gradient(points=ModelPoints(symmetries=True, wider=0.0)),
    "reweighted=0": with_gradient(reweighted=0.0),
    "balance=Fixed": Trade(gradient(), ForwardKL(32), Fixed(0.5), start=0),
    "balance=Ramp": Trade(gradient(), ForwardKL(32), Ramp(over=0.5), start=0),
    "balance=StepBack": Trade(gradient(), ForwardKL(32), StepBack(over=0.1), start=0),
    "balance=GradientNorm": Trade(gradient(), ForwardKL(32), GradientNorm(every=1), start=0),
    "propagation=ReverseKL": Trade(ReverseKL(batch=16), ForwardKL(32), start=0),
    "propagation=Reweighted": Trade(Reweighted(conditions_per_step=2, points_per_condition=8), ForwardKL(32), start=0),
    "boundary=ReverseKL": Trade(gradient(), ReverseKL(at=1.0, batch=32), start=0),
    "ForwardKL alone": ForwardKL(32),
    "ReverseKL alone": ReverseKL(at=(0.5, 1.0), batch=32),
    "Reweighted, own samples": Trade(Reweighted(base=FromModel(), truncate=10.0), ForwardKL(32), start=0),
    "Sum": Trade(
        Sum((with_gradient().propagation, Reweighted(base=FromModel())), starts=(0.0, 0.1)), ForwardKL(32), start=0
    ),
}


def two_steps(objective, problem=PROBLEM):
    """Two guarded steps, not compiled as a whole: the small operations are shared by all members."""
    program = Program(objective, Adam(1e-2), 10)
    learner, reports = begin(program, FLOW, problem, KEY), []
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(learner))  # or the loop would compile twice
    for step in range(2):
        learner, report = advance(program, learner, problem, jnp.asarray(step), COOLING)
        reports.append(report)
    return learner, reports


def check_two_steps(learner, reports):
    assert int(learner.guard.skipped) == 0
    assert bool(all_finite((learner.flow, learner.optimiser, learner.objective)))
    for report in reports:
        assert all(np.isfinite(v) for v in report.losses.values())
    for name in ("mean", "slope", "log_scale", "rate"):
        assert np.all(getattr(learner.flow, name) != getattr(FLOW, name)), name


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_trains(name):
    """Two steps of Eq. 20 with one axis changed: finite, not skipped, and every parameter moves."""
    learner, reports = two_steps(MEMBERS[name])
    check_two_steps(learner, reports)
    objective = MEMBERS[name]
    names = (objective.boundary, objective.propagation) if isinstance(objective, Trade) else (objective,)
    assert {part for term in names for part in term.parts} <= set(reports[0].losses)


@pytest.mark.parametrize(
    "conditions", [Frontier(0.5), Widening(0.5, 1.5), CausalGrid(6, between=0.1)], ids=lambda c: type(c).__name__
)
def test_two_boundaries_train_at_once(conditions):
    """Appendix B.6: data at two conditions."""
    check_two_steps(*two_steps(with_gradient(conditions=conditions, conditions_per_step=5), TWO))


# --- What the terms say to each other


@dataclass(frozen=True)
class Tells(OfSlope):
    """A propagation term with a note on the boundary."""

    ess: float = 0.9

    def loss(self, flow, state, problem, clock, key):
        value, outcome = super().loss(flow, state, problem, clock, key)
        return value, outcome._replace(notes={"boundary_ess": jnp.asarray(self.ess), "reached": jnp.asarray(0.25)})


@pytest.mark.parametrize(("ess", "weight"), [(0.9, 10.0), (0.7, 10.0**0.5), (0.1, 1.0)])
def test_the_balance_hears_the_notes_and_they_are_reported(ess, weight):
    """Half of the time it takes has passed for the ramp, and all of it for the data to step back."""
    objective = Trade(Tells(ess=ess), OfMean(), Ramp(StepBack(over=0.1), over=1.0), start=0)
    report, grads, _ = run_toy(objective, 5)
    np.testing.assert_allclose(report.losses["lambda"], 0.5 * weight, rtol=1e-5)
    np.testing.assert_allclose(grads.slope[0], 3.0 * 0.5 * weight, rtol=1e-5)
    assert {k: float(v) for k, v in report.losses.items() if k in ("boundary_ess", "reached")} == pytest.approx(
        {"boundary_ess": ess, "reached": 0.25}
    )
    assert set(report.suspects) == {"of_mean", "of_slope"}  # a note has no condition to blame


def test_notes_are_zero_before_the_start_and_pass_through_a_sum():
    """The run must not take the range for reached before anything was asked of it."""
    for term in (Tells(), Sum((Tells(), OfMean()), weights=(2.0, 1.0))):
        objective = Trade(term, OfMean(), Fixed(1.0), start=5)
        before, after = (run_toy(objective, step)[0].losses for step in (4, 5))
        assert (float(before["reached"]), float(before["boundary_ess"])) == (0.0, 0.0)
        np.testing.assert_allclose([after["reached"], after["boundary_ess"]], [0.25, 0.9], rtol=1e-6)


def test_trust_leaves_a_part_of_the_weight():
    objective = Trade(OfSlope(), OfMean(), Fixed(2.0), start=0)
    clock = clock_at(0, 10)._replace(trust=jnp.asarray(0.25))
    report, grads, _ = objective.value_and_grad(FLOW, objective.init(KEY, PROBLEM), PROBLEM, clock, KEY)
    np.testing.assert_allclose([grads.mean[0], grads.slope[0]], [0.8, 1.5], rtol=1e-6)
    assert float(report.losses["lambda"]) == 0.5


def test_defaults_are_those_that_were_measured():
    """Conditions by the weights, a norm robust to outliers, data that step back, a start after 15 % of the run."""
    assert Trade().balance == Ramp(StepBack(), over=0.06)
    assert Trade().start == 0.15
    assert Trade().propagation == Gradient(Frontier(), ModelPoints(), penalty=Cauchy(), reweighted=1.0)
    assert Trade().propagation.parts == ("gradient", "reweighted")
    assert Gradient(reweighted=0.0).parts == ("gradient",)


def test_the_list_of_members_is_complete():
    """Whatever an axis offers is trained above."""
    used = repr(MEMBERS)
    found = {name: getattr(trade.objectives, name) for name in trade.objectives.__all__}
    classes = {name: thing for name, thing in found.items() if isinstance(thing, type)}

    def is_contract(cls):  # what members implement, and what is handed from one to the other
        return cls.__module__.endswith(".term") or Protocol in cls.__bases__ or issubclass(cls, tuple)

    assert [name for name, cls in classes.items() if f"{name}(" not in used and not is_contract(cls)] == []
