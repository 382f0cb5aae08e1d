"""How a flow is trained: the optimiser, how often to report and save, what is kept, and when it ends."""

from trade.training.loop import Schedule
from trade.training.optimiser import Adam, OneCycle
from trade.training.tensorboard import TensorBoard
from trade.training.watch import Watch

__all__ = ["Adam", "OneCycle", "Schedule", "TensorBoard", "Watch"]
