"""What the families with several axes share: options, and a run of the default."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trade


@dataclass(frozen=True)
class Options:
    """Train each family with nothing chosen, and compare.

    Args:
        problems: Which of them; all by default.
        steps: The budget; that of ``fit`` by default.
        seed: Random seed.
        out: Directory of the results. What is there is not run again.
    """

    problems: tuple[str, ...] = ()
    steps: int | None = None
    seed: int = 0
    out: Path = Path("runs/several_axes")


def trained(target: Any, data: Any, options: Options) -> tuple[trade.Run, dict[str, Any]]:
    """A run of the default, and how long it took."""
    began = time.monotonic()
    budget = {} if options.steps is None else {"steps": options.steps}
    run = trade.fit(target, data, seed=options.seed, **budget)
    about = {"seconds": round(time.monotonic() - began, 1), "steps": run.metrics[-1]["step"]}
    return run, about | {"verdict": run.verdict.summary, "reasons": list(run.verdict.reasons)}
