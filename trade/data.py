"""What ``fit`` is given, checked: data by boundary value, what they say of the density, and the part held out."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError, UnknownError
from trade.evaluation.belonging import Finding, check_data_belongs, check_slope
from trade.evaluation.monitor import States
from trade.objectives.term import Problem
from trade.target import AbstractTarget, check_condition_dependence, check_target, with_knee

Data = Mapping[float, Any]


def make_problem(target: AbstractTarget, data: Data | None, *, charted: bool = False) -> Problem:
    """Check the data and fill in the boundary values; if ``charted``, in the chart that suits a power."""
    check_target(target)
    checked = check_data(target, {} if data is None else data, "data")
    condition = target.condition
    if checked and not condition.boundary:
        condition = condition.with_boundary(checked)
    for c in checked:
        if not any(np.isclose(c, b, rtol=1e-6) for b in condition.boundary):
            known = ", ".join(f"{b:g}" for b in condition.boundary)
            raise TradeError(f"data was given at c = {c:g}, which is no boundary value of the condition ({known}).")
    missing = [b for b in condition.boundary if not any(np.isclose(c, b, rtol=1e-6) for c in checked)]
    if checked and missing:
        raise TradeError(f"data is missing at the boundary value {missing[0]:g}.")
    ordered = [checked[c] for c in sorted(checked)]
    if ordered and target.has_density:
        head = [None if v is None else v[:256] for v in ordered[0]]
        check_condition_dependence(target, head[0], head[1])  # pyright: ignore
        better = with_knee(target, condition, ordered[0][0][:2000]) if charted else condition
        if better != condition:
            target, condition = target.with_condition(better), better
    observations = tuple(y for _, y in ordered if y is not None) if target.observation_shape else None
    return Problem(target, condition, tuple(x for x, _ in ordered), observations)


def check_data(target: AbstractTarget, data: Data, name: str) -> dict[float, tuple[Array, Array | None]]:
    """Refuse data of the wrong shape, with NaN, empty, or at a condition out of range."""
    if not isinstance(data, Mapping):
        raise TradeError(f"{name} must be a dictionary {{condition: samples}}, got {type(data).__name__}.")
    checked = {}
    for c, value in data.items():
        at = target.condition.check(c, f"{name} condition")
        if any(np.isclose(at, other, rtol=1e-6) for other in checked):
            raise TradeError(f"{name} was given twice at c = {at:g}.")
        if isinstance(value, tuple) and len(value) != 2:
            raise TradeError(
                f"{name} at c = {at:g} must be samples or (samples, observations), got a tuple of {len(value)}."
            )
        x, y = value if isinstance(value, tuple) else (value, None)
        if (y is None) != (target.observation_shape is None):
            raise TradeError(
                f"{name} at c = {at:g} must be "
                + ("(samples, observations)" if y is None else "samples without observations")
                + " for this target."
            )
        x = _check_array(x, target.shape, f"{name} at c = {at:g}")
        if y is not None:
            y = _check_array(y, target.observation_shape or (), f"observations at c = {at:g}")
            if len(y) != len(x):
                raise TradeError(f"{name} at c = {at:g} has {len(x)} samples but {len(y)} observations.")
        checked[at] = (x, y)
    return checked


def _check_array(value: Any, shape: tuple[int, ...], name: str) -> Array:
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite below
        array = np.asarray(check.array(value, name)).astype(jnp.result_type(float))
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        raise TradeError(f"{name} must have shape (n, {', '.join(map(str, shape))}), got {array.shape}.")
    if len(array) == 0:
        raise TradeError(f"{name} is empty: it must hold at least one sample.")
    bad = int((~np.isfinite(array)).any(axis=tuple(range(1, array.ndim))).sum())
    if bad:
        raise TradeError(f"{name} has {bad} of {len(array)} samples with NaN or infinite values.")
    return jnp.asarray(array)


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
        order = jax.random.permutation(jax.random.key(i), len(x))
        kept.append(x[order[n:]])
        apart.append(x[order[:n]])
        y = None if problem.observations is None else problem.observations[i]
        of_kept.append(None if y is None else y[order[n:]])
        of_apart.append(None if y is None else y[order[:n]])
    observations = None if problem.observations is None else tuple(of_kept)
    rest = Problem(problem.target, problem.condition, tuple(kept), observations)
    if min(len(x) for x in apart) < 2:
        return problem, ()
    return rest, tuple(zip(apart, of_apart, strict=True))


def examine(problem: Problem) -> tuple[Finding, ...]:
    """What can be said of the data before anything is trained."""
    found: list[Finding] = []
    for i, (c, x) in enumerate(zip(problem.condition.boundary, problem.data, strict=False)):
        y = None if problem.observations is None else problem.observations[i]
        found += check_data_belongs(problem.target, c, x, y)
        if i == 0:
            check_slope(problem.target, x, y)
    return tuple(found)
