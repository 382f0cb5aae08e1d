"""What benchmarks with a file for each problem share: options, a run of the default, and running what is missing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trade
from trade import files
from trade.experiments.results import origin
from trade.files import plain, read_json, write_json


@dataclass(frozen=True)
class Options:
    """Train each problem with nothing chosen, and compare with what is exact or simulated.

    Args:
        problems: Which of them; all by default.
        steps: The budget; that of ``fit`` by default.
        seed: Random seed.
        samples: Samples of an evaluation.
        out: Directory of the results. What is there is not run again.
    """

    problems: tuple[str, ...] = ()
    steps: int | None = None
    seed: int = 0
    samples: int = 50_000
    out: Path = Path("runs/one_by_one")


Problems = dict[str, Callable[[Options], dict[str, Any]]]
LONG = ("curves", "checks", "conditions", "sensitivity", "kl")  # not printed


def trained(name: str, target: Any, data: Any, options: Options) -> tuple[trade.Run, dict[str, Any]]:
    """A run of the default, and how long it took; one that was stopped goes on from its last checkpoint."""
    place = options.out / "trained" / name
    clock = place.with_suffix(".clock")
    before = read_json(clock)["seconds"] if clock.exists() else 0.0
    began = time.monotonic()
    budget = {} if options.steps is None else {"steps": options.steps}
    run = trade.fit(target, data, seed=options.seed, out=place, resume=files.is_run(place), **budget)
    seconds = round(before + time.monotonic() - began, 1)
    write_json(clock, {"seconds": seconds})
    about = {"seconds": seconds, "steps": run.metrics[-1]["step"]}
    return run, about | {"verdict": run.verdict.summary, "reasons": list(run.verdict.reasons)}


def run_missing(problems: Problems, options: Options) -> None:
    """Run what is missing; every result with its own commit and hardware."""
    for name in options.problems or problems:
        if name not in problems:
            raise trade.TradeError(f"There is no problem {name!r}; there are {', '.join(problems)}.")
        file = options.out / f"{name}.json"
        if file.exists():
            continue
        about = origin()
        found = about | plain(problems[name](options))
        write_json(file, found)
        print(name, {k: v for k, v in found.items() if k not in (*about, *LONG)}, flush=True)
