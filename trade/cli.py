"""The command line: ``trade demo | fit | resume | sample | report | reproduce``."""

import hashlib
import io
import runpy
import shutil
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from trade.errors import NonFiniteError, TradeError

Directory = Annotated[Path, tyro.conf.Positional]
_OPTIONS = ("flow", "objective", "steps", "minutes", "optimiser", "validation", "held_out", "schedule", "seeds")
PROBLEM_NAMES = ("target", "data", *_OPTIONS)


def demo(
    out: Path = Path("runs/demo"),
    steps: int = 6500,
    baseline_steps: int = 4000,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Train on the paper's six-mode mixture with data at c = 1 only, and show what comes out.

    Args:
        out: Where model, metrics, results, figures and report.html go.
        steps: Training steps; the default takes a few minutes on two processor cores.
        baseline_steps: Training steps of the maximum-likelihood flow.
        seed: Random seed.
        overwrite: Replace an earlier demo in the same place.
    """
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise TradeError(f"{out} is not empty: give another --out, or --overwrite to replace an earlier demo.")
        if not _is_demo(out):
            raise TradeError(f"{out} does not hold a demo, so --overwrite does not touch it: give another --out.")
        shutil.rmtree(out)
    _demo(out, steps, baseline_steps, seed, resume=False)


def _is_demo(directory: Path) -> bool:
    from trade.saved import read_settings

    return (directory / "run.json").exists() and read_settings(directory).get("notes", {}).get("command") == "demo"


def _demo(out: Path, steps: int, baseline_steps: int, seed: int, *, resume: bool) -> None:
    from trade.experiments.gaussian_mixture import Demo, demonstrate
    from trade.report.run import by_method, write_report
    from trade.training.checkpoint import write_json

    console = Console()
    settings = Demo(steps=steps, baseline_steps=baseline_steps, seed=seed)
    console.print(f"Six-mode mixture, data at c = 1 only: {settings.steps} steps of TRADE, then maximum likelihood.")
    *_, results = demonstrate(settings, out, resume=resume)
    write_json(out / "results.json", results)
    console.print("Drawing the report.")
    report = write_report(out)

    conditions, methods = by_method(results)
    ours, other = methods["trade-continuous"], methods["maximum-likelihood"]
    table = Table(title="Exact KL and ESS: data was given at c = 1 alone", title_justify="left")
    table.add_column("c", justify="right")
    for name in ("KL TRADE", "KL max. likelihood", "ESS TRADE", "ESS max. likelihood"):
        table.add_column(name, justify="right")
    for i, c in enumerate(conditions):
        table.add_row(
            f"{c:.4g}",
            f"[bold]{ours['kl'][i]:.4f}[/]",
            f"{other['kl'][i]:.4f}",
            f"[bold]{100 * ours['ess'][i]:.1f} %[/]",
            f"{100 * other['ess'][i]:.1f} %",
        )
    console.print(table)
    console.print(f"{results['wall_seconds']:g} s. The whole story: {report}", soft_wrap=True)


def fit(file: Directory, out: Path, steps: int | None = None, seed: int = 0) -> None:
    """Train on a problem of your own.

    Args:
        file: A Python file that defines `target` and `data`, and may define `flow` (a recipe, a flowjax
            distribution or a function of a key) and any of `objective`, `steps`, `minutes`, `optimiser`,
            `validation`, `held_out`, `schedule` and `seeds`.
        out: Directory for checkpoints, metrics and the model.
        steps: The budget of training steps, in place of the file's.
        seed: Random seed.
    """
    problem = _read_problem(file)
    if steps is not None:
        problem["steps"] = steps
    _fit(problem, file, out, seed, resume=False)


def _fit(problem: dict[str, Any], file: Path, out: Path, seed: int, *, resume: bool) -> None:
    import trade

    notes = {
        "command": "fit",
        "problem": str(file.resolve()),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "steps": problem.get("steps"),
    }
    run = trade.fit(**problem, seed=seed, out=out, resume=resume, notes=notes)
    rows = [r for r in run.metrics if any(k.startswith("ess@") for k in r)]
    ess = {k: v for k, v in (rows[-1] if rows else {}).items() if k.startswith("ess@")}
    text = ", ".join(f"{sum(v) / len(v):.1%} at c = {k[4:]}" for k, v in ess.items() if None not in v)
    console = Console()
    console.print(f"Saved in {out}. " + (f"ESS {text}." if text else ""), highlight=False, soft_wrap=True)
    console.print(
        f"Next: trade sample {out} --at C -n 10000 --out samples.npz, or trade report {out}",
        highlight=False,
        soft_wrap=True,
    )


def resume(directory: Directory, problem: Path | None = None) -> None:
    """Continue a run that was interrupted, from its newest checkpoint.

    Args:
        directory: The run directory.
        problem: The problem file, when it is no longer where it was.
    """
    from trade.saved import read_settings

    settings = read_settings(directory)
    notes = settings.get("notes", {})
    if notes.get("command") == "demo":
        _demo(directory, int(settings["steps"]), int(notes["baseline_steps"]), int(settings["seed"]), resume=True)
        return
    if notes.get("command") != "fit":
        raise TradeError(f"{directory} was not started by trade fit or trade demo: resume it in Python instead.")
    file = problem or Path(notes["problem"])
    content = _read_problem(file)
    if hashlib.sha256(file.read_bytes()).hexdigest() != notes["sha256"]:
        raise TradeError(f"{file} is not the file that {directory} was started with: its content has changed.")
    if not (directory / "checkpoint.json").exists():
        raise TradeError(f"{directory} has no checkpoint yet: start it again with trade fit.")
    if notes["steps"]:
        content["steps"] = notes["steps"]
    _fit(content, file, directory, int(settings["seed"]), resume=True)


def sample(
    directory: Directory,
    at: float,
    out: Path,
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 10_000,
    seed: int = 0,
    problem: Path | None = None,
) -> None:
    """Draw samples from a trained model, with log densities and importance weights.

    Args:
        directory: The run directory.
        at: The condition to sample at.
        out: An .npz file for x, log_prob and, when the target is at hand, log_weight.
        n: Number of samples.
        seed: Random seed.
        problem: The problem file that defines the target, for log_weight of a target of your own.
    """
    import jax
    import numpy as np
    from flowjax.distributions import AbstractDistribution

    import trade
    from trade.training.checkpoint import write_bytes

    content = _read_problem(problem) if problem else {}
    target = content.get("target")
    flow = content.get("flow")
    if flow is not None and not isinstance(flow, AbstractDistribution):
        flow = getattr(flow, "build", flow)(jax.random.key(0))
    run = trade.load(directory, target=target, flow=flow)
    key = jax.random.key(seed)
    if run.target is None:
        x, log_prob = run.model.sample_and_log_prob(key, n, at)
        arrays = {"x": x, "log_prob": log_prob}
        text = "no log_weight: the target is not at hand (give --problem FILE.py)"
    else:
        weighted = run.weighted(key, n, at)
        arrays = {"x": weighted.x, "log_prob": weighted.log_prob, "log_weight": weighted.log_weight}
        text = f"ESS {weighted.ess:.1%}"
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{k: np.asarray(v) for k, v in arrays.items()})
    write_bytes(out, buffer.getvalue())
    Console().print(f"{n} samples at c = {at:g} in {out}; {text}.", highlight=False, soft_wrap=True)


def report(directory: Directory, problem: Path | None = None) -> None:
    """Draw the figures of a run and write its report.html.

    Args:
        directory: The run directory.
        problem: The problem file that defines the target, for ESS and log Z of a target of your own.
    """
    from trade.report.run import write_report

    content = _read_problem(problem) if problem else {}
    path = write_report(directory, content.get("target"))
    Console().print(f"Wrote {path}", highlight=False, soft_wrap=True)


def reproduce(
    experiment: Annotated[str, tyro.conf.Positional],
    out: Path | None = None,
    methods: str | None = None,
    seeds: int | None = None,
    budget: Literal["quick", "paper"] = "quick",
    resume: bool = False,
) -> None:
    """Run an experiment of the paper: every method, one table beside the paper's numbers, the figures.

    Args:
        experiment: Which one; an unknown name lists them.
        out: Directory for results.json, table.md, figures and the models; runs/EXPERIMENT by default.
        methods: Comma-separated names of methods; all by default. An unknown name lists them.
        seeds: Seeds of each method, as one program; 3 by default, 1 for the quick budget.
        budget: "quick" takes minutes on two processor cores, "paper" is the full run for a GPU.
        resume: Continue: finished methods are not run again.
    """
    from trade.experiments import EXPERIMENTS
    from trade.experiments.reproduce import reproduce as run
    from trade.report.reproduction import write_reproduction

    if experiment not in EXPERIMENTS:
        raise TradeError(f"There is no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}.")
    chosen, out = EXPERIMENTS[experiment](), out or Path("runs") / experiment
    count = seeds if seeds is not None else 1 if budget == "quick" else 3
    results = run(chosen, out, names=methods, seeds=count, budget=budget, resume=resume)
    console = Console()
    console.print(
        write_reproduction(chosen.target, chosen.figures, results, out), highlight=False, soft_wrap=True, markup=False
    )
    console.print(f"{results['wall_seconds']:g} s. Results, table and figures: {out}", soft_wrap=True)


def _read_problem(file: Path) -> dict[str, Any]:
    """Run a user's problem file and keep the names that matter."""
    if not file.is_file():
        raise TradeError(f"{file} does not exist: the problem must be a Python file.")
    try:
        found = runpy.run_path(str(file))
    except TradeError as error:
        raise TradeError(f"{file}: {error}") from error
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        where = f" on line {lines[-1]}" if lines else ""
        raise TradeError(f"{file} failed{where}: {type(error).__name__}: {error}") from error
    if "target" not in found:
        raise TradeError(f"{file} must define `target` (a trade.Target); it defines no such name.")
    return {name: found[name] for name in PROBLEM_NAMES if name in found}


def main() -> None:
    """Entry point of the ``trade`` command."""
    commands = {"demo": demo, "fit": fit, "resume": resume, "sample": sample, "report": report, "reproduce": reproduce}
    try:
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="trade",
            description="One conditional normalizing flow for a whole family of densities, from data at one condition.",
        )
    except (TradeError, NonFiniteError) as error:
        Console(stderr=True).print(f"[bold red]trade:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted. trade resume DIR continues from the newest checkpoint.")
        sys.exit(130)


if __name__ == "__main__":
    main()
