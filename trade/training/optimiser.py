"""Adam with a learning rate that follows the run, clipping and weight decay, as plain data."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from trade import check
from trade.errors import TradeError


class Cooling(NamedTuple):
    """When the learning rate falls to zero: from which step to which. Known only once it has begun.

    Args:
        begin: Its first step; the last step of the budget at the latest.
        end: The end of the run.
    """

    begin: Array
    end: Array


class Usual(NamedTuple):
    """The running mean of the norm of gradients, as far as they were let through; zero before the first."""

    norm: Array


def clip_to_usual(factor: float, memory: float = 0.99) -> optax.GradientTransformation:
    """Clip gradients to a multiple of the norm that they usually have.

    Args:
        factor: The multiple.
        memory: Weight of the old value in the running mean.

    Returns:
        The transformation.
    """

    def init(params: optax.Params) -> Usual:
        return Usual(jnp.zeros(()))

    def update(updates: optax.Updates, state: Usual, params: optax.Params | None = None) -> tuple[optax.Updates, Usual]:
        norm = optax.tree.norm(updates)
        usual = jnp.where(state.norm > 0.0, state.norm, norm).astype(norm.dtype)
        allowed = jnp.minimum(norm, factor * usual)
        scale = allowed / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
        running = memory * usual + (1.0 - memory) * allowed
        return jax.tree.map(lambda u: scale.astype(u.dtype) * u, updates), Usual(running.astype(state.norm.dtype))

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Adam:
    """Adam (decoupled weight decay), clipped; a steady learning rate, then a fall to zero whenever the run decides so.

    Args:
        learning_rate: The largest rate.
        clip: Largest global norm of a gradient.
        weight_decay: Decoupled weight decay.
        warmup: Fraction of the budget on which the rate rises.
        surge: Largest norm as a multiple of what has been usual. Adam divides by the size that gradients had: where
            they had become small, a single large one would move every parameter by several times the rate.
    """

    learning_rate: float = 2e-3
    clip: float = 3.0
    weight_decay: float = 0.0
    warmup: float = 0.05
    surge: float = 3.0

    @property
    def may_end_early(self) -> bool:
        """Whether the rate can fall at any time."""
        return True

    def __post_init__(self) -> None:
        check.numbers(self, "learning_rate", low=0, open_low=True)
        for name in ("clip", "surge"):
            value = getattr(self, name)
            if not (isinstance(value, float) and value == math.inf):  # which is no clipping at all
                check.numbers(self, name, low=0, open_low=True)
        check.numbers(self, "weight_decay", low=0)
        check.numbers(self, "warmup", low=0, high=1)

    def rate(self, step: Array, steps: int, cooling: Cooling) -> Array:
        """The learning rate at a step.

        Args:
            step: The step, a traced integer.
            steps: The budget.
            cooling: When the rate falls to zero.

        Returns:
            The rate, a scalar.
        """
        risen = jnp.minimum((step + 1.0) / max(self.warmup * steps, 1.0), 1.0)
        fallen = jnp.clip((step - cooling.begin) / jnp.maximum(cooling.end - cooling.begin, 1), 0.0, 1.0)
        return self.learning_rate * risen * 0.5 * (1.0 + jnp.cos(jnp.pi * fallen))

    def transformation(self) -> optax.GradientTransformation:
        """The Optax transformation, before it is scaled by the rate.

        Returns:
            Clipping, Adam and weight decay, in this order.
        """
        return optax.chain(
            optax.clip_by_global_norm(self.clip),
            clip_to_usual(self.surge),
            optax.scale_by_adam(),
            optax.add_decayed_weights(self.weight_decay),
        )


@dataclass(frozen=True)
class OneCycle(Adam):
    """Adam under the one-cycle learning rate of the paper, which knows its number of steps in advance.

    Args:
        learning_rate: Peak of the cycle.
        clip: Largest global norm of a gradient.
        weight_decay: Decoupled weight decay.
        warmup: Fraction of the steps on which the rate rises.
        stages: Fractions of the run at which a new cycle begins, for two-stage training.
        stage_factor: Factor on the peak at each new cycle.
        surge: As of ``Adam``; the paper has no such limit.
    """

    learning_rate: float = 1e-3
    warmup: float = 0.3
    surge: float = math.inf
    stages: tuple[float, ...] = ()
    stage_factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.numbers(self, "warmup", low=0, high=1, open_high=True)  # the cycle must fall, too
        check.numbers(self, "stage_factor", low=0, open_low=True)
        check.instance(self.stages, (tuple, list), "OneCycle stages", "a tuple of fractions of the run")
        inside = {"low": 0, "high": 1, "open_low": True, "open_high": True}
        stages = tuple(check.number(v, "An entry of OneCycle stages", **inside) for v in self.stages)
        if any(one >= two for one, two in pairwise(stages)):
            raise TradeError(f"OneCycle stages must grow, got {self.stages!r}.")
        object.__setattr__(self, "stages", stages)

    @property
    def may_end_early(self) -> bool:
        """The cycle is as long as the budget."""
        return False

    def rate(self, step: Array, steps: int, cooling: Cooling) -> Array:
        """One cosine cycle, or one per stage; a run under it ends with its budget."""
        edges = [0, *[round(f * steps) for f in self.stages], steps]
        cycles = [
            optax.cosine_onecycle_schedule(max(end - begin, 1), self.learning_rate * self.stage_factor**i, self.warmup)
            for i, (begin, end) in enumerate(pairwise(edges))
        ]
        return jnp.asarray(optax.join_schedules(cycles, edges[1:-1])(step))


@dataclass(frozen=True)
class Given:
    """A transformation of Optax as it is, with its own learning rate and schedule; a run under it ends with its budget.

    Args:
        given: The transformation, such as ``optax.adam(1e-3)``.
    """

    given: optax.GradientTransformation

    @property
    def may_end_early(self) -> bool:
        """Its rate knows nothing of the end."""
        return False

    def rate(self, step: Array, steps: int, cooling: Cooling) -> Array:
        """Updates of Optax are added as they are."""
        return jnp.asarray(-1.0)

    def transformation(self) -> optax.GradientTransformation:
        """The transformation itself."""
        return self.given
