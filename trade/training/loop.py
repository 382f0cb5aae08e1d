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

from trade import check, files
from trade.abstract_condition import AbstractCondition
from trade.devices import ONE, Devices
from trade.errors import NonFiniteError
from trade.training.checkpoint import Checkpoints
from trade.training.log import Callback, MetricsLog
from trade.training.optimiser import Given
from trade.training.progress import Progress
from trade.training.state import Learner, Means, Program, no_means, run_chunk
from trade.training.watch import Judged, Stopwatch, Watch, Watched, choose
from trade.training.windows import Windows

Evaluate = Callable[[Any, Array], Judged]


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

    def __post_init__(self) -> None:
        check.integers(self, report=1, evaluate=1, checkpoint=1, patience=1)

    @classmethod
    def of(cls, steps: int) -> "Schedule":
        """For a budget of ``steps``: a hundred reports, fifty evaluations, ten checkpoints.

        Args:
            steps: The budget.

        Returns:
            The schedule.
        """
        return cls(max(steps // 100, 1), max(steps // 50, 1), max(steps // 10, 1))

    def next_stop(self, step: int, total: int) -> int:
        """The next step at which something is due.

        Args:
            step: The current step.
            total: The last step.

        Returns:
            The step; the last one at the latest.
        """
        periods = (self.report, self.evaluate, self.checkpoint)
        return min([total, *[(step // p + 1) * p for p in periods]])


class Trained(eqx.Module):
    """What a checkpoint holds: learners, what was decided so far, and losses not yet reported."""

    learners: Learner
    watched: Watched
    means: Means


def train(
    program: Program,
    learners: Learner,
    windows: Windows,
    schedule: Schedule,
    watch: Watch,
    *,
    seeds: int | None,
    evaluate: Evaluate,
    directory: Path | None,
    resume: bool,
    progress: bool,
    key: Array,
    run: str = "",
    callback: Callback | None = None,
    devices: Devices = ONE,
) -> tuple[Trained, MetricsLog]:
    """Train until nothing more is gained or the budget is spent, from the start or from the newest checkpoint.

    Args:
        program: Objective, optimiser and the budget.
        learners: The state before the first step; with several seeds, stacked along a first axis.
        windows: Target and data; another window of them, if they do not fit, after every report.
        schedule: How often to report, evaluate and save.
        watch: How the best state is chosen, the boundary kept, and the end decided.
        seeds: Number of seeds, or None for one without a seed axis.
        evaluate: Maps (flows, key) to what is judged, one entry per seed.
        directory: Where checkpoints and ``metrics.jsonl`` go.
        resume: Continue from the newest checkpoint in ``directory``.
        progress: Show a progress bar.
        key: Randomness of the evaluations.
        run: Checksum of the settings; a checkpoint of other ones is refused.
        callback: Told of every row of metrics.
        devices: What it runs on. Only the first of several processes has a directory.
    """
    many, checkpoints = seeds is not None, None if directory is None else Checkpoints(directory, run)
    fresh = learners.optimiser
    watched = watch.begin(learners.flow, seeds or 1, program.steps, evaluate(learners.flow, key))
    state = Trained(learners, watched, no_means(learners.guard.losses))
    step = 0
    if resume:
        begin = step, state  # what the other processes have, until they hear of it
        step, state = devices.once(lambda: checkpoints.load(state) if checkpoints else begin, begin)
        at, state = devices.agreed((jnp.asarray(step), state))
        step = int(at)
    path = None if directory is None else directory / files.METRICS
    log = MetricsLog(path, resume_at=step if resume else None, callback=callback)
    log.rows = devices.heard(log.rows)
    timer = Stopwatch()

    with Progress(program.steps, step, show=progress) as bar:
        while step < (end := int(state.watched.cooling.end)):
            stop = schedule.next_stop(step, end)
            bounds, cooling = (jnp.asarray(step), jnp.asarray(stop)), state.watched.cooling
            problem = windows.at(step // schedule.report)
            learners, chunk = devices.run(run_chunk, program, state.learners, problem, *bounds, cooling, many=many)
            state = Trained(learners, state.watched, jax.tree.map(jnp.add, state.means, chunk))
            step = stop
            if timer.compiling:
                jax.block_until_ready(learners)
                timer.restart(step)
                bar.begun(step)
            last = step == end

            if np.min(np.atleast_1d(learners.guard.consecutive)) >= schedule.patience:
                if checkpoints is not None:
                    checkpoints.save(step, state)
                raise NonFiniteError(explain(learners, step, program, problem.condition, many=many))
            if step % schedule.report == 0 or last:
                row = {"step": step} | _losses(state)
                state = eqx.tree_at(lambda s: s.means, state, jax.tree.map(jnp.zeros_like, state.means))
                log.append(row)
                bar.report(row)
            if step % schedule.evaluate == 0 or last:
                judged = evaluate(learners.flow, jax.random.fold_in(key, step))
                state, lost = _decide(program, watch, state, fresh, judged, log, timer, step, many=many)
                # The first process decides: it has the log of a run that is resumed, and its own clock.
                state = devices.agreed(state)
                row = {"step": step, **{k: np.asarray(v).tolist() for k, v in judged.values.items()}}
                log.append(row | ({"lost": lost.tolist()} if lost.any() else {}))
                bar.report(row)
                bar.total = int(state.watched.cooling.end)
            if checkpoints is not None and (step % schedule.checkpoint == 0 or last):
                checkpoints.save(step, state)
            bar.advance(step)
    return state, log


def _losses(state: Trained) -> dict[str, Any]:
    """Means since the last report, and steps that were skipped, one entry per seed."""
    count = jnp.maximum(state.means.count, 1)
    row = {k: np.atleast_1d(v / count).tolist() for k, v in state.means.sums.items()}
    return row | {"skipped": np.atleast_1d(state.learners.guard.skipped).tolist()}


def _decide(
    program: Program,
    watch: Watch,
    state: Trained,
    fresh: Any,
    judged: Judged,
    log: MetricsLog,
    timer: Stopwatch,
    step: int,
    *,
    many: bool,
) -> tuple[Trained, np.ndarray]:
    """What an evaluation changes: best state, trust, end; and which seeds are losing their boundary.

    A seed that has lost it beyond repair to a propagation goes on from its best flow, with a fresh optimiser.
    """
    begun, reached = min(log.newest("lambda", [1.0])) > 0.0, min(log.newest("reached", [1.0]))
    flows, trust = state.learners.flow, state.learners.trust
    watched, lost = watch.compare(state.watched, flows, judged, step, begun=begun, reached=reached, many=many)
    memorises = watch.memorises(judged) & begun & judged.weighted
    early, far = program.optimiser.may_end_early, reached if begun else 0.0
    cooling = watch.ends(watched, step, program.steps, far, timer, may_end_early=early)
    watched = eqx.tree_at(lambda w: w.cooling, watched, cooling)
    propagates = min(log.newest("lambda", [0.0])) > 0.0
    ruined = watch.ruined(state.watched, judged, lost) & propagates
    now = state.learners.optimiser
    back = watched.best, now if isinstance(program.optimiser, Given) else fresh  # a schedule of Optax's own goes on
    kept = choose(ruined, back, (flows, now), many=many)
    parts = (*kept, watch.trusted(trust, lost, memorises))
    learners = eqx.tree_at(lambda v: (v.flow, v.optimiser, v.trust), state.learners, parts)
    return Trained(learners, watched, state.means), lost


def explain(learners: Learner, step: int, program: Program, condition: AbstractCondition, *, many: bool) -> str:
    """One sentence on why a run stopped: which term, at which c, for how long."""
    guard = jax.tree.map(lambda a: np.asarray(a)[0] if many else np.asarray(a), learners.guard)
    found = []
    for name, value in guard.losses.items():
        if not np.isfinite(value):
            c = guard.suspects.get(name, np.nan)
            found.append(f"the {name} term was {value}" + (f" at {condition.show(c)}" if np.isfinite(c).all() else ""))
    what = " and ".join(found) or "the losses were finite but their gradient was not"
    return (
        f"Training stopped at step {step} of {program.steps} after {int(guard.consecutive)} non-finite steps"
        f" in a row: {what}. The state before them is kept; try a smaller learning rate, a Huber norm,"
        " or a wider spline interval."
    )
