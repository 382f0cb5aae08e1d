"""What a page says of a run in words and tables: data, settings, versions, training, and how to make it again."""

import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trade.data import Data, examine, make_problem
from trade.report.packing import rounded
from trade.report.quantities import quantities
from trade.run import Run
from trade.training.log import ess_columns

States = dict[float, tuple[np.ndarray, np.ndarray | None]]
ROWS = 6  # quantities in the summary of the data
LONG = 60  # characters of a list that is written out
MOST_STEPS = 400  # points of a training curve
TERMS = {
    "forward_kl": "Boundary: negative log-likelihood",
    "reverse_kl": "Reverse KL",
    "reweighted": "Reweighted forward KL",
    "gradient": "Gradient residual",
    "held_out_nll": "Negative log-likelihood of held-out data",
}
LATER = ("gradient", "reweighted")  # terms that are zero until they begin


def data_summary(run: Run, data: Data | None, states: States) -> dict[str, Any]:
    """How many states there are, what they look like, and what was found of them.

    Args:
        run: The run.
        data: What it was trained on, if at hand.
        states: The states that the page shows at the boundary values.

    Returns:
        ``counts``, rows of (c, trained on, held out), as text; ``moments``, rows of (c, quantity, mean, deviation);
        ``findings``, one sentence each; ``more``, quantities that have no row.
    """
    trained = [int(n) for n, _ in run.settings.get("data", [])]
    boundary = run.model.condition.boundary
    counts, moments = [], []
    for i, c in enumerate(boundary):
        at = _number_or_point(c)
        own = f"{trained[i]:,}" if i < len(trained) else "none"
        apart = "not recorded"
        if data is not None and c in states and i < len(trained):
            apart = f"{len(states[c][0]) - trained[i]:,}"
        counts.append((at, own, apart))
    every = quantities(run.target, run.model.shape)
    for c, (x, _) in states.items():
        for q in every[:ROWS]:
            values = q(x)
            unit = "°" if q.angle else ""
            moments.append(
                (
                    ", ".join(f"{v:g}" for v in np.ravel(c)),
                    q.name,
                    f"{values.mean():.4g}{unit}",
                    f"{values.std():.4g}{unit}",
                )
            )
    findings = []
    if data is not None and run.target is not None:
        findings = [f.text for f in examine(make_problem(run.target, data))] or ["Nothing to object to."]
    return {"counts": counts, "moments": moments, "findings": findings, "more": max(len(every) - ROWS, 0)}


def flattened(settings: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of (dotted name, value).

    Args:
        settings: Plain data; a class is the value of the name that holds it.
        name: Of what is given.

    Returns:
        The rows, in the order of the settings.
    """
    if isinstance(settings, dict):
        own = settings.get("class", settings.get("repr"))
        rows = [] if own is None or not name else [(name, str(own))]
        for key, value in settings.items():
            if key not in ("class", "repr"):
                rows += flattened(value, f"{name}.{key}" if name else key)
        return rows
    if isinstance(settings, list) and any(isinstance(v, dict) for v in settings):
        return [row for i, v in enumerate(settings) for row in flattened(v, f"{name}[{i}]")]
    return [(name, _written(settings))]


def _written(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        text = ", ".join(_written(v) for v in value) or "none"
        return text if len(text) <= LONG else f"{np.size(np.array(value, dtype=object))} values"
    return str(value)


def versions(run: Run) -> list[tuple[str, str]]:
    """Of what the run was trained with, as far as it is recorded, and of what wrote the page."""
    installed = ", ".join(f"{n} {version(n)}" for n in ("equinox", "flowjax", "numpy"))
    return [
        ("trained with", f"JAX {run.settings.get('jax', 'of an unknown version')}"),
        ("page written by", f"TRADE {version('trade-flows')}, JAX {jax.__version__}, {installed}"),
        ("on", f"Python {platform.python_version()}, {jax.devices()[0].platform.upper()}"),
    ]


def _number_or_point(c: Any) -> str:
    return ", ".join(f"{v:g}" for v in np.ravel(c))


def commands(run: Run, name: str, command: str = "") -> list[tuple[str, str]]:
    """How to make the run again and what to do with it, as (what it does, command or call).

    Args:
        run: The run.
        name: Of its directory.
        command: The command that made it, where it is recorded with its results.
    """
    settings, notes = run.settings, run.settings.get("notes", {})
    place, seed = shlex.quote(name), settings.get("seed", 0)
    file = shlex.quote(Path(str(notes.get("problem", "problem.py"))).name)
    own = settings.get("target") is None or settings.get("recipe") is None
    problem = f" --problem {file}" if own else ""
    rows = []
    if notes.get("command") == "fit":
        steps = f" --steps {notes['steps']}" if notes.get("steps") else ""
        rows.append(("train it again", f"trade fit {file} --out {place}{steps}" + (f" --seed {seed}" if seed else "")))
    elif command:
        rows.append(("train it again", command))
    else:
        given = "".join(f", {k}={k}" for k in ("flow", "objective", "optimiser") if k not in settings.get("chosen", []))
        many = f", seeds={settings['seeds']}" if settings.get("seeds") else ""
        call = f"trade.fit(target, data{given}, steps={settings.get('steps')}, seed={seed}{many}, out={name!r})"
        rows.append(("train it again, in Python", call))
    if notes.get("command"):
        rows.append(("continue it, if interrupted", f"trade resume {place}"))
    condition = run.model.condition
    c = ",".join(f"{v:.6g}" for v in np.ravel(condition.spread(2)[0]))
    c = ",".join(f"{n}={v}" for n, v in zip(condition.names, c.split(","), strict=True)) if condition.u_shape else c
    rows.append(("examine it anew", f"trade check {place}{problem}"))
    observed = "" if run.model.observation_shape is None else " --observation y.npy"
    rows.append(("draw samples", f"trade sample {place} --at {c}{observed} -n 10000 --out samples.npz{problem}"))
    rows.append(("write this page", f"trade report {place}{problem}"))
    given = (", target=target" if own else "") + (", flow=flow" if settings.get("recipe") is None else "")
    rows.append(("load it in Python", f"run = trade.load({name!r}{given})"))
    return rows


def training(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Curves over the steps, one panel a loss and one for the ESS.

    Args:
        metrics: The rows of ``metrics.jsonl``.

    Returns:
        Panels with ``title``, ``log`` and ``series``, each of which has ``name``, ``x`` and one ``y`` a seed.
    """
    panels = []
    for name, title in TERMS.items():
        series = _series(metrics, name)
        if series is not None:
            values = [v for y in series["y"] for v in y if v is not None]
            panels.append({"title": title, "log": name == "gradient" and min(values) > 0, "series": [series]})
    at = ess_columns(metrics)
    shown = [s | {"name": f"c = {k[4:]}"} for k in at if (s := _series(metrics, k)) is not None]
    if shown:
        panels.append({"title": "Effective sample size", "log": False, "percent": True, "series": shown})
    return panels


def _series(metrics: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    rows = [r for r in metrics if r.get(name) is not None]
    values = np.array([[np.nan if v is None else v for v in r[name]] for r in rows], dtype=float)
    steps = np.array([r["step"] for r in rows])
    if name in LATER and len(values):
        begun = np.flatnonzero((values != 0).any(axis=1))
        # The first mean of a term that began later is partly over zeros.
        first = len(values) if not len(begun) else begun[0] + (begun[0] > 0)
        steps, values = steps[first:], values[first:]
    if not np.isfinite(values).any():
        return None
    at = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).astype(int))
    return {"name": "", "x": steps[at].tolist(), "y": rounded(values[at].T, 5)}
