"""Reproductions: methods as data, one loop, results that resume and tables that say who is best."""

import json
from dataclasses import dataclass, field, replace
from typing import get_args

import equinox as eqx
import jax
import numpy as np
import pytest
from small_problems import gaussian_family, small_flow

from trade import Adam, TradeError
from trade.abstract_target import AbstractTarget
from trade.data import make_problem
from trade.evaluation.verdict import Level
from trade.experiments import EXPERIMENTS
from trade.experiments.reproduce import Method, choose, covered, reproduce
from trade.experiments.results import numbers, row
from trade.files import read_json, write_json
from trade.objectives import ForwardKL
from trade.objectives.default import default_objective
from trade.report.figures import methods_against_condition
from trade.report.tables import FIGURES, table, write_reproduction
from trade.sampling.importance import weighted_samples
from trade.training.state import Program, begin


@dataclass(frozen=True)
class Small:
    """A one-dimensional Gaussian with two methods of a few steps."""

    target: AbstractTarget = field(default_factory=lambda: gaussian_family(1))
    steps: int = 4
    name = "small"
    conditions = (0.5, 1.0)
    figures = ("marginals",)

    def methods(self, budget):
        def flow(key):
            return small_flow((1,), self.target.condition)

        one = Method(flow, self.steps, ForwardKL(16), Adam(1e-3))
        return {"one": one, "trade-two": replace(one, objective=ForwardKL(32))}

    def data(self, target, budget):
        return {1.0: target.sample(jax.random.key(0), 64, 1.0)}

    def validation(self, target, budget):
        return None

    def truth(self, budget):
        return []

    def evaluate(self, name, target, run, budget):
        ess = [weighted_samples(m, target, jax.random.key(1), 500, 0.5).ess for m in run.final]
        return [row(name, "ess", 0.5, ess, 0.25), row(name, "kl", 0.5, [0.5 if name == "one" else 0.25] * len(ess))]


def test_time_of_methods_side_by_side_counts_once():
    assert covered([]) == 0.0
    assert covered([(10.0, 12.0), (0.0, 3.0), (1.0, 2.0), (2.5, 4.0)]) == 6.0


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("small")
    results = reproduce(Small(), out, names="one", seeds=2, budget="quick", progress=False)
    return out, results


def test_results_have_the_agreed_form(done):
    out, results = done
    assert json.loads((out / "results.json").read_text()) == results
    assert set(results) >= {"experiment", "command", "hardware", "jax", "commit", "wall_seconds", "rows"}
    assert set(results["rows"][0]) == {"method", "metric", "condition", "mean", "std", "seeds", "each", "paper"}
    assert results["rows"][0]["seeds"] == 2
    verdicts = results["methods"]["one"]["verdicts"]
    assert len(verdicts) == 2 and all(v.startswith(get_args(Level)) for v in verdicts)
    assert verdicts[0].split(";")[0] in table(results).splitlines()[-1]
    one = results["methods"]["one"]
    assert results["wall_seconds"] == pytest.approx(one["ended"] - one["began"], abs=0.11) and one["began"] > 1e9


@pytest.mark.parametrize("resume", [False, True])
def test_results_of_somebody_else_are_not_overwritten(tmp_path, resume):
    (tmp_path / "results.json").write_text("mine")
    with pytest.raises(TradeError, match="not empty but holds no results of this experiment"):
        reproduce(Small(), tmp_path, seeds=1, budget="quick", resume=resume, progress=False)
    with pytest.raises(TradeError, match=r"results\.json cannot be read: Not a directory"):
        reproduce(Small(), tmp_path / "results.json", seeds=1, budget="quick", resume=resume, progress=False)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("results.json", "mine")]


def test_resume_runs_only_what_is_missing(done):
    out, first = done
    before = (out / "one" / "finished.json").stat().st_mtime_ns
    results = reproduce(Small(), out, seeds=2, budget="quick", resume=True, progress=False)
    assert (out / "one" / "finished.json").stat().st_mtime_ns == before
    assert [r["method"] for r in results["rows"]] == ["one", "one", "trade-two", "trade-two"]
    assert results["rows"][:2] == first["rows"]
    assert results["wall_seconds"] > first["wall_seconds"]
    text = write_reproduction(Small().target, Small().figures, results, out)
    assert (out / "table.md").read_text() == text
    assert (out / "figures" / "ess.png").stat().st_size > 1000
    assert (out / "figures" / "marginals.png").stat().st_size > 1000
    with pytest.raises(TradeError, match="seeds = 2, not 3"):
        reproduce(Small(), out, seeds=3, budget="quick", resume=True, progress=False)
    with pytest.raises(TradeError, match="already holds results"):
        reproduce(Small(), out, seeds=2, budget="quick", progress=False)


def test_table_marks_the_best_and_shows_the_paper():
    about = {"experiment": "e", "command": "c", "hardware": "h", "jax": "j", "commit": "k", "wall_seconds": 1.0}
    rows = [row("a", "kl", 1.0, [0.2], 0.3), row("b", "kl", 1.0, [0.1, 0.1]), row("a", "ess", 1.0, [0.9])]
    text = table(about | {"rows": [*rows, row("b", "ess", 1.0, [0.8])]})
    assert "| a | 0.2000 (0.3000) |" in text
    assert "| b | **0.1000** ± 0.0000 |" in text
    assert "| a | **90.0 %** |" in text


def test_a_number_that_is_not_finite_is_null_in_the_file_and_said_in_the_table(tmp_path):
    about = {"experiment": "e", "command": "c", "hardware": "h", "jax": "j", "commit": "k", "wall_seconds": 1.0}
    rows = [row("a", "kl", 1.0, [np.nan, 1.0]), row("b", "kl", 1.0, [0.1])]
    write_json(tmp_path / "results.json", about | {"rows": rows})
    assert "NaN" not in (tmp_path / "results.json").read_text()
    read = numbers(read_json(tmp_path / "results.json"))
    assert read["rows"][0]["each"] == [None, 1.0]
    assert "| a | not finite ± not finite |" in table(read)
    assert "| b | **0.1000** |" in table(read)
    methods_against_condition(read["rows"], "kl", "KL", (1.0,))


def test_unknown_method_lists_the_names():
    with pytest.raises(TradeError, match=r"no method 'two'; it has one, trade-two\."):
        choose(Small(), "one,two", "quick")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("budget", ["quick", "paper"])
def test_every_method_of_an_experiment_is_built(name, budget):
    """Each row has a name in kebab case and a flow of its target's shape; the report knows the figures."""
    experiment = EXPERIMENTS[name]()
    assert FIGURES.keys() >= set(experiment.figures)
    for method_name, method in experiment.methods(budget).items():
        assert method_name.replace("-", "").isalpha()
        assert method_name.islower()
        flow = eqx.filter_eval_shape(getattr(method.flow, "build", method.flow), jax.random.key(0))
        assert flow.shape == (method.target or experiment.target).shape


@pytest.mark.parametrize("name", ["gaussian-mixture", "multiwell", "scalar-field", "two-moons"])
def test_every_method_of_an_experiment_traces(name):
    """The objective of each row gives a loss and a gradient for its flow."""
    experiment = EXPERIMENTS[name]()
    for method in experiment.methods("quick").values():
        target = method.target or experiment.target
        flow = eqx.filter_eval_shape(getattr(method.flow, "build", method.flow), jax.random.key(0))
        data = jax.random.normal(jax.random.key(0), (8, *target.shape))
        at_wall = (data, data) if target.observation_shape else data
        problem = make_problem(target, dict.fromkeys(target.condition.boundary, at_wall))
        objective = method.objective or default_objective(target)
        program = Program(objective, method.optimiser or Adam(), method.steps)
        learner = eqx.filter_eval_shape(begin, program, flow, problem, jax.random.key(0))
        assert learner.guard.losses
