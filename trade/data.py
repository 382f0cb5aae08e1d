"""What ``fit`` is given, checked: data by boundary value, what they say of the density, and the part held out."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget, check_target
from trade.condition import Condition
from trade.errors import TradeError, UnknownError
from trade.evaluation.belonging import Finding, check_data_belongs, check_slope
from trade.evaluation.monitor import States
from trade.objectives.term import Problem

TURNED = 0.05  # nats by which a density may change when an angle is turned by 2π: rounding
Data = Mapping[Any, Any]  # by condition: a number, or a tuple with one for each axis


def make_problem(target: AbstractTarget, data: Data | None, *, charted: bool = False) -> Problem:
    """Data checked, on the host, and boundary values filled in; if ``charted``, in the chart that suits a power."""
    check_target(target)
    checked = check_data(target, {} if data is None else data, "data")
    condition = target.condition
    if checked and not condition.boundary:
        condition = condition.with_boundary(checked)
    for c in checked:
        if not any(_same(c, b) for b in condition.boundary):
            known = condition.show_all(condition.boundary)
            raise TradeError(
                f"data was given at {condition.show(c)}, which is no boundary value of the condition ({known})."
            )
    missing = [b for b in condition.boundary if not any(_same(c, b) for c in checked)]
    if checked and missing:
        raise TradeError(f"data is missing at a boundary value, {condition.show(missing[0])}.")
    ordered = [checked[c] for c in sorted(checked)]
    if ordered and target.has_density:
        head = [None if v is None else v[:256] for v in ordered[0]]
        check_condition_dependence(target, head[0], head[1])  # pyright: ignore
        check_periods(target, head[0][:64], None if head[1] is None else head[1][:64])  # pyright: ignore
        better = with_knee(target, condition, ordered[0][0][:2000]) if charted else condition
        if better != condition:
            target, condition = target.with_condition(better), better
    observations = tuple(y for _, y in ordered if y is not None) if target.observation_shape else None
    states = tuple(x for x, _ in ordered)
    return Problem(target.prepared(states), condition, states, observations)


def _same(one: Any, two: Any) -> bool:
    """Whether two conditions are the same up to rounding."""
    return bool(np.allclose(one, two, rtol=1e-6))


def check_data(target: AbstractTarget, data: Data, name: str) -> dict[Any, tuple[Any, Any]]:
    """Refuse data of the wrong shape, with NaN, empty, or at a condition out of range; NumPy arrays come back."""
    if not isinstance(data, Mapping):
        raise TradeError(f"{name} must be a dictionary {{condition: samples}}, got {type(data).__name__}.")
    checked = {}
    for c, value in data.items():
        at = target.condition.check(c, f"{name} condition")
        named = f"{name} at {target.condition.show(at)}"
        if any(_same(at, other) for other in checked):
            raise TradeError(f"{name} was given twice at {target.condition.show(at)}.")
        if isinstance(value, tuple) and len(value) != 2:
            raise TradeError(f"{named} must be samples or (samples, observations), got a tuple of {len(value)}.")
        x, y = value if isinstance(value, tuple) else (value, None)
        if (y is None) != (target.observation_shape is None):
            raise TradeError(
                f"{named} must be "
                + ("(samples, observations)" if y is None else "samples without observations")
                + " for this target."
            )
        x = _check_array(x, target.shape, named)
        if y is not None:
            y = _check_array(y, target.observation_shape or (), f"observations at {target.condition.show(at)}")
            if len(y) != len(x):
                raise TradeError(f"{named} has {len(x)} samples but {len(y)} observations.")
        checked[at] = (x, y)
    return checked


def _check_array(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite below
        array = np.asarray(check.array(value, name)).astype(jnp.result_type(float))
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        raise TradeError(f"{name} must have shape (n, {', '.join(map(str, shape))}), got {array.shape}.")
    if len(array) == 0:
        raise TradeError(f"{name} is empty: it must hold at least one sample.")
    bad = int((~np.isfinite(array)).any(axis=tuple(range(1, array.ndim))).sum())
    if bad:
        raise TradeError(f"{name} has {bad} of {len(array)} samples with NaN or infinite values.")
    return array


def sampled(target: AbstractTarget, n: int = 200_000) -> Data | None:
    """Exact samples at the boundary values, from a target that can draw them; None from others."""
    try:
        return {c: target.sample(jax.random.key(i), n, c) for i, c in enumerate(target.condition.boundary)} or None
    except UnknownError:
        return None


def hold_out(problem: Problem, part: float, most: int = 5_000) -> tuple[Problem, tuple[States, ...]]:
    """Split off a part of the data at each boundary value, drawn at random, but no more than ``most`` states."""
    if not problem.data or part == 0:
        return problem, ()
    kept, apart, of_kept, of_apart = [], [], [], []
    for i, x in enumerate(problem.data):
        n = min(int(part * len(x)), most)
        order = np.asarray(jax.random.permutation(jax.random.key(i), len(x)))
        kept.append(x[order[n:]])
        apart.append(x[order[:n]])
        y = None if problem.observations is None else problem.observations[i]
        of_kept.append(None if y is None else y[order[n:]])
        of_apart.append(None if y is None else y[order[:n]])
    observations = None if problem.observations is None else tuple(of_kept)
    rest = Problem(problem.target, problem.condition, tuple(kept), observations)
    if min(len(x) for x in apart) < 2:
        return problem, ()
    return rest, tuple(
        (jnp.asarray(x), None if y is None else jnp.asarray(y)) for x, y in zip(apart, of_apart, strict=True)
    )


def examine(problem: Problem) -> tuple[Finding, ...]:
    """What can be said of the data before anything is trained."""
    found: list[Finding] = []
    for i, (c, x) in enumerate(zip(problem.condition.boundary, problem.data, strict=False)):
        y = None if problem.observations is None else problem.observations[i]
        found += check_data_belongs(problem.target, c, x, y)
        if i == 0:
            check_slope(problem.target, x, y)
    return tuple(found)


def check_condition_dependence(target: AbstractTarget, x: Array, y: Array | None = None) -> None:
    """Refuse a target whose ∂_c log q is not finite, or the same for every given state.

    Args:
        target: The family of densities.
        x: A batch of states inside the support, usually data.
        y: The observations that belong to them, if the target takes any.
    """
    condition = target.condition
    u = jnp.linspace(-0.9, 0.9, 5).reshape(5, *[1] * len(condition.u_shape)) * jnp.ones(condition.u_shape)
    ys_axis = None if y is None else 0
    log_q = jax.vmap(target.log_density_at, in_axes=(0, None, ys_axis))(x, u[2], y)
    if not bool(jnp.isfinite(log_q).any()):
        raise TradeError(f"The log density is not finite at any of the {len(x)} data that were checked.")
    over_x = jax.vmap(target.score, in_axes=(0, None, ys_axis, None))
    for name, direction in zip(condition.names, _along_axes(condition), strict=True):
        try:
            scores = jax.vmap(lambda v, d=direction: over_x(x, v, y, d))(u)
        except TradeError:
            raise
        except Exception as error:
            text = f"log_density cannot be differentiated with respect to {name}: {check.reason(error)}."
            raise TradeError(text) from error
        _check_scores(np.asarray(scores), name, [condition.show(c) for c in condition.unchart(u)])


def check_periods(target: AbstractTarget, x: Array, y: Array | None = None) -> None:
    """Refuse angles in which the log density is not periodic: a flow on the circle would never find such states."""
    if not target.angles:
        return
    u = target.condition.chart(np.asarray(target.condition.reference))
    log_q = jax.vmap(lambda v, w: target.log_density_at(v, u, w), in_axes=(0, None if y is None else 0))
    x, angles = jnp.asarray(x), np.array(target.angles)
    here = np.asarray(log_q(x, y), np.float64)
    once = 2.0 * np.pi * jnp.eye(x.shape[1], dtype=x.dtype)[angles]
    there = np.asarray(jax.lax.map(lambda turn: log_q(x + turn, y), once), np.float64)
    with np.errstate(invalid="ignore"):
        change = np.nan_to_num(np.abs(there - here))
    wrong = np.mean(change > TURNED + 1e-3 * np.abs(here), axis=1) > 0.5
    if wrong.any():
        i = int(np.argmax(wrong))
        raise TradeError(
            f"angles names coordinate {angles[i]}, but log_density is not periodic in it: turned once round, by 2π, it"
            f" changes by {np.median(change[i]):.3g} nats."
        )


def _along_axes(condition: AbstractCondition) -> Array:
    """Tangents of the chart, each along one axis."""
    return jnp.ones(1) if not condition.u_shape else jnp.eye(len(condition.names))


def _check_scores(scores: np.ndarray, name: str, conditions: list[str]) -> None:
    """Derivatives at some conditions, by state: refused where they are not finite, or the same for every state."""
    finite = np.isfinite(scores)
    if not finite.any():
        raise TradeError(f"The derivative of log_density with respect to {name} is not finite at any data point.")
    if not finite.all():
        where = conditions[int(np.argmin(finite.all(axis=1)))]
        raise TradeError(
            f"The derivative of log_density with respect to {name} is not finite at"
            f" {int((~finite).sum())} of {finite.size} checked data points, for example at {where}."
        )
    if scores.shape[1] > 1 and np.all(scores == scores[:, :1]):
        raise TradeError(
            f"The dependence of log_density on {name} is constant (its derivative is the same at every data point,"
            f" {float(scores[0, 0]):g}): TRADE needs a dependence on the condition that changes with x."
        )


def with_knee(target: AbstractTarget, condition: AbstractCondition, x: Array) -> AbstractCondition:
    """The condition with a chart that suits a power: linear near a boundary value at an end, logarithmic beyond.

    Where log q = a(x) + c b(x), as from a prior to a posterior, a density that contracts in d dimensions changes at a
    speed of √(d/2)/c: constant in log c, from c = √(d/2)/s on, where s is the speed at the boundary value, the standard
    deviation of b there. Other conditions come back as they are.

    Args:
        target: The family of densities, without observations.
        condition: Its condition with the boundary values filled in.
        x: States at the boundary value.
    """
    if not isinstance(condition, Condition):
        return condition
    ends = condition.scale == "linear" and condition.knee is None and len(condition.boundary) == 1
    if not ends or target.observation_shape is not None or min(abs(abs(condition.boundary_u) - 1.0)) > 1e-6:
        return condition
    c = jnp.linspace(condition.low, condition.high, 4)
    slopes = jax.vmap(lambda t: jax.vmap(lambda v: target.condition_derivative(v, t))(x))(c)
    speed = float(jnp.std(slopes[0]))
    if not jnp.allclose(slopes, slopes[:1], rtol=1e-3, atol=1e-3 * speed) or not speed > 0:
        return condition
    knee = (prod(target.shape) / 2) ** 0.5 / speed
    return replace(condition, knee=knee) if knee < 0.5 * (condition.high - condition.low) else condition
