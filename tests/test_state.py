"""One guarded step: a non-finite one leaves everything as it was, and is counted."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from paramax import non_trainable
from small_problems import LinearGaussian, clock_at, data_at, family, problem_of, small_flow

from trade import Adam, Trade
from trade.flows.coupling import LONG_RUN
from trade.objectives import Fixed, ForwardKL, Gradient
from trade.objectives.term import Outcome, Report, Term
from trade.training.optimiser import Cooling, OneCycle
from trade.training.state import Program, advance, all_finite, begin, run_chunk

KEY = jax.random.key(17)
PROBLEM = problem_of(family(), data_at(1.0))
COOLING = Cooling(jnp.asarray(7), jnp.asarray(10))


@eqx.filter_jit
def _step_once(program, learner, problem, step, cooling):
    return advance(program, learner, problem, step, cooling)


def step_once(program, learner, problem, step, cooling=COOLING):
    return _step_once(program, learner, problem, jnp.asarray(step), cooling)


@dataclass(frozen=True)
class Planted:
    """(m - 1)² + noise · m, with a state that counts; a NaN in one place at one step."""

    where: str
    at: int = 2

    def init(self, key, problem):
        return {"runs": jnp.zeros((), int), "average": jnp.zeros(())}

    def value_and_grad(self, flow, state, problem, clock, key):
        noise = jax.random.normal(key)
        bad = {w: jnp.where((clock.step == self.at) & (w == self.where), jnp.nan, 0.0) for w in PLACES}
        loss = jnp.sum((flow.mean - 1.0) ** 2 + noise * flow.mean) + bad["loss"]
        zero = jnp.zeros_like(flow.mean)
        params = eqx.filter(flow, eqx.is_inexact_array)
        slope = 2.0 * (flow.mean - 1.0) + noise + bad["gradient"]
        grads = jax.tree.map(lambda p: zero, params)
        grads = eqx.tree_at(lambda f: f.mean, grads, slope)
        new = {"runs": state["runs"] + 1, "average": 0.9 * state["average"] + 0.1 * loss + bad["state"]}
        return Report({"planted": loss}, {"planted": jnp.asarray(0.5)}), grads, new


PLACES = ("loss", "gradient", "state")


def same(one, two):
    """Whether two trees are equal, bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def begin_with(objective):
    program = Program(objective, Adam(0.1), 10)
    return program, begin(program, LinearGaussian(), PROBLEM, KEY)


@pytest.mark.parametrize("where", PLACES)
def test_a_planted_nan_changes_nothing_and_is_counted(where):
    """Flow, Adam moments and step count, and objective state stay as they were; training then goes on."""
    program, learner = begin_with(Planted(where))
    for step in (0, 1):
        before = learner
        learner, _ = step_once(program, learner, PROBLEM, step)
        assert not same(before.flow, learner.flow)
        assert not same(before.optimiser, learner.optimiser)
        assert int(learner.guard.skipped) == 0

    bad, report = step_once(program, learner, PROBLEM, 2)
    assert np.isnan(report.losses["planted"]) == (where == "loss")
    for part in ("flow", "optimiser", "objective", "key"):
        assert same(getattr(bad, part), getattr(learner, part)), part
    assert (int(bad.guard.skipped), int(bad.guard.consecutive)) == (1, 1)
    np.testing.assert_array_equal(bad.guard.losses["planted"], report.losses["planted"])
    assert float(bad.guard.suspects["planted"]) == 0.5

    after, _ = step_once(program, bad, PROBLEM, 3)
    without, _ = step_once(program, learner, PROBLEM, 3)  # as if step 2 had never been
    assert (int(after.guard.skipped), int(after.guard.consecutive)) == (1, 0)
    assert same((after.flow, after.optimiser, after.objective), (without.flow, without.optimiser, without.objective))
    assert int(after.objective["runs"]) == 3


def test_a_chunk_is_the_same_steps_and_averages_the_finite_ones():
    program, learner = begin_with(Planted("loss"))
    chunk, means = run_chunk(program, learner, PROBLEM, jnp.asarray(0), jnp.asarray(5), COOLING, many=False)
    losses = []
    for step in range(5):
        learner, report = step_once(program, learner, PROBLEM, step)
        losses.append(float(report.losses["planted"]))
    assert float(means.count) == 4.0
    np.testing.assert_allclose(means.sums["planted"], np.nansum(losses), rtol=1e-5)
    assert int(chunk.guard.skipped) == 1
    for one, two in zip(jax.tree.leaves(chunk.flow), jax.tree.leaves(learner.flow), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)


def test_a_long_run_compiled_as_a_whole_takes_the_same_steps():
    """Layers in one piece and the compiler's options, against a loop over layers without them."""
    gradient = Gradient(conditions_per_step=4, points_per_condition=8)
    program = Program(Trade(gradient, ForwardKL(16), start=0), Adam(0.01), max(LONG_RUN.values()))
    target = family()
    whole, looped = (
        begin(program, small_flow(target.shape, target.condition, blocks=2, unroll=u), PROBLEM, KEY) for u in (0, 1)
    )
    whole, _ = run_chunk(program, whole, PROBLEM, jnp.asarray(0), jnp.asarray(3), COOLING, many=False)
    for step in range(3):
        looped, _ = step_once(program, looped, PROBLEM, step)
    for one, two in zip(jax.tree.leaves(whole), jax.tree.leaves(looped), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [Adam, OneCycle])
def test_a_step_has_the_length_of_the_rate(kind):
    """Adam's first step is -rate · sign(g), whatever the gradient: m starts at 0, where g is -2 and the noise."""
    program = Program(Planted("nowhere"), kind(0.5), 10)
    learner = begin(program, LinearGaussian(), PROBLEM, KEY)
    slope = program.objective.value_and_grad(learner.flow, learner.objective, PROBLEM, clock_at(0), key_of(learner))[1]
    for cooling in (COOLING, Cooling(jnp.asarray(-2), jnp.asarray(2))):  # late, and half way down at step 0
        moved, _ = step_once(program, learner, PROBLEM, 0, cooling)
        rate = program.optimiser.rate(jnp.asarray(0), 10, cooling)
        np.testing.assert_allclose(moved.flow.mean, -rate * jnp.sign(slope.mean), rtol=1e-4)
    assert (float(rate) == pytest.approx(0.25)) == (kind is Adam)


def key_of(learner):
    """The randomness of step 0."""
    return jax.random.fold_in(jax.random.wrap_key_data(learner.key), 0)


@dataclass(frozen=True)
class Pulls(Term):
    """Pulls one parameter towards zero."""

    name: str

    def loss(self, flow, state, problem, clock, key):
        return jnp.sum(getattr(flow, self.name) ** 2), Outcome(state, jnp.asarray(jnp.nan))


def test_trust_is_a_factor_on_the_propagation_and_stays_what_it_is():
    """A quarter of the trust is a quarter of λ, and of the gradient of the second term alone."""
    program = Program(Trade(Pulls("slope"), Pulls("mean"), Fixed(2.0), start=0), Adam(0.1), 10)
    learner = begin(program, LinearGaussian(1.0, 1.0), PROBLEM, KEY)
    assert float(learner.trust) == 1.0
    first = []
    for trust in (1.0, 0.25):
        new, report = step_once(program, eqx.tree_at(lambda v: v.trust, learner, jnp.asarray(trust)), PROBLEM, 0)
        assert float(report.losses["lambda"]) == 2.0 * trust
        assert float(new.trust) == trust
        moments = next(s for s in jax.tree.leaves(new.optimiser, is_leaf=is_adam) if is_adam(s)).mu
        first.append([float(moments.mean[0]), float(moments.slope[0])])
    norms = [np.hypot(2.0, 4.0), np.hypot(2.0, 1.0)]  # above the clip of 3, and below it
    expected = [[0.2 * 3 / norms[0], 0.4 * 3 / norms[0]], [0.2, 0.1]]
    np.testing.assert_allclose(first, expected, rtol=1e-4)


def is_adam(node):
    return isinstance(node, optax.ScaleByAdamState)


def test_begin_has_an_empty_guard_and_plain_arrays_only():
    _, learner = begin_with(Planted("loss"))
    assert (int(learner.guard.skipped), int(learner.guard.consecutive)) == (0, 0)
    assert learner.key.dtype == jnp.uint32  # raw key data: it is saved like any other array


def test_frozen_parts_of_a_flow_are_not_trained():
    """What is marked as not trainable has no gradient, no moments, and does not move."""
    flow = eqx.tree_at(lambda f: f.mean, LinearGaussian(mean=0.5), non_trainable(jnp.array([0.5])))
    program = Program(ForwardKL(8), Adam(0.1, weight_decay=0.1), 10)
    learner = begin(program, flow, PROBLEM, KEY)
    for step in range(2):
        learner, _ = advance(program, learner, PROBLEM, jnp.asarray(step), COOLING)
    assert float(learner.flow.mean.tree[0]) == 0.5
    assert float(learner.flow.log_scale[0]) != 0.0
    assert sum(leaf.ndim for leaf in jax.tree.leaves(learner.optimiser)) == 2 * 3  # two moments of three arrays


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": np.ones(3), "n": np.array(3)}, True),
        ({"a": np.array([1.0, np.nan])}, False),
        ({"a": np.array([1.0, np.inf])}, False),
    ],
)
def test_all_finite(tree, expected):
    assert bool(all_finite(jax.tree.map(jnp.asarray, tree))) == expected
