"""TRADE: one conditional normalizing flow for a whole family of densities."""

from trade import evaluation, flows, objectives, sampling, targets, training
from trade.abstract_target import AbstractTarget
from trade.axes import Axes
from trade.condition import Condition
from trade.config import register
from trade.errors import NonFiniteError, TradeError
from trade.fit import fit
from trade.model import Model
from trade.objectives import Trade
from trade.run import Run, load
from trade.target import Target
from trade.targets.bridge import bridge
from trade.training import Adam, Schedule

__all__ = [
    "AbstractTarget",
    "Adam",
    "Axes",
    "Condition",
    "Model",
    "NonFiniteError",
    "Run",
    "Schedule",
    "Target",
    "Trade",
    "TradeError",
    "bridge",
    "evaluation",
    "fit",
    "flows",
    "load",
    "objectives",
    "register",
    "sampling",
    "targets",
    "training",
]
__version__ = "0.1.0"
