"""Gaussians in one, two and three parameters, whose answers are known in closed form; and what a step costs."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import trade
from benchmarks.one_by_one import Options, trained
from trade import Axes, Condition
from trade.data import make_problem
from trade.evaluation import along_path, forward_kl
from trade.flows.default import default_flow
from trade.objectives import default_objective
from trade.training.optimiser import Cooling
from trade.training.state import Program, begin, run_chunk
from trade.training.windows import on_device

DIM = 4


def gaussian_target(axes: int) -> trade.Target:
    """x ~ N(h Σ m, T Σ), with Σ(s) = (A + s B)⁻¹: a temperature, a field, and for the third axis a stiffness."""
    rng = np.random.default_rng(7)
    root, other = rng.normal(size=(2, DIM, DIM))
    a, b, m = root @ root.T / DIM + np.eye(DIM), other @ other.T / DIM, np.array([1.0, -0.5, 0.3, 0.8])
    names = {"T": Condition(0.5, 2.0), "h": Condition(-1.0, 1.0, scale="linear"), "s": Condition(0.5, 2.0)}
    boundary = {"T": 1.0, "h": 0.0, "s": 1.0}
    kept = list(names)[:axes]

    def parts(c: Any) -> tuple[Any, Any, Any]:
        return c.T, (c.h if axes > 1 else 0.5), (c.s if axes > 2 else 1.0)

    def log_density(x: Array, c: Any) -> Array:
        t, h, s = parts(c)
        return -(0.5 * x @ (a + s * b) @ x - h * (m @ x)) / t

    def moments(c: Any) -> tuple[np.ndarray, np.ndarray]:
        t, h, s = parts(c)
        inverse = np.linalg.inv(a + s * b)
        return h * inverse @ m, t * inverse

    def log_partition(c: Any) -> float:
        mean, covariance = moments(c)
        return float(
            0.5 * np.linalg.slogdet(2.0 * np.pi * covariance)[1] + 0.5 * mean @ np.linalg.solve(covariance, mean)
        )

    def sampler(key: Array, n: int, c: Any) -> Array:
        mean, covariance = moments(c)
        return jnp.asarray(
            mean + np.asarray(jax.random.normal(key, (n, DIM))) @ np.linalg.cholesky(covariance).T, float
        )

    condition = Axes({name: names[name] for name in kept}, boundary={name: boundary[name] for name in kept})
    return trade.Target(log_density, (DIM,), condition, sampler=sampler, log_partition=log_partition)


def gaussian(axes: int, options: Options) -> dict[str, Any]:
    """KL on a grid, the surface of log Z by both routes, and three paths to one corner."""
    target = gaussian_target(axes)
    condition = target.condition
    data = {c: target.sample(jax.random.key(1), 50_000, c) for c in condition.boundary}
    run, about = trained(f"gaussian-{axes}", target, data, options)
    grid = [tuple(c) for c in condition.grid(5 if axes == 2 else 4)]
    kl = [
        forward_kl(run.model, target, target.sample(jax.random.key(i), 20_000, c), c).value for i, c in enumerate(grid)
    ]
    found: dict[str, Any] = {"conditions": grid, "kl": kl, "kl_most": max(kl)}
    for method in ("importance", "integral"):
        surface = run.log_partition(method=method, points=5)
        exact = np.array([target.log_partition(tuple(c)) for c in surface.c.reshape(-1, axes)]).reshape(
            surface.log_z.shape
        )
        away = surface.log_z - (exact - target.log_partition(surface.reference))
        sigmas = np.abs(away[surface.error > 0]) / surface.error[surface.error > 0]
        found[method] = {
            "most": np.abs(away).max(),
            "within_two_sigma": np.mean(sigmas <= 2.0),
            "sigmas_most": sigmas.max(),
            "points": sigmas.size,
        }
    low, high = (tuple(end) for end in condition.grid(2)[[0, -1]])
    corner = [(*high[:i], *low[i:]) for i in range(axes + 1)]
    ways = {"straight": [low, high], "axis by axis": corner, "by the boundary": [low, condition.boundary[0], high]}
    paths = {name: along_path(run.model, target, jax.random.key(i), way) for i, (name, way) in enumerate(ways.items())}
    values = list(paths.values())
    found["paths"] = {name: tuple(p) for name, p in paths.items()}
    found["paths_exact"] = target.log_partition(high) - target.log_partition(low)
    found["paths_differ_sigmas"] = max(
        abs(p.value - q.value) / np.hypot(p.error, q.error) for p in values for q in values if p is not q
    )
    return about | found


def cost(options: Options) -> dict[str, Any]:
    """Seconds of a step with one, two and three axes, side by side, as ratios to that with one."""
    prepared = {}
    for axes in (1, 2, 3):
        target = gaussian_target(axes)
        (c0,) = target.condition.boundary
        problem = on_device(make_problem(target, {c0: target.sample(jax.random.key(1), 10_000, c0)}))
        program = Program(default_objective(target), trade.Adam(), 1_000)
        learner = begin(
            program, default_flow(target, problem.data[0]).build(jax.random.key(0)), problem, jax.random.key(2)
        )
        prepared[axes] = _steps(program, learner, problem)
    rounds: dict[int, list[float]] = {axes: [] for axes in prepared}
    for _ in range(9):
        for axes, run in prepared.items():
            began = time.perf_counter()
            run()
            rounds[axes].append(time.perf_counter() - began)
    medians = {axes: float(np.median(times)) for axes, times in rounds.items()}
    return {"ratio_to_one_axis": {str(axes): value / medians[1] for axes, value in medians.items()}}


def _steps(program: Program, learner: Any, problem: Any) -> Callable[[], None]:
    cooling = Cooling(jnp.asarray(10**6), jnp.asarray(10**6))

    def run() -> None:
        jax.block_until_ready(
            run_chunk(program, learner, problem, jnp.asarray(300), jnp.asarray(340), cooling, many=False)
        )

    run()
    return run
