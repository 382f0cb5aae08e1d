"""What every loss term shares: the problem it sees, the clock, and its contract."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array
from paramax import NonTrainable

from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.errors import TradeError

T = TypeVar("T")
State = Any  # a pytree of arrays: resuming, vmapping and sharding come for free


class Problem(eqx.Module):
    """Target, boundary values and the data at them: on the device in training, on the host before.

    Args:
        target: The family of densities.
        condition: The target's condition with its boundary values filled in.
        data: One batch of states per boundary value, in the order of ``condition.boundary``.
        observations: The observations that belong to the data, if the target takes any.
    """

    target: AbstractTarget
    condition: AbstractCondition = eqx.field(static=True)
    data: tuple[Array, ...] = ()
    observations: tuple[Array, ...] | None = None

    def batch(self, key: Array, boundary: int, n: int) -> tuple[Array, Array | None]:
        """n states (and observations) drawn with replacement from the data at one boundary value.

        Args:
            key: A JAX random key.
            boundary: Index of the boundary value.
            n: How many.

        Returns:
            States of shape (n, *shape), and their observations, or None where there are none.
        """
        if not self.data:
            raise TradeError("This objective needs data at a boundary condition, but fit got none.")
        data = self.data[boundary]
        # One draw, where ``randint`` takes two; uneven by one part in 2³²/len(data).
        index = jax.random.bits(key, (n,), jnp.uint32) % len(data)
        y = None if self.observations is None else self.observations[boundary][index]
        return data[index], y

    def draw_observations(self, key: Array, n: int) -> Array | None:
        """n observations from the data at the first boundary value, or None when the target takes none.

        Args:
            key: A JAX random key.
            n: How many.

        Returns:
            Observations of shape (n, *observation_shape), or None.
        """
        if self.target.observation_shape is None:
            return None
        return self.batch(key, 0, n)[1]


class Clock(NamedTuple):
    """Where training stands.

    Args:
        step: The current step, a traced integer.
        total: Number of steps of the whole run.
        start: Step at which the term that reads this clock begins to act.
        trust: Factor on the weight of a propagation term: below 1 where the boundary is being lost, above 1 where data
            are memorised.
    """

    step: Array
    total: int
    start: int = 0
    trust: Array | float = 1.0

    @property
    def progress(self) -> Array:
        """Fraction of the term's own time that has passed, in [0, 1]."""
        return jnp.clip((self.step - self.start) / max(self.total - self.start, 1), 0.0, 1.0)

    def due(self, every: int) -> Array:
        """True once every ``every`` steps, the first time at the start.

        Args:
            every: The period, in steps.

        Returns:
            A boolean scalar.
        """
        return (self.step - self.start) % every == 0


class Outcome(NamedTuple):
    """What a term returns beside its loss.

    Args:
        state: The new state.
        suspect: The first c with a non-finite value, or NaN.
        parts: The losses it is made of, one for each of the term's ``parts``; empty for the loss itself.
        notes: Other numbers worth reporting, by name.
    """

    state: State
    suspect: Array
    parts: tuple[Array, ...] = ()
    notes: dict[str, Array] = {}  # noqa: RUF012 (of a NamedTuple: never changed)


class Report(NamedTuple):
    """One step of an objective, in numbers.

    Args:
        losses: Losses and other numbers, by name.
        suspects: For each loss, by name, the first c with a non-finite value, or NaN.
    """

    losses: dict[str, Array]
    suspects: dict[str, Array]


class Objective(Protocol):
    """Anything ``fit`` can minimise."""

    def init(self, key: Array, problem: Problem) -> State:
        """The state before the first step.

        Args:
            key: A JAX random key.
            problem: Target, boundary values and data.

        Returns:
            The state, a pytree of arrays.
        """
        ...

    def value_and_grad(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        """Losses and their gradient at one step.

        Args:
            flow: The flow that is trained.
            state: The state of the objective.
            problem: Target, boundary values and data.
            clock: Where training stands.
            key: A JAX random key.

        Returns:
            The report, the gradient with respect to the trainable leaves of the flow, and the new state.
        """
        ...


class Term(ABC):
    """One loss term. Subclasses are frozen dataclasses with a ``name`` and a ``loss``."""

    name: str = "loss"

    @property
    def parts(self) -> tuple[str, ...]:
        """Names under which its losses are reported."""
        return (self.name,)

    @property
    def evaluations(self) -> float:
        """How many states q is evaluated at each step, on average over the steps on which the term acts."""
        return 0.0

    def report(self, value: Array, outcome: Outcome) -> Report:
        """Losses and suspects by name.

        Args:
            value: The loss, a scalar.
            outcome: What ``loss`` returned beside it.

        Returns:
            The report of one step.
        """
        losses = dict(zip(self.parts, outcome.parts or (value,), strict=True))
        return Report(losses | outcome.notes, dict.fromkeys(self.parts, outcome.suspect))

    def init(self, key: Array, problem: Problem) -> State:
        """The state before the first step; most terms have none."""
        return ()

    @abstractmethod
    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """The loss at one step.

        Args:
            flow: The flow that is trained.
            state: The state of the term.
            problem: Target, boundary values and data.
            clock: Where training stands.
            key: A JAX random key.

        Returns:
            The loss, a scalar, and its outcome: the new state, and the condition to blame if the loss is not finite.
        """

    def loss_in_parts(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """The loss, with its parts named: the loss itself where the term has no others.

        Args:
            flow: The flow that is trained.
            state: The state of the term.
            problem: Target, boundary values and data.
            clock: Where training stands.
            key: A JAX random key.

        Returns:
            What ``loss`` returns, with ``parts`` never empty.
        """
        value, outcome = self.loss(flow, state, problem, clock, key)
        return value, outcome._replace(parts=outcome.parts or (value,))

    def value_and_grad(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        """See ``Objective``: a term alone is an objective."""
        run = gradient_of(lambda f: self.loss(f, state, problem, clock, key))
        (value, outcome), grads = run(flow)
        return self.report(value, outcome), grads, outcome.state


def from_step(first: int, clock: Clock, act: Callable[[], T], idle: Callable[[], T]) -> T:
    """``act()`` from a step on, ``idle()`` before it; no branch where it acts from the beginning.

    Args:
        first: The step.
        clock: Where training stands.
        act: What is done from then on.
        idle: What is done before.

    Returns:
        What either gives.
    """
    return act() if first <= clock.start else jax.lax.cond(clock.step < first, idle, act)


def no_loss(loss: Callable[[], tuple[Array, Outcome]], state: State) -> tuple[Array, Outcome]:
    """What a term that has not begun gives in place of its loss: zeros, and its state as it was."""
    value, outcome = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), eqx.filter_eval_shape(loss))
    return value, outcome._replace(state=state, suspect=jnp.full_like(outcome.suspect, jnp.nan))


def is_untrained(node: object) -> bool:
    """Whether a node of a flow is excluded from training."""
    return isinstance(node, NonTrainable)


def split_trainable(flow: AbstractDistribution) -> tuple[Any, Any]:
    """Split a flow into its trainable arrays and everything else."""
    return eqx.partition(flow, eqx.is_inexact_array, is_leaf=is_untrained)


def gradient_of(
    loss: Callable[[AbstractDistribution], tuple[Array, Any]],
) -> Callable[[AbstractDistribution], tuple[tuple[Array, Any], Any]]:
    """``value_and_grad`` (with auxiliary output) over the trainable leaves of a flow."""

    def run(flow: AbstractDistribution) -> tuple[tuple[Array, Any], Any]:
        params, static = split_trainable(flow)

        def of_params(p: Any) -> tuple[Array, Any]:
            return loss(eqx.combine(p, static, is_leaf=is_untrained))

        return jax.value_and_grad(of_params, has_aux=True)(params)

    return run


def held_fixed(flow: AbstractDistribution) -> AbstractDistribution:
    """The flow with no gradient through it."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, flow)


def first_non_finite(values: Array, conditions: Array) -> Array:
    """The condition of the first non-finite value, or NaN when all are finite."""
    bad = ~jnp.isfinite(values)
    return jnp.where(bad.any(), conditions[jnp.argmax(bad)], jnp.nan)
