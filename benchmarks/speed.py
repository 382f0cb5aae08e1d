"""Time training steps and sampling against flowjax, zuko and normflows, and energies: ``python -m benchmarks.speed``.

All contenders are measured in one process, in turns, so that noise hits them alike.
Compilation and warm-up are not timed.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.energies import measure_energies
from benchmarks.task import SIZES, Contender, Size, UnavailableError
from trade.experiments.results import origin

MODULES = {
    "trade": "benchmarks.peers_jax",
    "trade-default": "benchmarks.peers_jax",
    "trade-looped": "benchmarks.peers_jax",
    "flowjax": "benchmarks.peers_jax",
    "flowjax-in-trade": "benchmarks.peers_jax",
    "zuko": "benchmarks.peers_torch",
    "zuko-coupling": "benchmarks.peers_torch",
    "normflows": "benchmarks.peers_torch",
}
Peer = Literal["trade-default", "trade-looped", "flowjax", "flowjax-in-trade", "zuko", "zuko-coupling", "normflows"]
Times = dict[str, dict[str, list[float]]]
PACKAGES = ("jax", "flowjax", "torch", "zuko", "normflows", "openmm")
BUSY = 0.3  # cores in use by others above which the times are called unreliable
console = Console(width=None if sys.stdout.isatty() else 110)


@dataclass(frozen=True)
class Options:
    """Time training steps, sampling and energies, side by side.

    Args:
        sizes: Sizes of the flow.
        peers: What to compare with.
        rounds: How many times each is measured; the median counts.
        seconds: About how long one measurement lasts.
        out: The file of results. The results of other kinds of device in it are kept.
    """

    sizes: tuple[Literal["small", "large"], ...] = ("small", "large")
    peers: tuple[Peer, ...] = ("trade-default", "flowjax", "flowjax-in-trade", "zuko", "zuko-coupling", "normflows")
    rounds: int = 7
    seconds: float = 1.0
    out: Path = field(default_factory=lambda: Path("results/benchmarks.json"))


def main(options: Options) -> None:
    """Measure, print and save."""
    about = origin()
    console.print(f"{about['hardware']}, commit {about['commit']}")
    sizes = {name: measure_size(name, options) for name in options.sizes}
    for name, results in sizes.items():
        console.print(make_table(name, results["implementations"]))
    energies = measure_energies(options.rounds)
    against = f", {energies['ratio']} times OpenMM's CPU platform one by one" if "ratio" in energies else ""
    console.print(f"alanine dipeptide: {energies['per_second']:,} energies a second{against}")
    about |= {package: _version(package) for package in PACKAGES} | {"rounds": options.rounds}
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    save(options.out, kind, about | {"sizes": sizes, "energies": energies})


def measure_size(name: str, options: Options) -> dict[str, Any]:
    """All contenders at one size: times in milliseconds, and ratios to this package."""
    size = SIZES[name]
    contenders = make_contenders(size, ("trade", *options.peers))
    start, foreign = time.perf_counter(), _foreign_seconds()
    times = measure(contenders, options.rounds, options.seconds)
    busy = round((_foreign_seconds() - foreign) / (time.perf_counter() - start), 2)
    if busy > BUSY:
        console.print(f"{name}: other processes kept {busy} cores busy, so these times are not reliable.")
    results: dict[str, Any] = {}
    for contender in contenders:
        entry: dict[str, Any] = {"parameters": contender.parameters, "threads": contender.threads}
        for what in ("step", "sample"):
            rounds = times[contender.name][what]
            entry[f"{what}_ms"] = round(statistics.median(rounds), 4)
            entry[f"{what}_ms_rounds"] = [round(t, 4) for t in rounds]
            own = statistics.median(times["trade"][what])
            entry[f"{what}_ratio"] = round(statistics.median(rounds) / own, 3)
        results[contender.name] = entry
    settings = {"dimension": size.dimension, "blocks": size.blocks, "width": size.width, "depth": size.depth}
    settings |= {"bins": size.bins, "batch": size.batch}
    return settings | {"cores_busy_with_others": busy, "implementations": results}


def make_contenders(size: Size, names: tuple[str, ...]) -> list[Contender]:
    """Those that can run here, warmed up; the others are named with the reason."""
    data = np.asarray(size.target.sample(jax.random.key(3), 10_000, 1.0))
    contenders = []
    for name in names:
        try:
            contender = import_module(MODULES[name]).make(name, size, data)
        except (ImportError, OSError, UnavailableError) as error:
            console.print(f"skipped {name}: {error}", markup=False)
            continue
        start = time.perf_counter()
        for _ in range(2):
            contender.steps(2)
            contender.sample()
        console.print(f"{name}: warmed up in {time.perf_counter() - start:.1f} s")
        contenders.append(contender)
    return contenders


def measure(contenders: list[Contender], rounds: int, seconds: float) -> Times:
    """Milliseconds of a step and of a batch of samples, one value a round."""
    counts = {c.name: (_count(c.steps, seconds), _count(_repeated(c.sample), seconds / 4)) for c in contenders}
    times: Times = {c.name: {"step": [], "sample": []} for c in contenders}
    for i in range(rounds):
        # Another one begins each round: none always follows the same neighbour.
        shift = i % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            steps, samples = counts[contender.name]
            times[contender.name]["step"].append(_milliseconds(contender.steps, steps))
            times[contender.name]["sample"].append(_milliseconds(_repeated(contender.sample), samples))
    for contender in contenders:
        if not contender.healthy():
            raise RuntimeError(f"{contender.name} had a non-finite loss: its times mean nothing.")
    return times


def _repeated(call: Callable[[], None]) -> Callable[[int], None]:
    def run(n: int) -> None:
        for _ in range(n):
            call()

    return run


def _milliseconds(run: Callable[[int], None], n: int) -> float:
    start = time.perf_counter()
    run(n)
    return 1e3 * (time.perf_counter() - start) / n


def _count(run: Callable[[int], None], seconds: float) -> int:
    """How many repetitions fill the time, at least 3."""
    return min(max(3, round(1e3 * seconds / _milliseconds(run, 3))), 2000)


def make_table(name: str, results: dict[str, Any]) -> Table:
    """The results of one size; ratios above 1 mean slower than this package."""
    size = SIZES[name]
    title = f"{name}: d = {size.dimension}, {size.blocks} blocks, {size.depth} x {size.width} units"
    table = Table(title=title)
    table.add_column("implementation")
    for column in ("parameters", "ms per step", "step / ours", f"ms per {size.batch} samples", "samples / ours"):
        table.add_column(column, justify="right")
    for contender, r in results.items():
        values = (f"{r['step_ms']:.2f}", f"{r['step_ratio']:.2f}", f"{r['sample_ms']:.2f}", f"{r['sample_ratio']:.2f}")
        table.add_row(contender, f"{r['parameters']:,}", *values)
    return table


def _foreign_seconds() -> float:
    """CPU time that other processes have used so far; 0 where that cannot be read."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    # user, nice, system, idle, iowait, irq, softirq, steal: clock ticks of all cores together
    ticks = [int(v) for v in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a module on the path without metadata still has its own attribute
        module = sys.modules.get(package)
        return getattr(module, "__version__", None)


def save(out: Path, kind: str, results: dict[str, Any]) -> None:
    """Write the results of this kind of device beside those of others."""
    everything = json.loads(out.read_text()) if out.exists() else {}
    everything[kind] = results
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(everything, indent=2) + "\n")
    console.print(f"written to {out} under {kind!r}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
