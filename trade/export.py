"""Samples in the forms that others read: NumPy and CSV files, ArviZ and its netCDF, trajectories of a molecule."""

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import scipy
from jax import Array
from jax.typing import ArrayLike

from trade import check, files
from trade.abstract_condition import AbstractCondition, ConditionLike
from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.model import Model
from trade.sampling.importance import weighted_samples
from trade.targets.molecule.boltzmann import Molecule
from trade.targets.molecule.trajectory import FORMATS, trajectory_bytes


@dataclass(frozen=True)
class Samples:
    """Samples of a model at some conditions.

    Args:
        conditions: The conditions, numbers or points.
        x: The samples, of shape (conditions, n, ...).
        log_prob: log p_θ(x|c), of shape (conditions, n).
        log_weight: log q(x|c) - log p_θ(x|c), not normalised; None without a density, and of resampled ones.
        ess: Relative effective sample size at each condition, of the weights that are or were.
        observation: The observation, of a model that takes one.
        axes: Names of the axes of a condition that has several.
    """

    conditions: tuple[Any, ...]
    x: np.ndarray
    log_prob: np.ndarray
    log_weight: np.ndarray | None = None
    ess: tuple[float, ...] | None = None
    observation: np.ndarray | None = None
    axes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The conditions by the names of their axes; by the name ``condition`` where there is one axis."""
        values = np.array(self.conditions, float).reshape(len(self.conditions), -1)
        return dict(zip(self.axes or ("condition",), values.T, strict=True))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Samples, log densities and, where there are any, log weights, by name."""
        found = {"x": self.x, "log_prob": self.log_prob, "log_weight": self.log_weight}
        return {name: value for name, value in found.items() if value is not None}

    def resampled(self, key: Array) -> "Samples":
        """As many samples drawn with replacement by their weights: they need none any more.

        Args:
            key: A JAX random key.

        Returns:
            The samples, without weights.
        """
        if self.log_weight is None:
            raise TradeError("Samples without weights cannot be drawn by them: the density of the target is needed.")
        chance = scipy.special.softmax(self.log_weight.astype(float), axis=1)
        if not np.isfinite(chance).all():
            raise TradeError("The samples cannot be drawn by their weights: some are NaN, or none is finite.")
        rng = np.random.default_rng(np.asarray(jax.random.bits(check.random_key(key), (4,))))
        n = chance.shape[1]
        rows = np.arange(len(chance))[:, None]
        chosen = np.stack([rng.choice(n, n, p=p) for p in chance])
        return replace(self, x=self.x[rows, chosen], log_prob=self.log_prob[rows, chosen], log_weight=None)


def draw_at(
    model: Model,
    target: AbstractTarget | None,
    key: Array,
    n: int,
    conditions: ConditionLike | Iterable[ConditionLike],
    observation: ArrayLike | None = None,
) -> Samples:
    """Draw samples of a model at one condition or several, with weights where the target has a density.

    Args:
        model: The model.
        target: The target, if at hand.
        key: A JAX random key.
        n: Samples at each condition.
        conditions: The conditions, no two alike.
        observation: The observation, for a model that takes one.

    Returns:
        The samples.
    """
    c = model.condition.check_all(conditions)
    check.count(n, (len(c), *model.shape))
    keys = [check.random_key(key)] if len(c) == 1 else jax.random.split(check.random_key(key), len(c))
    y = None if observation is None else np.asarray(check.array(observation, "The observation"))
    pairs = list(zip(keys, c, strict=True))
    axes = model.condition.names if model.condition.u_shape else ()
    if target is None or not target.has_density:
        drawn = [model.sample_and_log_prob(k, n, value, y) for k, value in pairs]
        x, log_prob = (np.stack([d[i] for d in drawn]) for i in range(2))
        return Samples(c, x, log_prob, observation=y, axes=axes)
    found = [weighted_samples(model, target, k, n, value, y) for k, value in pairs]
    x, log_prob, log_weight = (np.stack([f[i] for f in found]) for i in range(3))
    return Samples(c, x, log_prob, log_weight, tuple(f.ess for f in found), y, axes)


def to_arviz(samples: Samples) -> Any:
    """Samples as ArviZ takes them, for its summaries, its plots and its netCDF files.

    Draws are independent: they are one chain. The condition is a dimension with its values as coordinates (with several
    axes it is numbered, and each axis is a coordinate along it). Weights are
    not known to ArviZ: its summaries are those of the target only for resampled ones.

    Args:
        samples: The samples.

    Returns:
        A ``DataTree`` of xarray, or with ArviZ below version 1 an ``InferenceData``: the group ``posterior`` has ``x``
        with dimensions (chain, draw, condition, ...), ``sample_stats`` has ``log_prob`` and ``log_weight``.
    """
    arviz, xarray = check.library("arviz"), check.library("xarray")
    lead = ("chain", "draw", "condition")
    attributes: dict[str, Any] = {"inference_library": "trade", "inference_library_version": _version()}
    if samples.ess is not None:
        attributes["ess"] = np.array(samples.ess)

    def group(arrays: dict[str, np.ndarray]) -> Any:
        variables = {}
        for name, value in arrays.items():
            dims = (*lead, *(f"{name}_dim_{i}" for i in range(value.ndim - 2)))
            variables[name] = (dims, np.swapaxes(value, 0, 1)[None])
        n = samples.log_prob.shape[1]
        coordinates: dict[str, Any] = {"chain": [0], "draw": np.arange(n)}
        if samples.axes:
            coordinates["condition"] = np.arange(len(samples.conditions))
            coordinates |= {name: ("condition", values) for name, values in samples.columns.items()}
        else:
            coordinates |= samples.columns
        return xarray.Dataset(variables, coordinates, attributes)

    stats = samples.arrays
    groups = {"posterior": group({"x": stats.pop("x")}), "sample_stats": group(stats)}
    if samples.observation is not None:
        dims = tuple(f"observation_dim_{i}" for i in range(samples.observation.ndim))
        groups["observed_data"] = xarray.Dataset({"observation": (dims, samples.observation)})
    return arviz.InferenceData(**groups) if arviz.__version__.startswith("0.") else xarray.DataTree.from_dict(groups)


def _version() -> str:
    try:
        return metadata.version("trade-flows")
    except metadata.PackageNotFoundError:  # used from a folder
        return "unknown"


# --- Files, by the ending of their names

SUFFIXES = (".npz", ".csv", ".nc", *FORMATS)


def outputs(path: Path, conditions: tuple[Any, ...], *, overwrite: bool) -> tuple[Path, ...]:
    """The files that samples go to, or one sentence on why they cannot be written.

    Args:
        path: A file; what its name ends in says what is written.
        conditions: The conditions; a trajectory has a file for each of several.
        overwrite: Whether files that are there may be replaced.

    Returns:
        One file, or one per condition.
    """
    if path.suffix in FORMATS and len(conditions) > 1:
        names = ["-".join(f"{float(v)!r}".removesuffix(".0") for v in np.ravel(c)) for c in conditions]
        paths = tuple(path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names)
    else:
        paths = (path,)
    for place in paths:
        files.check_output(place, overwrite=overwrite)
    return paths


def check_format(path: Path) -> None:
    """Refuse a file whose name does not say what is to be written.

    Args:
        path: The file.
    """
    if path.suffix not in SUFFIXES:
        raise TradeError(f"--out must be a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {path}.")


def write(samples: Samples, paths: tuple[Path, ...], target: AbstractTarget | None, topology: Any = None) -> None:
    """Write samples to the files that ``outputs`` gave, each as a whole.

    Args:
        samples: The samples.
        paths: One file, or one per condition.
        target: The target, whose molecule a trajectory shows.
        topology: Names of the atoms of a trajectory (see ``write_trajectory``).
    """
    kind = paths[0].suffix
    if kind in FORMATS:
        if not isinstance(target, Molecule):
            raise TradeError(f"A {kind} file has the positions of a molecule, and this run is of none.")
        contents = [trajectory_bytes(kind, states, target, topology) for states in samples.x]
    elif topology is not None:
        raise TradeError(f"A topology is for trajectories ({', '.join(FORMATS)}), and {paths[0]} is none.")
    else:
        contents = [{".npz": _npz, ".csv": _csv, ".nc": _netcdf}[kind](samples)]
    for path, content in zip(paths, contents, strict=True):
        files.write_bytes(path, content)


def _npz(samples: Samples) -> bytes:
    """Arrays by name; those of one condition without an axis for it."""
    arrays = samples.arrays
    if len(samples.conditions) == 1:
        arrays = {name: value[0] for name, value in arrays.items()}
    else:
        arrays["condition"] = np.array(samples.conditions)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _csv(samples: Samples) -> bytes:
    """One row per state, with the names of the columns on top."""
    arrays = samples.arrays
    x = arrays.pop("x")
    n = x.shape[1]
    states = x.reshape(x.shape[0] * n, -1)
    at = [np.repeat(values, n) for values in samples.columns.values()]
    columns = [*at, *states.T, *(value.ravel() for value in arrays.values())]
    header = ",".join([*samples.columns, *(f"x{i}" for i in range(states.shape[1])), *arrays])
    digits = "%.9g" if x.dtype == np.float32 else "%.17g"  # what is read back is the same number
    buffer = io.StringIO()
    np.savetxt(buffer, np.column_stack(columns), digits, ",", header=header, comments="")
    return buffer.getvalue().encode()


def _netcdf(samples: Samples) -> bytes:
    with TemporaryDirectory() as folder:
        beside = Path(folder) / "samples.nc"
        to_arviz(samples).to_netcdf(str(beside))
        return beside.read_bytes()


# --- What a command line has as text


def numbers(text: str, name: str) -> tuple[float, ...]:
    """Numbers with commas between them.

    Args:
        text: What was given, such as ``"300,400"``.
        name: What the user calls it.

    Returns:
        The numbers.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise TradeError(f"{name} must be numbers such as 300 or 300,400,500, got {check.shown(text)}.") from None


def read_points(texts: tuple[str, ...]) -> tuple[Any, ...]:
    """What a command line has of conditions: numbers with commas between them, or with the names of axes.

    Args:
        texts: Such as ``("300,400",)`` or ``("T=300,P=1", "T=400,P=1")``.

    Returns:
        For each text its numbers, or a mapping from names to numbers.
    """
    found: list[Any] = []
    for text in texts:
        pairs = [part.split("=") for part in text.split(",")]
        named = [len(pair) == 2 and pair[0].strip() for pair in pairs]
        found.append(
            {str(name): numbers(pair[1], "--at")[0] for name, pair in zip(named, pairs, strict=True)}
            if all(named)
            else numbers(text, "--at")
        )
    return tuple(found)


def conditions_of(points: tuple[Any, ...], condition: AbstractCondition) -> tuple[Any, ...]:
    """Conditions from what ``read_points`` gave: with several axes each text is a point, with one each number is one.

    Args:
        points: Numbers, or mappings from names to numbers.
        condition: The condition of the model.

    Returns:
        The conditions, checked.
    """
    if condition.u_shape:
        return condition.check_all(list(points))
    if any(isinstance(point, dict) for point in points):
        raise TradeError("--at must be numbers such as 300 or 300,400,500: the condition of this model has one axis.")
    return condition.check_all([c for point in points for c in point])


def read_observation(text: str | None, shape: tuple[int, ...] | None) -> np.ndarray | None:
    """An observation: numbers with commas between them, or the name of an .npy file.

    Args:
        text: What was given, if anything.
        shape: The shape that the model takes, if it takes any; numbers are brought into it.

    Returns:
        The observation.
    """
    if text is None:
        return None
    if not text.endswith(".npy"):
        found = np.array(numbers(text, "--observation"))
        return found.reshape(shape) if shape is not None and np.prod(shape, dtype=int) == found.size else found
    try:
        return np.load(io.BytesIO(files.read_bytes(Path(text))), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise TradeError(f"{text} cannot be read as an array of NumPy: {check.reason(error)}.") from error
