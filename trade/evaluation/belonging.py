"""Do the data belong to the density? What can be said before any training, at the price of one gradient per state.

For every vector field v that vanishes at the ends of the support, E[v·∇ log q + div v] = 0 over samples of q (Stein's
identity). With v = x - m, on the whole space, that is E[(x - m)·∇ log q] = -d: data of twice the temperature have twice
as much. Nothing needs to be known but q itself, up to its normalisation.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.sampling.correction import integrated_autocorrelation
from trade.states import Bound

MOST = 5_000  # states that are looked at
SIGNIFICANT = 4.0  # standard errors; of a single coordinate one more, for there are many
LARGE = 0.1  # of what is expected: less than that weights can mend
FEW = 100  # independent states
COARSE, TOO_COARSE = 1e-3, 5e-2  # rounding of a coordinate, as a part of its spread
SLOPES_AGREE = 0.02  # relative difference of two derivatives, in float32
STEP, HALVINGS = 0.1, 16  # how far from a state a jump is looked for, in standard deviations; and how closely
JUMP, LEFT, EDGES = 1.0, 0.01, 3  # nats in the last piece, its part of the whole; of so many states it is an edge
ROUNDING = 16.0  # units in the last place of log q that no two states nearby differ by

Severity = Literal["fatal", "doubt", "note"]


class Finding(NamedTuple):
    """What one check found.

    Args:
        severity: ``fatal`` makes a run unusable, a ``doubt`` keeps it from being good, a ``note`` is only said.
        text: One sentence.
        advice: What to try, or nothing.
    """

    severity: Severity
    text: str
    advice: str = ""


def check_data_belongs(target: AbstractTarget, c: Any, x: Array, y: Array | None = None) -> tuple[Finding, ...]:
    """All that the data at one boundary value and the density say of each other.

    Args:
        target: The family of densities.
        c: The boundary value.
        x: The data at it, in the order in which they were made.
        y: The observations that belong to them.

    Returns:
        What was found; empty where nothing is wrong.

    Raises:
        TradeError: If the log density is finite at none of the data.
    """
    at = target.condition.show(c)
    found = _few_states(at, np.asarray(x, np.float64).reshape(len(x), -1), float(jnp.finfo(x.dtype).eps))
    if not target.has_density:
        return (*found, Finding("note", "There is no density: whether the data belong to it cannot be checked."))
    some = np.linspace(0, len(x) - 1, min(len(x), MOST)).astype(int)  # over all of them: modes may come one by one
    x, y = x[some], None if y is None else y[some]
    log_q, statistic = _stein(target, x, jnp.asarray(c, x.dtype), y)
    finite = np.isfinite(np.asarray(log_q))
    if not finite.any():
        raise TradeError(f"The log density is not finite at any of the data given at {at}.")
    if not finite.all():
        part = 1.0 - finite.mean()
        found.append(
            Finding(
                "fatal" if part > 0.001 else "doubt",
                f"The log density is not finite at {part:.1%} of the data given at {at}.",
                "Take these states out, or give the density the support that the data have.",
            )
        )
    statistic = np.asarray(statistic, np.float64)[finite]
    if not np.isfinite(statistic).all():
        return (*found, Finding("note", f"log q has no finite gradient at some of the data at {at}."))
    judged = _judge(at, statistic)
    if judged and int(_jumps(target, x, jnp.asarray(c, x.dtype), y)) >= EDGES:
        text = (
            f"log q jumps beside data at {at}, where the target has no bounds: whether they belong to it is not known."
        )
        judged = [Finding("note", text, "Where edges are the ends of single coordinates, give them as bounds.")]
    return (*found, *judged)


def _few_states(at: str, x: np.ndarray, epsilon: float) -> list[Finding]:
    """One state, copies of states, coordinates that never change, or by little more than their rounding."""
    n, found = len(x), []
    more = "Give more independent samples."
    if n < 2:
        return [Finding("fatal", f"The data at {at} are one single state.", more)]
    different, spread = len(np.unique(x, axis=0)), x.std(axis=0)
    steps = epsilon * np.abs(np.median(x, axis=0)) / np.where(spread > 0.0, spread, np.inf)
    worst = int(np.argmax(steps))
    if steps[worst] > COARSE:
        text = (
            f"Coordinate {worst} of the data at {at} varies so little about {np.median(x[:, worst]):.4g} that a"
            f" rounding is {steps[worst]:.1%} of its spread."
        )
        hint = "Take a constant off this coordinate, in the data and in the density."
        found.append(Finding("doubt" if steps[worst] > TOO_COARSE else "note", text, hint))
    if different < (0.99 * n if steps.min() < COARSE else FEW):  # rounding makes copies too
        severity: Severity = "fatal" if different < FEW else "doubt"
        text = f"Of the {n} states of the data at {at} only {different} are different."
        found.append(Finding(severity, text, more))
    elif n < FEW:
        found.append(Finding("doubt", f"The data at {at} are {n} states only.", more))
    constant = np.flatnonzero(np.ptp(x, axis=0) == 0.0)
    if len(constant):
        text = f"Coordinate {constant[0]} of the data at {at} has the same value in every state"
        text += f", and so have {len(constant) - 1} more." if len(constant) > 1 else "."
        found.append(Finding("fatal", text, "A coordinate that does not vary has no density: leave it out."))
    return found


def _judge(at: str, statistic: np.ndarray) -> list[Finding]:
    """Stein's identity, all coordinates together and one by one; errors by the autocorrelation, as the data lie."""
    total, d = statistic.sum(axis=1), statistic.shape[1]
    n = len(total)
    if n < 10:
        return []
    slow = integrated_autocorrelation(total)
    if n / slow < FEW and slow > 2.0:
        text = f"The data at {at} are worth about {n / slow:.0f} independent states: they come from a slow chain."
        return [Finding("doubt", text, "Give a longer simulation, or independent ones.")]  # and too few to judge by

    def away(values: np.ndarray, tau: float) -> float:
        error = values.std(ddof=1) * np.sqrt(tau / n)
        mean = float(values.mean())
        return mean / error if error > 0 else np.sign(mean) * np.inf if abs(mean) > 1e-6 else 0.0  # of a flat density

    sigmas, part = away(total, slow), float(total.mean() / d)
    singles = np.array([away(s, slow) for s in statistic.T])
    worst = int(np.argmax(np.abs(singles)))
    what, deviation, significance = None, part, sigmas
    if abs(sigmas) > SIGNIFICANT:
        what = f"E[(x - m)·∇ log q] is {total.mean() - d:.3g} where {-d} is expected"
    elif abs(singles[worst]) > SIGNIFICANT + 1.0:
        deviation, significance = float(statistic[:, worst].mean()), float(singles[worst])
        what = f"E[(x - m) ∂ log q] of coordinate {worst} is {deviation - 1.0:.3g} where -1 is expected"
    if what is None:
        return []
    large = abs(deviation) > LARGE
    how = "do not belong to" if large else "are a little off"
    text = f"The data at {at} {how} the density there: {what} ({significance:+.1f} σ)."
    hint = "Check the sign of log q, the condition the data are given at, and that all modes are among them."
    return [Finding("fatal" if large else "doubt", text, hint)]


@eqx.filter_jit
def _stein(target: AbstractTarget, x: Array, c: Array, y: Array | None) -> tuple[Array, Array]:
    """log q of each state, and v·∇ log q + div v, coordinate by coordinate."""
    flat = x.reshape(len(x), -1)
    centre = flat.mean(axis=0)
    bounds = target.bounds or (None,) * flat.shape[1]
    angles = target.angles
    if angles:
        turn = jnp.exp(1j * flat).mean(axis=0)
        centre = jnp.where(_marked(angles, flat.shape[1]), jnp.angle(turn), centre)

    def one(v: Array, w: Array | None) -> tuple[Array, Array]:
        log_q, slope = jax.value_and_grad(lambda s: target.log_density(s.reshape(x.shape[1:]), c, w))(v)
        field, divergence = _field(v, centre, bounds, angles)
        return log_q, field * slope + divergence

    return jax.vmap(one, in_axes=(0, None if y is None else 0))(flat, y)


@eqx.filter_jit
def _jumps(target: AbstractTarget, x: Array, c: Array, y: Array | None) -> Array:
    """How many states have a jump of log q beside them: an edge of the support, at which Stein's identity has a term.

    On the way to a state nearby, halved again and again towards the larger difference, a jump stays as large as it is,
    while of a slope, however steep, nothing is left but the rounding of log q.
    """
    flat = x.reshape(len(x), -1)
    away = STEP * flat.std(axis=0) * jax.random.normal(jax.random.key(0), flat.shape, x.dtype)
    walls = [bound or (None, None) for bound in target.bounds or (None,) * flat.shape[1]]
    low, high = (
        np.array([out if w[end] is None else w[end] for w in walls]) for end, out in ((0, -np.inf), (1, np.inf))
    )
    there = flat + away
    there = jnp.where(there <= low, 0.5 * (flat + low), jnp.where(there >= high, 0.5 * (flat + high), there))

    def log_q(v: Array) -> Array:
        axes = (0, None if y is None else 0)
        found = jax.vmap(lambda s, w: target.log_density(s.reshape(x.shape[1:]), c, w), in_axes=axes)(v, y)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    def difference(a: Array, b: Array) -> Array:
        return jnp.nan_to_num(jnp.abs(a - b))  # zero between two states outside

    def halve(_: Any, way: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        a, b, at_a, at_b = way
        middle = 0.5 * (a + b)
        at_middle = log_q(middle)
        first = difference(at_a, at_middle) >= difference(at_middle, at_b)
        ends = jnp.where(first[:, None], a, middle), jnp.where(first[:, None], middle, b)
        return *ends, jnp.where(first, at_a, at_middle), jnp.where(first, at_middle, at_b)

    way = (flat, there, log_q(flat), log_q(there))
    *_, at_a, at_b = jax.lax.fori_loop(0, HALVINGS, halve, way)
    left = difference(at_a, at_b)
    rounding = ROUNDING * jnp.finfo(x.dtype).eps * jnp.abs(way[2])
    return jnp.sum((left > jnp.maximum(JUMP, rounding)) & (left > LEFT * difference(*way[2:])))


def _field(x: Array, centre: Array, bounds: Sequence[Bound], angles: tuple[int, ...]) -> tuple[Array, Array]:
    """A field that vanishes at the ends of each coordinate's support, is periodic in angles, and its divergence."""
    field, divergence = x - centre, jnp.ones_like(x)
    for i, bound in enumerate(bounds):
        low, high = bound or (None, None)
        if low is not None and high is not None:
            width = high - low
            field = field.at[i].set((x[i] - low) * (high - x[i]) / width)
            divergence = divergence.at[i].set((low + high - 2.0 * x[i]) / width)
        elif low is not None:
            field = field.at[i].set(x[i] - low)
        elif high is not None:
            field = field.at[i].set(x[i] - high)
    if angles:
        marked = _marked(angles, len(x))
        field = jnp.where(marked, jnp.sin(x - centre), field)
        divergence = jnp.where(marked, jnp.cos(x - centre), divergence)
    return field, divergence


def _marked(angles: tuple[int, ...], d: int) -> np.ndarray:
    return np.isin(np.arange(d), angles)


def check_slope(target: AbstractTarget, x: Array, y: Array | None = None) -> None:
    """Refuse a ``condition_derivative`` that is not the derivative of the log density in c."""
    if not target.has_density:
        return
    x, y = x[:64], None if y is None else y[:64]
    condition = target.condition
    for u in (-0.5, 0.0, 0.5):
        c = condition.unchart(jnp.full(condition.u_shape, u))
        given, automatic = (np.ravel(np.asarray(v, np.float64)) for v in _slopes(target, x, c.astype(x.dtype), y))
        both = np.isfinite(given) & np.isfinite(automatic)
        scale = np.abs(automatic).max(where=both, initial=0.0)
        wrong = both & (np.abs(given - automatic) > SLOPES_AGREE * (np.abs(automatic) + 0.01 * scale) + 1e-6)
        if wrong.sum() > 0.5 * both.sum() > 0:
            i = int(np.argmax(wrong))
            raise TradeError(
                f"condition_derivative is not the derivative of log_density in c: at {condition.show(c)} and the first"
                f" data it gives {given[i]:.6g}, log_density itself {automatic[i]:.6g}."
            )


@eqx.filter_jit
def _slopes(target: AbstractTarget, x: Array, c: Array, y: Array | None) -> tuple[Array, Array]:
    def one(v: Array, w: Array | None) -> tuple[Array, Array]:
        automatic = jax.jacfwd(lambda t: target.log_density(v, t, w))(c)
        return target.condition_derivative(v, c, w), automatic

    return jax.vmap(one, in_axes=(0, None if y is None else 0))(x, y)
