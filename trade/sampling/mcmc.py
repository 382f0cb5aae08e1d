"""Reference samples of a target at one condition, by many Markov chains of BlackJAX side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_condition import ConditionLike
from trade.abstract_target import AbstractTarget, check_target
from trade.errors import TradeError
from trade.states import shape_of

Observables = Callable[[Array], Array]
SMALLEST = 0.05  # of the step size, at the beginning of a pilot run


class Mixing(NamedTuple):
    """How well the chains mixed, by the observable that mixed worst.

    Args:
        rhat: Split R̂ over chains, of the second half of the pilot run.
        autocorrelation: Integrated autocorrelation time, in trajectories.
        thermalisation: Trajectories dropped at the start of every chain.
        thinning: Trajectories between two samples that are kept.
        acceptance: Mean acceptance probability.
        effective: Effective number of independent samples among those kept.
    """

    rhat: float
    autocorrelation: float
    thermalisation: int
    thinning: int
    acceptance: float
    effective: float


@dataclass(frozen=True)
class MarkovChains:
    """Settings of the chains.

    Args:
        kernel: ``"hmc"``, or ``"langevin"`` (Langevin dynamics with a Metropolis step, one step per trajectory).
        chains: Chains side by side.
        integration_steps: Most leapfrog steps of one trajectory of HMC; their number is drawn at random.
        pilot: Trajectories of the run on which thermalisation and autocorrelation are measured.
        spacing: Autocorrelation times between two samples that are kept.
        largest_rhat: Chains with a larger R̂ are refused.
    """

    kernel: Literal["hmc", "langevin"] = "hmc"
    chains: int = 1000
    integration_steps: int = 20
    pilot: int = 400
    spacing: float = 2.0
    largest_rhat: float = 1.05

    def __post_init__(self) -> None:
        check.choice(self.kernel, "MarkovChains kernel", "hmc", "langevin")
        check.integers(self, chains=2, integration_steps=1, pilot=8)
        check.numbers(self, "spacing", low=0, open_low=True)
        check.numbers(self, "largest_rhat", low=1)

    def sample(
        self, target: AbstractTarget, key: Array, n: int, c: ConditionLike, observables: Observables | None = None
    ) -> tuple[Array, Mixing]:
        """n samples at condition c, a random symmetry applied to each, and how the chains mixed.

        Args:
            target: The family of densities.
            key: A JAX random key.
            n: How many samples.
            c: The condition.
            observables: A vector of quantities that must have mixed; log q and ∂_c log q by default.
                Quantities that a symmetry of the target changes need not mix.

        Returns:
            Samples of shape (n, *shape), and how the chains mixed.
        """
        check_target(target, observed=False)
        key, n, c = target.check_sampling(key, n, c)
        if observables is not None:
            check.function(observables, "observables", "one state")
            check.called("observables", jax.eval_shape, observables, shape_of(target.shape))
        at = jnp.asarray(c, float)
        keys = jax.random.split(key, 5)
        longest = 1 if self.kernel == "langevin" else self.integration_steps
        problem = _Problem(target, at, observables, longest)
        tuned = _tune(problem, keys[0])
        start = jax.random.normal(keys[1], (self.chains, *target.shape))
        state, pilot, _ = _trajectories(problem, tuned, start, keys[2], self.pilot, jnp.asarray(1), _rising(self.pilot))
        half = np.asarray(pilot.seen[:, self.pilot // 2 :], np.float64)
        rhat, autocorrelation = _diagnose(half)
        if not rhat <= self.largest_rhat:
            raise TradeError(
                f"The chains at {target.condition.show(c)} have not mixed after {self.pilot} trajectories: R̂ ="
                f" {rhat:.3f}, and at most {self.largest_rhat:g} is taken. Use a longer pilot or longer trajectories."
            )
        # The pilot's first half is dropped; the rest of the thermalisation is ten autocorrelation times.
        extra = int(np.ceil(10 * autocorrelation))
        thinning = max(int(np.ceil(self.spacing * autocorrelation)), 1)
        state, _, _ = _trajectories(problem, tuned, state, keys[3], 1, jnp.asarray(extra), jnp.ones(1))
        draws = -(-n // self.chains)
        every = jnp.asarray(thinning), jnp.ones(draws)
        state, kept, acceptance = _trajectories(problem, tuned, state, keys[4], draws, *every)
        flat = kept.x.reshape(-1, *target.shape)
        turned = _turn(target, flat, jax.random.fold_in(key, 1)) if target.has_symmetry else flat
        order = jax.random.permutation(jax.random.fold_in(key, 2), len(turned))[:n]
        independent = min(1.0, thinning / max(autocorrelation, 1.0))
        return turned[order], Mixing(
            rhat, autocorrelation, self.pilot + extra, thinning, float(acceptance), independent * n
        )


class _Problem(NamedTuple):
    """What the chains sample, and what is watched."""

    target: AbstractTarget
    c: Array
    observables: Observables | None
    longest: int

    def log_density(self, x: Array) -> Array:
        return self.target.log_density(x, self.c)

    def watch(self, x: Array) -> Array:
        if self.observables is not None:
            return self.observables(x)
        return jnp.hstack([self.log_density(x), self.target.condition_derivative(x, self.c)])


class _Seen(NamedTuple):
    x: Array
    seen: Array


@eqx.filter_jit
def _tune(problem: _Problem, key: Array) -> tuple[Array, Array]:
    key_start, key_run = jax.random.split(key)
    start = jax.random.normal(key_start, problem.target.shape)
    return tune(problem.log_density, start, key_run, problem.longest, steps=500)


def tune(
    log_density: Callable[[Array], Array], start: Array, key: Array, longest: int, steps: int
) -> tuple[Array, Array]:
    """Step size and inverse masses of HMC, on one chain."""
    import blackjax  # noqa: PLC0415  its import takes seconds

    warmup = blackjax.window_adaptation(blackjax.hmc, log_density, num_integration_steps=max(longest // 2, 1))
    (_, parameters), _ = warmup.run(key, start, num_steps=steps)  # pyright: ignore
    return parameters["step_size"], parameters["inverse_mass_matrix"]


def _rising(pilot: int) -> Array:
    """Factors on the step size of a pilot run, from small to one before its second half.

    Where chains start, far from where they will be, forces can be too strong for the step size: such chains would never
    leave.
    """
    return jnp.minimum(SMALLEST ** (1.0 - jnp.arange(pilot) / (0.4 * pilot)), 1.0)


@eqx.filter_jit
def _trajectories(
    problem: _Problem, tuned: tuple[Array, Array], x: Array, key: Array, kept: int, thinning: Array, factors: Array
) -> tuple[Array, _Seen, Array]:
    """``kept`` times ``thinning`` trajectories from x; the last state of each lot is kept."""
    from blackjax.mcmc import dynamic_hmc  # noqa: PLC0415

    # Trajectories of random length: those of one length come back to where they were, in the modes of that period.
    kernel = dynamic_hmc.build_kernel(integration_steps_fn=lambda k: jax.random.randint(k, (), 1, problem.longest + 1))
    step_size, masses = tuned

    def lot(states: Any, given: tuple[Array, Array]) -> tuple[Any, tuple[_Seen, Array]]:
        key, factor = given

        def one(key: Array, state: Any) -> Any:
            return kernel(key, state, problem.log_density, factor * step_size, masses)  # pyright: ignore

        def move(i: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            keys = jax.random.split(jax.random.fold_in(key, i), len(x))
            states, info = jax.vmap(one)(keys, carry[0])
            return states, carry[1] + info.acceptance_rate.mean()  # pyright: ignore

        states, accepted = jax.lax.fori_loop(0, thinning, move, (states, jnp.zeros(())))
        return states, (_Seen(states.position, jax.vmap(problem.watch)(states.position)), accepted / thinning)

    begin = jax.vmap(lambda v, k: dynamic_hmc.init(v, problem.log_density, k))
    start = begin(x, jax.random.split(jax.random.fold_in(key, 0), len(x)))
    states, (seen, acceptance) = jax.lax.scan(lot, start, (jax.random.split(key, kept), factors))
    chains_first = _Seen(*(jnp.swapaxes(a, 0, 1) for a in seen))
    return states.position, chains_first, acceptance.mean()


@eqx.filter_jit
def _turn(target: AbstractTarget, x: Array, key: Array) -> Array:
    return jax.vmap(target.symmetry)(jax.random.split(key, len(x)), x)


def _diagnose(seen: np.ndarray) -> tuple[float, float]:
    """Largest split R̂ and longest autocorrelation time over observables; ``seen`` is (chains, draws, observables)."""
    from blackjax.diagnostics import effective_sample_size, potential_scale_reduction  # noqa: PLC0415

    if not np.isfinite(seen).all():
        return np.inf, np.inf
    chains, draws, _ = seen.shape
    halves = np.concatenate([seen[:, : draws // 2], seen[:, draws // 2 : 2 * (draws // 2)]])
    scaled = (halves - halves.mean(axis=(0, 1))) / np.maximum(halves.std(axis=(0, 1)), 1e-300)
    rhat = float(np.max(np.asarray(potential_scale_reduction(scaled))))
    few = scaled[: min(chains, 256)]  # enough for the autocorrelation, and its memory grows with the chains
    effective = float(np.min(np.asarray(effective_sample_size(few))))
    return rhat, max(few.shape[0] * few.shape[1] / effective, 1.0)
