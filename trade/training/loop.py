"""The one training loop: compiled chunks, and between them progress, evaluation and checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import NonFiniteError
from trade.objectives.term import Problem
from trade.training.checkpoint import Checkpoints
from trade.training.metrics import MetricsLog
from trade.training.progress import Progress
from trade.training.state import Learner, Means, Program, no_means, run_chunk

Evaluate = Callable[[Any, Array], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Schedule:
    """How often the loop comes up for air.

    Args:
        report: Steps between two lines of metrics.
        evaluate: Steps between two evaluations (ESS, validation NLL).
        checkpoint: Steps between two checkpoints, when there is a run directory.
        patience: Non-finite steps in a row after which the run stops.
    """

    report: int = 100
    evaluate: int = 1000
    checkpoint: int = 1000
    patience: int = 50

    def next_stop(self, step: int, total: int) -> int:
        """The next step at which something is due."""
        periods = (self.report, self.evaluate, self.checkpoint)
        return min([total, *[(step // p + 1) * p for p in periods]])


class Trained(eqx.Module):
    """What a checkpoint holds: learners, the best flow of each seed so far, and losses not yet reported."""

    learners: Learner
    best: Any
    best_score: Array
    means: Means


def at_start(learners: Learner, seeds: int | None) -> Trained:
    """Before the first step."""
    return Trained(learners, learners.flow, jnp.full(seeds or 1, jnp.inf), no_means(learners.guard.losses))


def train(
    program: Program,
    start: Trained,
    problem: Problem,
    schedule: Schedule,
    *,
    seeds: int | None,
    evaluate: Evaluate,
    directory: Path | None,
    resume: bool,
    progress: bool,
    key: Array,
) -> tuple[Trained, MetricsLog]:
    """Train to the last step, from the start or from the newest checkpoint.

    Args:
        program: What is compiled.
        start: The state before the first step (its structure, when resuming).
        problem: Target and data.
        schedule: How often to report, evaluate and checkpoint.
        seeds: Number of seeds trained as one ``vmap``, or None for a plain run.
        evaluate: Maps (flows, key) to named values, one entry a seed; ``validation_nll``
            among them selects the best model.
        directory: Where checkpoints and ``metrics.jsonl`` go.
        resume: Continue from the newest checkpoint in ``directory``.
        progress: Show a progress bar.
        key: Randomness of the evaluations.
    """
    checkpoints = None if directory is None else Checkpoints(directory)
    step, trained = 0, start
    if resume and checkpoints is not None:
        step, trained = checkpoints.load(start)
    log = MetricsLog(None if directory is None else directory / "metrics.jsonl", resume_at=step if resume else None)
    learners, best, best_score = trained.learners, trained.best, np.asarray(trained.best_score)
    means = trained.means

    def state() -> Trained:
        return Trained(learners, best, jnp.asarray(best_score), means)

    with Progress(program.steps, step, show=progress) as bar:
        while step < program.steps:
            stop = schedule.next_stop(step, program.steps)
            learners, chunk = run_chunk(
                program, learners, problem, jnp.asarray(step), jnp.asarray(stop), many=seeds is not None
            )
            means = jax.tree.map(jnp.add, means, chunk)
            step = stop
            last = step == program.steps

            if np.min(np.atleast_1d(learners.guard.consecutive)) >= schedule.patience:
                if checkpoints is not None:
                    checkpoints.save(step, state())
                raise NonFiniteError(explain(learners, step, program))
            if step % schedule.report == 0 or last:
                row: dict[str, Any] = {"step": step}
                row |= {k: np.atleast_1d(v / jnp.maximum(means.count, 1)).tolist() for k, v in means.sums.items()}
                row["skipped"] = np.atleast_1d(learners.guard.skipped).tolist()
                means = jax.tree.map(jnp.zeros_like, means)
                log.append(row)
                bar.report(row)
            if step % schedule.evaluate == 0 or last:
                values = evaluate(learners.flow, jax.random.fold_in(key, step))
                if "validation_nll" in values:
                    better = values["validation_nll"] < best_score
                    best = _choose(better, learners.flow, best, many=seeds is not None)
                    best_score = np.where(better, values["validation_nll"], best_score)
                row = {"step": step, **{k: np.asarray(v).tolist() for k, v in values.items()}}
                log.append(row)
                bar.report(row)
            if checkpoints is not None and (step % schedule.checkpoint == 0 or last):
                checkpoints.save(step, state())
            bar.advance(step)
    return state(), log


def _choose(better: np.ndarray, new: Any, old: Any, *, many: bool) -> Any:
    """Seed by seed, the new flow where it is better and the old one elsewhere."""

    def pick(n: Any, o: Any) -> Any:
        if not eqx.is_array(n):
            return n
        mask = jnp.asarray(better).reshape(-1, *[1] * (n.ndim - 1)) if many else jnp.asarray(better[0])
        return jnp.where(mask, n, o)

    return jax.tree.map(pick, new, old)


def explain(learners: Learner, step: int, program: Program) -> str:
    """One sentence on why a run stopped: which term, at which c, for how long."""
    guard = jax.tree.map(lambda a: np.atleast_1d(np.asarray(a))[0], learners.guard)
    found = []
    for name, value in guard.losses.items():
        if not np.isfinite(value):
            c = guard.suspects.get(name, np.nan)
            found.append(f"the {name} term was {value}" + (f" at c = {c:g}" if np.isfinite(c) else ""))
    what = " and ".join(found) or "the losses were finite but their gradient was not"
    return (
        f"Training stopped at step {step} of {program.steps} after {int(guard.consecutive)} non-finite steps"
        f" in a row: {what}. The state before them is kept; try a smaller learning rate, a Huber norm,"
        " or a wider spline interval."
    )
