"""The contenders in JAX: this package, and a stock flowjax flow in the same training loop."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import AbstractDistribution, StandardNormal
from flowjax.flows import coupling_flow
from jax import Array

import trade
from benchmarks.task import CLIP, LEARNING_RATE, Contender, Size
from trade.fit import make_problem
from trade.flows.standardise import adapt_to_data
from trade.objectives.term import Problem, split_trainable
from trade.training.state import Program, begin, run_chunk

TOTAL = 1_000_000  # length of the run that the timed steps are the beginning of


def make(name: str, size: Size, data: np.ndarray) -> Contender:
    """The contender ``trade`` or ``flowjax``.

    Args:
        name: Which of the two.
        size: The flow and the batches.
        data: States at the boundary T = 1.
    """
    problem = make_problem(size.target, {1.0: data})
    flow = _FLOWS[name](size)
    flow = adapt_to_data(flow, jnp.concatenate(problem.data))
    steps, healthy = _training(flow, problem, size)
    sample = _model_sampler(flow, problem, size) if name == "trade" else _flowjax_sampler(flow, size)
    arrays = jax.tree.leaves(split_trainable(flow)[0])
    return Contender(name, steps, sample, healthy, sum(a.size for a in arrays))


def _trade_flow(size: Size) -> AbstractDistribution:
    return trade.flows.spline_flow(
        jax.random.key(0),
        size.target,
        blocks=size.blocks,
        bins=size.bins,
        interval=size.interval,
        network=trade.flows.MLP(size.width, size.depth),
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


_FLOWS: dict[str, Callable[[Size], AbstractDistribution]] = {"trade": _trade_flow, "flowjax": _flowjax_flow}


def _training(
    flow: AbstractDistribution, problem: Problem, size: Size
) -> tuple[Callable[[int], None], Callable[[], bool]]:
    """Chunks of the package's own loop: all that differs between the two contenders is the flow."""
    gradient = trade.Gradient(
        # From the first step on the whole range, as the peers do.
        conditions=trade.GrowingInterval(full_at=0.0),
        norm=trade.Squared(),
        conditions_per_step=size.conditions,
        points_per_condition=size.points,
    )
    objective = trade.Trade(gradient, trade.ForwardKL(batch=size.batch), start=0)
    program = Program(objective, trade.Adam(LEARNING_RATE, clip=CLIP), TOTAL)
    learner, done = begin(program, flow, problem, jax.random.key(1)), 0

    def steps(n: int) -> None:
        nonlocal learner, done
        first, stop = jnp.asarray(done), jnp.asarray(done + n)
        learner, _ = run_chunk(program, learner, problem, first, stop, many=False)
        jax.block_until_ready(learner)
        done += n

    return steps, lambda: int(learner.guard.skipped) == 0


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
