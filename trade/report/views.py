"""What moves with the slider: marginals, points, densities, torsions and fields at every condition, as plain data."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.evaluation.ramachandran import BINS as CELLS
from trade.report.grids import density_grid, pooled, range_of, squared
from trade.report.packing import pack, rounded
from trade.report.quantities import MOST, Quantity, is_field, most_changing, quantities, torsion_pair
from trade.run import Run

BINS = 56  # of a marginal
POINTS = 1_200  # of a pair plot
PIXELS = 96  # along the side of a picture of a density
CURVE = 240  # points of the curve of a density in one dimension
FIELDS = 6
FIELD_PIXELS = 24_576  # of all fields at one condition
DECADES = 3.0  # of the colours of a map of torsions
LARGEST_RADIUS = 4.0  # of a point, where one of a mean weight has radius one
GAMMA = 0.4  # of the colours of a density: broad and narrow modes are seen together


class Drawn(NamedTuple):
    """Samples of the model at every condition, from the same random numbers.

    Args:
        c: The conditions.
        x: States, of shape (conditions, samples, ...).
        weight: Their importance weights, with sum one at each condition; None where they are not at hand.
        home: The condition to begin with: a boundary value, if there is one.
        observation: What the model was given beside c, if it takes any.
    """

    c: np.ndarray
    x: np.ndarray
    weight: np.ndarray | None
    home: int
    observation: np.ndarray | None = None

    @property
    def some_weight(self) -> np.ndarray:
        """The weights, or equal ones."""
        n = self.x.shape[1]
        return np.full((len(self.c), n), 1.0 / n) if self.weight is None else self.weight


def views(run: Run, drawn: Drawn, data: Sequence[np.ndarray]) -> dict[str, Any]:
    """Everything that is drawn anew when the slider moves.

    Args:
        run: The run.
        drawn: Samples of its model.
        data: States at the boundary values, in their order; empty where they are not at hand.

    Returns:
        Plain data, arrays packed: ``quantities``, ``marginals``, ``points``, and those of ``density``, ``torsions``
        and ``fields`` that such states have, else None.
    """
    shape, target = run.model.shape, run.target
    every = quantities(target, shape)
    angles = torsion_pair(every, drawn.x[drawn.home]) if len(every) > 2 else None
    shown = _choose(every, angles, drawn)
    values = np.stack([np.stack([q(x) for q in shown], axis=-1) for x in drawn.x])
    given = [np.stack([q(x) for q in shown], axis=-1) for x in data]
    ranges = np.array([[_range(q, v[:, k]) for k, q in enumerate(shown)] for v in values])
    of_data = np.array([[_range(q, v[:, k]) for k, q in enumerate(shown)] for v in given]).reshape(-1, len(shown), 2)
    small = len(every) <= 2 and not is_field(target, shape)
    common = [(float(min(low)), float(max(high))) for low, high in np.concatenate([ranges, of_data]).transpose(1, 2, 0)]
    return {
        "quantities": [{"name": q.name, "angle": q.angle} for q in shown],
        "all_quantities": len(every),
        "ranges": rounded(ranges),
        "data_ranges": rounded(of_data),
        "marginals": _marginals(values, ranges, drawn, given, of_data),
        "points": _points(values, ranges, drawn, given, of_data),
        "density": _density(run, drawn, shown, common) if small else None,
        "torsions": None if angles is None else _torsions(angles, drawn, data),
        "fields": _fields(drawn, data) if is_field(target, shape) else None,
    }


def _choose(every: list[Quantity], angles: tuple[Quantity, Quantity] | None, drawn: Drawn) -> list[Quantity]:
    """Those that change most with c, and the two torsions that have a map."""
    kept = list(angles or ())
    rest = [q for q in every if q not in kept]
    values = np.stack([np.stack([q(x) for q in rest], axis=-1) for x in drawn.x])
    found = most_changing(values, drawn.some_weight, drawn.home, MOST - len(kept))
    return kept + [rest[i] for i in found]


def _range(quantity: Quantity, values: np.ndarray) -> tuple[float, float]:
    return (-180.0, 180.0) if quantity.angle else range_of(values)


def _heights(values: np.ndarray, ranges: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Histograms as densities, of shape (quantities, bins)."""
    found = []
    for v, (low, high) in zip(values.T, ranges, strict=True):
        counts = np.histogram(v, BINS, (low, high), weights=weight)[0]
        found.append(counts / (1.0 if weight is not None else len(v)) * BINS / (high - low))
    return np.array(found)


def _marginals(
    values: np.ndarray, ranges: np.ndarray, drawn: Drawn, given: list[np.ndarray], of_data: np.ndarray
) -> dict[str, Any]:
    """Each histogram between the ends of its own condition; heights as parts of the highest of a quantity there."""
    raw = np.array([_heights(v, r) for v, r in zip(values, ranges, strict=True)])
    weighted = raw
    if drawn.weight is not None:
        weighted = np.array([_heights(*each) for each in zip(values, ranges, drawn.weight, strict=True)])
    top = np.maximum(raw, weighted).max(axis=2)
    top[top == 0] = 1.0
    data = np.array([_heights(v, r) for v, r in zip(given, of_data, strict=True)]).reshape(-1, raw.shape[1], BINS)
    data_top = np.maximum(data.max(axis=2, initial=0.0), 1e-300)
    return {
        "raw": pack(raw / top[..., None], 0.0, 1.0),
        "weighted": None if drawn.weight is None else pack(weighted / top[..., None], 0.0, 1.0),
        "top": rounded(top, 4),
        "data": pack(data / data_top[..., None], 0.0, 1.0) if len(data) else None,
        "data_top": rounded(data_top, 4),
    }


def _points(
    values: np.ndarray, ranges: np.ndarray, drawn: Drawn, given: list[np.ndarray], of_data: np.ndarray
) -> dict[str, Any] | None:
    """Places as parts of the range of their condition, and radii whose squares are as the weights."""
    if values.shape[2] < 2:
        return None

    def placed(v: np.ndarray, r: np.ndarray) -> np.ndarray:
        share = (v[:POINTS] - r[:, 0]) / (r[:, 1] - r[:, 0])
        return np.where(np.isfinite(share), share, -1.0)  # beyond the range: not drawn

    place = np.array([placed(v, r) for v, r in zip(values, ranges, strict=True)])
    data = [placed(v, r) for v, r in zip(given, of_data, strict=True)]
    radius = None
    if drawn.weight is not None:
        radius = pack(np.sqrt(drawn.weight[:, :POINTS] * values.shape[1]), 0.0, LARGEST_RADIUS)
    return {
        "place": pack(place, 0.0, 1.0, bits=16),
        "radius": radius,
        "data": [pack(v, 0.0, 1.0, bits=16) for v in data],
    }


def _density(
    run: Run, drawn: Drawn, shown: Sequence[Quantity], common: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """Of model and target, on one range for all conditions, in the colours of the target's highest value."""
    ranges = squared(common) if not any(q.angle for q in shown) else list(common)
    in_unit = [(np.deg2rad(a), np.deg2rad(b)) if q.angle else (a, b) for q, (a, b) in zip(shown, ranges, strict=True)]
    target = run.target if drawn.weight is not None else None
    flat = len(shown) == 1

    def grids(of: Any) -> np.ndarray:
        cells = CURVE if flat else 2 * PIXELS
        found = (density_grid(of, run.model.condition.check(c), in_unit, cells, drawn.observation) for c in drawn.c)
        return np.stack([g if flat else pooled(g) for g in found])

    model, truth = grids(run.model), None if target is None else grids(target)
    over = (1,) if flat else (1, 2)
    scale = (model if truth is None else np.maximum(model, truth) if flat else truth).max(axis=over, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    power, bits = (1.0, 16) if flat else (GAMMA, 8)

    def packed(p: np.ndarray) -> dict[str, Any]:
        return pack((p / scale) ** power, 0.0, 1.0, bits=bits)

    return {
        "ranges": rounded(ranges),
        "model": packed(model),
        "target": None if truth is None else packed(truth),
        "exact": target is not None and drawn.observation is None and _knows_log_z(target),
    }


def _knows_log_z(target: AbstractTarget) -> bool:
    try:
        target.log_partition(target.condition.reference)
    except TradeError:
        return False
    return True


def _torsions(pair: tuple[Quantity, Quantity], drawn: Drawn, data: Sequence[np.ndarray]) -> dict[str, Any]:
    """Histograms of two angles, as logarithms of the density below its maximum."""

    def shares(x: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        found = np.histogram2d(pair[0](x), pair[1](x), CELLS, ((-180, 180), (-180, 180)), weights=weight)[0]
        return found / (len(x) if weight is None else 1.0)

    raw = np.array([shares(x) for x in drawn.x])
    weighted = None
    if drawn.weight is not None:
        weighted = np.array([shares(x, w) for x, w in zip(drawn.x, drawn.weight, strict=True)])
    given = np.array([shares(x) for x in data]).reshape(-1, CELLS, CELLS)
    top = max(float(raw.max()), float(given.max(initial=0.0)))

    def packed(share: np.ndarray) -> dict[str, Any]:
        with np.errstate(divide="ignore"):
            return pack(1.0 + np.log10(share / top) / DECADES, 0.0, 1.0)

    return {
        "names": [q.name for q in pair],
        "raw": packed(raw),
        "weighted": None if weighted is None else packed(weighted),
        "data": packed(given) if len(given) else None,
    }


def _fields(drawn: Drawn, data: Sequence[np.ndarray]) -> dict[str, Any]:
    """Some states of the model and of the data as pictures, on one symmetric scale; of three dimensions one layer."""

    def pictures(x: np.ndarray) -> np.ndarray:
        x = x[:, None] if x.ndim == 2 else x
        while x.ndim > 3:
            x = x[:, 0]
        return np.asarray(x[: max(1, min(FIELDS, FIELD_PIXELS // (x.shape[1] * x.shape[2])))], np.float64)

    model, given = np.stack([pictures(x) for x in drawn.x]), [pictures(x) for x in data]
    size = float(np.quantile(np.abs(model[np.isfinite(model)]), 0.999)) if np.isfinite(model).any() else 1.0
    return {"model": pack(model, -size, size), "data": [pack(v, -size, size) for v in given], "size": rounded(size, 3)}
