"""The gradient term: how the density must change with c (Section 4.2, Eq. 19)."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.errors import TradeError
from trade.model import condition_score
from trade.objectives.conditions import ConditionSampler, Widening
from trade.objectives.density import Density, TrueDensity
from trade.objectives.expectation import BatchExpectation, Drawn, Expectation
from trade.objectives.norm import Huber, Norm
from trade.objectives.points import ModelPoints, at_points
from trade.objectives.term import Clock, Outcome, Problem, State, Term, first_non_finite, freeze


def residual(model_score: Array, target_score: Array, expectation: Array) -> Array:
    """Eq. 19 inside the norm: ∂_u log p_θ - ∂_u log q + Ē(u), zero for the true density (Theorem 4.1)."""
    return model_score - target_score + expectation


@dataclass(frozen=True)
class Gradient(Term):
    """The residual of ∂_u log p(x|u) = ∂_u log q - E[∂_u log q], averaged over p_grad(c, x).

    Every choice the paper leaves open is an argument.

    Args:
        conditions: Where in c.
        points: Where in x.
        expectation: How E[∂_u log q] is estimated.
        density: What q is: the target's own, or rebuilt from the flow.
        norm: ``Squared()`` as in Eq. 19, or ``Huber(δ)``, which bounds the pull of a single bad point.
        conditions_per_step: How many conditions each step.
        points_per_condition: How many states at each of them.
    """

    conditions: ConditionSampler = field(default_factory=Widening)
    points: ModelPoints = field(default_factory=ModelPoints)
    expectation: Expectation = field(default_factory=BatchExpectation)
    density: Density = field(default_factory=TrueDensity)
    norm: Norm = field(default_factory=Huber)
    conditions_per_step: int = 8
    points_per_condition: int = 64
    name = "gradient"

    def __post_init__(self) -> None:
        for option in ("conditions_per_step", "points_per_condition"):
            value = getattr(self, option)
            if not isinstance(value, int) or value < 1:
                raise TradeError(f"Gradient {option} must be a positive integer, got {value!r}.")
        alone = self.points_per_condition == 1
        if alone and isinstance(self.expectation, BatchExpectation) and self.expectation.samples is None:
            raise TradeError(
                "BatchExpectation cannot estimate an expectation from points_per_condition=1:"
                " give it samples=..., or use GridExpectation."
            )

    def init(self, key: Array, problem: Problem) -> State:
        """State of the condition sampler and of the expectation."""
        return self.conditions.init(problem), self.expectation.init(problem)

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Mean norm of the residual over conditions and points."""
        sampler_state, expectation_state = state
        keys = jax.random.split(key, 6)
        shape = (self.conditions_per_step, self.points_per_condition)
        frozen = freeze(flow)

        u = self.conditions.sample(sampler_state, keys[0], shape[0], problem, clock)
        y = problem.draw_observations(keys[1], shape[0])
        drawn = Drawn(*self.points.draw(frozen, u, y, shape[1], keys[2]))
        expectation_state = self.expectation.refresh(expectation_state, frozen, self.density, problem, clock, keys[3])
        mean = self.expectation.estimate(expectation_state, frozen, self.density, problem, u, y, drawn, keys[4])
        perturb = jax.vmap(jax.vmap(lambda v, k: self.points.perturb(v, problem, k)))
        x = perturb(drawn.x, jax.random.split(keys[5], shape))

        def at_point(x: Array, u: Array, y: Array | None, mean: Array) -> Array:
            target_score = self.density.evaluate(frozen, problem, x, u, y)[1]
            held = jax.lax.stop_gradient((target_score, mean))
            return residual(condition_score(flow, x, u, y), *held)

        values = self.norm(at_points(at_point, x, u, y, mean))

        per_condition = jax.lax.stop_gradient(values.mean(axis=1))
        sampler_state = self.conditions.update(sampler_state, u, per_condition, problem)
        suspect = first_non_finite(per_condition, problem.condition.unchart(u))
        return jnp.mean(values), Outcome((sampler_state, expectation_state), suspect)
