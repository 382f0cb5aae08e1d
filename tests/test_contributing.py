"""The worked examples of CONTRIBUTING, as they are printed: a target, a term and a recipe, each in one file."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trade
from trade.objectives.term import gradient_of, is_untrained, split_trainable

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def names():
    found: dict = {"__name__": "contributing"}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)), found)
    return found


@pytest.fixture(scope="module")
def run(names):
    """A short run of all three."""
    target = names["Ring"](width=0.2)
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    x = (1 + 0.2 * np.random.default_rng(1).normal(size=600)) * np.array([np.cos(angle), np.sin(angle)])
    flow = names["LinearFlow"](target.shape, target.condition, hidden=4)
    gradient = trade.objectives.Gradient(conditions_per_step=4, points_per_condition=8)
    objective = trade.Trade(gradient, trade.objectives.Sum((trade.objectives.ForwardKL(64), names["MeansAgree"](16))))
    return trade.fit(target, {1.0: x.T}, flow=flow, objective=objective, steps=20, progress=False)


def test_target_is_what_it_says(names):
    ring = names["Ring"](width=0.5)
    assert np.isclose(float(ring.log_density(jnp.array([3.0, 4.0]), jnp.array(4.0))), -2.0)


def test_term_has_the_gradient_of_its_loss(names, run):
    """The mean of the model is drawn towards that of the data."""
    flow = run.final[0].flow
    problem = trade.objectives.Problem(run.target, run.target.condition, (jnp.full((4, 2), 5.0),))
    clock = trade.objectives.Clock(jnp.asarray(0), 10)
    term = names["MeansAgree"](256)
    (value, outcome), grads = gradient_of(lambda f: term.loss(f, (), problem, clock, jax.random.key(0)))(flow)
    assert 30.0 < float(value) < 70.0
    assert np.isnan(float(outcome.suspect))
    params, static = split_trainable(flow)
    moved = eqx.combine(jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), static, is_leaf=is_untrained)
    lower, _ = term.loss(moved, (), problem, clock, jax.random.key(0))
    assert float(lower) < float(value)
    assert all(np.isfinite(row["means"]).all() for row in run.metrics if "means" in row)


def test_target_and_recipe_come_back_from_a_file(names, run, tmp_path):
    run.save(tmp_path / "run")
    loaded = trade.load(tmp_path / "run")
    assert type(loaded.target) is names["Ring"]
    assert loaded.target.width == 0.2
    assert loaded.model.flow.recipe == names["LinearFlow"]((2,), run.model.condition, hidden=4)
    x = np.array([[0.3, 0.9]])
    np.testing.assert_array_equal(loaded.model.log_prob(x, 2.0), run.model.log_prob(x, 2.0))
