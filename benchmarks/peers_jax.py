"""The contenders in JAX: this package, stock flowjax, and stock flowjax's flow in this package's training loop."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import AbstractDistribution, StandardNormal
from flowjax.flows import coupling_flow
from flowjax.train import step
from jax import Array
from paramax import NonTrainable, unwrap

import trade
from benchmarks.task import CLIP, LEARNING_RATE, Contender, Size
from trade.data import make_problem
from trade.flows.coupling import layers_in_loop
from trade.flows.standardise import adapt_to_data
from trade.objectives.term import Problem, split_trainable
from trade.training.optimiser import Cooling
from trade.training.state import Program, begin, run_chunk
from trade.training.windows import on_device

TOTAL = 1_000_000  # length of the run that the timed steps are the beginning of


def make(name: str, size: Size, data: np.ndarray) -> Contender:
    """The contender ``trade``, ``trade-default``, ``trade-looped``, ``flowjax`` or ``flowjax-in-trade``.

    Args:
        name: Which of them.
        size: The flow and the batches.
        data: States at the boundary T = 1.
    """
    problem = on_device(make_problem(size.target, {1.0: data}))
    ours = name in ("trade", "trade-default", "trade-looped")
    unroll = layers_in_loop(size.blocks) if name == "trade-looped" else 0  # looped as in a short run
    flow = _trade_flow(size, unroll) if ours else _flowjax_flow(size)
    flow = adapt_to_data(flow, jnp.concatenate(problem.data))
    if name == "flowjax":
        steps, healthy = _flowjax_training(flow, problem, size)
    else:
        steps, healthy = _training(flow, problem, size, default=name == "trade-default")
    sample = _model_sampler(flow, problem, size) if ours else _flowjax_sampler(flow, size)
    arrays = jax.tree.leaves(split_trainable(flow)[0])
    return Contender(name, steps, sample, healthy, sum(a.size for a in arrays))


def _trade_flow(size: Size, unroll: int) -> AbstractDistribution:
    return trade.flows.spline_flow(
        jax.random.key(0),
        size.target,
        blocks=size.blocks,
        bins=size.bins,
        interval=size.interval,
        network=trade.flows.MLP(size.width, size.depth),
        unroll=unroll,
    )


def _flowjax_flow(size: Size) -> AbstractDistribution:
    # flowjax counts inner knots, one fewer than bins.
    return coupling_flow(
        jax.random.key(0),
        base_dist=StandardNormal((size.dimension,)),
        transformer=RationalQuadraticSpline(knots=size.bins - 1, interval=size.interval),
        cond_dim=1,
        flow_layers=size.blocks,
        nn_width=size.width,
        nn_depth=size.depth,
        nn_activation=jax.nn.silu,
    )


def _training(
    flow: AbstractDistribution, problem: Problem, size: Size, *, default: bool = False
) -> tuple[Callable[[int], None], Callable[[], bool]]:
    """Chunks of the package's own loop, for its own flow or another: Eq. 20 as the peers have it, or the default."""
    sizes = {"conditions_per_step": size.conditions, "points_per_condition": size.points}
    # From the first step on the whole range, as the peers do.
    residual = trade.objectives.Gradient(
        trade.objectives.GrowingInterval(full_at=0.0),
        trade.objectives.ModelPoints(wider=0.0),
        penalty=trade.objectives.Squared(),
        reweighted=0.0,
        **sizes,
    )
    likelihood = trade.objectives.ForwardKL(batch=size.batch)
    objective = (
        trade.Trade(trade.objectives.Gradient(**sizes), likelihood, start=0)
        if default
        else trade.Trade(residual, likelihood, trade.objectives.Ramp(), start=0)
    )
    program = Program(objective, trade.Adam(LEARNING_RATE, clip=CLIP), TOTAL)
    learner, done = begin(program, flow, problem, jax.random.key(1)), 0
    never = Cooling(jnp.asarray(TOTAL), jnp.asarray(TOTAL))

    def steps(n: int) -> None:
        nonlocal learner, done
        first, stop = jnp.asarray(done), jnp.asarray(done + n)
        learner, _ = run_chunk(program, learner, problem, first, stop, never, many=False)
        jax.block_until_ready(learner)
        done += n

    return steps, lambda: int(learner.guard.skipped) == 0


def _flowjax_training(
    flow: AbstractDistribution, problem: Problem, size: Size
) -> tuple[Callable[[int], None], Callable[[], bool]]:
    """flowjax's own training step with the loss of Eq. 20 written on its public calls: all of it stock."""
    target, condition, data = size.target, problem.condition, problem.data[0]
    u0 = jnp.asarray(condition.chart(1.0)).reshape(1)
    params, static = eqx.partition(flow, eqx.is_inexact_array, is_leaf=lambda v: isinstance(v, NonTrainable))
    optimiser = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(LEARNING_RATE))

    def loss(params: AbstractDistribution, static: AbstractDistribution, key: Array) -> Array:
        flow = unwrap(eqx.combine(params, static, is_leaf=lambda v: isinstance(v, NonTrainable)))
        key_data, key_u, key_x = jax.random.split(key, 3)
        batch = data[jax.random.randint(key_data, (size.batch,), 0, len(data))]
        u = jax.random.uniform(key_u, (size.conditions,), minval=-1.0, maxval=1.0)
        x, log_p = jax.lax.stop_gradient(flow.sample_and_log_prob(key_x, (size.points,), condition=u[:, None]))

        def of_target(x: Array, u: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda v: target.log_density(x, condition.unchart(v)), (u,), (jnp.ones_like(u),))

        log_q, target_score = jax.vmap(jax.vmap(of_target), in_axes=(0, None))(x, u)
        mean = jnp.sum(jax.nn.softmax(log_q - log_p, axis=0) * target_score, axis=0)
        score = jax.jvp(lambda v: flow.log_prob(x, condition=v[:, None]), (u,), (jnp.ones_like(u),))[1]
        return jnp.mean((score - target_score + mean) ** 2) - jnp.mean(flow.log_prob(batch, condition=u0))

    state, key, value = optimiser.init(eqx.filter(params, eqx.is_inexact_array)), jax.random.key(1), jnp.zeros(())

    def steps(n: int) -> None:
        nonlocal params, state, key, value
        for _ in range(n):
            key, key_step = jax.random.split(key)
            params, state, value = step(
                params, static, optimizer=optimiser, opt_state=state, loss_fn=loss, key=key_step
            )
        jax.block_until_ready(params)

    return steps, lambda: bool(jnp.isfinite(value))


def _model_sampler(flow: AbstractDistribution, problem: Problem, size: Size) -> Callable[[], None]:
    """The public call, with all it does beside the flow."""
    model, key = trade.Model(flow, problem.condition), jax.random.key(2)
    return lambda: jax.block_until_ready(model.sample_and_log_prob(key, size.batch, 0.7)) and None


def _flowjax_sampler(flow: AbstractDistribution, size: Size) -> Callable[[], None]:
    """Flowjax's own call, compiled, since it would otherwise run operation by operation."""
    key, u = jax.random.key(2), jnp.asarray(size.target.condition.chart(0.7)).reshape(1)

    @eqx.filter_jit
    def draw(flow: AbstractDistribution, key: Array, u: Array) -> tuple[Array, Array]:
        return flow.sample_and_log_prob(key, (size.batch,), condition=u)

    return lambda: jax.block_until_ready(draw(flow, key, u)) and None
