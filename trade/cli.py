"""The command line: ``trade demo | fit | resume | check | sample | report | reproduce``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from trade import files
from trade.errors import NonFiniteError, TradeError

if TYPE_CHECKING:
    from trade.problem_file import ProblemFile

Directory = Annotated[Path, tyro.conf.Positional]
ProblemPath = Annotated[Path | None, tyro.conf.arg(metavar="FILE.py")]
DeviceCount = Annotated[str | None, tyro.conf.arg(metavar="INT|all")]
NOT_USABLE = 3  # exit code of a run whose verdict is so


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
    from trade.experiments.gaussian_mixture import Demo

    settings = Demo(steps=steps, baseline_steps=baseline_steps, seed=seed)
    files.check_directory(out, overwrite=overwrite)
    if files.is_run(out) and not _is_demo(out):
        raise TradeError(f"{out} does not hold a demo, so --overwrite does not touch it: give another --out.")
    with files.moved_aside(out):
        _demo(out, settings, resume=False)


def _is_demo(directory: Path) -> bool:
    from trade.saved import read_settings

    return read_settings(directory).get("notes", {}).get("command") == "demo"


def _demo(out: Path, settings: Any, *, resume: bool) -> None:
    from trade.experiments.gaussian_mixture import DEMO_PANELS, demonstrate
    from trade.experiments.results import by_method
    from trade.report.comparison import write_comparison
    from trade.report.explorer import write_report

    console = Console()
    console.print(f"Six-mode mixture, data at c = 1 only: {settings.steps} steps of TRADE, then maximum likelihood.")
    runs, results = demonstrate(settings, out, resume=resume)
    files.write_json(out / files.RESULTS, results)
    console.print("Drawing the report.")
    report = write_report(out, runs["trade-continuous"])
    write_comparison(out / files.FIGURES, runs, results, DEMO_PANELS)

    conditions, methods = by_method(results)
    ours, other = methods["trade-continuous"], methods["maximum-likelihood"]
    table = Table(title="Exact KL and ESS: data was given at c = 1 alone", title_justify="left")
    table.add_column("c", justify="right")
    for name in ("KL TRADE", "KL max. likelihood", "ESS TRADE", "ESS max. likelihood"):
        table.add_column(name, justify="right")
    for i, c in enumerate(conditions):
        kl, ess = ([m[k][i] for m in (ours, other)] for k in ("kl", "ess"))
        better = {"kl": min(kl), "ess": max(ess)}
        cells = [("kl", v, f"{v:.4f}") for v in kl] + [("ess", v, f"{100 * v:.1f} %") for v in ess]
        table.add_row(f"{c:.4g}", *(f"[bold]{text}[/]" if v == better[k] else text for k, v, text in cells))
    console.print(table)
    tell(f"{results['wall_seconds']:g} s. The whole story: {report}")


def tell(text: str) -> None:
    """A line on the standard output, as it is."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def fit(
    file: Directory,
    out: Path,
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    seed: int = 0,
    devices: DeviceCount = None,
) -> None:
    """Train on a problem of your own. Exit code 3: the run is saved, but its verdict is "not usable".

    Args:
        file: A Python file that defines `target` and `data`, and may define `flow` (a recipe, a flowjax
            distribution or a function of a key) and any of `objective`, `steps`, `minutes`, `optimiser`,
            `validation`, `held_out`, `schedule`, `seeds`, `resident` and `callback`.
        out: Directory for checkpoints, metrics and the model: a new or empty one.
        steps: The budget of training steps, in place of the file's.
        seed: Random seed.
        devices: How many devices share the work, or "all". With it, processes that SLURM, Open MPI or you started
            together are one run.
    """
    from trade.problem_file import read_problem
    from trade.saved import check_place

    used, alone = _devices(devices)
    if alone:
        check_place(out, resume=False)
    problem = read_problem(file)
    problem.remember()
    if steps is not None:
        problem.content["steps"] = steps
    _fit(problem, out, seed, used, resume=False)


def _devices(devices: str | None) -> tuple[Any, bool]:
    """What ``trade.fit`` takes, and whether this process stands alone."""
    if devices is None:
        return None, True
    if devices != "all" and not devices.isdecimal():
        raise TradeError(f'--devices takes a number or "all", got {devices!r}.')
    import jax

    from trade.devices import join

    join()
    return devices if devices == "all" else int(devices), jax.process_count() == 1


def _fit(problem: "ProblemFile", out: Path, seed: int, devices: Any, *, resume: bool) -> None:
    import jax

    import trade

    notes = {
        "command": "fit",
        "problem": str(problem.file.resolve()),
        "sha256": problem.sha256,
        "steps": problem.content.get("steps"),
    }
    run = trade.fit(**problem.content, seed=seed, out=out, resume=resume, notes=notes, devices=devices)
    if jax.process_index() > 0:  # the first one speaks
        return
    tell(f"Saved in {out}. Next: trade sample {out} --at C -n 10000 --out samples.npz, or trade report {out}")
    _conclude(run)


def _conclude(run: Any) -> None:
    """The verdict as the last lines, and as the exit code."""
    tell(str(run.verdict))
    for i, verdict in enumerate(run.verdicts[1:], 1):
        tell(f"Seed {i}: {verdict.summary}.")
    if run.verdict.level == "not usable":
        sys.exit(NOT_USABLE)


def resume(directory: Directory, problem: ProblemPath = None, devices: DeviceCount = None) -> None:
    """Continue a run that was interrupted, from its newest checkpoint.

    Args:
        directory: The run directory.
        problem: The problem file, when it is no longer where it was, or was run by somebody else.
        devices: How many devices share the work, or "all"; not necessarily as many as before.
    """
    from trade.experiments.gaussian_mixture import Demo
    from trade.problem_file import read_again, read_problem
    from trade.saved import read_settings

    used, _ = _devices(devices)
    settings = read_settings(directory)
    notes = settings.get("notes", {})
    if notes.get("command") == "demo":
        demo = Demo(steps=settings["steps"], baseline_steps=notes["baseline_steps"], seed=settings["seed"])
        _demo(directory, demo, resume=True)
        return
    if notes.get("command") != "fit":
        raise TradeError(f"{directory} was not started by trade fit or trade demo: resume it in Python instead.")
    if not (directory / files.CHECKPOINT).exists():
        raise TradeError(f"{directory} has no checkpoint yet: start it again with trade fit.")
    content = read_problem(problem) if problem else read_again(directory, Path(notes["problem"]), notes["sha256"])
    content.check_hash(directory, notes["sha256"])
    if notes["steps"]:
        content.content["steps"] = notes["steps"]
    _fit(content, directory, int(settings["seed"]), used, resume=True)


def check(directory: Directory, problem: ProblemPath = None) -> None:
    """Say how far a run can be trusted. With its target at hand it is examined anew; exit code 3: not usable.

    Args:
        directory: The run directory.
        problem: The problem file that defines the target (and the data), for a target of your own.
    """
    from trade.problem_file import load_with

    run, content = load_with(directory, problem)
    if run.target is not None:
        run = run.examined(content.content.get("data") if content else None)
    elif not run.told:
        raise TradeError(f"{directory} has no verdict, and its target is not at hand: give --problem FILE.py.")
    if run.verdict.table:
        _print_weights(run.verdict.table)
    _conclude(run)


def _print_weights(table: dict[str, list[float]]) -> None:
    from trade.evaluation.weights import Quality

    rich = Table(title="Importance weights over the range", title_justify="left")
    axes = [name for name in table if name not in Quality._fields]
    for name in (*axes, "ESS", "±", "largest weight", "Pareto k̂", "log Z", "±"):
        rich.add_column(name, justify="right")
    for *c, ess, error, largest, khat, log_z, log_z_error in zip(*table.values(), strict=True):
        numbers = (*(f"{v:.4g}" for v in c), f"{ess:.1%}", f"{error:.1%}", f"{largest:.2%}", f"{khat:.2f}")
        rich.add_row(*numbers, f"{log_z:.3f}", f"{log_z_error:.3f}")
    Console().print(rich)


def sample(
    directory: Directory,
    out: Path,
    at: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="C,C|T=C,P=C")] = (),
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 10_000,
    observation: Annotated[str | None, tyro.conf.arg(metavar="Y,Y|FILE.npy")] = None,
    resampled: bool = False,
    topology: Annotated[Path | None, tyro.conf.arg(metavar="FILE.pdb")] = None,
    seed: int = 0,
    problem: ProblemPath = None,
    overwrite: bool = False,
) -> None:
    """Draw samples from a trained model, with log densities and importance weights.

    Example: trade sample runs/mine --at 300,400,500 -n 1000 --out samples.csv

    Args:
        directory: The run directory.
        out: A file: .npz or .csv for x, log_prob and log_weight, .nc for ArviZ, or the trajectory of a molecule as
            .pdb, .dcd or .xtc. At several conditions arrays have an axis for them, and each has its trajectory.
        at: The condition to sample at, such as 300, or several, such as 300,400,500. With several axes a point, such as
            T=300,P=1; give --at again for the next.
        n: Number of samples at each condition.
        observation: The observation of a model that takes one: numbers such as 0.1,0.2, or an .npy file.
        resampled: Draw the samples by their weights: then they need none, as in a trajectory, which has none.
        topology: Names of atoms and residues for a trajectory of a molecule, such as protein.pdb.
        seed: Random seed.
        problem: The problem file that defines the target, for log_weight of a target of your own.
        overwrite: Replace files that are there.
    """
    import jax

    from trade import check as checks
    from trade import export
    from trade.fit import LARGEST_SEED
    from trade.problem_file import load_with

    if not at:
        raise TradeError("--at is missing: give a condition, such as --at 300, or several, such as --at 300,400,500.")
    points = export.read_points(at)
    files.check_output(out, overwrite=overwrite)
    export.check_format(out)
    checks.integer(seed, "--seed", 0, LARGEST_SEED)
    run, _ = load_with(directory, problem)
    condition = run.model.condition
    conditions = export.conditions_of(points, condition)
    paths = export.outputs(out, conditions, overwrite=overwrite)
    key, y = jax.random.key(seed), export.read_observation(observation, run.model.observation_shape)
    samples = export.draw_at(run.model, run.target, key, n, conditions, y)
    if samples.ess is not None:
        text = f"ESS {', '.join(f'{ess:.1%}' for ess in samples.ess)}"
    else:
        text = "no log_weight: " + (
            "the target is not at hand (give --problem FILE.py)" if run.target is None else "the target has no density"
        )
    if resampled:
        samples, text = samples.resampled(jax.random.fold_in(key, 1)), f"{text}, drawn by their weights"
    export.write(samples, paths, run.target, topology)
    tell(f"{n} samples at {condition.show_all(conditions)} in {', '.join(map(str, paths))}; {text}.")


def report(directory: Directory, problem: ProblemPath = None) -> None:
    """Write report.html: one page on which a slider moves c, with the verdict, weights, data and settings.

    Args:
        directory: The run directory.
        problem: The problem file that defines the target, for weights and data of a target of your own.
    """
    from trade.problem_file import load_with
    from trade.report.explorer import write_report

    run, content = load_with(directory, problem)
    tell(f"Wrote {write_report(directory, run, data=content.content.get('data') if content else None)}")


def reproduce(
    experiment: Annotated[str, tyro.conf.Positional] = "",
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    methods: Annotated[str | None, tyro.conf.arg(metavar="NAME,NAME")] = None,
    seeds: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    budget: Literal["quick", "paper"] = "quick",
    resume: bool = False,
    list_all: Annotated[bool, tyro.conf.arg(name="list")] = False,
) -> None:
    """Run an experiment of the paper: every method, one table beside the paper's numbers, the figures.

    Args:
        experiment: Which one of those that --list names.
        out: Directory for results.json, table.md, figures and the models; runs/EXPERIMENT by default.
        methods: Comma-separated names of methods; all by default. An unknown name lists them.
        seeds: Seeds of each method, as one program; 3 by default, 1 for the quick budget.
        budget: "quick" takes minutes on two processor cores, "paper" is the full run for a GPU.
        resume: Continue: finished methods are not run again.
        list_all: List the experiments with their methods, and do nothing else.
    """
    from trade.experiments import EXPERIMENTS
    from trade.experiments.reproduce import reproduce as run
    from trade.report.tables import write_reproduction

    if list_all:
        for name, make in EXPERIMENTS.items():
            tell(f"{name}: {', '.join(make().methods(budget))}")
        return
    if experiment not in EXPERIMENTS:
        raise TradeError(f"There is no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}.")
    chosen, out = EXPERIMENTS[experiment](), out or Path("runs") / experiment
    count = seeds if seeds is not None else 1 if budget == "quick" else 3
    results = run(chosen, out, names=methods, seeds=count, budget=budget, resume=resume)
    tell(write_reproduction(chosen.target, chosen.figures, results, out))
    tell(f"{results['wall_seconds']:g} s. Results, table and figures: {out}")


def main() -> None:
    """Entry point of the ``trade`` command."""
    if sys.argv[1:] == ["--version"]:
        from trade import __version__

        tell(f"trade {__version__}")
        return
    commands = {
        "demo": demo,
        "fit": fit,
        "resume": resume,
        "check": check,
        "sample": sample,
        "report": report,
        "reproduce": reproduce,
    }
    try:
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="trade",
            description="One conditional normalizing flow for a whole family of densities, from data at one condition.",
        )
    except (TradeError, NonFiniteError) as error:
        _complain(str(error))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        _complain(f"{named}{error.strerror or error}.")
    except MemoryError:
        _complain("There is not enough memory for this: draw fewer samples at once.")
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted. trade resume DIR continues from the newest checkpoint.")
        sys.exit(130)


def _complain(sentence: str) -> None:
    """One sentence on the standard error, as it is, and exit code 2."""
    console = Console(stderr=True)
    console.print("[bold red]trade:[/]", end=" ")
    console.print(" ".join(sentence.split()), highlight=False, soft_wrap=True, markup=False)
    sys.exit(2)


if __name__ == "__main__":
    main()
