"""The zoo: problems of the kinds users have, with no option set: ``python -m benchmarks.zoo``.

Each problem is trained by each method in a process of its own, so that compilations and small kernels overlap.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import trade
from benchmarks.problems import PROBLEMS, ZooProblem
from trade.evaluation.free_energy import log_mean_weight
from trade.experiments.results import origin
from trade.files import plain, read_json, write_json
from trade.objectives import (
    ForwardKL,
    Gradient,
    GrowingInterval,
    Huber,
    ModelPoints,
    Objective,
    Ramp,
    ReverseKL,
    Squared,
    Trade,
    Widening,
    default_objective,
)
from trade.sampling.importance import weighted_samples

QUICK = ("ring", "correlation", "mode-lost", "eight-schools", "pressure", "tilted-well")
console = Console(width=None if sys.stdout.isatty() else 140)


def _other_gradient(**changes: Any) -> Callable[[Trade], Objective]:
    return lambda default: replace(default, propagation=replace(cast(Gradient, default.propagation), **changes))


# What each problem is trained by, from the objective that it has by default; flow and budget are the same. After the
# paper's choice and two baselines the parts of the default, each left out or replaced by the plainer thing.
METHODS: dict[str, Callable[[Trade], Objective]] = {
    "default": lambda default: default,
    "paper": lambda default: Trade(PAPER, balance=Ramp(), start=0.2),
    "likelihood": lambda default: ForwardKL(),
    "likelihood-reverse-kl": lambda default: Trade(ReverseKL(), balance=Ramp(), start=0.2),
    "without-frontier": _other_gradient(conditions=GrowingInterval(full_at=0.35)),
    "without-forward-kl": _other_gradient(reweighted=0.0),
    "without-reverse-kl": _other_gradient(reverse=0.0),
    "without-wider-states": _other_gradient(points=ModelPoints(wider=0.0)),
    "squared-residual": _other_gradient(penalty=Squared()),
    "without-step-back": lambda default: replace(default, balance=Ramp(over=0.06)),
}
PAPER = Gradient(Widening(), penalty=Huber(), conditions_per_step=8, points_per_condition=64, reweighted=0.0)


@dataclass(frozen=True)
class Options:
    """Train every problem of the zoo by every method, and print the table.

    Args:
        problems: Their names; all by default. ``quick`` stands for six that take minutes on two cores, ``seen`` and
            ``unseen`` for those that settings may and may not be chosen on.
        methods: How they are trained.
        steps: The budget; that of ``fit`` by default.
        samples: Samples at each condition of the evaluation.
        seed: Random seed.
        jobs: Processes at a time.
        out: Directory of the results. What is there is not run again.
    """

    problems: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("default",)
    steps: int | None = None
    samples: int = 20_000
    seed: int = 0
    jobs: int = 1
    out: Path = Path("runs/zoo")


def chosen(names: tuple[str, ...]) -> list[ZooProblem]:
    """Problems by name or by group."""
    groups = {
        "quick": QUICK,
        "seen": tuple(p.name for p in PROBLEMS if not p.unseen),
        "unseen": tuple(p.name for p in PROBLEMS if p.unseen),
    }
    wanted = [n for name in names for n in groups.get(name, (name,))] or [p.name for p in PROBLEMS]
    known = {p.name: p for p in PROBLEMS}
    for name in wanted:
        if name not in known:
            raise trade.TradeError(f"The zoo has no problem {name!r}; it has {', '.join(known)}.")
    return [known[name] for name in wanted]


def solve(problem: ZooProblem, method: str, options: Options) -> dict[str, Any]:
    """Train one problem by one method, with nothing else chosen, and measure what came out."""
    target = problem.make()
    data = problem.data(target, jax.random.key(1000))
    budget = {} if options.steps is None else {"steps": options.steps}
    objective = None if method == "default" else METHODS[method](default_objective(target, len(data)))
    began = time.monotonic()
    try:
        run = trade.fit(target, data, objective=objective, seed=options.seed, progress=options.jobs == 1, **budget)
    except trade.NonFiniteError as error:
        return {"problem": problem.name, "method": method, "unseen": problem.unseen, "failed": str(error)}
    seconds = time.monotonic() - began
    return {
        "problem": problem.name,
        "method": method,
        "unseen": problem.unseen,
        "steps": run.metrics[-1]["step"],
        "seconds": round(seconds, 1),
        "flow": run.settings["recipe"],
        **measured(problem, run, options),
    }


def measured(problem: ZooProblem, run: trade.Run, options: Options) -> dict[str, Any]:
    """ESS, KL and log Z over the range, the boundary values among the conditions."""
    condition = run.model.condition
    grid = np.unique(np.concatenate([condition.grid(9), condition.boundary]))
    found: dict[str, list[float]] = {"c": grid.tolist(), "ess": [], "kl": [], "log_z_error": [], "log_z_sigmas": []}
    for i, c in enumerate(grid.tolist()):
        weighted = weighted_samples(run.model, run.target, jax.random.key(i), options.samples, c)  # pyright: ignore
        found["ess"].append(weighted.ess)
        if problem.log_z is None:
            continue
        exact, (value, error) = problem.log_z(c), log_mean_weight(weighted.log_weight)
        found["log_z_error"].append(value - exact)
        found["log_z_sigmas"].append((value - exact) / max(error, 1e-12))
        if problem.sample is not None:
            x = problem.sample(jax.random.key(100 + i), 10_000, c)
            log_p = jax.vmap(lambda v, c=c: run.target.log_density(v, c))(x) - exact  # pyright: ignore
            found["kl"].append(float(np.mean(np.asarray(log_p - run.model.log_prob(x, c), np.float64))))
    at_boundary = [found["ess"][int(np.argmin(np.abs(grid - b)))] for b in condition.boundary]
    summary = {"ess_least": min(found["ess"]), "ess_boundary": min(at_boundary)}
    summary |= {"kl_most": max(found["kl"])} if found["kl"] else {}
    if found["log_z_sigmas"]:
        summary["log_z_rms_sigmas"] = float(np.sqrt(np.mean(np.square(found["log_z_sigmas"]))))
        summary["log_z_most"] = float(np.max(np.abs(found["log_z_error"])))
    told = run.verdict
    summary["verdict"] = {"level": told.level, "reasons": list(told.reasons)}
    return plain(summary | {"curves": found, "skipped": run.metrics[-2].get("skipped")})


def main(options: Options) -> None:
    """Run what is missing, then print and save the table."""
    pairs = [(p, m) for m in options.methods for p in chosen(options.problems)]
    for method in options.methods:
        if method not in METHODS:
            raise trade.TradeError(f"The zoo has no method {method!r}; it has {', '.join(METHODS)}.")
    about, began = origin(), time.monotonic()
    missing = [(p, m) for p, m in pairs if not _file(options, p, m).exists()]
    if len(missing) == 1 or options.jobs == 1:
        for problem, method in missing:
            console.print(f"{problem.name}, {method}: {problem.about}", highlight=False)
            write_json(_file(options, problem, method), solve(problem, method, options) | {"run": about})
    else:
        with ThreadPoolExecutor(options.jobs, initializer=_own_cores, initargs=(count(), options.jobs)) as pool:
            list(pool.map(lambda pair: _apart(*pair, about, options), missing))
    about |= {"wall_seconds": round(time.monotonic() - began, 1)}  # not of a call that was stopped
    for file in (_file(options, *pair) for pair in missing):
        if file.exists():
            write_json(file, read_json(file) | {"run": about})
    entries = collect(options.out)
    write_json(options.out / "results.json", {"entries": entries})
    console.print(make_table([e for e in entries if e["run"] == about] or entries))
    console.print(f"{about['wall_seconds']} s. {options.out / 'results.json'}", highlight=False)


def collect(out: Path) -> list[dict[str, Any]]:
    """Everything that was run under ``out``, and what its results hold of earlier runs: each with what made it."""
    written = out / "results.json"
    found = {(e["method"], e["problem"]): e for e in (read_json(written)["entries"] if written.exists() else [])}
    for file in sorted((out / "runs").glob("*.json")):
        entry = read_json(file)
        found[entry["method"], entry["problem"]] = entry
    order = [(m, p.name) for m in METHODS for p in PROBLEMS]
    return [found[pair] for pair in order if pair in found]


def _file(options: Options, problem: ZooProblem, method: str) -> Path:
    return options.out / "runs" / f"{problem.name}.{method}.json"


def _own_cores(numbers: "count[int]", jobs: int) -> None:
    """Cores for this thread and the processes it starts: threads of several that wait for each other cost a sixth."""
    if hasattr(os, "sched_setaffinity") and jax.default_backend() == "cpu":
        own, cores = next(numbers), sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[own::jobs] or {cores[own % len(cores)]})


def _apart(problem: ZooProblem, method: str, about: dict[str, Any], options: Options) -> None:
    arguments = ["--problems", problem.name, "--methods", method, "--samples", str(options.samples)]
    arguments += [] if options.steps is None else ["--steps", str(options.steps)]
    own = options.out / "apart" / f"{problem.name}.{method}"
    command = [sys.executable, "-m", "benchmarks.zoo", *arguments, "--seed", str(options.seed), "--out", str(own)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    found = own / "runs" / f"{problem.name}.{method}.json"
    if not found.exists():
        console.print(f"{problem.name}, {method} failed: {done.stderr[-2000:]}", markup=False, highlight=False)
        return
    entry = read_json(found)
    write_json(_file(options, problem, method), entry | {"run": about})
    console.print(
        json.dumps({k: v for k, v in entry.items() if k not in ("curves", "flow")}), highlight=False, soft_wrap=True
    )


def make_table(entries: list[dict[str, Any]]) -> Table:
    """A line a problem and method."""
    table = Table(title="Zoo: nothing chosen", title_justify="left")
    for name in ("problem", "method", "least ESS", "ESS at c0", "KL", "log Z / σ", "steps", "s", "verdict"):
        table.add_column(name, justify="left" if name in ("problem", "method", "verdict") else "right")
    for e in entries:
        if "failed" in e:
            table.add_row(e["problem"], e["method"], "failed")
            continue
        table.add_row(
            e["problem"] + (" *" if e["unseen"] else ""),
            e["method"],
            f"{100 * (e['ess_least'] or 0.0):.1f} %",
            f"{100 * (e['ess_boundary'] or 0.0):.1f} %",
            f"{e['kl_most']:.4f}" if e.get("kl_most") is not None else "",
            f"{e['log_z_rms_sigmas']:.1f}" if e.get("log_z_rms_sigmas") is not None else "",
            str(e["steps"]),
            f"{e['seconds']:.0f}",
            e.get("verdict", {}).get("level", ""),
        )
    return table


if __name__ == "__main__":
    main(tyro.cli(Options))
