"""The loss: a boundary term, a term that carries it to other conditions, and their axes."""

from trade.objectives.balance import Fixed, GradientNorm, Ramp, StepBack
from trade.objectives.boundary import ForwardKL, ReverseKL, Reweighted
from trade.objectives.conditions import CausalGrid, GrowingInterval, Widening
from trade.objectives.density import EnergyFree, TrueDensity
from trade.objectives.expectation import (
    BatchExpectation,
    FromBoundaryModel,
    FromData,
    FromModel,
    GridExpectation,
)
from trade.objectives.frontier import Frontier
from trade.objectives.gradient import Gradient
from trade.objectives.norm import Cauchy, Huber, Squared
from trade.objectives.points import ModelPoints
from trade.objectives.several import Sum
from trade.objectives.term import Clock, Objective, Outcome, Problem, Report, Term
from trade.objectives.trade import Trade

__all__ = [
    "BatchExpectation",
    "Cauchy",
    "CausalGrid",
    "Clock",
    "EnergyFree",
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
    "Problem",
    "Ramp",
    "Report",
    "ReverseKL",
    "Reweighted",
    "Squared",
    "StepBack",
    "Sum",
    "Term",
    "Trade",
    "TrueDensity",
    "Widening",
]
