"""What is measured while a model trains: the ESS over the range, and the likelihood of data it did not see."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.devices import ONE, Devices, shared_out
from trade.ess import kish_ess
from trade.model import log_prob
from trade.objectives.points import at_points, model_states
from trade.objectives.term import Problem
from trade.training.watch import Judged

GRID = 9  # conditions over the whole range
OBSERVED = 8  # observations at each of them, for a target that takes any
LEAST_ESS = 1e-6  # of a score, which must stay finite

States = tuple[Array, Array | None]


class Monitor:
    """Judges flows between chunks of training, all seeds at once.

    The score is an estimate of the KL divergence, up to a constant: the negative log-likelihood of held-out data at the
    boundary values, which sees a lost mode, and half of -log ESS averaged over the range, which needs no data there.
    With validation data by condition it is their mean negative log-likelihood alone.

    Args:
        problem: Target, and the data that are trained on.
        held_out: Data at the boundary values that are not, in the order of the boundary values.
        validation: States by condition, if the user gave any.
        at: Conditions at which the ESS is reported beside its average.
        samples: Samples at each condition.
        many: Whether flows have a first axis of seeds.
        devices: What it runs on.
    """

    def __init__(
        self,
        problem: Problem,
        held_out: tuple[States, ...],
        validation: Mapping[Any, States],
        at: tuple[Any, ...],
        samples: int,
        *,
        many: bool,
        devices: Devices = ONE,
    ) -> None:
        self.problem, self.held_out, self.validation = problem, held_out, validation
        self.at, self.samples, self.many, self.devices = at, samples, many, devices
        condition = problem.condition
        self.has_ess = problem.target.has_density and (problem.target.observation_shape is None or bool(held_out))
        shown = np.reshape(at, (len(at), *condition.u_shape))
        grid = np.unique(np.concatenate([condition.spread(GRID), shown]), axis=0)
        self.grid = grid if self.has_ess else grid[:0]

    def __call__(self, flows: Any, key: Array) -> Judged:
        """ESS over the range, and negative log-likelihoods of states at the boundary, seed by seed."""
        values: dict[str, np.ndarray] = {}
        score: np.ndarray | None = None
        if len(self.grid):
            ess = self._ess(flows, key)
            rows = {tuple(np.ravel(c)): i for i, c in enumerate(self.grid)}
            values |= {f"ess@{_short(c)}": ess[:, rows[tuple(np.ravel(c))]] for c in self.at}
            values["ess_least"] = ess.min(axis=1)
            score = -0.5 * np.log(np.maximum(np.nan_to_num(ess), LEAST_ESS)).mean(axis=1)
        boundaries = self.problem.condition.boundary_u
        held_out = self._scores(flows, list(zip(boundaries, self.held_out, strict=False)))
        if held_out.shape[1]:
            values["held_out_nll"] = held_out.mean(axis=1)
            score = values["held_out_nll"] + (0.0 if score is None else score)
        learned = self._scores(
            flows, [(u, self._learned(i, len(x))) for i, (u, (x, _)) in enumerate(self._pairs(boundaries))]
        )
        if self.validation:
            found = [
                self._scores(flows, [(self.problem.condition.chart(np.asarray(c)), states)]).mean(axis=1)
                for c, states in self.validation.items()
            ]
            score = values["validation_nll"] = np.mean(found, axis=0)
        return Judged(values, score, held_out, learned, self.problem.target.has_density)

    def _pairs(self, boundaries: np.ndarray) -> list[tuple[Any, States]]:
        return list(zip(boundaries, self.held_out, strict=False))

    def _learned(self, boundary: int, n: int) -> States:
        """The first states of the training data, as many as are held out."""
        ys = self.problem.observations
        return self.problem.data[boundary][:n], None if ys is None else ys[boundary][:n]

    def _ess(self, flows: Any, key: Array) -> np.ndarray:
        u = self.problem.condition.chart(jnp.asarray(self.grid))
        y = None
        if self.problem.target.observation_shape is not None:
            y = self.held_out[0][1]
            y = y[jnp.arange(len(u) * OBSERVED) % len(y)]  # pyright: ignore
            u = jnp.repeat(u, OBSERVED, axis=0)
        found = np.asarray(
            self.devices.run(_ess, flows, self.problem.target, u, y, key, n=self.samples, many=self.many)
        )
        return np.atleast_2d(found).reshape(-1, len(self.grid), found.shape[-1] // len(self.grid)).mean(axis=-1)

    def _scores(self, flows: Any, parts: list[tuple[Any, States]]) -> np.ndarray:
        found = [
            np.asarray(self.devices.run(_nll, flows, x, jnp.asarray(u, float), y, many=self.many))
            for u, (x, y) in parts
        ]
        seeds = 1 if not self.many else len(jax.tree.leaves(eqx.filter(flows, eqx.is_array))[0])
        return np.concatenate([np.atleast_2d(f) for f in found], axis=1) if found else np.zeros((seeds, 0))


def _short(c: Any) -> str:
    return ",".join(f"{v:.4g}" for v in np.ravel(c))


def over_seeds(function: Callable[[Any], Array], flows: Any, *, many: bool) -> Array:
    """A function of one flow, of each of the seeds in turn."""
    arrays, static = eqx.partition(flows, eqx.is_array)

    def one(a: Any) -> Array:
        return function(eqx.combine(a, static))

    return jax.lax.map(one, arrays) if many else one(arrays)


@eqx.filter_jit
def _ess(flows: Any, target: AbstractTarget, u: Array, y: Array | None, key: Array, n: int, *, many: bool) -> Array:
    def one(flow: Any) -> Array:
        x, log_p = model_states(flow, u, y, n, key)
        log_weight = at_points(target.log_density_at, x, u, y) - log_p
        return kish_ess(jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight))  # counted as invalid by the objective

    return over_seeds(one, flows, many=many)


@eqx.filter_jit
def _nll(flows: Any, x: Array, u: Array, y: Array | None, *, many: bool) -> Array:
    def one(flow: Any) -> Array:
        axes = (0, None if y is None else 0)
        return -jax.vmap(lambda v, w: log_prob(flow, v, u, w), in_axes=axes)(*shared_out((x, y)))

    return over_seeds(one, flows, many=many)
