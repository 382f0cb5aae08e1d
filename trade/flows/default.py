"""The flow that a target and its data ask for."""

from math import pi, prod
from typing import Any

import jax
import numpy as np
from jax import Array
from paramax import unwrap

from trade import check
from trade.abstract_target import AbstractTarget, check_target
from trade.flows.bounded import Bounded
from trade.flows.circular_recipes import CircularFlow
from trade.flows.conditioner import MLP
from trade.flows.flow import Recipe
from trade.flows.hierarchy import Hierarchy, sources_of_widths
from trade.flows.lattice_recipes import ContinuousLatticeFlow
from trade.flows.recipes import SplineFlow
from trade.flows.standardise import SetFromData
from trade.flows.tails import has_tails
from trade.flows.whiten import Whiten

SEEN = 5_000  # states that show whose widths follow what, and how tails fall
TURNING = pi / 2  # an angle whose data leave an arc of this length empty does not turn freely


def default_flow(target: AbstractTarget, data: Array | None = None) -> Recipe:
    """A recipe for a target: its family from what the target says of its states, its size from their dimension.

    Args:
        target: The family of densities.
        data: States at the boundary values, all together, of shape (n, *shape).

    Returns:
        The recipe.
    """
    check_target(target)
    if data is not None:
        data = check.array(data, "data", (-1, *target.shape))
    shape, condition, dim = target.shape, target.condition, prod(target.shape)
    observed = 0 if target.observation_shape is None else prod(target.observation_shape)
    # Circles and lattices have flows of their own, which take neither an observation nor bounds.
    alone = not observed and not target.bounds
    if flows_as_lattice(target):
        return ContinuousLatticeFlow(shape, condition)
    turning = tuple(i for i in target.angles if data is None or _turns(np.asarray(data[:, i], np.float64)))
    if alone and turning:
        cut = tuple(i for i in target.angles if i not in turning)
        return CircularFlow(shape, condition, turning, cut=cut, rescale=32 if len(turning) < dim else 0, moebius=True)
    # A CPU has no time for more: the many-well of d = 32 has an ESS of 95 % in 5,000 steps of the small one.
    small = dim <= 8 or jax.default_backend() == "cpu"
    blocks, width = (6, 64) if small else (8, 64) if dim <= 24 else (8, 128)
    whiten = len(shape) == 1 and (dim > 1 or bool(target.angles))
    return SplineFlow(
        shape,
        condition,
        observed,
        blocks=blocks,
        bins=12,
        adapter=32,
        steep=True,
        squares=True,
        network=MLP(width),
        whiten=whiten,
        angles=target.angles,
        bounds=target.bounds,
        **(_next_to_data(target, data) if whiten and data is not None else {}),
    )


def flows_as_lattice(target: AbstractTarget) -> bool:
    """Whether the flow of a target is one for lattices, which has their symmetries itself.

    Args:
        target: The family of densities.

    Returns:
        Whether it is.
    """
    return target.lattice and target.observation_shape is None and not target.bounds


def _next_to_data(target: AbstractTarget, data: Array) -> dict[str, Any]:
    """Coordinates whose values set the widths of others, and whether some have tails, as earlier layers leave them."""

    def through(layer: SetFromData, states: Array) -> Array:
        measured = unwrap(layer.adapted(states))
        return jax.vmap(lambda x: measured.inverse_and_log_det(x)[0])(states)

    data = data[:: max(len(data) // SEEN, 1)]
    if target.bounds:
        data = jax.vmap(lambda x: Bounded(target.bounds).inverse_and_log_det(x)[0])(data)
    data = through(Whiten(target.shape, angles=target.angles), data)
    sources = sources_of_widths(np.asarray(data))
    data = through(Hierarchy(target.shape, sources), data) if sources else data
    return {"sources": sources, "tails": has_tails(np.asarray(data))}


def _turns(angle: np.ndarray) -> bool:
    """Whether data of an angle leave no long arc of the circle empty."""
    placed = np.sort(np.mod(angle, 2.0 * pi))
    gaps = np.diff(placed, append=placed[0] + 2.0 * pi)
    return bool(gaps.max() < TURNING)
