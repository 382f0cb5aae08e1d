"""The objective that a target asks for, where the user names none."""

from dataclasses import replace
from math import prod

import jax

from trade.abstract_target import AbstractTarget
from trade.flows.default import flows_as_lattice
from trade.objectives.density import EnergyFree, TrueDensity
from trade.objectives.gradient import Gradient
from trade.objectives.kl_terms import ForwardKL
from trade.objectives.points import ModelPoints
from trade.objectives.trade import Trade


def default_objective(target: AbstractTarget, boundaries: int = 1) -> Trade:
    """``Trade()``, energy-free without a density, with the target's symmetries.

    Energy-free the residual stands alone. A density that is rebuilt from the flow is as wrong as the flow where no data
    are, and a power below one makes much of it: the divergences, and states from a wider latent, would chase that.

    On a GPU it has four times the model's states, which cost little there; of large ones it has fewer. Not so of data:
    the more of them a step sees, the sooner they are memorised. States of a flow that has the symmetries itself stay
    where they are.

    Args:
        target: The family of densities.
        boundaries: Number of boundary values.

    Returns:
        The objective.
    """
    less = max(prod(target.shape) / 64, 1.0)
    more = 1 if jax.default_backend() == "cpu" else 4
    points, batch = max(int(64 * more / less), 16), max(int(512 / less), 128)
    states = ModelPoints(symmetries=target.has_symmetry and not flows_as_lattice(target))
    known = target.has_density
    gradient = Gradient(
        points=states if known else replace(states, wider=0.0),
        density=TrueDensity() if known else EnergyFree(),
        reweighted=1.0 if known else 0.0,
        conditions_per_step=max(16, 4 * boundaries),  # all ends of the frontier, and more
        points_per_condition=points,
    )
    return Trade(gradient, ForwardKL(batch, symmetries=target.has_symmetry))
