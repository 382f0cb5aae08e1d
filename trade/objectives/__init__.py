"""The loss: a boundary term, a term that carries it to other conditions, and their axes."""

from trade.objectives.balance import Balance, Fixed, GradientNorm, Ramp, StepBack
from trade.objectives.condition_samplers import CausalGrid, ConditionSampler, GrowingInterval, Seen, Widening
from trade.objectives.default import default_objective
from trade.objectives.density import Density, EnergyFree, TrueDensity
from trade.objectives.expectation import (
    Base,
    BatchExpectation,
    Drawn,
    Expectation,
    FromBoundaryModel,
    FromData,
    FromModel,
    GridExpectation,
    Snapshot,
    Where,
)
from trade.objectives.frontier import Frontier
from trade.objectives.gradient import Gradient
from trade.objectives.kl_terms import ForwardKL, ReverseKL, Reweighted
from trade.objectives.penalty import Cauchy, Huber, Penalty, Squared
from trade.objectives.points import ModelPoints, Points
from trade.objectives.several import Sum
from trade.objectives.term import Clock, Objective, Outcome, Problem, Report, Term
from trade.objectives.trade import Trade

__all__ = [
    "Balance",
    "Base",
    "BatchExpectation",
    "Cauchy",
    "CausalGrid",
    "Clock",
    "ConditionSampler",
    "Density",
    "Drawn",
    "EnergyFree",
    "Expectation",
    "Fixed",
    "ForwardKL",
    "FromBoundaryModel",
    "FromData",
    "FromModel",
    "Frontier",
    "Gradient",
    "GradientNorm",
    "GridExpectation",
    "GrowingInterval",
    "Huber",
    "ModelPoints",
    "Objective",
    "Outcome",
    "Penalty",
    "Points",
    "Problem",
    "Ramp",
    "Report",
    "ReverseKL",
    "Reweighted",
    "Seen",
    "Snapshot",
    "Squared",
    "StepBack",
    "Sum",
    "Term",
    "Trade",
    "TrueDensity",
    "Where",
    "Widening",
    "default_objective",
]
