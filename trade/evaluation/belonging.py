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
SLOPES_AGREE = 0.02  # relative difference of two derivatives, in float32

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
    found = _few_states(at, np.asarray(x, np.float64).reshape(len(x), -1))
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
    return (*found, *_judge(at, statistic))


def _few_states(at: str, x: np.ndarray) -> list[Finding]:
    """One state, copies of states, coordinates that never change."""
    n, found = len(x), []
    more = "Give more independent samples."
    if n < 2:
        return [Finding("fatal", f"The data at {at} are one single state.", more)]
    different = len(np.unique(x, axis=0))
    if different < 0.99 * n:
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
        return float(values.mean() / error) if error > 0 else 0.0

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
