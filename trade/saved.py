"""A run directory on disk: settings in JSON, arrays beside them, and nothing that is code.

::

    run.json          settings: recipe of the flow, target, objective, optimiser, steps, seeds
    metrics.jsonl     losses and evaluations
    checkpoint.json   newest checkpoint (while training, and after)
    verdict.json      how far the run can be trusted
    model.json        checksums of the finished models, metrics and verdict
    final-0.eqx ...   arrays of the final model of each seed
    best-0.eqx ...    arrays of the best model of each seed
    run.lock          while a process writes here

Every JSON file has a checksum of itself, and those of models and checkpoints name the settings they belong to.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution

from trade import files
from trade.abstract_target import AbstractTarget
from trade.axes import Axes
from trade.condition import Condition
from trade.config import describe_target, from_json, is_registered, register, to_json
from trade.errors import TradeError
from trade.files import plain
from trade.flows.circular_recipes import CircularFlow
from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.convolution import Convolutional
from trade.flows.flow import Flow
from trade.flows.latent import Normal, PowerScaled
from trade.flows.lattice_recipes import ContinuousLatticeFlow, ConvolutionalFlow, LatticeFlow
from trade.flows.recipes import AffineFlow, SplineFlow, VolumePreservingFlow
from trade.model import Model
from trade.objectives.term import Problem
from trade.targets import Augmented, GaussianMixture, LennardJones, MultiWell, ScalarField
from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide
from trade.targets.molecule.peptides import Peptide
from trade.training.log import read_metrics, write_metrics
from trade.training.state import Program

FORMAT = 2
for _known in (
    *(Condition, Axes, MLP, ResidualMLP, Convolutional, Normal, PowerScaled),
    *(SplineFlow, AffineFlow, VolumePreservingFlow, CircularFlow),
    *(LatticeFlow, ContinuousLatticeFlow, ConvolutionalFlow),
    *(AlanineDipeptide, Augmented, GaussianMixture, LennardJones, MultiWell, Peptide, ScalarField),
):
    register(_known)


def describe(
    flow: AbstractDistribution,
    problem: Problem,
    program: Program,
    seed: int,
    seeds: int | None,
    notes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Everything needed to rebuild the model, and to tell whether a resumed run is the same one."""
    target = problem.target
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
    recipe = flow.recipe if isinstance(flow, Flow) and is_registered(flow.recipe) else None
    settings = {
        "format": FORMAT,
        "recipe": None if recipe is None else to_json(recipe),
        "target": describe_target(target),
        "condition": to_json(problem.condition),
        "shape": list(flow.shape),
        "observation_shape": to_json(target.observation_shape),
        "objective": to_json(program.objective),
        "optimiser": to_json(program.optimiser),
        "steps": program.steps,
        "seed": seed,
        "seeds": seeds,
        "parameters": int(sum(a.size for a in leaves)),
        "dtype": str(np.result_type(*[a.dtype for a in leaves if eqx.is_inexact_array(a)])),
        "data": [[len(x), float(np.asarray(x, np.float64).sum())] for x in problem.data],
        "jax": jax.__version__,
        "notes": to_json(dict(notes or {})),
    }
    return json.loads(json.dumps(plain(settings)))  # as it comes back from a file


def check_place(directory: Path, *, resume: bool) -> None:
    """Refuse a directory that cannot take a run, before any time is spent on it."""
    if resume:
        read_settings(directory)
    elif files.holds_run(directory):
        raise TradeError(f"{directory} already holds a run: resume it, or choose another directory.")
    else:
        files.check_directory(directory, overwrite=True)  # a run that was killed before its first checkpoint


@contextmanager
def claimed(directory: Path, settings: dict[str, Any], *, resume: bool) -> Iterator[dict[str, Any]]:
    """Hold a run directory while a run writes into it; gives the settings in force.

    A new run's settings are written; those of a run to resume are compared with the ones of its beginning.
    """
    check_place(directory, resume=resume)
    with files.in_words("could not be made", directory):
        directory.mkdir(parents=True, exist_ok=True)
    with files.locked(directory):
        check_place(directory, resume=resume)  # as it is now that nobody else writes
        files.clean(directory)
        yield _begin(directory, settings, resume=resume)


def _begin(directory: Path, settings: dict[str, Any], *, resume: bool) -> dict[str, Any]:
    if not resume:
        files.write_sealed(directory / files.SETTINGS, settings)
        return settings
    old = read_settings(directory)
    for name, value in settings.items():
        if name not in ("jax", "notes") and old.get(name) != value:
            raise TradeError(f"{directory} cannot be resumed: its {name} was {old.get(name)!r}, now it is {value!r}.")
    return old


def save_models(
    directory: Path,
    final: tuple[Model, ...],
    best: tuple[Model, ...],
    settings: dict[str, Any],
    metrics: list[dict[str, Any]],
) -> None:
    """Write the models; the manifest with all checksums comes last."""
    if not files.is_run(directory):
        files.write_sealed(directory / files.SETTINGS, settings)
    if not (directory / files.METRICS).exists():
        write_metrics(directory / files.METRICS, metrics)
    sums = {}
    for kind, models in (("final", final), ("best", best)):
        for i, model in enumerate(models):
            name = f"{kind}-{i}.eqx"
            sums[name] = files.save_tree(directory / name, model.flow)
    sums[files.METRICS] = _checksum(directory / files.METRICS)
    manifest = {"run": files.seal(settings), "files": sums}
    files.write_sealed(directory / files.MANIFEST, manifest)
    with files.in_words("could not be cleaned up", directory):
        files.clean(directory)


def save_verdicts(directory: Path, verdicts: list[dict[str, Any]]) -> None:
    """Write how far the models can be trusted, one entry per seed."""
    files.write_sealed(directory / files.VERDICT, {"verdicts": verdicts})


def _checksum(path: Path) -> str:
    return hashlib.sha256(files.read_bytes(path)).hexdigest()


def read_settings(directory: Path) -> dict[str, Any]:
    """The settings of a run directory."""
    with files.in_words("cannot be read", directory):
        if not directory.is_dir():
            raise TradeError(f"{directory} is not a directory: it must be a run directory written by TRADE.")
    settings = files.read_sealed(directory / files.SETTINGS)
    if settings.get("format") != FORMAT:
        raise TradeError(
            f"{directory / files.SETTINGS} is not a TRADE run of format {FORMAT}, got {settings.get('format')!r}."
        )
    return settings


class Loaded(NamedTuple):
    """What a run directory holds."""

    final: tuple[Model, ...]
    best: tuple[Model, ...]
    settings: dict[str, Any]
    metrics: list[dict[str, Any]]
    verdicts: list[dict[str, Any]]
    target: AbstractTarget | None


def load_models(directory: Path, flow: AbstractDistribution | None) -> Loaded:
    """Final and best models, settings, metrics, verdicts, and the target if it is of a registered class."""
    settings = read_settings(directory)
    if not (directory / files.MANIFEST).exists():
        raise TradeError(f"{directory} holds a run that is not finished: trade resume continues it.")
    manifest = files.read_sealed(directory / files.MANIFEST)
    if manifest.get("run") != files.seal(settings):
        raise TradeError(f"{directory / files.MANIFEST} is of a run with other settings than those in {directory}.")
    if flow is None and settings.get("recipe") is None:
        raise TradeError(f"{directory} holds a flow that no recipe of ours made: give load(..., flow=...).")
    like = from_json(settings["recipe"]).build(jax.random.key(0)) if flow is None else flow
    if settings["dtype"] == "float64" and jnp.result_type(float) != np.float64:
        raise TradeError(f"{directory} was trained in float64: set JAX_ENABLE_X64=1 to load it.")
    like = _in_precision(like, settings["dtype"])
    condition, shape = from_json(settings["condition"]), settings.get("observation_shape")
    checksums = manifest["files"]
    found: dict[str, list[Model]] = {"final": [], "best": []}
    for kind, models in found.items():
        for i in range(settings.get("seeds") or 1):
            name = f"{kind}-{i}.eqx"
            if name not in checksums:
                raise TradeError(f"{directory / files.MANIFEST} does not name {name}.")
            tree = files.load_tree(directory / name, like, checksums[name])
            models.append(Model(tree, condition, None if shape is None else tuple(shape)))
    if _checksum(directory / files.METRICS) != checksums.get(files.METRICS):
        raise TradeError(f"{directory / files.METRICS} is damaged: its checksum is not the one recorded.")
    metrics = read_metrics(directory / files.METRICS)
    told = directory / files.VERDICT
    verdicts = files.read_sealed(told).get("verdicts", []) if told.exists() else []
    target = None if settings.get("target") is None else from_json(settings["target"])
    return Loaded(tuple(found["final"]), tuple(found["best"]), settings, metrics, verdicts, target)


def _in_precision(flow: AbstractDistribution, dtype: str) -> AbstractDistribution:
    """A flow built now, in the precision of the one that was saved."""
    return jax.tree.map(lambda a: jnp.asarray(a, dtype) if eqx.is_inexact_array(a) else a, flow)


def check_target(settings: dict[str, Any], target: AbstractTarget) -> None:
    """Refuse a target that is not the one a run was trained for, as far as its shape and range tell."""
    condition, own = from_json(settings["condition"]), target.condition
    pairs = {
        "states of shape": (tuple(settings["shape"]), target.shape),
        "a condition over": (condition.extent, own.extent),
        "observations of shape": (
            None if settings["observation_shape"] is None else tuple(settings["observation_shape"]),
            target.observation_shape,
        ),
    }
    for what, (trained, given) in pairs.items():
        if trained != given:
            raise TradeError(f"The run was trained for {what} {trained}, the target that was given has {given}.")
