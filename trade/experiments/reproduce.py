"""What every reproduction shares: methods as data, one loop over them, one file of results."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from flowjax.distributions import AbstractDistribution
from jax import Array
from rich.console import Console

from trade import files
from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.experiments.results import commit, hardware, record
from trade.files import read_json, write_json
from trade.fit import fit
from trade.flows.flow import Recipe
from trade.objectives.default import default_objective
from trade.objectives.term import Objective, Term
from trade.objectives.trade import Trade
from trade.run import Run
from trade.training.loop import Schedule
from trade.training.optimiser import Adam
from trade.training.watch import Watch

Budget = Literal["quick", "paper"]
TRUTH = "truth.json"  # reference values


@dataclass(frozen=True)
class Method:
    """One row of a table: what is trained, and how.

    Args:
        flow: A recipe, or a function from a random key to the flow.
        steps: Training steps; the budget of a method that ends by itself.
        objective: What it minimises; the default of ``fit``.
        optimiser: Learning rate and clipping; the default of ``fit``.
        target: What it is trained for, where that is not the experiment's own target.
    """

    flow: Recipe | Callable[[Array], AbstractDistribution]
    steps: int
    objective: Objective | None = None
    optimiser: Adam | None = None
    target: AbstractTarget | None = None


class Experiment(Protocol):
    """What an experiment must say; ``reproduce`` does the rest."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def target(self) -> AbstractTarget:
        """The family of densities."""
        ...

    @property
    def conditions(self) -> tuple[float, ...]:
        """Where it is evaluated."""
        ...

    @property
    def figures(self) -> tuple[str, ...]:
        """What is drawn beside KL and ESS, by the names that the report has for it."""
        ...

    def methods(self, budget: Budget) -> Mapping[str, Method]:
        """The rows of the table, by name."""
        ...

    def data(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Training data at the boundary."""
        ...

    def validation(self, target: AbstractTarget, budget: Budget) -> dict[float, Array] | None:
        """Exact samples by which the best model is chosen."""
        ...

    def evaluate(self, name: str, target: AbstractTarget, run: Run, budget: Budget) -> list[dict[str, Any]]:
        """The numbers of one method, over its seeds."""
        ...

    def truth(self, budget: Budget) -> list[dict[str, Any]]:
        """Reference values for the table and the figures that no trained method gives; often none."""
        ...


def choose(experiment: Experiment, names: str | None, budget: Budget) -> dict[str, Method]:
    """The methods named in a comma-separated list, or all of them."""
    known = dict(experiment.methods(budget))
    if names is None:
        return known
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    if not wanted:
        raise TradeError(f"No method was named; {experiment.name} has {', '.join(known)}.")
    for name in wanted:
        if name not in known:
            raise TradeError(f"{experiment.name} has no method {name!r}; it has {', '.join(known)}.")
    return {name: known[name] for name in wanted}


def reproduce(
    experiment: Experiment,
    out: Path,
    *,
    names: str | None = None,
    seeds: int = 3,
    budget: Budget = "paper",
    resume: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Train and evaluate methods, each in its own directory; returns and writes ``results.json``.

    Args:
        experiment: The experiment.
        out: Directory of the results.
        names: Comma-separated methods; all by default.
        seeds: Seeds of each method, trained as one program.
        budget: ``quick`` for two processor cores, ``paper`` for a GPU.
        resume: Continue: what is finished is not run again.
        progress: Show progress bars.
    """
    methods = choose(experiment, names, budget)
    _check_place(out, experiment.methods(budget), resume=resume)
    console = Console()
    for i, (name, method) in enumerate(methods.items()):
        directory = out / name
        if (directory / files.FINISHED).exists():
            _same(directory, seeds, budget)
            continue
        console.print(f"{experiment.name} {i + 1}/{len(methods)}: {name}, {method.steps} steps, seeds: {seeds}")
        _finish(experiment, name, method, directory, seeds, budget, progress=progress)
        write_json(out / files.RESULTS, collect(experiment, out, budget))
    if not (out / TRUTH).exists():
        write_json(out / TRUTH, experiment.truth(budget))
    results = collect(experiment, out, budget)
    write_json(out / files.RESULTS, results)
    return results


def _check_place(out: Path, names: Iterable[str], *, resume: bool) -> None:
    """Results go to a new or empty directory; what is continued holds a method already."""
    with files.in_words("cannot be read", out):
        there = {p.name for p in out.iterdir()} if out.exists() else set()
    ours = there.intersection(names)
    if ours and not resume:
        raise TradeError(f"{out} already holds results: continue with --resume, or give another --out.")
    if there and not ours:
        raise TradeError(f"{out} is not empty but holds no results of this experiment: give another --out.")


def _finish(
    experiment: Experiment, name: str, method: Method, directory: Path, seeds: int, budget: Budget, *, progress: bool
) -> None:
    began = time.time()
    target = method.target or experiment.target
    every = max(method.steps // 20, 1)
    run = fit(
        target,
        experiment.data(target, budget),
        flow=method.flow,
        objective=method.objective,
        steps=method.steps,
        optimiser=method.optimiser,
        validation=experiment.validation(target, budget),
        seeds=seeds,
        # Patience without end, and no way back: a method that is unstable is reported as it comes out.
        schedule=Schedule(report=max(method.steps // 100, 1), evaluate=every, checkpoint=every, patience=10**9),
        watch=None if method.objective is None else Watch(ruin=math.inf),
        evaluate_at=(experiment.conditions[0], experiment.conditions[-1]),
        out=directory,
        resume=(directory / files.CHECKPOINT).exists(),
        progress=progress,
        notes={"command": "reproduce", "experiment": experiment.name, "method": name, "budget": budget},
    )
    done = run.metrics[-1]["step"]
    objective = method.objective or default_objective(target, len(run.model.condition.boundary))
    cost = {"steps": done, "evaluations": evaluations(objective, done, method.steps)}
    rows = experiment.evaluate(name, target, run, budget)
    about = {"seeds": seeds, "budget": budget, "commit": commit(), "hardware": hardware()} | cost
    times = {"began": round(began, 1), "ended": round(time.time(), 1)}
    told = {"verdicts": [v.summary for v in run.verdicts]}
    write_json(directory / files.FINISHED, about | times | told | {"rows": rows})


def evaluations(objective: Objective, done: int, total: int) -> int | None:
    """At how many states training has evaluated q, for each seed; None of an objective that does not say.

    Args:
        objective: What was minimised.
        done: Steps that were taken.
        total: Steps of the budget.
    """
    if isinstance(objective, Trade):
        after = max(done - objective.first_step(total), 0)
        return round(done * objective.boundary.evaluations + after * objective.propagation.evaluations)
    return round(done * objective.evaluations) if isinstance(objective, Term) else None


def _same(directory: Path, seeds: int, budget: Budget) -> None:
    """Refuse to mix results of different budgets or numbers of seeds."""
    finished = read_json(directory / files.FINISHED)
    for key, value in (("seeds", seeds), ("budget", budget)):
        if finished[key] != value:
            raise TradeError(f"{directory} was run with {key} = {finished[key]}, not {value}: give another --out.")


def collect(experiment: Experiment, out: Path, budget: Budget) -> dict[str, Any]:
    """Everything finished under ``out``, in the order of the table, and the time in which any of it ran."""
    finished = {
        n: read_json(out / n / files.FINISHED)
        for n in experiment.methods(budget)
        if (out / n / files.FINISHED).exists()
    }
    rows = read_json(out / TRUTH) if (out / TRUTH).exists() else []
    rows += [row for entry in finished.values() for row in entry["rows"]]
    results = record(experiment.name, rows, covered([(e["began"], e["ended"]) for e in finished.values()]))
    results["budget"] = budget
    results["methods"] = {n: {k: v for k, v in entry.items() if k != "rows"} for n, entry in finished.items()}
    return results


def covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of time spans: methods may run one after another or side by side."""
    total, until = 0.0, -float("inf")
    for began, ended in sorted(spans):
        total += max(ended - max(began, until), 0.0)
        until = max(until, ended)
    return total
