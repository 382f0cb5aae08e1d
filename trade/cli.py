"""The command line: ``trade demo | fit | resume | check | sample | report | reproduce``."""

import difflib
import hashlib
import io
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from rich.console import Console
from rich.table import Table

from trade import files
from trade.errors import NonFiniteError, TradeError

Directory = Annotated[Path, tyro.conf.Positional]
ProblemFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE.py")]
_OPTIONS = ("flow", "objective", "steps", "minutes", "optimiser", "validation", "held_out", "schedule", "seeds")
PROBLEM_NAMES = ("target", "data", *_OPTIONS)
NOT_USABLE = 3  # exit code of a run whose verdict is so
_NEARLY = 0.85  # how alike two names are of which one is a slip


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
    from trade.experiments.gaussian_mixture import demonstrate
    from trade.report.run import by_method, write_report

    console = Console()
    console.print(f"Six-mode mixture, data at c = 1 only: {settings.steps} steps of TRADE, then maximum likelihood.")
    *_, results = demonstrate(settings, out, resume=resume)
    files.write_json(out / files.RESULTS, results)
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
    tell(f"{results['wall_seconds']:g} s. The whole story: {report}")


def tell(text: str) -> None:
    """A line on the standard output, as it is."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def fit(
    file: Directory, out: Path, steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None, seed: int = 0
) -> None:
    """Train on a problem of your own. Exit code 3: the run is saved, but its verdict is "not usable".

    Args:
        file: A Python file that defines `target` and `data`, and may define `flow` (a recipe, a flowjax
            distribution or a function of a key) and any of `objective`, `steps`, `minutes`, `optimiser`,
            `validation`, `held_out`, `schedule` and `seeds`.
        out: Directory for checkpoints, metrics and the model: a new or empty one.
        steps: The budget of training steps, in place of the file's.
        seed: Random seed.
    """
    from trade.saved import check_place

    check_place(out, resume=False)
    problem = _read_problem(file)
    problem.remember()
    if steps is not None:
        problem.content["steps"] = steps
    _fit(problem, out, seed, resume=False)


def _fit(problem: "Problem", out: Path, seed: int, *, resume: bool) -> None:
    import trade

    notes = {
        "command": "fit",
        "problem": str(problem.file.resolve()),
        "sha256": problem.sha256,
        "steps": problem.content.get("steps"),
    }
    run = trade.fit(**problem.content, seed=seed, out=out, resume=resume, notes=notes)
    tell(f"Saved in {out}. Next: trade sample {out} --at C -n 10000 --out samples.npz, or trade report {out}")
    _conclude(run)


def _conclude(run: Any) -> None:
    """The verdict as the last lines, and as the exit code."""
    tell(str(run.verdict))
    for i, verdict in enumerate(run.verdicts[1:], 1):
        tell(f"Seed {i}: {verdict.summary}.")
    if run.verdict.level == "not usable":
        sys.exit(NOT_USABLE)


def resume(directory: Directory, problem: ProblemFile = None) -> None:
    """Continue a run that was interrupted, from its newest checkpoint.

    Args:
        directory: The run directory.
        problem: The problem file, when it is no longer where it was, or was run by somebody else.
    """
    from trade.experiments.gaussian_mixture import Demo
    from trade.saved import read_settings

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
    content = _read_problem(problem) if problem else _read_again(directory, Path(notes["problem"]), notes["sha256"])
    content.check_hash(directory, notes["sha256"])
    if notes["steps"]:
        content.content["steps"] = notes["steps"]
    _fit(content, directory, int(settings["seed"]), resume=True)


def check(directory: Directory, problem: ProblemFile = None) -> None:
    """Say how far a run can be trusted. With its target at hand it is examined anew; exit code 3: not usable.

    Args:
        directory: The run directory.
        problem: The problem file that defines the target (and the data), for a target of your own.
    """
    run, content = _load(directory, problem)
    if run.target is not None:
        run = run.examined(content.content.get("data") if content else None)
    elif not run.told:
        raise TradeError(f"{directory} has no verdict, and its target is not at hand: give --problem FILE.py.")
    if run.verdict.table:
        _print_weights(run.verdict.table)
    _conclude(run)


def _print_weights(table: dict[str, list[float]]) -> None:
    rich = Table(title="Importance weights over the range", title_justify="left")
    for name in ("c", "ESS", "±", "largest weight", "Pareto k̂", "log Z", "±"):
        rich.add_column(name, justify="right")
    for c, ess, error, largest, khat, log_z, log_z_error in zip(*table.values(), strict=True):
        numbers = (f"{c:.4g}", f"{ess:.1%}", f"{error:.1%}", f"{largest:.2%}", f"{khat:.2f}")
        rich.add_row(*numbers, f"{log_z:.3f}", f"{log_z_error:.3f}")
    Console().print(rich)


def sample(
    directory: Directory,
    at: float,
    out: Path,
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 10_000,
    seed: int = 0,
    problem: ProblemFile = None,
    overwrite: bool = False,
) -> None:
    """Draw samples from a trained model, with log densities and importance weights.

    Args:
        directory: The run directory.
        at: The condition to sample at.
        out: An .npz file for x, log_prob and, when the target is at hand, log_weight.
        n: Number of samples.
        seed: Random seed.
        problem: The problem file that defines the target, for log_weight of a target of your own.
        overwrite: Replace a file that is there.
    """
    import jax
    import numpy as np

    from trade import check as checks
    from trade.fit import LARGEST_SEED

    files.check_output(out, overwrite=overwrite)
    if out.suffix != ".npz":
        raise TradeError(f"--out must be an .npz file, got {out}.")
    checks.integer(seed, "--seed", 0, LARGEST_SEED)
    run, _ = _load(directory, problem)
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
    files.write_bytes(out, buffer.getvalue())
    tell(f"{n} samples at c = {at:g} in {out}; {text}.")


def report(directory: Directory, problem: ProblemFile = None) -> None:
    """Draw the figures of a run and write its report.html.

    Args:
        directory: The run directory.
        problem: The problem file that defines the target, for ESS and log Z of a target of your own.
    """
    from trade.report.run import write_report

    run, _ = _load(directory, problem)
    tell(f"Wrote {write_report(directory, run)}")


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
    from trade.report.reproduction import write_reproduction

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


class Problem(NamedTuple):
    """A user's problem file, as it was run.

    Args:
        file: Where it is.
        sha256: Checksum of what was run.
        content: The names in it that matter.
    """

    file: Path
    sha256: str
    content: dict[str, Any]

    def check_hash(self, directory: Path, recorded: str | None) -> None:
        """Refuse another file than the one a run was started with."""
        if recorded is not None and self.sha256 != recorded:
            raise TradeError(f"{self.file} is not the file that {directory} was started with: its content has changed.")

    def remember(self) -> None:
        """Note that this user has run this file from this place, so that ``trade resume`` may do so unasked."""
        mark = _mark(self.file, self.sha256)
        if not mark.exists():
            try:
                files.write_bytes(mark, b"")
            except TradeError:  # a home that cannot be written: resume will ask for --problem
                return


def _mark(file: Path, sha256: str) -> Path:
    from trade.training.compilation import cache_directory

    name = hashlib.sha256(f"{file.resolve()}\0{sha256}".encode()).hexdigest()
    return cache_directory() / "problems" / name


def _read_again(directory: Path, file: Path, sha256: str) -> Problem:
    """The problem file that a run directory names: run only if it is what this user ran before, and not of the run."""
    if directory.resolve() in file.resolve().parents:
        raise TradeError(f"{file} lies inside the run directory, and is not run unasked: give --problem {file}.")
    content = _problem_bytes(file)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise TradeError(f"{file} is not the file that {directory} was started with: its content has changed.")
    if not _mark(file, sha256).exists():
        raise TradeError(f"{directory} names {file}, which you have not run from there: give --problem {file}.")
    return _run_problem(file, content)


def _problem_bytes(file: Path) -> bytes:
    with files.in_words("cannot be read", file):
        if not file.is_file():
            raise TradeError(f"{file} does not exist: the problem must be a Python file.")
    return files.read_bytes(file)


def _read_problem(file: Path) -> Problem:
    return _run_problem(file, _problem_bytes(file))


def _run_problem(file: Path, content: bytes) -> Problem:
    """Run a user's problem file, as it was read and hashed, and keep the names that matter."""
    names: dict[str, Any] = {"__name__": "__problem__", "__file__": str(file)}
    try:
        exec(compile(content, str(file), "exec"), names)
    except TradeError as error:
        raise TradeError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = lines[-1] if lines else error.lineno if isinstance(error, SyntaxError) else None
        where = "" if line is None else f" on line {line}"
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise TradeError(f"{file} failed{where}: {what}") from error
    for name, value in names.items():
        if name.startswith("_") or name in PROBLEM_NAMES or isinstance(value, ModuleType):
            continue
        meant = [n for n in difflib.get_close_matches(name, PROBLEM_NAMES, 1, _NEARLY) if n not in names]
        if meant:
            raise TradeError(f"{file} defines `{name}`, which is nearly `{meant[0]}`: call it that, or otherwise.")
    if "target" not in names:
        raise TradeError(f"{file} must define `target` (a trade.Target); it defines no such name.")
    found = {name: names[name] for name in PROBLEM_NAMES if name in names}
    return Problem(file, hashlib.sha256(content).hexdigest(), found)


def _load(directory: Path, problem: Path | None) -> tuple[Any, Problem | None]:
    """A saved run, with the target and the flow of a problem file, if it is the one the run was started with."""
    import trade
    from trade.saved import read_settings

    recorded = read_settings(directory).get("notes", {}).get("sha256")
    content = _read_problem(problem) if problem else None
    if content is None:
        return trade.load(directory), None
    content.check_hash(directory, recorded)
    return trade.load(directory, target=content.content["target"], flow=content.content.get("flow")), content


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
