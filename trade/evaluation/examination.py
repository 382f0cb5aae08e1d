"""The examination of a trained model, from which its verdict follows.

What is looked at, on a grid of conditions with the boundary values among them: the importance weights (effective
sample size, the largest weight, the shape of their tail), the likelihood of held-out data beside that of the model's
own states, log Z by two routes, and whether the density has modes where the model has no states. What no check can see
is in ``docs/trust.md``.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.evaluation.belonging import Finding
from trade.evaluation.free_energy import bennett, thermodynamic_integration
from trade.evaluation.modes import unknown_modes
from trade.evaluation.verdict import Level, Verdict, Witness
from trade.evaluation.weights import LARGEST_KHAT, Quality, quality
from trade.flows.whiten import within
from trade.model import Model, log_prob
from trade.objectives.points import at_points, model_states

GRID = 17  # conditions over the range
ALONG = 9  # on the line from the boundary to a corner, where the range has several axes
SAMPLES = 1_000  # at each of them, at a time
ROUNDS = 4
OBSERVED = 4  # observations at each condition, for a target that takes any
GOOD_ESS = 0.9  # of a model that needs no weights: a KL divergence of about 0.05
LEAST_ESS = 0.01  # of weights that can still be used
LOST_ESS = 0.5  # at the boundary, of a model of no use: above it a heavy tail costs the use of weights there alone
TAME = 0.005  # the largest single weight that is harmless, whatever the shape of the tail says
LEAST_PART = 0.1  # of the range, of a run that is worth anything
BELOW = 0.001  # quantile of the model's own log densities under which few data should lie


def judge(model: Model, target: AbstractTarget, witness: Witness, key: Array | None = None) -> Verdict:
    """Examine a trained model.

    Args:
        model: The model.
        target: What it was trained for.
        witness: Held-out data, and what was found before and during the training.
        key: Randomness; fixed by default.

    Returns:
        The verdict.
    """
    key = jax.random.key(0) if key is None else key
    findings = [*witness.findings, *_of_training(witness)]
    observations = _observations(target, witness)
    if not target.has_density or (target.observation_shape is not None and observations is None):
        why = "There is no density" if not target.has_density else "There is no held-out observation"
        findings.append(Finding("note", f"{why}: beyond the boundary nothing can be checked."))
        fatal = any(f.severity == "fatal" for f in findings)
        return _verdict("not usable" if fatal else "not checked", (), findings, {})
    condition = model.condition
    grid = condition.spread(GRID)
    weighed = _weigh_grid(model, target, grid, observations, key)
    qualities = [_worst_quality(log_w) for log_w in weighed.log_weight]
    usable, level = _ranges(condition, grid, qualities)
    findings += _of_weights(condition, grid, qualities)
    findings += _of_boundary(model, target, grid, weighed, witness)
    if observations is None:
        findings += _of_routes(model, target, grid, weighed, qualities, jax.random.fold_in(key, 2))
        findings += _of_modes(model, target, grid, weighed, qualities, jax.random.fold_in(key, 1))
    severities = {f.severity for f in findings}
    if "fatal" in severities:
        level = "not usable"
    elif "doubt" in severities and level == "good":
        level = "usable with weights"
    columns = grid.reshape(len(grid), -1).T.tolist()
    table = dict(zip(condition.names, columns, strict=True))
    table |= {n: [float(getattr(q, n)) for q in qualities] for n in Quality._fields}
    return _verdict(level, usable if level != "not usable" else (), findings, table)


def _verdict(level: Level, usable: tuple, findings: list[Finding], table: dict[str, list[float]]) -> Verdict:
    order = sorted(findings, key=lambda f: ("fatal", "doubt", "note").index(f.severity))
    advice = tuple(dict.fromkeys(f.advice for f in order if f.advice))
    return Verdict(level, usable, tuple(dict.fromkeys(f.text for f in order)), advice, table)


class _Weighed(NamedTuple):
    """At each condition of the grid: log weights, log p_θ, ∂_u log q and some states."""

    log_weight: np.ndarray  # (conditions, observations, n)
    log_p: np.ndarray
    score: np.ndarray
    x: Array  # of the last round: (conditions x observations, n, ...)


def _weigh_grid(
    model: Model, target: AbstractTarget, grid: np.ndarray, observations: Array | None, key: Array
) -> _Weighed:
    u = model.condition.chart(grid)
    repeats = 1 if observations is None else len(observations)
    y = None if observations is None else jnp.tile(observations, (len(grid), *[1] * (observations.ndim - 1)))
    u = jnp.repeat(u, repeats, axis=0)
    rounds = [_weigh(model.flow, target, u, y, jnp.ones_like(u), k) for k in jax.random.split(key, ROUNDS)]
    log_w, log_p, score = (
        np.concatenate([np.asarray(r[i], np.float64) for r in rounds], axis=1).reshape(len(grid), repeats, -1)
        for i in range(3)
    )
    return _Weighed(log_w, log_p, score, rounds[-1][3])


def _weigh_line(model: Model, target: AbstractTarget, u: np.ndarray, direction: Array, key: Array) -> _Weighed:
    log_w, log_p, score, x = _weigh(model.flow, target, jnp.asarray(u, float), None, direction, key)
    log_weight, log_own, slope = (np.asarray(v, np.float64)[:, None] for v in (log_w, log_p, score))
    return _Weighed(log_weight, log_own, slope, x)


@eqx.filter_jit
def _weigh(
    flow: AbstractDistribution, target: AbstractTarget, u: Array, y: Array | None, direction: Array, key: Array
) -> tuple[Array, Array, Array, Array]:
    with jax.default_matmul_precision("highest"):
        x, log_p = model_states(flow, u, y, SAMPLES, key)
        log_q = at_points(lambda v, *at: within(flow, v, target.log_density_at(v, *at)), x, u, y)
        return log_q - log_p, log_p, at_points(target.score, x, u, y, direction), x


@eqx.filter_jit
def _score_states(
    flow: AbstractDistribution, target: AbstractTarget, x: Array, u: Array, y: Array | None
) -> tuple[Array, Array]:
    """log p_θ and log q of given states."""
    axes = (0, None if y is None else 0)
    with jax.default_matmul_precision("highest"):
        log_p = jax.vmap(lambda v, w: log_prob(flow, v, u, w), in_axes=axes)(x, y)
    return log_p, jax.vmap(lambda v, w: target.log_density_at(v, u, w), in_axes=axes)(x, y)


def _observations(target: AbstractTarget, witness: Witness) -> Array | None:
    if target.observation_shape is None or not witness.held_out or witness.held_out[0][1] is None:
        return None
    return witness.held_out[0][1][:OBSERVED]


def _worst_quality(log_weight: np.ndarray) -> Quality:
    """Of several observations the worst, taken as a whole; log Z is none of any one of them."""
    each = [quality(w) for w in log_weight]
    if len(each) == 1:
        return each[0]
    worst = min(each, key=lambda q: (can_be_used(q), _is_good(q), q.ess))
    return worst._replace(log_z=np.nan, log_z_error=np.nan)


def can_be_used(q: Quality) -> bool:
    """Whether weighted means over such samples can be believed.

    Args:
        q: What the weights are worth.

    Returns:
        True where they can.
    """
    tame = q.khat <= LARGEST_KHAT or (q.ess >= GOOD_ESS and q.largest <= TAME)
    return tame and q.ess >= LEAST_ESS


def _is_good(q: Quality) -> bool:
    """Whether samples can be used as they are, as far as weights can say."""
    return q.ess >= GOOD_ESS and q.khat <= LARGEST_KHAT


def _ranges(
    condition: AbstractCondition, grid: np.ndarray, qualities: list[Quality]
) -> tuple[tuple[tuple[float, ...], ...], Level]:
    """Where weights can be used, and the level that this allows: weights need no others than their own."""
    fine = np.array([can_be_used(q) for q in qualities])
    if condition.u_shape:
        usable = tuple(tuple(map(float, c)) for c in grid[fine])
        part = float(fine.mean())
    else:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], fine, [False]]).astype(int)))
        usable = tuple((float(grid[a]), float(grid[b - 1])) for a, b in edges.reshape(-1, 2))
        part = sum(float(np.diff(np.asarray(condition.chart(np.array(pair))))[0]) for pair in usable) / 2.0
    if part < LEAST_PART:
        return usable, "not usable"
    good = fine.all() and all(map(_is_good, qualities))
    return usable, "good" if good else "usable with weights"


def _of_training(witness: Witness) -> list[Finding]:
    found = []
    if witness.skipped > 0.1:
        text = f"{witness.skipped:.0%} of the steps were skipped: a loss or gradient was not finite."
        found.append(Finding("doubt", text, "Look at where the density is not finite; lower the learning rate."))
    elif witness.skipped > 0:
        found.append(Finding("note", f"{witness.skipped:.2%} of the steps were skipped: something was not finite."))
    if witness.damped:
        text = f"The boundary was being lost {witness.damped} times: what is asked beyond it was damped."
        found.append(Finding("note", text))
    return found


def _of_weights(condition: AbstractCondition, grid: np.ndarray, qualities: list[Quality]) -> list[Finding]:
    """Where the weights fail, and why."""
    bad = [i for i, q in enumerate(qualities) if not can_be_used(q)]
    home = [condition.index(b, grid) for b in condition.boundary]
    shown = [condition.show(c) for c in grid]
    if not bad:
        low = [i for i, q in enumerate(qualities) if not _is_good(q)]
        if not low:
            return []
        worst = min(low, key=lambda i: qualities[i].ess)
        text = f"The model is not exact: {_describe(shown[worst], qualities[worst])}."
        return [Finding("note", text, "More steps, or a larger flow.")]
    worst = min(bad, key=lambda i: (qualities[i].ess, -qualities[i].khat))
    text = _describe(shown[worst], qualities[worst])
    if any(i in bad for i in home):
        i = min((i for i in home if i in bad), key=lambda i: qualities[i].ess)
        lost = qualities[i].ess < LOST_ESS
        what = "weights are useless" if lost else "weights cannot be relied on"
        where = f"Even at the boundary, where there are data, {what}: {_describe(shown[i], qualities[i])}."
        hint = "Compare log q with the data: its sign, its units, its support; then a longer run."
        return [Finding("fatal" if lost else "doubt", where, hint)]
    if len(bad) == 1:
        ends = f"at {shown[bad[0]]}"
    elif condition.u_shape or bad[-1] - bad[0] >= len(bad):  # with others between them
        ends = f"at {len(bad)} of {len(grid)} conditions"
    else:
        ends = f"from {shown[bad[0]]} to {grid[bad[-1]]:.4g}"
    text = f"The model does not follow {ends}: {text}."
    return [Finding("note", text, "A longer run, a larger flow, data nearer to it, or a smaller range.")]


def _describe(where: str, q: Quality) -> str:
    tail = f", Pareto k̂ {q.khat:.2f}" if q.khat > LARGEST_KHAT else ""
    return f"ESS {q.ess:.1%} at {where}, the largest weight {q.largest:.2g} of all{tail}"


def _of_boundary(
    model: Model, target: AbstractTarget, grid: np.ndarray, weighed: _Weighed, witness: Witness
) -> list[Finding]:
    """Held-out data beside the model's own states: a mode that the model lost shows here, and nowhere else."""
    found = []
    for c, (x, y) in zip(model.condition.boundary, witness.held_out, strict=False):
        if len(x) < 20:
            continue
        i, at = model.condition.index(c, grid), model.condition.show(c)
        u = model.condition.chart(np.asarray(c))
        log_p, log_q = (np.asarray(v, np.float64) for v in _score_states(model.flow, target, x, u, y))
        own = weighed.log_p[i].ravel()
        low = float(np.mean(log_p < np.quantile(own, BELOW)))
        expected = BELOW + 4.0 * np.sqrt(BELOW / len(x)) if y is None else 0.2
        if low > max(expected, 0.01):
            text = (
                f"At {at} {low:.1%} of the held-out data lie where the model has next to no states"
                f" ({BELOW:.1%} would be expected): it has lost a part of the data."
            )
            hint = "A longer run or a larger flow; look at which states have the lowest log_prob."
            found.append(Finding("fatal" if low > 0.05 else "doubt", text, hint))
        elif y is None:
            found += _of_coverage(at, weighed.log_weight[i].ravel(), log_q - log_p)
    return found


def _of_coverage(at: str, own: np.ndarray, data: np.ndarray) -> list[Finding]:
    """log Z at the boundary from the model's states alone, and together with data: what it misses is the difference."""
    finite = data[np.isfinite(data)]
    mean = quality(own)
    if len(finite) < 20 or not np.isfinite(mean.log_z) or not np.isfinite(own).any():
        return []
    both = bennett(np.where(np.isfinite(own), own, -1e6), finite)
    if not np.isfinite(both.error):
        return []
    missing = 1.0 - float(np.exp(min(mean.log_z - both.value, 0.0)))
    error = np.hypot(both.error, min(mean.log_z_error, 10.0))
    if missing > 0.05 and both.value - mean.log_z > 4.0 * error:
        text = f"At {at} the model's own states miss {missing:.0%} of what the data have: tails or a mode."
        return [
            Finding(
                "doubt", text, "A longer run or a larger flow; heavier tails than a flow has need other coordinates."
            )
        ]
    return []


def _of_routes(
    model: Model, target: AbstractTarget, grid: np.ndarray, weighed: _Weighed, qualities: list[Quality], key: Array
) -> list[Finding]:
    """log Z by the mean weight at each condition, and by the integral of its derivative: they share no error in c.

    With several axes the integral goes from the boundary to the farthest corner that weights can be used at.
    """
    condition = model.condition
    if not condition.boundary:
        return []
    if condition.u_shape:
        apart = np.abs(np.asarray(condition.chart(grid)) - condition.boundary_u[-1]).sum(axis=1)
        far = int(np.argmax(np.where([can_be_used(q) for q in qualities], apart, -1.0)))
        line = np.linspace(0.0, 1.0, ALONG)[:, None]
        ends = condition.boundary_u[-1], np.asarray(condition.chart(grid[far]))
        u = (1.0 - line) * ends[0] + line * ends[1]
        grid, place = np.asarray(condition.unchart(u)), line[:, 0]
        direction = jnp.broadcast_to(jnp.asarray(ends[1] - ends[0], float), u.shape)
        weighed = _weigh_line(model, target, u, direction, key)
        qualities, zero = [quality(w) for w in weighed.log_weight], 0
    else:
        place, zero = np.asarray(condition.chart(grid), np.float64), condition.index(condition.boundary[-1], grid)
    means, errors = [], []
    for log_w, score in zip(weighed.log_weight, weighed.score, strict=True):
        finite = np.isfinite(log_w.ravel()) & np.isfinite(score.ravel())
        if not finite.any():
            return []
        log_weight, s = log_w.ravel()[finite], score.ravel()[finite]
        w = np.exp(log_weight - log_weight.max())
        w = w / w.sum()
        means.append(w @ s)
        errors.append(np.sqrt(np.sum((w * (s - means[-1])) ** 2)))
    integral = thermodynamic_integration(place, place, np.array(means), np.array(errors), float(place[zero]))
    away = np.array([q.log_z - qualities[zero].log_z for q in qualities]) - integral.log_z
    error = np.array([np.hypot(q.log_z_error, qualities[zero].log_z_error) for q in qualities])
    known = np.isfinite(error) & np.isfinite(away) & [can_be_used(q) for q in qualities]
    off = known & (np.abs(away) > 5.0 * np.hypot(error, integral.error) + 0.05)
    if not off.any():
        return []
    i = int(np.argmax(np.where(off, np.abs(away), 0.0)))
    both = np.hypot(error, integral.error)[i]
    text = f"Two routes to log Z differ by {away[i]:+.2f} ± {both:.2f} at {condition.show(grid[i])}."
    return [Finding("doubt", text, "Look at the ESS between the boundary and there; more conditions may be needed.")]


def _of_modes(
    model: Model, target: AbstractTarget, grid: np.ndarray, weighed: _Weighed, qualities: list[Quality], key: Array
) -> list[Finding]:
    """Modes of the density without states of the model, at the boundary values and the ends of the range."""
    found = []
    places = sorted({0, len(grid) - 1, *[model.condition.index(b, grid) for b in model.condition.boundary]})
    for i in places:
        if not can_be_used(qualities[i]):
            continue  # it is not to be trusted there anyway
        c = grid[i]
        modes = unknown_modes(model, target, c, weighed.x[i], qualities[i].log_z, jax.random.fold_in(key, i))
        if modes:
            largest = max(modes, key=lambda m: m.share)
            share = largest.share / (1.0 + sum(m.share for m in modes))
            x = ", ".join(f"{v:.3g}" for v in largest.x.ravel()[:4]) + (", ..." if largest.x.size > 4 else "")
            text = (
                f"At {model.condition.show(c)} the density has a mode near ({x}) with about {share:.0%} of all mass, in"
                f" which the model has no states{f', and {len(modes) - 1} more' if len(modes) > 1 else ''}."
            )
            hint = "Give data with all modes, or begin at a condition (or from a base) that reaches them."
            found.append(Finding("fatal", text, hint))
    return found
