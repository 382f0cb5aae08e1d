"""The training state, and one guarded step of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.devices import SEEDS, mapped_over_seeds, on_each, shared_out
from trade.flows.coupling import in_one_piece
from trade.objectives.term import Clock, Objective, Problem, Report, is_untrained, split_trainable
from trade.training.optimiser import Adam, Cooling

# Neither changes what is computed, only in which order products add up (CPU) and kernels run (GPU).
COMPILER_OPTIONS = {
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": ""},  # Eigen's products; YNNPACK's are a fifth slower here
    "gpu": {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"},  # small kernels that need not wait do not
}


@dataclass(frozen=True)
class Program:
    """Everything static about a run: what is compiled, and nothing that changes.

    Args:
        objective: What is minimised.
        optimiser: How.
        steps: The budget: the largest number of steps.
    """

    objective: Objective
    optimiser: Adam
    steps: int


class Guard(eqx.Module):
    """Count of non-finite steps, and what was seen at the last one."""

    skipped: Array
    consecutive: Array
    losses: dict[str, Array]
    suspects: dict[str, Array]


class Learner(eqx.Module):
    """What one seed carries from step to step."""

    flow: AbstractDistribution
    optimiser: Any
    objective: Any
    key: Array  # raw key data, so that it serialises like any other array
    guard: Guard
    trust: Array  # see Clock


def begin(program: Program, flow: AbstractDistribution, problem: Problem, key: Array) -> Learner:
    """The state before the first step."""
    key_init, key_run = jax.random.split(key)
    objective = program.objective.init(key_init, problem)
    params, _ = split_trainable(flow)
    optimiser = program.optimiser.transformation().init(params)

    clock = Clock(jnp.zeros((), int), program.steps, trust=jnp.ones(()))
    shapes = eqx.filter_eval_shape(_differentiated, program.objective, flow, objective, problem, clock, key_init)[0]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    guard = Guard(jnp.zeros((), int), jnp.zeros((), int), zeros.losses, zeros.suspects)
    return Learner(flow, optimiser, objective, jax.random.key_data(key_run), guard, jnp.ones(()))


@eqx.filter_jit
def _differentiated(
    objective: Objective, flow: AbstractDistribution, state: Any, problem: Problem, clock: Clock, key: Array
) -> tuple[Report, Any, Any]:
    """Losses, gradient and new state of an objective: traced once, for what it reports and for the step."""
    return objective.value_and_grad(flow, state, problem, clock, key)


def advance(
    program: Program, learner: Learner, problem: Problem, step: Array, cooling: Cooling
) -> tuple[Learner, Report]:
    """One step. A non-finite loss, gradient or state leaves everything as it was, and is counted."""
    key = jax.random.fold_in(jax.random.wrap_key_data(learner.key), step)
    clock = Clock(jnp.asarray(step, int), program.steps, trust=learner.trust)
    trained = in_one_piece(learner.flow, program.steps)
    report, grads, objective = _differentiated(program.objective, trained, learner.objective, problem, clock, key)
    params, static = split_trainable(learner.flow)
    grads = jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(grads))  # of the flow as it is kept
    updates, optimiser = program.optimiser.transformation().update(grads, learner.optimiser, params)
    rate = program.optimiser.rate(step, program.steps, cooling)
    new_params = jax.tree.map(lambda p, v: p - jnp.asarray(rate, p.dtype) * v, params, updates)
    finite = all_finite((report.losses, grads, new_params, objective))

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

    old_guard = learner.guard
    guard = Guard(
        old_guard.skipped + jnp.where(finite, 0, 1),
        jnp.where(finite, 0, old_guard.consecutive + 1),
        keep(old_guard.losses, report.losses),
        keep(old_guard.suspects, report.suspects),
    )
    flow = eqx.combine(keep(new_params, params), static, is_leaf=is_untrained)
    kept = keep(optimiser, learner.optimiser), keep(objective, learner.objective)
    return Learner(flow, *kept, learner.key, guard, learner.trust), report


def all_finite(tree: Any) -> Array:
    """True if every floating-point entry of a pytree is finite."""
    leaves = [a for a in jax.tree.leaves(tree) if eqx.is_inexact_array(a)]
    return jnp.stack([jnp.isfinite(a).all() for a in leaves]).all()


class Means(eqx.Module):
    """Sums of the losses of finite steps, and how many there were."""

    sums: dict[str, Array]
    count: Array


def no_means(losses: dict[str, Any]) -> Means:
    """Before any step; ``losses`` gives names, shapes and types."""
    sums = {k: jnp.zeros(v.shape, v.dtype) for k, v in losses.items()}
    return Means(sums, jnp.zeros(next(iter(sums.values())).shape))


def run_chunk(
    program: Program, learners: Learner, problem: Problem, first: Array, stop: Array, cooling: Cooling, *, many: bool
) -> tuple[Learner, Means]:
    """Steps ``first`` to ``stop`` in one compiled loop; with ``many``, of several seeds at once.

    The bounds are traced, so that chunks of every length share one compilation, and they
    are not mapped over seeds, so that what happens every n steps stays a branch.
    """
    return compiled_loop()(program, learners, problem, first, stop, cooling, many=many)


@cache
def compiled_loop() -> Callable[..., tuple[Learner, Means]]:
    """With the choices of compilation that fit this device, where its XLA has them."""
    options = COMPILER_OPTIONS.get(jax.default_backend(), {})
    try:
        jax.jit(lambda: 0.0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # an XLA without this choice
        options = {}
    return eqx.filter_jit(_loop, donate="none", compiler_options=options)  # pyright: ignore[reportCallIssue]


def _loop(
    program: Program, learners: Learner, problem: Problem, first: Array, stop: Array, cooling: Cooling, *, many: bool
) -> tuple[Learner, Means]:
    arrays, static = eqx.partition(learners, eqx.is_array)

    def one(arrays: Any, step: Array) -> tuple[Any, Report]:
        learner, report = advance(program, eqx.combine(arrays, static), problem, step, cooling)
        return eqx.filter(learner, eqx.is_array), report

    step_all = mapped_over_seeds(one, (0, None)) if many else one
    settled = partial(shared_out, axis=SEEDS) if many else on_each

    def body(step: Array, carry: tuple[Any, Means]) -> tuple[Any, Means]:
        arrays, means = carry
        arrays, report = step_all(settled(arrays), step)
        finite = jnp.stack([jnp.isfinite(v) for v in report.losses.values()]).all(axis=0)
        sums = {k: means.sums[k] + jnp.where(finite, v, 0.0) for k, v in report.losses.items()}
        return settled(arrays), Means(sums, means.count + finite)

    arrays, means = jax.lax.fori_loop(first, stop, body, (arrays, no_means(learners.guard.losses)))
    return eqx.combine(arrays, static), means
