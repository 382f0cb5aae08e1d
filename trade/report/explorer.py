"""The report of a run: one page on which a slider moves the condition."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import files
from trade.abstract_target import AbstractTarget
from trade.axes import Axes
from trade.data import Data, check_data, sampled
from trade.errors import TradeError
from trade.evaluation.examination import can_be_used
from trade.evaluation.free_energy import thermodynamic_integration
from trade.evaluation.verdict import Verdict
from trade.evaluation.weights import Quality, quality
from trade.report import html, panels
from trade.report.packing import rounded
from trade.report.summary import States, commands, data_summary, flattened, training, versions
from trade.report.views import Drawn, views
from trade.run import Run, load
from trade.sampling.importance import weighted_samples

GRID = 25  # conditions of the slider
ON_EACH = {2: 8, 3: 4, 4: 3}  # of each of several sliders, by their number; 2 where there are more
MOST_SAMPLES, FEWEST_SAMPLES, NUMBERS = 10_000, 1_000, 10_000_000  # at each condition; numbers of all states
SHOWN = 10_000  # states of an exact sampler
ELSEWHERE = ("target", "data", "recipe.condition.", files.SEAL)  # settings that the page has no row for, or twice
NO_DATA = "Data not at hand: give --problem FILE.py."


def write_report(
    directory: str | Path, run: Run | None = None, *, data: Data | None = None, results: dict[str, Any] | None = None
) -> Path:
    """Write ``report.html`` into a run directory.

    Args:
        directory: The run directory.
        run: The run in it, if it was loaded with a target or a flow of one's own.
        data: What the run was trained on; by default samples of a target that can draw them exactly.
        results: What was measured of it beside, in the form of ``results.json``, with ``labels`` for the names of
            methods and metrics; by default that of the directory, if it has one.

    Returns:
        The path of the page.
    """
    place = files.as_path(directory, "directory")
    run = load(place) if run is None else run
    if results is None and (place / files.RESULTS).exists():
        results = files.read_json(place / files.RESULTS)
    page = render(explore(run, data, name=place.resolve().name, results=results))
    files.write_bytes(place / files.REPORT, page.encode())
    return place / files.REPORT


def explore(
    run: Run, data: Data | None = None, *, name: str = "run", results: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that the page of a run shows.

    Args:
        run: The run.
        data: What it was trained on, if at hand.
        name: Of the run, as the page calls it.
        results: What was measured of it beside.

    Returns:
        Plain data that is strict JSON. ``moving`` is for the slider, all else for what stands still.
    """
    states, origin = _states(run, data)
    verdicts = run.verdicts if run.told or run.target is not None else ()
    observation, observed = _observation(run, states)
    drawn, weights = _draw(run, verdicts, observation)
    condition, lonely = run.model.condition, run.model.observation_shape is None
    given = [np.asarray(states[c][0]) for c in condition.boundary if c in states] if lonely else []
    moving = {
        "c": rounded(_single(drawn.c), 8),
        "u": rounded(_single(np.asarray(condition.chart(drawn.c)))),
        "home": drawn.home,
        "axes": _sliders(condition, drawn.c),
        "boundary": [
            {"c": _single(np.array(c)).tolist(), "u": _single(u).tolist()}
            for c, u in zip(condition.boundary, condition.boundary_u, strict=True)
        ],
        "samples": drawn.x.shape[1],
        "weights": weights,
        "training": training(run.metrics),
        "has_data": bool(given),
        **views(run, drawn, given),
    }
    return files.plain(
        {
            "name": name,
            "lead": _lead(run),
            "notes": [text for text in (_without_weights(run), observed, origin) if text],
            "verdicts": [v.to_json() | {"summary": v.summary} for v in verdicts],
            "moving": moving,
            "data": data_summary(run, data, states),
            "origin": origin,
            "settings": [row for row in flattened(run.settings) if not row[0].startswith(ELSEWHERE)],
            "all_settings": run.settings,
            "versions": versions(run),
            "commands": commands(run, name, (results or {}).get("command", "")),
            "results": results,
        }
    )


def render(content: dict[str, Any]) -> str:
    """The page.

    Args:
        content: What ``explore`` gave.

    Returns:
        HTML that needs nothing else.
    """
    sections = [
        html.verdict(content["verdicts"]),
        panels.section(content["moving"], content["notes"]),
        *([] if content["results"] is None else [html.results(content["results"])]),
        html.training(content["moving"]["training"]),
        html.data(content["data"], content["origin"]),
        html.commands(content["commands"]),
        html.settings(content["settings"], content["versions"], content["all_settings"]),
    ]
    return html.page(f"TRADE run {content['name']}", content["lead"], sections, content["moving"])


def _lead(run: Run) -> str:
    settings, condition = run.settings, run.model.condition
    size = f"{settings['parameters']:,} numbers in the model, " if "parameters" in settings else ""
    steps = f"{settings['steps']:,} steps, " if "steps" in settings else ""
    at = condition.show_all(condition.boundary)
    where = f"boundary at {at}" if at else "no boundary value"
    shape = " × ".join(map(str, run.model.shape)) or "1"
    return f"States of shape {shape}, {condition.show_range()}, {where}; {steps}{size}".rstrip(", ") + "."


def _states(run: Run, data: Data | None) -> tuple[States, str]:
    """States at the boundary values, by boundary value, and where they are from."""
    if run.target is None:
        return {}, NO_DATA
    found, origin = data, ""
    if found is None:
        try:
            found = sampled(run.target, SHOWN) if run.model.observation_shape is None else None
        except TradeError:
            found = None
        origin = "Data not at hand: in their place stand exact samples of the target." if found else NO_DATA
    checked = check_data(run.target, found, "data") if found else {}
    boundary = run.model.condition.boundary
    nearest = {boundary[run.model.condition.index(c, boundary)]: c for c in checked} if boundary else {}
    states = {b: checked[nearest[b]] for b in boundary if b in nearest}
    return {b: (np.asarray(x), None if y is None else np.asarray(y)) for b, (x, y) in states.items()}, origin


def _observation(run: Run, states: States) -> tuple[np.ndarray | None, str]:
    shape = run.model.observation_shape
    if shape is None:
        return None, ""
    ys = [y for _, y in states.values() if y is not None]
    y = np.asarray(ys[0][0] if ys else np.zeros(shape), np.float64)
    shown = ", ".join(f"{v:.3g}" for v in y.ravel()[:4]) + (", ..." if y.size > 4 else "")
    why = "the first of the data, most of which belong to others and are not drawn" if ys else "zero, without data"
    return y, f"Everything is shown for one observation, y = ({shown}): {why}."


def _without_weights(run: Run) -> str:
    if run.target is None:
        return "Weights are not at hand without the target: samples are shown as they are. Give --problem FILE.py."
    return "" if run.target.has_density else "There is no density, so no weights: samples are shown as they are."


def _conditions(run: Run, verdicts: tuple[Verdict, ...]) -> np.ndarray:
    """A grid over the range with its ends and the boundary values; that of the verdict, where it alone has weights."""
    condition = run.model.condition
    if isinstance(condition, Axes):
        points = ON_EACH.get(len(condition.axes), 2)
        homes = np.reshape(condition.boundary, (-1, len(condition.axes)))
        lines = [_line(axis, homes[:, i], points) for i, (_, axis) in enumerate(condition.axes)]
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(lines))
    if run.target is None and verdicts and verdicts[0].table:
        return verdicts[0].conditions
    return _line(condition, np.array(condition.boundary), GRID)


def _single(values: np.ndarray) -> np.ndarray:
    """Conditions of the only one of named axes as numbers."""
    return values[..., 0] if values.ndim and values.shape[-1] == 1 else values


def _line(axis: Any, homes: np.ndarray, points: int) -> np.ndarray:
    """Even in the chart, but that boundary values take the place of what lies close to them."""
    u, c, homes = np.linspace(-1.0, 1.0, points), axis.grid(points), np.unique(homes)
    apart = np.min(np.abs(u[:, None] - axis.charted(homes)), axis=1, initial=np.inf)
    away = apart > 0.4 / (points - 1)
    away[[0, -1]] = apart[[0, -1]] > 1e-6
    return np.unique(np.concatenate([c[away], homes]))


def _sliders(condition: Any, at: np.ndarray) -> list[dict[str, Any]]:
    """Of each axis its name, its values and their chart, and where it has ticks."""
    axes = condition.axes if isinstance(condition, Axes) else (("c", condition),)
    found = []
    for i, (name, axis) in enumerate(axes):
        values = np.unique(at.reshape(len(at), -1)[:, i])
        found.append({"name": name, "c": rounded(values, 8), "u": rounded(axis.charted(values)), "ticks": _ticks(axis)})
    return found


def _draw(
    run: Run, verdicts: tuple[Verdict, ...], observation: np.ndarray | None
) -> tuple[Drawn, dict[str, Any] | None]:
    """Samples at every condition from one key, so that they move with c; and what their weights say."""
    model, target = run.model, run.target
    at, key = _conditions(run, verdicts), jax.random.key(0)
    size = int(np.prod(model.shape)) * len(at)
    n = int(np.clip(NUMBERS // size, FEWEST_SAMPLES, MOST_SAMPLES))
    home, several = model.condition.index(model.condition.reference, at), bool(model.condition.u_shape)
    if target is None or not target.has_density:
        x = np.stack([_clean(model.sample(key, n, model.condition.check(c), observation)) for c in at])
        table = verdicts[0].table if verdicts and len(verdicts[0].table.get("c", ())) == len(at) else None
        found = None if not table else [Quality(**{n: table[n][i] for n in Quality._fields}) for i in range(len(at))]
        return Drawn(at, x, None, home, observation), None if found is None else _columns(at, home, found, None, None)
    states, weight, found, slopes = [], [], [], []
    for c in at:
        weighted = weighted_samples(model, target, key, n, model.condition.check(c), observation)
        log_w = np.asarray(weighted.log_weight, np.float64)
        states.append(_clean(weighted.x))
        weight.append(_normalised(log_w))
        found.append(quality(log_w))
        if not several:
            slopes.append(_mean_slope(target, weighted.x, model.condition.chart(c), observation, weight[-1]))
    integral = None
    if slopes and np.isfinite(slopes).all():
        u, (mean, error) = np.asarray(model.condition.chart(at), np.float64), np.array(slopes).T
        integral = thermodynamic_integration(at, u, mean, error, float(at[home])).log_z
    exact = _exact(target, at, home) if observation is None else None
    drawn = Drawn(at, np.stack(states), np.stack(weight), home, observation)
    return drawn, _columns(at, home, found, integral, exact)


def _columns(
    at: np.ndarray, home: int, found: list[Quality], integral: np.ndarray | None, exact: np.ndarray | None
) -> dict[str, Any]:
    """What the weights say at each condition; log Z less that at the boundary."""
    columns = {name: np.array([getattr(q, name) for q in found]) for name in Quality._fields}
    error = np.hypot(columns["log_z_error"], columns["log_z_error"][home])
    with np.errstate(invalid="ignore"):
        columns["log_z"] = columns["log_z"] - columns["log_z"][home]
    columns["log_z_error"] = np.where(np.arange(len(at)) == home, 0.0, error)
    usable = [can_be_used(q) for q in found]
    return {name: rounded(values, 5) for name, values in columns.items()} | {
        "usable": usable,
        "integral": None if integral is None else rounded(integral, 5),
        "exact": None if exact is None else rounded(exact, 5),
        "reference": ", ".join(f"{v:.4g}" for v in np.ravel(at[home])),
    }


def _clean(x: Array) -> np.ndarray:
    values = np.asarray(x, np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _normalised(log_weight: np.ndarray) -> np.ndarray:
    """Weights with sum one; all zero where none is finite."""
    log_w = np.where(np.isnan(log_weight), -np.inf, log_weight)
    top = log_w.max(initial=-np.inf)
    w = np.exp(log_w - top) if np.isfinite(top) else np.zeros_like(log_w)
    return w / max(w.sum(), 1e-300)


@eqx.filter_jit
def _slopes(target: AbstractTarget, x: Array, u: Array, y: Array | None) -> Array:
    return jax.vmap(lambda v: target.score(v, u, y))(x)


def _mean_slope(
    target: AbstractTarget, x: Array, u: Array, observation: np.ndarray | None, weight: np.ndarray
) -> tuple[float, float]:
    """The weighted mean of ∂_u log q, and its standard error."""
    y = None if observation is None else jnp.asarray(observation, x.dtype)
    slope = np.asarray(_slopes(target, x, u, y), np.float64)
    slope, w = slope[weight > 0], weight[weight > 0]
    mean = float(w @ slope) if len(w) else np.nan
    return mean, float(np.sqrt(np.sum((w * (slope - mean)) ** 2)))


def _exact(target: AbstractTarget, at: np.ndarray, home: int) -> np.ndarray | None:
    try:
        values = np.array([target.log_partition(target.condition.check(c)) for c in at])
    except TradeError:
        return None
    return values - values[home]


def _ticks(condition: Any) -> list[tuple[float, str]]:
    """The ends, and round conditions about evenly between, with as few digits as tell them apart."""
    low, *inner, high = condition.grid(6)
    digits = next((n for n in range(1, 9) if len({f"{c:.{n}g}" for c in inner}) == len(inner)), 9)
    rounded_off = [float(f"{c:.{digits}g}") for c in inner]
    shown = [low, *[c for c in rounded_off if low < c < high], high]
    return [(round(float(condition.chart(c)), 5), f"{c:.4g}") for c in shown]
