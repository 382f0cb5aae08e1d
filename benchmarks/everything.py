"""Everything in ``results/`` once more: ``python -m benchmarks.everything``, or ``make results``.

Every part is a command that can be typed by itself. They run side by side, and what one has finished is not done again
by the next call, whatever ended the last. Numbers and figures of a part that has ended go to ``results/``; at the end
docs and README are written from them.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

import trade
from trade.experiments import EXPERIMENTS
from trade.experiments.results import origin
from trade.files import read_json, write_json

ROOT = Path(__file__).parent.parent
NOT_USABLE = 3  # exit code of a command whose run is saved, with a verdict that says so
console = Console(width=None if sys.stdout.isatty() else 140)


@dataclass(frozen=True)
class Options:
    """Run every experiment and benchmark that the documentation shows, and write its tables and figures anew.

    Args:
        parts: Which of them, by their names in ``results/``; all by default.
        ours: The rows of the default of ``fit`` alone: of the experiments into folders of their own.
        jobs: Commands at a time. Those that measure times run alone, after the others.
        out: Where the commands work. What they have finished there is not done again.
        results: Where tables and figures go.
    """

    parts: tuple[str, ...] = ()
    ours: bool = False
    jobs: int = 4
    out: Path = Path("runs/results")
    results: Path = ROOT / "results"


@dataclass(frozen=True)
class Part:
    """One command.

    Args:
        command: Without where its results go.
        kept: Which of its files are results.
        ours: What restricts it to the rows of the default; None for what is not run when these alone are wanted.
        processor: Whether it is one for a processor, on any machine.
        alone: Whether it measures times, and nothing may run beside it.
    """

    command: tuple[str, ...]
    kept: tuple[str, ...] = ("results.json", "table.md", "*.png", "figures/*.png")
    ours: tuple[str, ...] | None = None
    processor: bool = False
    alone: bool = False

    @property
    def is_file(self) -> bool:
        """Whether its results are one file and no folder."""
        return not self.kept


def experiment(name: str, seeds: int = 3) -> Part:
    """Every row of an experiment, by the paper's budget; the default's are those that name no objective."""
    ours = [n for n, method in EXPERIMENTS[name]().methods("paper").items() if method.objective is None]
    command = ("trade", "reproduce", name, "--budget", "paper", "--seeds", str(seeds), "--resume")
    return Part(command, ours=("--methods", ",".join(ours)))


def benchmark(name: str, *options: str, **about: Any) -> Part:
    """A module of this folder."""
    return Part(("python", "-m", f"benchmarks.{name}", *options), **about)


EACH: dict[str, Any] = {"kept": ("*.json", "*.png"), "ours": ()}  # a file for each problem
BASELINES = ("paper", "likelihood-reverse-kl")
WITHOUT = ("frontier", "forward-kl", "reverse-kl", "wider-states", "step-back")  # parts of the default

# The longest first.
PARTS = {
    "alanine_dipeptide": experiment("alanine-dipeptide"),
    "scalar_field": experiment("scalar-field", seeds=7),
    "scalar_field_16": experiment("scalar-field-16"),
    "zoo": benchmark(
        "zoo", "--methods", "default", *BASELINES, "--jobs", "20", kept=("results.json",), ours=("--methods", "default")
    ),
    "lattices": benchmark("lattices", **EACH),
    "several_axes": benchmark("several_axes", **EACH),
    "gaussian_mixture": experiment("gaussian-mixture"),
    "multiwell": experiment("multiwell"),
    "two_moons": experiment("two-moons"),
    "two_moons_uniform": experiment("two-moons-uniform"),
    "multiwell_ablation": Part((*experiment("multiwell-ablation").command,)),
    "gaussian_mixture_ablation": Part((*experiment("gaussian-mixture-ablation").command,)),
    "zoo_quick": benchmark(
        *("zoo", "--problems", "quick", "--steps", "2000", "--jobs", "2", "--methods", "default", "squared-residual"),
        *(*(f"without-{name}" for name in WITHOUT), *BASELINES),
        kept=("results.json",),
        processor=True,
    ),
    "without_data": benchmark("without_data", processor=True, **EACH),
    "o_rings": Part(("python", "examples/o_rings.py"), ours=(), processor=True),
    "devices.json": benchmark("devices", kept=(), processor=True),
    "demo": Part(("trade", "demo", "--overwrite"), ours=(), processor=True, alone=True),
    "benchmarks.json": benchmark("speed", kept=(), alone=True),
    "growth.json": benchmark("growth", kept=(), alone=True),
}


def main(options: Options) -> None:
    """Run what is missing, then write the pages; exit code 1 if a command failed."""
    failed = reproduce(options)
    subprocess.run([sys.executable, ROOT / "tools" / "results_page.py"], check=True)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}; see {options.out}/*.log. What they have finished is kept.")


def reproduce(options: Options) -> list[str]:
    """Run what is missing, and note how long everything took; returns the parts that failed."""
    for name in options.parts:
        if name not in PARTS:
            raise trade.TradeError(f"There is no part {name!r}; there are {', '.join(PARTS)}.")
    chosen = {n: PARTS[n] for n in PARTS if n in (options.parts or PARTS)}
    if options.ours:
        chosen = {n: part for n, part in chosen.items() if part.ours is not None}
    began = time.monotonic()
    beside = [n for n, part in chosen.items() if not part.alone]
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [n for n, good in zip(beside, pool.map(lambda n: run(n, options), beside), strict=True) if not good]
    failed += [n for n, part in chosen.items() if part.alone and not run(n, options)]
    seconds = {n: read_json(_clock(n, options))["seconds"] for n in chosen if _clock(n, options).exists()}
    about = origin() | {"wall_seconds": round(time.monotonic() - began, 1), "seconds": seconds}
    if not options.parts and not failed:
        write_json(options.results / f"reproduction{'_ours' if options.ours else ''}.json", about)
    return failed


def run(name: str, options: Options) -> bool:
    """Run one part to its end, unless that was done before, and copy its results; whether it went well."""
    part, place, clock = PARTS[name], _place(name, options), _clock(name, options)
    before = read_json(clock) if clock.exists() else {"seconds": 0.0, "finished": False}
    if not before["finished"]:
        command = [*part.command, *(part.ours or () if options.ours else ()), "--out", str(place)]
        console.print(f"{name}: {' '.join(command)}", highlight=False)
        place.parent.mkdir(parents=True, exist_ok=True)
        if part.is_file and not place.exists() and (options.results / name).exists():
            shutil.copyfile(options.results / name, place)  # what it holds of other kinds of device is kept
        began = time.monotonic()
        with (options.out / f"{name}.log").open("a") as log:
            done = subprocess.run(_runnable(command), check=False, stdout=log, stderr=log, env=_environment(part))
        seconds = round(before["seconds"] + time.monotonic() - began, 1)
        finished = done.returncode in (0, NOT_USABLE)
        write_json(clock, {"seconds": seconds, "finished": finished})
        console.print(f"{name}: {'done' if finished else 'failed'} after {seconds} s", highlight=False)
        if not finished:
            return False
    to, default = options.results / name, options.results / f"{name}_default"
    if default.is_dir():
        shutil.rmtree(default)  # of an earlier run: now there is a newer one here or there
    copy(part, place, default if options.ours and name.replace("_", "-") in EXPERIMENTS else to)
    return True


def copy(part: Part, place: Path, to: Path) -> None:
    """The results of a part in the place of older ones."""
    if part.is_file:
        shutil.copyfile(place, to)
        return
    if to.is_dir():
        shutil.rmtree(to)
    for file in _kept(part, place):
        wanted = to / file.relative_to(place)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, wanted)


def _kept(part: Part, place: Path) -> Iterator[Path]:
    for pattern in part.kept:
        yield from sorted(place.glob(pattern))


def _place(name: str, options: Options) -> Path:
    return options.out / ("ours" if options.ours else "all") / name


def _clock(name: str, options: Options) -> Path:
    place = _place(name, options)
    return place.with_name(f"{name}.clock")


def _runnable(command: list[str]) -> list[str]:
    """As this program runs: by the same Python."""
    start = ["-m", "trade"] if command[0] == "trade" else []
    return [sys.executable, *start, *command[1:]]


def _environment(part: Part) -> dict[str, str]:
    """With the processor alone, where that is what is shown; programs share the memory of a card."""
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return {**os.environ, **shared, **({"JAX_PLATFORMS": "cpu"} if part.processor else {})}


if __name__ == "__main__":
    main(tyro.cli(Options))
