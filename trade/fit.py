"""``fit``: from a target and data to a trained, diagnosed run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike

from trade import check, files, saved
from trade.config import from_json
from trade.data import Data, check_data, hold_out, make_problem, sampled
from trade.errors import NonFiniteError, TradeError
from trade.evaluation.belonging import Finding, check_data_belongs, check_slope
from trade.evaluation.divergence import Estimate
from trade.evaluation.free_energy import FreeEnergy, by_importance, by_integration, evidence
from trade.evaluation.monitor import Monitor
from trade.evaluation.verdict import Verdict, Witness, judge
from trade.flows.default import default_flow
from trade.flows.recipes import Recipe
from trade.flows.standardise import adapt_to_data
from trade.model import Model, check_flow
from trade.objectives.default import default_objective
from trade.objectives.term import Objective, Problem
from trade.objectives.trade import Trade
from trade.sampling.importance import Weighted, weighted_samples
from trade.target import AbstractTarget
from trade.training.compilation import keep_compiled
from trade.training.loop import Schedule, train
from trade.training.optimiser import Adam, Given
from trade.training.progress import announce, say
from trade.training.state import Learner, Program, all_finite, begin
from trade.training.watch import Watch

LARGEST_SEED = 2**32 - 1  # a larger one would wrap to another


@dataclass(frozen=True)
class Run:
    """A finished run: its models and what was measured on the way.

    Args:
        target: The target it was trained for, if at hand.
        final: The model of each seed after the last step.
        best: The model of each seed with the lowest validation NLL; the final one without a
            validation set.
        metrics: The rows of ``metrics.jsonl``.
        settings: What is saved beside the arrays.
        witness: Of a run just trained: what its verdict needs beside the models.
        told: Of a run that was loaded: the verdicts saved with it.
    """

    target: AbstractTarget | None
    final: tuple[Model, ...]
    best: tuple[Model, ...]
    metrics: list[dict[str, Any]] = field(default_factory=list, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    witness: Witness | None = field(default=None, repr=False)
    told: tuple[Verdict, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> Verdict:
        """How far ``model`` can be trusted, and why."""
        return self.verdicts[0]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on the best model of each seed."""
        if self.told:
            return self.told
        return tuple(judge(model, self._target(), self.witness or Witness()) for model in self.best)

    @property
    def model(self) -> Model:
        """The best model of the first seed."""
        return self.best[0]

    def _target(self) -> AbstractTarget:
        if self.target is None:
            raise TradeError("This run was loaded without its target: give trade.load(..., target=...).")
        return self.target

    def weighted(self, key: Array, n: int, c: float, observation: ArrayLike | None = None) -> Weighted:
        """n samples at c with importance weights to the target, and their ESS."""
        return weighted_samples(self.model, self._target(), key, n, c, observation)

    def log_partition(
        self, *, method: str = "importance", samples: int = 10_000, points: int = 33, key: Array | None = None
    ) -> FreeEnergy:
        """log Z(c) - log Z(c0) over the whole range, with errors.

        Args:
            method: ``"importance"`` (each c on its own) or ``"integral"`` (of d log Z/du).
            samples: Samples at each condition.
            points: Number of conditions.
            key: Randomness; fixed by default.
        """
        methods = {"importance": by_importance, "integral": by_integration}
        if method not in methods:
            raise TradeError(f"log_partition method must be 'importance' or 'integral', got {method!r}.")
        condition = self.model.condition
        reference = condition.boundary[-1] if condition.boundary else condition.high
        key = jax.random.key(0) if key is None else key
        return methods[method](self.model, self._target(), key, reference=reference, points=points, samples=samples)

    def evidence(
        self, observation: ArrayLike | None = None, *, samples: int = 20_000, key: Array | None = None
    ) -> Estimate:
        """log p(y) of a power posterior trained over β from 0 to 1, with its error."""
        key = jax.random.key(0) if key is None else key
        return evidence(self.model, self._target(), key, observation, samples=samples)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write the models, settings, metrics and the verdict, as data only.

        Args:
            directory: A new or empty directory.
            overwrite: Replace a run that is there, if nothing but a run is.
        """
        place = as_path(directory, "directory")
        files.check_directory(place, overwrite=overwrite)

        if files.is_run(place):
            with files.locked(place):
                pass  # nobody writes there
        with files.moved_aside(place):
            saved.save_models(place, self.final, self.best, self.settings, self.metrics)
            if self.told or self.witness is not None:
                saved.save_verdicts(place, [v.to_json() for v in self.verdicts])

    def examined(self, data: Data | None = None) -> "Run":
        """The run with its verdicts made anew.

        Args:
            data: States at the boundary values, best those that were not trained on; without any, a lost mode of the
                data is not seen.
        """
        target = self._target()
        problem = make_problem(target, data)
        apart = hold_out(problem, 1.0)[1] if problem.data else ()
        witness = Witness(apart, _examine(problem), _skipped(self.metrics))
        return replace(self, witness=witness, told=())


def load(
    directory: str | Path, *, flow: AbstractDistribution | Recipe | None = None, target: AbstractTarget | None = None
) -> Run:
    """Load a saved run. No code from the directory is run.

    Args:
        directory: What ``Run.save`` or ``fit(out=...)`` wrote.
        flow: A flow of the same structure, or its recipe, when its class is not registered.
        target: The target, when its class is not registered.

    Returns:
        The run.
    """
    if target is not None and not isinstance(target, AbstractTarget):
        raise TradeError(f"target must be a trade.Target, got {type(target).__name__}.")
    place = as_path(directory, "directory")
    if flow is not None and not isinstance(flow, AbstractDistribution):
        flow = _built(flow, jax.random.key(0))
    found = saved.load_models(place, flow)
    if target is not None:
        saved.check_target(found.settings, target)
    target = found.target if target is None else target
    if target is not None:  # the boundary and the chart that the run was trained with
        target = target.with_condition(from_json(found.settings["condition"]))
    told = tuple(Verdict.from_json(v) for v in found.verdicts)
    return Run(target, found.final, found.best, found.metrics, found.settings, told=told)


def as_path(value: object, name: str) -> Path:
    """A path, or one sentence on why it is none."""
    if not isinstance(value, str | PathLike) or not fspath(value) or "\0" in str(fspath(value)):
        raise TradeError(f"{name} must be the path of a directory, got {value!r}.")
    return Path(fspath(value))  # pyright: ignore


def fit(
    target: AbstractTarget,
    data: Data | None = None,
    *,
    flow: AbstractDistribution | Recipe | Callable[[Array], AbstractDistribution] | None = None,
    objective: Objective | None = None,
    steps: int = 8_000,
    minutes: float | None = None,
    optimiser: Adam | optax.GradientTransformation | None = None,
    validation: Data | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    seeds: int | None = None,
    schedule: Schedule | None = None,
    watch: Watch | None = None,
    evaluate_at: float | Sequence[float] | None = None,
    evaluation_samples: int = 2_000,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    notes: Mapping[str, Any] | None = None,
) -> Run:
    """Train a conditional flow on data at the boundary and on the known dependence on c.

    Target and data are enough: everything else is chosen from them, printed, saved with the run, and yours to override.

    Args:
        target: The family of densities.
        data: States by boundary condition, ``{c0: samples}``; with an observation,
            ``{c0: (samples, observations)}``. Without any, a target with an exact sampler is sampled at its boundary.
        flow: A recipe such as ``SplineFlow(...)``, a flowjax distribution conditioned on (u(c), observation...), or a
            function from a random key to one (then every seed starts from its own).
        objective: What to minimise; ``Trade()`` by default, energy-free where the target has no density.
        steps: The budget: training ends earlier when the whole range is reached and nothing more is gained.
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
    directory = None if out is None else as_path(out, "out")
    if resume and directory is None:
        raise TradeError("resume=True needs the run directory as out=...")
    if notes is not None and not isinstance(notes, Mapping):
        raise TradeError(f"notes must be a dictionary, got {type(notes).__name__}.")
    if directory is not None:
        saved.check_place(directory, resume=resume)
    keep_compiled()

    # A flow that is given was built for the chart of the condition as it is.
    everything = make_problem(target, sampled(target) if data is None else data, charted=flow is None)
    findings = _examine(everything)
    problem, apart = hold_out(everything, held_out)
    target, condition = problem.target, problem.condition
    program = chosen.program(problem)
    wanted = flow if flow is not None else default_flow(target, jnp.concatenate(problem.data) if problem.data else None)
    keys = [jax.random.key(chosen.seed + i) for i in range(seeds or 1)]
    flows = [_make_flow(wanted, program.objective, problem, key) for key in keys]
    shown = _conditions(problem, evaluate_at)
    checked = {} if validation is None else check_data(target, validation, "validation")
    settings = saved.describe(flows[0], problem, program, chosen.seed, seeds, notes)
    settings["chosen"] = chosen.left_open

    with nullcontext(settings) if directory is None else saved.claimed(directory, settings, resume=resume) as settings:
        if progress:
            announce(problem, [len(x) for x, _ in apart], flows[0], program, chosen.watch.minutes, chosen.left_open)
            say(*[f.text for f in findings if f.severity != "note"])

        def begun(f: AbstractDistribution, key: Array) -> Learner:
            return begin(program, f, problem, jax.random.fold_in(key, 1))

        state = begun(flows[0], keys[0]) if seeds is None else eqx.filter_vmap(begun)(stack(flows), jnp.stack(keys))
        try:
            trained, log = train(
                program,
                state,
                problem,
                chosen.schedule,
                chosen.watch,
                seeds=seeds,
                evaluate=Monitor(problem, apart, checked, shown, samples, many=seeds is not None),
                directory=directory,
                run=files.seal(settings),
                resume=resume,
                progress=progress,
                key=jax.random.fold_in(keys[0], 2),
            )
        except NonFiniteError as error:  # perhaps the data said so before
            raise NonFiniteError(" ".join([str(error), *[f.text for f in findings if f.severity == "fatal"]])) from None

        def models(flows: Any) -> tuple[Model, ...]:
            parts = [flows] if seeds is None else [_take(flows, i) for i in range(seeds)]
            return tuple(Model(f, condition, target.observation_shape) for f in parts)

        witness = Witness(apart, findings, _skipped(log.rows), int(jnp.max(trained.watched.damped)))
        run = Run(target, models(trained.learners.flow), models(trained.watched.best), log.rows, settings, witness)
        if directory is not None:
            saved.save_models(directory, run.final, run.best, settings, log.rows)
            saved.save_verdicts(directory, [v.to_json() for v in run.verdicts])
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
        steps = check.integer(steps, "steps", takes="a positive integer")
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
            ("optimiser", optimiser, Adam | Given, "trade.Adam, trade.OneCycle or a transformation of Optax"),
            ("schedule", schedule, Schedule, "a trade.Schedule"),
            ("watch", watch, Watch, "a trade.Watch"),
        ):
            if value is not None:
                check.instance(value, kind, name, takes)  # pyright: ignore
        watch = replace(watch or Watch(), **({} if minutes is None else {"minutes": minutes}))
        return cls(objective, optimiser or Adam(), steps, seed, schedule or Schedule.of(steps), watch, left_open)

    def program(self, problem: Problem) -> Program:
        """With the objective that the problem asks for, if none was given."""
        objective = self.objective or default_objective(problem.target, len(problem.condition.boundary))
        return Program(objective, self.optimiser, self.steps)


def _examine(problem: Problem) -> tuple[Finding, ...]:
    """What can be said of the data before anything is trained."""
    found: list[Finding] = []
    for i, (c, x) in enumerate(zip(problem.condition.boundary, problem.data, strict=False)):
        y = None if problem.observations is None else problem.observations[i]
        found += check_data_belongs(problem.target, c, x, y)
        if i == 0:
            check_slope(problem.target, x, y)
    return tuple(found)


def _conditions(problem: Problem, evaluate_at: Any) -> tuple[float, ...]:
    """Where the ESS is shown: the ends and the boundary by default."""
    condition = problem.condition
    if evaluate_at is None:
        return tuple(sorted({condition.low, *condition.boundary, condition.high}))
    several = isinstance(evaluate_at, tuple | list) or getattr(evaluate_at, "ndim", 0) > 0
    values: Any = evaluate_at if several else [evaluate_at]
    return tuple(condition.check(c, "evaluation condition") for c in values)


def _skipped(rows: list[dict[str, Any]]) -> float:
    """Part of the steps that changed nothing, in the worst seed."""
    counts = [max(row["skipped"]) for row in rows if row.get("skipped")]
    return counts[-1] / max(rows[-1]["step"], 1) if counts else 0.0


def _built(flow: Any, key: Array) -> AbstractDistribution:
    """A flow from a recipe, or from a user's function of a key."""
    build: Any = getattr(flow, "build", flow)
    if isinstance(flow, type) or not callable(build):
        raise TradeError(
            f"flow must be a recipe such as trade.flows.SplineFlow(...), a flowjax distribution, or a function of a"
            f" key, got {check.shown(flow)}."
        )
    found: Any = check.called("flow", build, key)
    return found


def _make_flow(flow: Any, objective: Objective, problem: Problem, key: Array) -> AbstractDistribution:
    target = problem.target
    if not isinstance(flow, AbstractDistribution):
        flow = _built(flow, jax.random.fold_in(key, 0))
    check_flow(flow, target.observation_shape)
    if flow.shape != target.shape:
        raise TradeError(f"flow has states of shape {flow.shape}, the target of shape {target.shape}.")
    if flow.cond_shape is None and isinstance(objective, Trade):
        raise TradeError(
            "flow does not see the condition (its cond_shape is None), and so cannot follow it: give one with"
            " cond_shape=(1,), or train by trade.ForwardKL() alone."
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
