"""The gradient term: how the density must change with c (Section 4.2, Eq. 19)."""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.ess import kish_ess
from trade.model import log_prob_and_score
from trade.objectives.condition_samplers import ConditionSampler, Seen, check_conditions
from trade.objectives.density import Density, TrueDensity, check_density
from trade.objectives.expectation import BatchExpectation, Drawn, Expectation, Snapshot, Where, check_expectation
from trade.objectives.frontier import Frontier
from trade.objectives.penalty import Cauchy, Penalty
from trade.objectives.points import ModelPoints, at_points
from trade.objectives.term import Clock, Outcome, Problem, State, Term, first_non_finite, held_fixed

MOST_INVALID = 0.1
LARGEST_LOG = 3.0  # of a weight, in the reverse KL: one state far out is not to be all that counts


def residual(model_score: Array, target_score: Array, expectation: Array) -> Array:
    """Eq. 19 inside the penalty: ∂_u log p_θ - ∂_u log q + Ē(u), zero for the true density (Theorem 4.1).

    Where the condition has several axes, all three are derivatives along one direction in the chart.
    """
    return model_score - target_score + expectation


def truncated(log_weight: Array, largest: float) -> Array:
    """Weights of sum one along the last axis, none larger than ``largest`` times their mean."""
    weights = jnp.minimum(jax.nn.softmax(log_weight, axis=-1), largest / log_weight.shape[-1])
    return weights / weights.sum(axis=-1, keepdims=True)


def balanced_pulls(log_q: Array, log_own: Array, log_base: Array, forward: float, reverse: float) -> Array:
    """What makes the pull of every state vanish where the model is right, and push where it has too much mass.

    Of the model's own states the mean of ∇log p_θ is zero. So a constant may be taken off their weights: with w - 1 for
    w the forward KL (Eq. 4) has the same mean and no noise at the optimum. The reverse KL (Eq. 3) has such a form too,
    log w for w, and punishes states between modes and far out, of which the forward KL sees no more than their number.

    Args:
        log_q: log q, of shape (C, P).
        log_own: log p_θ.
        log_base: Log density of what the states were drawn from.
        forward: Weight of the forward KL.
        reverse: Weight of the reverse KL.

    Returns:
        What log p_θ of each state is multiplied with, beside the weights of the forward KL; its sum over states is
        minus ``forward``.
    """
    own = jax.nn.softmax(log_own - log_base, axis=-1)
    log_z = jax.nn.logsumexp(log_q - log_base, axis=-1, keepdims=True) - math.log(log_q.shape[-1])
    log_weight = jnp.clip(log_q - log_own - log_z, -LARGEST_LOG, LARGEST_LOG)
    return own * (reverse * (log_weight - jnp.sum(own * log_weight, axis=-1, keepdims=True)) - forward)


def impossible(log_q: Array, score: Array) -> tuple[Array, Array, Array]:
    """States whose density is no number, taken for states outside the support; and which part of all they are.

    A simulator that overflows far out says so for a few states of a model that is still learning. Of more than
    ``MOST_INVALID`` of them the density itself is wrong: then nothing is changed, and the step is refused.
    """
    bad = jnp.isnan(log_q) | jnp.isposinf(log_q) | (jnp.isfinite(log_q) & ~jnp.isfinite(score))
    part = jnp.mean(bad, dtype=log_q.dtype)
    outside = bad & (part < MOST_INVALID)
    return jnp.where(outside, -jnp.inf, log_q), jnp.where(outside, 0.0, score), part


@dataclass(frozen=True)
class Gradient(Term):
    """The residual of ∂_u log p(x|u) = ∂_u log q - E[∂_u log q], averaged over p_grad(c, x), and what its pass gives.

    The one ``jvp`` that gives ∂_u log p_θ at the model's own states gives log p_θ too, and with the weights q/p_θ that
    is the forward KL at the same conditions (Eq. 4, with the model as base): it repairs what a derivative alone
    leaves, errors that were carried outward from c0, and needs no second pass. Weights also say how well the
    model follows, which the condition sampler hears.

    Every choice the paper leaves open is an argument; the paper's are ``Widening()`` or ``CausalGrid()``, ``Squared()``
    or ``Huber()``, and ``reweighted=0``, which leaves out both divergences.

    Args:
        conditions: Where in c.
        points: Where in x.
        expectation: How E[∂_u log q] is estimated.
        density: What q is: the target's own, or rebuilt from the flow.
        penalty: ``Squared()`` as in Eq. 19, or one that bounds the pull of a single bad point.
        conditions_per_step: How many conditions each step.
        points_per_condition: How many states at each of them.
        reweighted: Weight of the forward KL on the model's own weighted states, beside the residual; 0 leaves it out.
        truncate: Largest weight in it, as a multiple of the mean weight.
        reverse: Weight of the reverse KL beside it.
        at_once: States whose gradient is computed at once, where memory has no room for all of them.
    """

    conditions: ConditionSampler = field(default_factory=Frontier)
    points: ModelPoints = field(default_factory=ModelPoints)
    expectation: Expectation = field(default_factory=BatchExpectation)
    density: Density = field(default_factory=TrueDensity)
    penalty: Penalty = field(default_factory=Cauchy)
    conditions_per_step: int = 16
    points_per_condition: int = 64
    reweighted: float = 1.0
    truncate: float = 10.0
    reverse: float = 1.0
    at_once: int | None = None
    name = "gradient"

    def __post_init__(self) -> None:
        check_conditions(self.conditions, "Gradient")
        check.instance(self.points, ModelPoints, "Gradient points", "a ModelPoints")
        check_expectation(self.expectation, "Gradient")
        check_density(self.density, "Gradient")
        check.member(self.penalty, "Gradient penalty", "a penalty such as Cauchy()", "__call__")
        check.integers(self, conditions_per_step=1, points_per_condition=1)
        check.numbers(self, "reweighted", "reverse", low=0)
        check.numbers(self, "truncate", low=1)
        if self.at_once is not None:
            check.integers(self, at_once=1)
        alone = self.points_per_condition == 1
        if alone and isinstance(self.expectation, BatchExpectation) and self.expectation.samples is None:
            raise TradeError(
                "BatchExpectation cannot estimate an expectation from points_per_condition=1:"
                " give it samples=..., or use GridExpectation."
            )
        if self.reweighted and (alone or self.points.noise > 0):
            raise TradeError(
                "Gradient reweighted needs several states at each condition, and without noise (which moves them off"
                " their weights): use reweighted=0 with points_per_condition=1 or noise."
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The residual, and the forward KL if there is one."""
        return ("gradient", "reweighted") if self.reweighted else ("gradient",)

    @property
    def evaluations(self) -> float:
        """One a state, log q and its derivative together; none of a density that is rebuilt from the flow."""
        if not self.density.known:
            return 0.0
        states = self.conditions_per_step * self.points_per_condition
        expected = self.expectation.evaluations(self.conditions_per_step, self.points_per_condition)
        return states * (2 if self.points.moves else 1) + expected

    def init(self, key: Array, problem: Problem) -> State:
        """State of the condition sampler and of the expectation."""
        return self.conditions.init(problem), self.expectation.init(problem)

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Mean penalty of the residual over conditions and points, plus the forward KL over the same points."""
        sampler_state, expectation_state = state
        keys = jax.random.split(key, 6)
        shape = (self.conditions_per_step, self.points_per_condition)
        snapshot = Snapshot(held_fixed(flow), problem, self.density)
        u = self.conditions.sample(sampler_state, keys[0], shape[0], problem, clock)
        direction = problem.condition.directions(jax.random.fold_in(key, 6), shape[0])
        at = Where(u, problem.draw_observations(keys[1], shape[0]), direction)
        x, log_own, log_base, own = self.points.draw(snapshot.flow, u, at.y, shape[1], keys[2])
        log_q, target_score, invalid = jax.lax.stop_gradient(impossible(*snapshot.evaluate(x, at)))
        drawn = Drawn(x, log_base, log_q, target_score)
        expectation_state = self.expectation.refresh(expectation_state, snapshot, clock, keys[3])
        mean = self.expectation.estimate(expectation_state, snapshot, at, drawn, keys[4])
        if self.points.moves:
            perturb = jax.vmap(jax.vmap(lambda v, k: self.points.perturb(v, problem, k)))
            x = perturb(x, jax.random.split(keys[5], shape))
            log_q, target_score, invalid = jax.lax.stop_gradient(impossible(*snapshot.evaluate(x, at)))

        log_p, model_score = at_points(lambda v, *c: log_prob_and_score(flow, v, *c), x, *at, at_once=self.at_once)
        left = residual(model_score, target_score, jax.lax.stop_gradient(mean)[:, None])
        values = self.penalty(
            jnp.where(jnp.isneginf(log_q), 0.0, left)
        )  # outside the support there is nothing to carry on
        per_condition = jax.lax.stop_gradient(values.mean(axis=1))

        # How well the model follows is a matter of its own states; the wider ones only help to teach it.
        seen = Seen(per_condition, kish_ess((drawn.log_q - log_own)[:, :own]))
        sampler_state = self.conditions.update(sampler_state, u, seen, problem, clock)
        parts: tuple[Array, ...] = (values.mean(),)
        total, suspects = parts[0], per_condition
        if self.reweighted:
            # A symmetry leaves the weights what they are: q does not change, and x was drawn before it.
            empty = jnp.isneginf(drawn.log_q).all(axis=1, keepdims=True)  # no state of a condition in the support
            weights = jnp.where(empty, 0.0, truncated(jnp.where(empty, 0.0, drawn.log_q - log_base), self.truncate))
            forward = -jnp.sum(weights * log_p, axis=1)
            parts = (parts[0], forward.mean())
            total = total + self.reweighted * parts[1]
            if not self.points.moves:
                log_q = jnp.where(empty, log_own, drawn.log_q)
                pulls = balanced_pulls(log_q, log_own, log_base, self.reweighted, self.reverse)
                extra = -jnp.sum(jnp.where(empty, 0.0, pulls) * log_p, axis=1).mean()
                total = total + extra - jax.lax.stop_gradient(extra)  # a gradient alone
            suspects = suspects + jax.lax.stop_gradient(forward)
        suspect = first_non_finite(suspects, problem.condition.unchart(u))
        notes = self.conditions.notes(sampler_state, problem) | {"invalid": invalid}
        if not self.density.known:  # at the boundary such weights are all the same, however good the flow
            notes.pop("boundary_ess", None)
        return total, Outcome((sampler_state, expectation_state), suspect, parts, notes)
