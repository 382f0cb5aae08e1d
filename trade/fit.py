"""``fit``: from a target and data to a trained, diagnosed run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check, files, saved
from trade.abstract_condition import ConditionLike
from trade.abstract_target import AbstractTarget
from trade.data import Data, check_data, examine, hold_out, make_problem, sampled
from trade.devices import Devices
from trade.errors import NonFiniteError, TradeError
from trade.evaluation.monitor import Monitor
from trade.evaluation.verdict import Witness
from trade.flows.default import default_flow
from trade.flows.flow import Recipe
from trade.flows.standardise import adapt_to_data
from trade.model import Model, check_flow
from trade.objectives.default import default_objective
from trade.objectives.term import Objective, Problem
from trade.objectives.trade import Trade
from trade.run import Run, built, skipped
from trade.training.compilation import keep_compiled
from trade.training.loop import Schedule, train
from trade.training.optimiser import Adam, Given
from trade.training.progress import announce, say
from trade.training.state import Learner, Program, all_finite, begin
from trade.training.watch import Watch
from trade.training.windows import Windows, resident_states

LARGEST_SEED = 2**32 - 1  # a larger one would wrap to another


def fit(
    target: AbstractTarget,
    data: Data | None = None,
    *,
    flow: AbstractDistribution | Recipe | Callable[[Array], AbstractDistribution] | None = None,
    objective: Objective | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    optimiser: Adam | optax.GradientTransformation | None = None,
    validation: Data | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    seeds: int | None = None,
    schedule: Schedule | None = None,
    watch: Watch | None = None,
    evaluate_at: ConditionLike | Sequence[ConditionLike] | None = None,
    evaluation_samples: int = 2_000,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    notes: Mapping[str, Any] | None = None,
    callback: Callable[[dict[str, Any]], object] | None = None,
    devices: Literal["all"] | int | Sequence[Any] | None = None,
    resident: int | None = None,
) -> Run:
    """Train a conditional flow on data at the boundary and on the known dependence on c.

    Target and data are enough: everything else is chosen from them, printed, saved with the run, and yours to override.

    Args:
        target: The family of densities.
        data: States by boundary condition, ``{c0: samples}``, where c0 is a tuple if the condition has several axes;
            with an observation, ``{c0: (samples, observations)}``. Without any, a target with an exact sampler is
            sampled at its boundary.
        flow: A recipe such as ``SplineFlow(...)``, a flowjax distribution conditioned on (u(c), observation...), or a
            function from a random key to one (then every seed starts from its own).
        objective: What to minimise; ``Trade()`` by default, energy-free where the target has no density.
        steps: The budget, 8,000 by default and 5,000 on a CPU: training ends earlier when the whole range is reached
            and nothing more is gained.
        minutes: The budget in time, without compilation; None sets no limit.
        optimiser: Learning rate, clipping, weight decay; or a transformation of Optax, with its own rate and schedule.
        validation: Exact samples by condition, to select the best model by their mean NLL.
        held_out: Part of the data that is not trained on. It chooses the model, and shows whether the boundary is kept.
        seed: The seed, or the first of several.
        seeds: Train this many seeds as one program.
        schedule: How often to report, evaluate and checkpoint.
        watch: How the best state is chosen, the boundary kept, and the end decided.
        evaluate_at: Conditions at which the ESS is shown during training; the ends and the boundary by default.
        evaluation_samples: Samples for each of these.
        out: A run directory for checkpoints, metrics and the models.
        resume: Continue the run in ``out``.
        progress: Show a progress bar.
        notes: Anything to keep with the saved settings.
        callback: A function of a dictionary, called with each row of metrics after it is written, for example
            ``trade.training.TensorBoard("logs")``. Of a run that is resumed it gets only the rows that are new. If it
            fails, training stops with a ``TradeError``; what is in ``out`` is whole, and can be resumed.
        devices: ``"all"``, a number or a list of them: batches, and seeds first, are shared out among them. One by
            default. A run can be resumed on any number. In one of several processes all of theirs are used; the
            first process alone writes files, shows progress and calls ``callback``.
        resident: States of each boundary value on a device at a time; the others stay on the host and come by turns.
            As many as take a quarter of its memory by default.

    Returns:
        The finished run, with the best model of each seed; ``run.verdict`` says how far it can be trusted.

    Example:
        >>> import jax, trade
        >>> target = trade.Target(lambda x, T: -(x**2).sum() / T, (2,), trade.Condition(0.5, 1.0))
        >>> samples = jax.random.normal(jax.random.key(0), (500, 2)) / 2**0.5
        >>> run = trade.fit(target, {1.0: samples})  # doctest: +SKIP
        >>> run.model.sample(jax.random.key(1), 3, c=0.5).shape  # doctest: +SKIP
        (3, 2)
    """
    chosen = _Chosen.checked(target, flow, objective, optimiser, steps, minutes, seed, seeds, schedule, watch)
    held_out = check.number(held_out, "held_out", 0.0, 1.0, open_high=True, takes="a fraction of the data in [0, 1)")
    samples = check.count(evaluation_samples, (), "evaluation_samples")
    if notes is not None and not isinstance(notes, Mapping):
        raise TradeError(f"notes must be a dictionary, got {type(notes).__name__}.")
    if callback is not None:
        check.function(callback, "callback", "one row of metrics")
    used = Devices.chosen(devices, seeds)
    directory = used.once(lambda: _place(out, resume=resume), None)  # of the first process alone
    keep_compiled()

    # A flow that is given was built for the chart of the condition as it is.
    everything = make_problem(target, sampled(target) if data is None else data, charted=flow is None)
    findings = examine(everything)
    problem, apart = hold_out(everything, held_out)
    windows = Windows(problem, resident_states(problem, resident), used)
    target, condition, first = problem.target, problem.condition, windows.first
    program = chosen.program(problem)
    wanted = flow if flow is not None else default_flow(target, jnp.concatenate(first.data) if first.data else None)
    keys = [jax.random.key(chosen.seed + i) for i in range(seeds or 1)]
    flows = [_make_flow(wanted, program.objective, first, key) for key in keys]
    shown = _conditions(problem, evaluate_at)
    checked = {} if validation is None else jax.tree.map(jnp.asarray, check_data(target, validation, "validation"))
    settings = saved.describe(flows[0], problem, program, chosen.seed, seeds, notes)
    settings |= {"chosen": chosen.left_open} | ({} if windows.size is None else {"resident": windows.size})

    progress = progress and used.first
    with ExitStack() as held:
        settings = used.once(lambda: held.enter_context(_claimed(directory, settings, resume=resume)), settings)
        if progress:
            announce(problem, [len(x) for x, _ in apart], flows[0], program, chosen.watch.minutes, chosen.left_open)
            say(*[f.text for f in findings if f.severity != "note"])

        def begun(f: AbstractDistribution, key: Array) -> Learner:
            return begin(program, f, first, jax.random.fold_in(key, 1))

        state = begun(flows[0], keys[0]) if seeds is None else eqx.filter_vmap(begun)(stack(flows), jnp.stack(keys))
        try:
            trained, log = train(
                program,
                state,
                windows,
                chosen.schedule,
                chosen.watch,
                seeds=seeds,
                evaluate=Monitor(first, apart, checked, shown, samples, many=seeds is not None, devices=used),
                directory=directory,
                run=files.seal(settings),
                resume=resume,
                progress=progress,
                key=jax.random.fold_in(keys[0], 2),
                callback=callback if used.first else None,
                devices=used,
            )
        except NonFiniteError as error:  # perhaps the data said so before
            raise NonFiniteError(" ".join([str(error), *[f.text for f in findings if f.severity == "fatal"]])) from None

        def models(flows: Any) -> tuple[Model, ...]:
            parts = [flows] if seeds is None else [_take(flows, i) for i in range(seeds)]
            return tuple(Model(f, condition, target.observation_shape) for f in parts)

        told = zip(skipped(log.rows, seeds or 1), np.asarray(trained.watched.damped).tolist(), strict=True)
        witnesses = tuple(Witness(apart, findings, part, times) for part, times in told)
        run = Run(target, models(trained.learners.flow), models(trained.watched.best), log.rows, settings, witnesses)
        used.once(lambda: _save(directory, run), None)
    if progress:
        say(f"Verdict: {run.verdict.summary}.")
    return run


@dataclass(frozen=True)
class _Chosen:
    """What ``fit`` was given beside target and data, checked; and what it was not."""

    objective: Objective | None
    optimiser: Any
    steps: int
    seed: int
    schedule: Schedule
    watch: Watch
    left_open: list[str]

    @classmethod
    def checked(
        cls,
        target: object,
        flow: object,
        objective: Any,
        optimiser: Any,
        steps: Any,
        minutes: Any,
        seed: Any,
        seeds: Any,
        schedule: Any,
        watch: Any,
    ) -> "_Chosen":
        """Refuse what cannot be used, before anything is done."""
        check.instance(target, AbstractTarget, "target", "a trade.Target")
        default = 5_000 if jax.default_backend() == "cpu" else 8_000
        steps = check.integer(default if steps is None else steps, "steps", takes="a positive integer")
        count = check.integer(1 if seeds is None else seeds, "seeds", most=10_000)
        seed = check.integer(seed, "seed", 0, LARGEST_SEED - count)
        left_open = [n for n, v in (("flow", flow), ("objective", objective), ("optimiser", optimiser)) if v is None]
        if objective is not None:
            check.member(objective, "objective", "a trade objective such as trade.Trade()", "init", "value_and_grad")
        if isinstance(objective, Trade) and objective.first_step(steps) >= steps:
            raise TradeError(
                f"Trade start must come before the last of {steps} steps, got {objective.start!r}: nothing would be"
                " carried beyond the boundary."
            )
        if isinstance(optimiser, optax.GradientTransformation):
            optimiser = Given(optimiser)
        for name, value, kind, takes in (
            ("optimiser", optimiser, Adam | Given, "trade.Adam, trade.training.OneCycle or a transformation of Optax"),
            ("schedule", schedule, Schedule, "a trade.Schedule"),
            ("watch", watch, Watch, "a trade.training.Watch"),
        ):
            if value is not None:
                check.instance(value, kind, name, takes)
        watch = replace(watch or Watch(), **({} if minutes is None else {"minutes": minutes}))
        return cls(objective, optimiser or Adam(), steps, seed, schedule or Schedule.of(steps), watch, left_open)

    def program(self, problem: Problem) -> Program:
        """With the objective that the problem asks for, if none was given."""
        objective = self.objective or default_objective(problem.target, len(problem.condition.boundary))
        return Program(objective, self.optimiser, self.steps)


def _place(out: Any, *, resume: bool) -> Path | None:
    """The run directory, if there is to be one and it can be used."""
    if out is None:
        if resume:
            raise TradeError("resume=True needs the run directory as out=...")
        return None
    directory = files.as_path(out, "out")
    saved.check_place(directory, resume=resume)
    return directory


def _claimed(
    directory: Path | None, settings: dict[str, Any], *, resume: bool
) -> AbstractContextManager[dict[str, Any]]:
    """Gives the settings in force, and holds the run directory, if there is one."""
    return nullcontext(settings) if directory is None else saved.claimed(directory, settings, resume=resume)


def _save(directory: Path | None, run: Run) -> None:
    """Models and verdicts, if there is a place for them."""
    if directory is not None:
        saved.save_models(directory, run.final, run.best, run.settings, run.metrics)
        saved.save_verdicts(directory, [v.to_json() for v in run.verdicts])


def _conditions(problem: Problem, evaluate_at: Any) -> tuple[Any, ...]:
    """Where the ESS is shown: the ends (two opposite corners) and the boundary by default."""
    condition = problem.condition
    if evaluate_at is None:
        ends = [condition.check(c) for c in condition.spread(2)[[0, -1]]]
        return tuple(sorted({*ends, *condition.boundary}))
    several = isinstance(evaluate_at, tuple | list) or getattr(evaluate_at, "ndim", 0) > len(condition.u_shape)
    if condition.u_shape and several:  # one point is a tuple too
        return condition.check_all(evaluate_at)
    values: Any = evaluate_at if several else [evaluate_at]
    return tuple(condition.check(c, "evaluation condition") for c in values)


def _make_flow(flow: Any, objective: Objective, problem: Problem, key: Array) -> AbstractDistribution:
    target = problem.target
    if not isinstance(flow, AbstractDistribution):
        flow = built(flow, jax.random.fold_in(key, 0))
    check_flow(flow, target.condition, target.observation_shape)
    if flow.shape != target.shape:
        raise TradeError(f"flow has states of shape {flow.shape}, the target of shape {target.shape}.")
    if flow.cond_shape is None and isinstance(objective, Trade):
        raise TradeError(
            "flow does not see the condition (its cond_shape is None), and so cannot follow it: give one with"
            " cond_shape=(1,), or train by trade.objectives.ForwardKL() alone."
        )
    kinds = {str(a.dtype) for a in jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array))}
    if not kinds <= {"float32", "float64"}:
        raise TradeError(f"flow must have parameters in float32 or float64, got {', '.join(sorted(kinds))}.")
    if problem.data:
        flow = adapt_to_data(flow, jnp.concatenate(problem.data))
    if not bool(all_finite(flow)):
        raise TradeError("flow has NaN or infinite parameters before training.")
    return flow


def stack(trees: list[Any]) -> Any:
    """Trees of equal structure as one, arrays stacked along a new first axis."""
    arrays = [eqx.filter(t, eqx.is_array) for t in trees]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *arrays)
    return eqx.combine(stacked, eqx.filter(trees[0], eqx.is_array, inverse=True))


def _take(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda a: a[i] if eqx.is_array(a) else a, tree)
