"""The live progress of a run: a bar on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from trade.config import brief
from trade.objectives.term import Problem
from trade.training.state import Program

SHORT = {"forward_kl": "nll", "validation_nll": "val", "held_out_nll": "held-out nll", "ess_least": "least ess"}
HIDDEN = ("step", "lambda", "boundary_ess", "reweighted", "gradient")  # for metrics.jsonl
SHARES = ("ess", "reached")  # what is shown in per cent


class Progress:
    """Step, steps per second, time left, loss terms and ESS of a run.

    Args:
        total: Steps of the whole run.
        done: Steps already done when resuming.
        show: False keeps silent.
    """

    def __init__(self, total: int, done: int = 0, *, show: bool = True) -> None:
        self.total, self.done, self.show = total, done, show
        self.values: dict[str, str] = {}
        self.console = Console(stderr=True)
        self.live = show and self.console.is_terminal
        self.started = time.monotonic()
        self.first = done
        self.next_line = done
        self.compiled = False
        self.bar = RichProgress(
            TextColumn("[bold]{task.completed}/{task.total}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rate]:>6.1f} steps/s"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[values]}"),
            console=self.console,
            disable=not self.live,
        )
        self.task = self.bar.add_task("train", total=total, completed=done, rate=0.0, values="compiling")

    def __enter__(self) -> Self:
        self.bar.start()
        if self.show and not self.live:
            self.console.print("Compiling ...", highlight=False)
        return self

    def begun(self, step: int) -> None:
        """The first steps are done: from here on the rate counts, without compilation."""
        if self.compiled:
            return
        if self.show and not self.live:
            self.console.print(f"Compiled in {time.monotonic() - self.started:.0f} s.", highlight=False)
        self.compiled, self.first, self.started = True, step, time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def report(self, row: dict[str, Any]) -> None:
        """Remember the newest value of every metric, averaged over seeds."""
        for name, value in row.items():
            if name in HIDDEN or value is None:
                continue
            numbers = [v for v in (value if isinstance(value, list) else [value]) if v is not None]
            mean = float(np.mean(numbers)) if numbers else float("nan")
            if name == "skipped":
                if mean > 0:
                    self.values[name] = f"{mean:.0f}"
            elif name == "invalid":
                if mean > 0:
                    self.values["density not finite"] = f"{mean:.2%}"
            elif name.startswith(SHARES):
                self.values[SHORT.get(name, name)] = f"{100 * mean:.1f}%"
            else:
                self.values[SHORT.get(name, name)] = f"{mean:.4g}"

    def advance(self, step: int) -> None:
        """Show where the run is."""
        rate = (step - self.first) / max(time.monotonic() - self.started, 1e-9)
        text = "  ".join(f"{k} {v}" for k, v in self.values.items())
        self.bar.update(self.task, completed=step, total=self.total, rate=rate, values=text)
        if self.show and not self.live and (step >= self.next_line or step == self.total):
            left = (
                f"{rate:.1f} steps/s  {(self.total - step) / max(rate, 1e-9):.0f} s left  " if step > self.first else ""
            )
            self.console.print(
                f"step {step}/{self.total}  {left}{text}",
                highlight=False,
                soft_wrap=True,
            )
            self.next_line = step + max(self.total // 10, 1)


def say(*lines: str) -> None:
    """Lines for a person, on the standard error, as they are."""
    console = Console(stderr=True)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def announce(
    problem: Problem, held_out: list[int], flow: Any, program: Program, minutes: float | None, chosen: list[str]
) -> None:
    """Every choice, once: what was made by ``fit`` is marked.

    Args:
        problem: Target and data.
        held_out: How many states are held out at each boundary value; may be empty.
        flow: The flow, shown by its recipe if it has one.
        program: Objective, optimiser and the budget.
        minutes: The budget in time, if there is one.
        chosen: Names of what the user left open.
    """
    console, condition = Console(stderr=True), problem.condition
    apart = held_out or [0] * len(problem.data)
    sizes = zip(condition.boundary, problem.data, apart, strict=False)
    data = [f"{len(x):,} at {condition.show(c)}" + (f" ({h:,} held out)" if h else "") for c, x, h in sizes]
    limit = "" if minutes is None else f" or {minutes:g} minutes"
    lines = {
        "target": f"states of shape {problem.target.shape}, {condition.show_range()}",
        "data": ", ".join(data) or "none",
        "flow": brief(getattr(flow, "recipe", type(flow).__name__), ("shape", "condition", "observation_size")),
        "objective": brief(program.objective),
        "optimiser": brief(program.optimiser),
        "budget": f"{program.steps:,} steps{limit}",
    }
    for name, text in lines.items():
        mark = " [dim](chosen)[/]" if name in chosen else ""
        console.print(f"[bold]{name:>9}[/]  {escape(text)}{mark}", highlight=False, soft_wrap=True)
