"""What every contender shares: the task, the sizes, and how a contender is called."""

from collections.abc import Callable
from dataclasses import dataclass

import trade

LEARNING_RATE = 1e-3
CLIP = 3.0


@dataclass(frozen=True)
class Size:
    """One flow and one batch, the same for all contenders.

    Args:
        dimension: Dimension of a state.
        blocks: Coupling layers.
        width: Units in each of the ``depth`` hidden layers of a conditioner.
        depth: Hidden layers of a conditioner.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval).
        batch: Data points each step, and states in one call for samples.
        conditions: Conditions each step.
        points: Evaluation points at each condition.
    """

    dimension: int
    blocks: int
    width: int
    depth: int = 2
    bins: int = 10
    interval: float = 4.0
    batch: int = 512
    conditions: int = 8
    points: int = 64

    @property
    def target(self) -> trade.targets.MultiWell:
        """q(x|T) = exp(-(x⁴ - 4x²)/T), T from 0.5 to 1, data at T = 1."""
        return trade.targets.MultiWell(self.dimension)


SIZES = {"small": Size(2, 4, 32), "large": Size(5, 15, 256)}


@dataclass(frozen=True)
class Contender:
    """One implementation at one size, ready to be timed.

    Args:
        name: Its name in the table.
        steps: Takes n full training steps and returns when they are done.
        sample: Draws one batch of states with their log density and returns when it is there.
        healthy: Whether every step so far had a finite loss.
        parameters: Number of trained parameters.
        threads: CPU threads used for steps and for samples, where the contender lets one choose.
    """

    name: str
    steps: Callable[[int], None]
    sample: Callable[[], None]
    healthy: Callable[[], bool]
    parameters: int
    threads: dict[str, int] | None = None


class UnavailableError(Exception):
    """A contender cannot run here; the message says why."""
