"""The five-dimensional double well of Section 5.1: data at T0 = 1, every temperature down to 0.5."""

import time
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.console import Console

from trade.evaluation.divergence import forward_kl, negative_log_likelihood
from trade.experiments import paper
from trade.experiments.results import record, row
from trade.fit import Run, fit
from trade.flows import MLP, spline_flow
from trade.objectives import BatchExpectation, CausalGrid, Gradient, GridExpectation, Trade, Widening
from trade.sampling.importance import weighted_samples
from trade.targets import MultiWell
from trade.training.checkpoint import write_json
from trade.training.loop import Schedule
from trade.training.optimiser import Adam

TEMPERATURES = (0.5, 1.0)
METHODS = {
    "trade-continuous": Gradient(
        conditions=Widening(),
        expectation=BatchExpectation(),
        conditions_per_step=16,
        points_per_condition=128,
    ),
    "trade-grid": Gradient(
        conditions=CausalGrid(points=50, epsilon=0.9),
        expectation=GridExpectation(points=50, every=100, samples=5000),
        conditions_per_step=128,
        points_per_condition=16,
    ),
}


def train(method: str, *, seeds: int, steps: int, out: Path | None, progress: bool = True) -> Run:
    """Train one method, all seeds as one program, on 300,000 exact samples at T0."""
    target = MultiWell(d=5)
    data = {1.0: target.sample(jax.random.key(2024), 300_000, 1.0)}
    return fit(
        lambda key: spline_flow(key, target, blocks=8, network=MLP(128, 2)),
        target,
        data,
        Trade(METHODS[method]),
        steps,
        optimiser=Adam(learning_rate=2e-3),
        seeds=seeds,
        schedule=Schedule(evaluate=max(steps // 10, 1)),
        out=out,
        progress=progress,
    )


def evaluate(method: str, run: Run, samples: int = 100_000) -> list[dict[str, Any]]:
    """Exact KL, NLL and ESS at both temperatures, on exact samples that training never saw."""
    target, rows = MultiWell(d=5), []
    for i, temperature in enumerate(TEMPERATURES):
        truth = target.sample(jax.random.key(7000 + i), samples, temperature)
        values: dict[str, list[float]] = {"kl": [], "nll": [], "ess": []}
        for model in run.final:
            values["kl"].append(forward_kl(model, target, truth, temperature, sets=2).value)
            values["nll"].append(negative_log_likelihood(model, truth, temperature, sets=2).value)
            values["ess"].append(weighted_samples(model, target, jax.random.key(1), samples, temperature).ess)
        for metric, numbers in values.items():
            known = paper.MULTIWELL[method].get(metric, {}).get(temperature)
            rows.append(row(method, metric, temperature, numbers, known))
    return rows


def main(out: Path, methods: tuple[str, ...] = tuple(METHODS), seeds: int = 3, steps: int = 10_000) -> None:
    """Train and evaluate the methods; write results.json and the models.

    Args:
        out: Directory for results.json and one run directory a method.
        methods: Which of trade-continuous and trade-grid.
        seeds: Seeds, trained as one program.
        steps: Training steps.
    """
    started, rows = time.monotonic(), []
    for method in methods:
        begun = time.monotonic()
        run = train(method, seeds=seeds, steps=steps, out=out / method)
        rows += evaluate(method, run)
        Console().print(f"{method}: {time.monotonic() - begun:.0f} s")
        for r in rows[-6:]:
            Console().print(f"  {r['metric']} at T = {r['condition']:g}: {r['mean']:.5f} ± {r['std']:.5f}")
        write_json(out / "results.json", record("multiwell", rows, time.monotonic() - started))


if __name__ == "__main__":
    tyro.cli(main)
