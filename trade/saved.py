"""A run directory on disk: settings in JSON, arrays beside them, and nothing that is code.

::

    run.json          settings: recipe of the flow, target, objective, optimiser, steps, seeds
    metrics.jsonl     losses and evaluations
    checkpoint.json   newest checkpoint (while training, and after)
    model.json        checksums of the finished models
    final-0.eqx ...   arrays of the final model of each seed
    best-0.eqx ...    arrays of the best model of each seed
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from flowjax.distributions import AbstractDistribution

from trade.condition import Condition
from trade.config import from_json, to_json
from trade.errors import TradeError
from trade.flows.circular_recipes import CircularFlow
from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.convolution import Convolutional
from trade.flows.latent import Normal, PowerScaled
from trade.flows.lattice_recipes import ConvolutionalFlow, LatticeFlow
from trade.flows.recipes import AffineFlow, Flow, SplineFlow, VolumePreservingFlow
from trade.model import Model
from trade.objectives.term import Problem
from trade.target import AbstractTarget
from trade.targets import Augmented, GaussianMixture, MultiWell, ScalarField
from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide
from trade.training.checkpoint import load_tree, read_json, save_tree, write_bytes, write_json
from trade.training.metrics import read_metrics
from trade.training.state import Program

FORMAT = 1
_RECIPES = (SplineFlow, AffineFlow, VolumePreservingFlow, LatticeFlow, ConvolutionalFlow, CircularFlow)
PLAIN = {c.__name__: c for c in (Condition, MLP, ResidualMLP, Convolutional, Normal, PowerScaled, *_RECIPES)}
TARGETS = {c.__name__: c for c in (AlanineDipeptide, Augmented, GaussianMixture, MultiWell, ScalarField)}


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
    known = type(target).__name__ in TARGETS
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
    return {
        "format": FORMAT,
        "recipe": to_json(flow.recipe) if isinstance(flow, Flow) else None,
        "target": {"class": type(target).__name__, **to_json(target.config())} if known else None,  # pyright: ignore
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


def begin_directory(directory: Path, settings: dict[str, Any], *, resume: bool) -> None:
    """Write the settings of a new run, or compare them with those of the run to resume."""
    path = directory / "run.json"
    if not resume:
        if any((directory / name).exists() for name in ("checkpoint.json", "model.json")):
            raise TradeError(f"{directory} already holds a run: resume it, or choose another directory.")
        write_json(path, settings)
        return
    old = read_json(path)
    for name, value in settings.items():
        if name not in ("jax", "notes") and old.get(name) != json.loads(json.dumps(value)):
            raise TradeError(f"{directory} cannot be resumed: its {name} was {old.get(name)!r}, now it is {value!r}.")


def save_models(
    directory: Path,
    final: tuple[Model, ...],
    best: tuple[Model, ...],
    settings: dict[str, Any],
    metrics: list[dict[str, Any]],
) -> None:
    """Write the models; the manifest with their checksums comes last."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "run.json", settings)
    write_bytes(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in metrics).encode())
    files = {}
    for kind, models in (("final", final), ("best", best)):
        for i, model in enumerate(models):
            name = f"{kind}-{i}.eqx"
            files[name] = save_tree(directory / name, model.flow)
    write_json(directory / "model.json", {"sha256": files})


def read_settings(directory: Path) -> dict[str, Any]:
    """The settings of a run directory."""
    if not directory.is_dir():
        raise TradeError(f"{directory} is not a directory: it must be a run directory written by TRADE.")
    settings = read_json(directory / "run.json")
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise TradeError(f"{directory / 'run.json'} is not a TRADE run of format {FORMAT}.")
    return settings


def load_models(
    directory: Path, flow: AbstractDistribution | None
) -> tuple[tuple[Model, ...], tuple[Model, ...], dict[str, Any], list[dict[str, Any]], AbstractTarget | None]:
    """Final and best models, settings, metrics, and the target if it is one of ours."""
    settings = read_settings(directory)
    if flow is None:
        if settings.get("recipe") is None:
            raise TradeError(f"{directory} holds a flow that no recipe of ours made: give load(..., flow=...).")
        flow = from_json(settings["recipe"], PLAIN).build(jax.random.key(0))
    condition = from_json(settings["condition"], PLAIN)
    shape = settings.get("observation_shape")
    checksums = read_json(directory / "model.json").get("sha256", {})
    found: dict[str, list[Model]] = {"final": [], "best": []}
    for kind, models in found.items():
        for i in range(settings.get("seeds") or 1):
            name = f"{kind}-{i}.eqx"
            if name not in checksums:
                raise TradeError(f"{directory / 'model.json'} does not name {name}.")
            tree = load_tree(directory / name, flow, checksums[name])
            models.append(Model(tree, condition, None if shape is None else tuple(shape)))
    metrics_file = directory / "metrics.jsonl"
    metrics = read_metrics(metrics_file) if metrics_file.exists() else []
    return tuple(found["final"]), tuple(found["best"]), settings, metrics, _target(settings)


def _target(settings: dict[str, Any]) -> AbstractTarget | None:
    described = settings.get("target")
    return None if described is None else from_json(described, PLAIN | TARGETS)
