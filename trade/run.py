"""``Run``: the models of a finished training, what was measured on the way, and how far they can be trusted."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike

from trade import check, export, files, saved
from trade.abstract_condition import ConditionLike
from trade.abstract_target import AbstractTarget
from trade.config import from_json
from trade.data import Data, examine, hold_out, make_problem
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.evaluation.examination import judge
from trade.evaluation.free_energy import by_importance, by_integration, evidence
from trade.evaluation.reduced_potentials import ReducedPotentials, reduced_potentials
from trade.evaluation.surface import log_partition_gradient, surface_by_importance, surface_by_integration
from trade.evaluation.verdict import Verdict, Witness
from trade.flows.flow import Recipe
from trade.model import Model
from trade.sampling.importance import Weighted, weighted_samples


@dataclass(frozen=True)
class Run:
    """A finished run: its models and what was measured on the way.

    Args:
        target: The target it was trained for, if at hand.
        final: The model of each seed after the last step.
        best: The model of each seed with the lowest score: the NLL of held-out data and the ESS over the range, or
            the NLL of validation data.
        metrics: The rows of ``metrics.jsonl``.
        settings: What is saved beside the arrays.
        witnesses: Of a run just trained: what the verdict on each seed needs beside its model.
        told: Of a run that was loaded: the verdicts saved with it.
    """

    target: AbstractTarget | None
    final: tuple[Model, ...]
    best: tuple[Model, ...]
    metrics: list[dict[str, Any]] = field(default_factory=list, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    witnesses: tuple[Witness, ...] = field(default=(), repr=False)
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
        witnesses = self.witnesses or (Witness(),) * len(self.best)
        return tuple(judge(m, self._target(), w) for m, w in zip(self.best, witnesses, strict=True))

    @property
    def model(self) -> Model:
        """The best model of the first seed."""
        return self.best[0]

    def _target(self) -> AbstractTarget:
        if self.target is None:
            raise TradeError("This run was loaded without its target: give trade.load(..., target=...).")
        return self.target

    def weighted(self, key: Array, n: int, c: ConditionLike, observation: ArrayLike | None = None) -> Weighted:
        """Samples of ``model`` at c with importance weights to the target, and their ESS.

        Args:
            key: A JAX random key.
            n: How many.
            c: The condition.
            observation: The observation, for a model that takes one.

        Returns:
            The samples, with weights and their ESS.
        """
        return weighted_samples(self.model, self._target(), key, n, c, observation)

    def to_arviz(
        self,
        conditions: ConditionLike | Iterable[ConditionLike],
        *,
        n: int = 1_000,
        key: Array | None = None,
        resampled: bool = False,
        observation: ArrayLike | None = None,
    ) -> Any:
        """Samples at some conditions as ArviZ takes them, with the condition as a coordinate.

        Args:
            conditions: One condition or several, no two alike.
            n: Samples at each.
            key: Randomness; fixed by default.
            resampled: Draw them by their weights: then they need none, and ArviZ's summaries are those of the target.
            observation: The observation, for a model that takes one.

        Returns:
            A ``DataTree`` of xarray, or with ArviZ below version 1 an ``InferenceData``: ``x`` in the group
            ``posterior`` with dimensions (chain, draw, condition, ...); ``log_prob`` and, with the target at hand and
            not resampled, ``log_weight`` in ``sample_stats``; the ESS at each condition as the attribute ``ess``.
        """
        draw_key, resample_key = jax.random.split(jax.random.key(0) if key is None else check.random_key(key))
        target = self._target() if resampled else self.target
        samples = export.draw_at(self.model, target, draw_key, n, conditions, observation)
        return export.to_arviz(samples.resampled(resample_key) if resampled else samples)

    def reduced_potentials(
        self,
        conditions: ConditionLike | Iterable[ConditionLike],
        *,
        n: int = 1_000,
        key: Array | None = None,
        observation: ArrayLike | None = None,
    ) -> ReducedPotentials:
        """Samples at some conditions with their reduced potentials at all of them, for pymbar's ``MBAR(u_kn, N_k)``.

        Args:
            conditions: One condition or several, no two alike.
            n: Samples at each.
            key: Randomness; fixed by default.
            observation: The observation, for a model that takes one.

        Returns:
            Flows as the states that are sampled, targets as states that are not: see ``ReducedPotentials``.
        """
        key = jax.random.key(0) if key is None else key
        return reduced_potentials(self.model, self._target(), key, n, conditions, observation)

    def log_partition(
        self, *, method: str = "importance", samples: int = 10_000, points: int | None = None, key: Array | None = None
    ) -> Any:
        """log Z(c) - log Z(c0) over the whole range, with errors; c0 is the last boundary value.

        Args:
            method: ``"importance"`` (each c on its own) or ``"integral"`` (of d log Z/du; with several axes along two
                paths).
            samples: Samples at each condition.
            points: Number of conditions, on each axis; c0 is added to them.
            key: Randomness; fixed by default.

        Returns:
            A ``FreeEnergy``, the curve; with several axes a ``FreeEnergySurface``.
        """
        condition = self.model.condition
        axes = len(condition.u_shape and condition.names)
        methods: dict[str, Any] = {"importance": by_importance, "integral": by_integration}
        if axes:
            methods = {"importance": surface_by_importance, "integral": surface_by_integration}
        if method not in methods:
            raise TradeError(f"log_partition method must be 'importance' or 'integral', got {method!r}.")
        key = jax.random.key(0) if key is None else key
        points = {0: 33, 1: 33, 2: 9, 3: 5}.get(axes, 4) if points is None else points
        options = {"reference": condition.reference, "points": points, "samples": samples}
        return methods[method](self.model, self._target(), key, **options)

    def log_partition_gradient(
        self,
        c: ConditionLike,
        *,
        samples: int = 10_000,
        key: Array | None = None,
        observation: ArrayLike | None = None,
    ) -> dict[str, Estimate]:
        """∂ log Z/∂c at one condition, axis by axis: mean energies, volumes, magnetisations.

        Args:
            c: The condition.
            samples: How many.
            key: Randomness; fixed by default.
            observation: The observation, for a model that takes one.

        Returns:
            By the name of the axis (``c`` where it has none): the derivative, and its error.
        """
        key = jax.random.key(0) if key is None else key
        return log_partition_gradient(self.model, self._target(), key, c, samples=samples, observation=observation)

    def evidence(
        self, observation: ArrayLike | None = None, *, samples: int = 20_000, key: Array | None = None
    ) -> Estimate:
        """log p(y) of a power posterior trained over β from 0 to 1, with its error.

        Args:
            observation: The y whose evidence is wanted, when the target takes one.
            samples: Samples at each power.
            key: Randomness; fixed by default.

        Returns:
            log p(y), and its error.
        """
        key = jax.random.key(0) if key is None else key
        return evidence(self.model, self._target(), key, observation, samples=samples)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write the models, settings, metrics and the verdict, as data only.

        Args:
            directory: A new or empty directory.
            overwrite: Replace a run that is there, if nothing but a run is.
        """
        place = files.as_path(directory, "directory")
        files.check_directory(place, overwrite=overwrite)
        with files.moved_aside(place):
            saved.save_models(place, self.final, self.best, self.settings, self.metrics)
            if self.told or self.witnesses:
                saved.save_verdicts(place, [v.to_json() for v in self.verdicts])

    def examined(self, data: Data | None = None) -> "Run":
        """The run with its verdicts made anew.

        Args:
            data: States at the boundary values, best those that were not trained on; without any, a lost mode of the
                data is not seen.

        Returns:
            The same run; its verdicts are made when they are first asked for.
        """
        target = self._target()
        problem = make_problem(target, data)
        apart = hold_out(problem, 1.0)[1] if problem.data else ()
        found = examine(problem)
        witnesses = [Witness(apart, found, part) for part in skipped(self.metrics, len(self.best))]
        return replace(self, witnesses=tuple(witnesses), told=())


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
    place = files.as_path(directory, "directory")
    if flow is not None and not isinstance(flow, AbstractDistribution):
        flow = built(flow, jax.random.key(0))
    found = saved.load_models(place, flow)
    if target is not None:
        saved.check_target(found.settings, target)
    target = found.target if target is None else target
    if target is not None:  # the boundary and the chart that the run was trained with
        target = target.with_condition(from_json(found.settings["condition"]))
    told = tuple(Verdict.from_json(v) for v in found.verdicts)
    return Run(target, found.final, found.best, found.metrics, found.settings, told=told)


def skipped(rows: list[dict[str, Any]], seeds: int) -> list[float]:
    """Part of the steps of each seed that changed nothing."""
    counts = [row["skipped"] for row in rows if row.get("skipped")]
    return [n / max(rows[-1]["step"], 1) for n in counts[-1]] if counts else [0.0] * seeds


def built(flow: Any, key: Array) -> AbstractDistribution:
    """A flow from a recipe, or from a user's function of a key."""
    build: Any = getattr(flow, "build", flow)
    if isinstance(flow, type) or not callable(build):
        raise TradeError(
            f"flow must be a recipe such as trade.flows.SplineFlow(...), a flowjax distribution, or a function of a"
            f" key, got {check.shown(flow)}."
        )
    found: Any = check.called("flow", build, key)
    return found
