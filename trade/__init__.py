"""TRADE: one conditional normalizing flow for a whole family of densities."""

from trade import evaluation, flows, objectives, sampling, targets
from trade.condition import Condition
from trade.config import register
from trade.errors import NonFiniteError, TradeError
from trade.evaluation.verdict import Verdict
from trade.fit import fit
from trade.model import Model
from trade.objectives import (
    BatchExpectation,
    Cauchy,
    CausalGrid,
    EnergyFree,
    Fixed,
    ForwardKL,
    FromBoundaryModel,
    FromData,
    FromModel,
    Frontier,
    Gradient,
    GradientNorm,
    GridExpectation,
    GrowingInterval,
    Huber,
    ModelPoints,
    Ramp,
    ReverseKL,
    Reweighted,
    Squared,
    StepBack,
    Sum,
    Trade,
    TrueDensity,
    Widening,
)
from trade.run import Run, load
from trade.target import AbstractTarget, Target, boltzmann, power
from trade.targets.bridge import bridge
from trade.training.loop import Schedule
from trade.training.optimiser import Adam, OneCycle
from trade.training.watch import Watch

__all__ = [
    "AbstractTarget",
    "Adam",
    "BatchExpectation",
    "Cauchy",
    "CausalGrid",
    "Condition",
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
    "Model",
    "ModelPoints",
    "NonFiniteError",
    "OneCycle",
    "Ramp",
    "ReverseKL",
    "Reweighted",
    "Run",
    "Schedule",
    "Squared",
    "StepBack",
    "Sum",
    "Target",
    "Trade",
    "TradeError",
    "TrueDensity",
    "Verdict",
    "Watch",
    "Widening",
    "boltzmann",
    "bridge",
    "evaluation",
    "fit",
    "flows",
    "load",
    "objectives",
    "power",
    "register",
    "sampling",
    "targets",
]
__version__ = "0.1.0"
