"""TRADE: one conditional normalizing flow for a whole family of densities."""

from trade import flows, targets
from trade.condition import Condition
from trade.errors import NonFiniteError, TradeError
from trade.fit import Run, fit, load
from trade.model import Model
from trade.objectives import *  # noqa: F403
from trade.objectives import __all__ as _objectives
from trade.target import AbstractTarget, Target, boltzmann, power
from trade.training.loop import Schedule
from trade.training.optimiser import Adam

__all__ = [
    "AbstractTarget",
    "Adam",
    "Condition",
    "Model",
    "NonFiniteError",
    "Run",
    "Schedule",
    "Target",
    "TradeError",
    "boltzmann",
    "fit",
    "flows",
    "load",
    "power",
    "targets",
    *_objectives,
]
__version__ = "0.1.0"
