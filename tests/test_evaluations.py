"""How often an objective says that it evaluates the density, beside how often it does."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from small_problems import KEY, LinearGaussian, data_at, minus_quadratic, problem_of

from trade import Condition, Target, Trade
from trade.experiments.reproduce import evaluations
from trade.objectives import (
    BatchExpectation,
    CausalGrid,
    EnergyFree,
    ForwardKL,
    FromBoundaryModel,
    FromData,
    FromModel,
    Gradient,
    GridExpectation,
    GrowingInterval,
    ModelPoints,
    ReverseKL,
    Reweighted,
    Sum,
)
from trade.objectives.term import Clock
from trade.targets import boltzmann

STEPS = 4
PLAIN = Gradient(
    GrowingInterval(full_at=0.0),
    ModelPoints(wider=0.0),
    conditions_per_step=2,
    points_per_condition=8,
    reweighted=0.0,
    reverse=0.0,
)


def other(base=None, samples=None, **changes):
    expectation = BatchExpectation(base or FromModel(), samples)
    return replace(PLAIN, expectation=expectation, **changes)


OBJECTIVES = {
    "data alone": ForwardKL(16),
    "reverse KL": ReverseKL(batch=16),
    "reweighted data": Reweighted(conditions_per_step=2, points_per_condition=8),
    "reweighted states": Reweighted(base=FromModel(), conditions_per_step=2, points_per_condition=8),
    "shared states": PLAIN,
    "moved states": replace(PLAIN, points=ModelPoints(noise=0.1, wider=0.0)),
    "own samples": other(samples=5),
    "boundary model": other(FromBoundaryModel()),
    "base of data": other(FromData()),
    "energy-free": other(FromData(), density=EnergyFree()),
    "grid": replace(PLAIN, conditions=CausalGrid(5), expectation=GridExpectation(points=5, every=2, samples=16)),
    "sum": Sum((ReverseKL(batch=4), PLAIN)),
    "begins late": Trade(PLAIN, ForwardKL(16), start=0.5),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_number_of_evaluations(name):
    """Counted by the density itself; a derivative at the same state and condition is not counted again."""
    objective, calls = OBJECTIVES[name], set()

    def log_density(x, c):
        jax.debug.callback(lambda v, w: calls.add((float(v[0]), float(w))), x, c)
        return minus_quadratic(x, c)

    target = Target(log_density, (1,), Condition(0.5, 2.0, boundary=1.0), rebuild=boltzmann)
    problem, flow = problem_of(target, data_at(1.0, 100_000)), LinearGaussian()
    state = objective.init(KEY, problem)

    @eqx.filter_jit
    def step(state, i):
        return objective.value_and_grad(flow, state, problem, Clock(i, STEPS), jax.random.fold_in(KEY, i))[2]

    calls.clear()  # those of the problem itself
    for i in range(STEPS):
        state = step(state, jnp.asarray(i))
    jax.block_until_ready(state)
    jax.effects_barrier()
    assert len(calls) == evaluations(objective, STEPS, STEPS)
