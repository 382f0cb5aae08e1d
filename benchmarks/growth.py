"""How time and memory of a training step grow with the work: ``python -m benchmarks.growth``.

One thing at a time is made larger: the dimension, states at a condition, conditions, seeds, data. Times are ratios to
the step of the smallest, measured in turns in one process; memory is what the compiled step needs beside its arguments.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro

import trade
from trade.data import make_problem
from trade.experiments.results import origin
from trade.files import write_json
from trade.fit import stack
from trade.flows import MLP, SplineFlow
from trade.objectives import ForwardKL, Gradient
from trade.training.optimiser import Cooling
from trade.training.state import Program, begin, compiled_loop
from trade.training.windows import on_device

BENDS = 0.5  # slope in log-log beyond which a curve has bent: twice the work for more than 1.4 times the price


@dataclass(frozen=True)
class Work:
    """One step of training: a spline flow of six blocks with 64 units, and the objective of ``fit``."""

    dimension: int = 4
    points: int = 64
    conditions: int = 16
    batch: int = 512
    seeds: int = 1
    data: int = 10_000


AXES: dict[str, tuple[int, ...]] = {
    "dimension": (2, 4, 8, 16, 32, 64),
    "points": (4, 16, 64, 256, 1024),
    "conditions": (2, 8, 32, 128),
    "batch": (32, 128, 512, 2048, 8192),
    "seeds": (1, 2, 4, 8),
    "data": (1_000, 10_000, 100_000, 1_000_000),
}


@dataclass(frozen=True)
class Options:
    """Time steps of training as the work grows.

    Args:
        axes: What grows.
        rounds: How many times each is measured; the median counts.
        seconds: About how long one measurement lasts.
        out: The file of results.
    """

    axes: tuple[str, ...] = tuple(AXES)
    rounds: int = 5
    seconds: float = 0.5
    out: Path = Path("results/growth.json")


def prepared(work: Work) -> tuple[Callable[[int], float], int]:
    """A function that times so many steps, and the bytes that the compiled step needs."""
    shape = (work.dimension,)
    target = trade.Target(lambda x, c: -0.5 * (x**2).sum() / c, shape, trade.Condition(0.5, 1.0))
    data = np.random.default_rng(0).standard_normal((work.data, work.dimension))
    problem = on_device(make_problem(target, {1.0: data}))
    gradient = Gradient(conditions_per_step=work.conditions, points_per_condition=work.points)
    program = Program(trade.Trade(gradient, ForwardKL(work.batch), start=0), trade.Adam(), 5_000)
    recipe = SplineFlow(shape, problem.condition, blocks=6, bins=12, network=MLP(64))
    keys = jax.random.split(jax.random.key(0), work.seeds)
    many = work.seeds > 1

    def start(flow: Any, key: jax.Array) -> Any:
        return begin(program, flow, problem, key)

    flows = [recipe(key) for key in keys]
    learners = eqx.filter_vmap(start)(stack(flows), keys) if many else start(flows[0], keys[0])
    cooling = Cooling(jnp.asarray(3_000), jnp.asarray(5_000))

    def arguments(steps: int) -> tuple[Any, ...]:
        return program, learners, problem, jnp.asarray(0), jnp.asarray(steps), cooling

    compiled = compiled_loop().lower(*arguments(1), many=many).compile()

    def timed(steps: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(eqx.filter(compiled(*arguments(steps), many=many), eqx.is_array)))
        return (time.perf_counter() - began) / steps

    return timed, compiled.compiled.memory_analysis().temp_size_in_bytes


def bend(values: list[int], prices: list[float]) -> int | None:
    """The first value from which on the price grows faster than the square root of the work; None if there is none."""
    slopes = np.diff(np.log(prices)) / np.diff(np.log(values))
    for i in range(len(slopes)):
        if (slopes[i:] > BENDS).all():
            return values[i]
    return None


def measured(axis: str, options: Options) -> dict[str, Any]:
    """One thing that grows."""
    values = list(AXES[axis])
    runs = [prepared(replace(Work(), **{axis: value})) for value in values]
    counts = [max(int(options.seconds / timed(2)), 2) for timed, _ in runs]
    times = [[timed(n) for (timed, _), n in zip(runs, counts, strict=True)] for _ in range(options.rounds)]
    step = [median(column) for column in zip(*times, strict=True)]
    memory = [size for _, size in runs]
    return {
        "values": values,
        "ms": [round(1e3 * t, 3) for t in step],
        "ratio": [round(t / step[0], 3) for t in step],
        "bytes": memory,
        "time_bends_at": bend(values, step),
        "memory_bends_at": bend(values, [float(m) for m in memory]),
    }


def main(options: Options) -> None:
    """Measure, print and save."""
    for axis in options.axes:
        if axis not in AXES:
            raise trade.TradeError(f"There is no axis {axis!r}; there are {', '.join(AXES)}.")
    found = {}
    for axis in options.axes:
        found[axis] = measured(axis, options)
        print(axis, found[axis], flush=True)
        jax.clear_caches()
    write_json(options.out, origin() | {"axes": found})


if __name__ == "__main__":
    main(tyro.cli(Options))
