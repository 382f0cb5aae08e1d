"""Adam with a one-cycle schedule, clipping and weight decay, as plain data."""

from dataclasses import dataclass
from itertools import pairwise

import optax

from trade.errors import TradeError


@dataclass(frozen=True)
class Adam:
    """Adam (decoupled weight decay) under a one-cycle learning rate.

    Args:
        learning_rate: Peak of the cycle.
        clip: Largest global norm of a gradient.
        weight_decay: Decoupled weight decay.
        warmup: Fraction of the steps on which the rate rises.
        stages: Fractions of the run at which a new cycle begins, for two-stage training.
        stage_factor: Factor on the peak at each new cycle.
    """

    learning_rate: float = 1e-3
    clip: float = 3.0
    weight_decay: float = 0.0
    warmup: float = 0.3
    stages: tuple[float, ...] = ()
    stage_factor: float = 1.0

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise TradeError(f"Adam learning_rate must be positive, got {self.learning_rate!r}.")
        if not self.clip > 0:
            raise TradeError(f"Adam clip must be positive, got {self.clip!r}.")

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate over a run: one cosine cycle, or one per stage."""
        edges = [0, *[round(f * steps) for f in self.stages], steps]
        cycles = [
            optax.cosine_onecycle_schedule(max(end - begin, 1), self.learning_rate * self.stage_factor**i, self.warmup)
            for i, (begin, end) in enumerate(pairwise(edges))
        ]
        return optax.join_schedules(cycles, edges[1:-1])

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation for a run of ``steps`` steps."""
        return optax.chain(
            optax.clip_by_global_norm(self.clip),
            optax.adamw(self.schedule(steps), weight_decay=self.weight_decay),
        )
