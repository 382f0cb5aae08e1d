"""``fit``: from a flow, a target and data to a trained, diagnosed run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike
from rich.console import Console
from rich.markup import escape

from trade import saved
from trade.config import brief
from trade.data import Data, check_data, hold_out, make_problem, sampled
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.evaluation.free_energy import FreeEnergy, by_importance, by_integration, evidence
from trade.evaluation.monitor import Monitor, States
from trade.flows.default import default_flow
from trade.flows.recipes import Recipe
from trade.flows.standardise import adapt_to_data
from trade.model import Model, check_flow
from trade.objectives.boundary import ForwardKL
from trade.objectives.density import EnergyFree, TrueDensity
from trade.objectives.gradient import Gradient
from trade.objectives.points import ModelPoints
from trade.objectives.term import Objective, Problem
from trade.objectives.trade import Trade
from trade.sampling.importance import Weighted, weighted_samples
from trade.target import AbstractTarget
from trade.training.compilation import keep_compiled
from trade.training.loop import Schedule, train
from trade.training.optimiser import Adam
from trade.training.state import Learner, Program, all_finite, begin
from trade.training.watch import Watch


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
    """

    target: AbstractTarget | None
    final: tuple[Model, ...]
    best: tuple[Model, ...]
    metrics: list[dict[str, Any]] = field(default_factory=list, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

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

    def save(self, directory: str | Path) -> None:
        """Write the models, settings and metrics, as data only."""
        saved.save_models(Path(directory), self.final, self.best, self.settings, self.metrics)


def load(
    directory: str | Path, *, flow: AbstractDistribution | None = None, target: AbstractTarget | None = None
) -> Run:
    """Load a saved run. No code from the directory is run.

    Args:
        directory: What ``Run.save`` or ``fit(out=...)`` wrote.
        flow: A flow of the same structure, when it was not made by one of our recipes.
        target: The target, when it is not one of the shipped ones.
    """
    final, best, settings, metrics, known = saved.load_models(Path(directory), flow)
    target = known if target is None else target
    if target is not None and best[0].condition.knee is not None:  # the chart that the run was trained in
        target = target.with_condition(best[0].condition)
    return Run(target, final, best, metrics, settings)


def fit(
    target: AbstractTarget,
    data: Data | None = None,
    *,
    flow: AbstractDistribution | Recipe | Callable[[Array], AbstractDistribution] | None = None,
    objective: Objective | None = None,
    steps: int = 8_000,
    minutes: float | None = None,
    optimiser: Adam | None = None,
    validation: Data | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    seeds: int | None = None,
    schedule: Schedule | None = None,
    watch: Watch | None = None,
    evaluate_at: tuple[float, ...] | None = None,
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
        optimiser: Learning rate, clipping, weight decay.
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
        The finished run, with the best model of each seed.

    Example:
        >>> import jax, trade
        >>> target = trade.Target(lambda x, T: -(x**2).sum() / T, (2,), trade.Condition(0.5, 1.0))
        >>> samples = jax.random.normal(jax.random.key(0), (500, 2)) / 2**0.5
        >>> run = trade.fit(target, {1.0: samples})  # doctest: +SKIP
        >>> run.model.sample(jax.random.key(1), 3, c=0.5).shape  # doctest: +SKIP
        (3, 2)
    """
    for name, value in (("steps", steps), ("seeds", 1 if seeds is None else seeds)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise TradeError(f"{name} must be a positive integer, got {value!r}.")
    if not isinstance(target, AbstractTarget):
        raise TradeError(f"target must be a trade.Target, got {type(target).__name__}.")
    if not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise TradeError(f"held_out must be a fraction of the data in [0, 1), got {held_out!r}.")
    objective_given, optimiser_given = objective, optimiser
    if objective is not None and not hasattr(objective, "value_and_grad"):
        raise TradeError(f"objective must be a trade objective such as trade.Trade(), got {objective!r}.")
    directory = None if out is None else Path(out)
    if resume and directory is None:
        raise TradeError("resume=True needs the run directory as out=...")
    keep_compiled()
    optimiser, schedule = optimiser or Adam(), schedule or Schedule.of(steps)
    watch = replace(watch or Watch(), **({} if minutes is None else {"minutes": minutes}))

    # A flow that is given was built for the chart of the condition as it is.
    everything = make_problem(target, sampled(target) if data is None else data, charted=flow is None)
    problem, apart = hold_out(everything, held_out)
    target = problem.target
    objective = _default_objective(target, len(problem.condition.boundary)) if objective is None else objective
    program = Program(objective, optimiser, steps)
    chosen = flow if flow is not None else default_flow(target, jnp.concatenate(problem.data) if problem.data else None)
    keys = [jax.random.key(seed + i) for i in range(seeds or 1)]
    flows = [_make_flow(chosen, target, problem, key) for key in keys]
    settings = saved.describe(flows[0], problem, program, seed, seeds, notes)
    options = {"flow": flow, "objective": objective_given, "optimiser": optimiser_given}
    settings["chosen"] = [name for name, given in options.items() if given is None]
    if directory is not None:
        saved.begin_directory(directory, settings, resume=resume)
    if progress:
        _announce(problem, apart, flows[0], program, watch, settings["chosen"])

    def begun(f: AbstractDistribution, key: Array) -> Learner:
        return begin(program, f, problem, jax.random.fold_in(key, 1))

    state = begun(flows[0], keys[0]) if seeds is None else eqx.filter_vmap(begun)(stack(flows), jnp.stack(keys))
    condition = problem.condition
    shown = evaluate_at or tuple(sorted({condition.low, *condition.boundary, condition.high}))
    monitor = Monitor(
        problem,
        apart,
        {} if validation is None else check_data(target, validation, "validation"),
        tuple(condition.check(c, "evaluation condition") for c in shown),
        evaluation_samples,
        many=seeds is not None,
    )
    trained, log = train(
        program,
        state,
        problem,
        schedule,
        watch,
        seeds=seeds,
        evaluate=monitor,
        directory=directory,
        resume=resume,
        progress=progress,
        key=jax.random.fold_in(keys[0], 2),
    )

    def models(flows: Any) -> tuple[Model, ...]:
        parts = [flows] if seeds is None else [_take(flows, i) for i in range(seeds)]
        return tuple(Model(f, problem.condition, target.observation_shape) for f in parts)

    run = Run(target, models(trained.learners.flow), models(trained.watched.best), log.rows, settings)
    if directory is not None:
        run.save(directory)
    return run


def _announce(
    problem: Problem,
    apart: tuple[States, ...],
    flow: AbstractDistribution,
    program: Program,
    watch: Watch,
    chosen: list[str],
) -> None:
    """Every choice, once: what was made by ``fit`` is marked."""
    console, condition = Console(stderr=True), problem.condition
    sizes = zip(condition.boundary, problem.data, apart or [((), None)] * len(problem.data), strict=False)
    data = [f"{len(x):,} at c = {c:g}" + (f" ({len(h):,} held out)" if len(h) else "") for c, x, (h, _) in sizes]
    recipe = getattr(flow, "recipe", flow)
    limit = "" if watch.minutes is None else f" or {watch.minutes:g} minutes"
    lines = {
        "target": f"states of shape {problem.target.shape}, c from {condition.low:g} to {condition.high:g}"
        + ("" if condition.knee is None else f", logarithmic beyond {condition.knee:.3g}"),
        "data": ", ".join(data) or "none",
        "flow": brief(recipe, ("shape", "condition", "observation_size")),
        "objective": brief(program.objective),
        "optimiser": brief(program.optimiser),
        "budget": f"{program.steps:,} steps{limit}",
    }
    for name, text in lines.items():
        mark = " [dim](chosen)[/]" if name in chosen else ""
        console.print(f"[bold]{name:>9}[/]  {escape(text)}{mark}", highlight=False, soft_wrap=True)


def _default_objective(target: AbstractTarget, boundaries: int = 1) -> Trade:
    """``Trade()``, energy-free without a density, with the target's symmetries.

    On a GPU it has four times the model's states, which cost little there; of large ones it has fewer. Not so of data:
    the more of them a step sees, the sooner it knows them by heart.
    """
    less = max(prod(target.shape) / 64, 1.0)
    more = 1 if jax.default_backend() == "cpu" else 4
    density = TrueDensity() if target.has_density else EnergyFree()
    points, batch = max(int(64 * more / less), 16), max(int(512 / less), 128)
    gradient = Gradient(
        points=ModelPoints(symmetries=target.has_symmetry),
        density=density,
        conditions_per_step=max(16, 4 * boundaries),  # all ends of the frontier, and more
        points_per_condition=points,
    )
    return Trade(gradient, ForwardKL(batch, symmetries=target.has_symmetry))


def _make_flow(flow: Any, target: AbstractTarget, problem: Problem, key: Array) -> AbstractDistribution:
    if not isinstance(flow, AbstractDistribution):
        build = getattr(flow, "build", flow)
        flow = build(jax.random.fold_in(key, 0)) if callable(build) else flow
    check_flow(flow, target.observation_shape)
    if flow.shape != target.shape:
        raise TradeError(f"flow has states of shape {flow.shape}, the target of shape {target.shape}.")
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
