"""The scalar field of Section 5.4: data at two couplings, every coupling between and around them."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.evaluation.divergence import Estimate
from trade.evaluation.free_energy import log_mean_weight, thermodynamic_integration
from trade.evaluation.observables import observables
from trade.experiments.cache import cached
from trade.experiments.reproduce import Budget, Method
from trade.experiments.results import row
from trade.flows import ContinuousLatticeFlow, Convolutional, ConvolutionalFlow, LatticeFlow
from trade.objectives import (
    CausalGrid,
    ForwardKL,
    Gradient,
    GradientNorm,
    GridExpectation,
    Huber,
    ModelPoints,
    Ramp,
    ReverseKL,
    Trade,
)
from trade.objectives.term import Objective
from trade.run import Run
from trade.sampling.correction import metropolis
from trade.sampling.importance import weighted_samples
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField
from trade.training.optimiser import Adam, OneCycle

KAPPAS = tuple(round(0.22 + 0.01 * i, 2) for i in range(11))
VALIDATION = KAPPAS[2:9]
REFERENCE = 0.25  # where log Z is zero
HMC = "hmc"  # the row of the reference values


def reference(target: ScalarField, kappa: float, n: int, seed: int) -> dict[str, np.ndarray]:
    """n independent samples at κ by HMC, and how the chains mixed; made once, then kept."""
    # Critical slowing down: the time to mix grows like the number of sites.
    chains = MarkovChains(pilot=max(400, 400 * math.prod(target.shape) // 64))

    def make() -> dict[str, np.ndarray]:
        x, mixing = chains.sample(target, jax.random.key(seed), n, kappa)
        return {"x": np.asarray(x, np.float32), **{k: np.asarray(v) for k, v in mixing._asdict().items()}}

    settings = {"target": target.config(), "kappa": kappa, "n": n, "seed": seed, "chains": chains}
    return cached("scalar-field", settings, make)


@dataclass(frozen=True)
class ScalarFieldExperiment:
    """TRADE and both baselines, with the paper's flow and with ours."""

    target: ScalarField = field(default_factory=ScalarField)
    name: str = "scalar-field"
    conditions = KAPPAS
    figures = ("observables", "fields")

    def methods(self, budget: Budget) -> dict[str, Method]:
        """Appendix B.6 and our own flow; ``quick`` is our flow on a lattice of 4x4."""
        return self._quick() if budget == "quick" else {**self._paper(), **self._ours()}

    def _quick(self) -> dict[str, Method]:
        small = ScalarField(4, self.target.coupling)
        likelihood, network = ForwardKL(128), Convolutional((16,), (3,))

        def flow(key: Array) -> AbstractDistribution:
            return LatticeFlow(small.shape, small.condition, blocks=4, network=network).build(key)

        def method(objective: Objective | None = None) -> Method:
            return Method(flow, 800, objective, Adam(5e-3), small)

        return {
            "maximum-likelihood": method(likelihood),
            "maximum-likelihood-reverse-kl": method(Trade(ReverseKL(batch=128), likelihood, Ramp(), start=0.2)),
            "trade-ours": method(),
        }

    def _paper(self) -> dict[str, Method]:
        """The table of Appendix B.6: 400 epochs of 97 batches."""
        target, steps = self.target, 39_000
        likelihood = ForwardKL(1024, symmetries=True)
        gradient = Gradient(
            CausalGrid(points=150, epsilon=1.57e-6, decay=0.228, between=0.376, ema=0.0),
            ModelPoints(noise=0.38, symmetries=True, wider=0.0),
            GridExpectation(points=150, every=2000, samples=1500, ema=0.9),
            penalty=Huber(6.87),
            conditions_per_step=128,
            points_per_condition=16,
            reweighted=0.0,
        )

        def flow(key: Array) -> AbstractDistribution:
            return ConvolutionalFlow(target.shape, target.condition).build(key)

        def method(objective: Objective, optimiser: Adam) -> Method:
            return Method(flow, steps, objective, optimiser)

        alone, longer = 20 / 400, 73 / 400  # epochs of the data alone
        slow = OneCycle(7.66e-5, clip=1000.0, stages=(alone,), stage_factor=3.0)
        fast = OneCycle(1.33e-3, clip=16.0, weight_decay=1.35e-4, stages=(longer,), stage_factor=0.5)
        return {
            "maximum-likelihood": method(likelihood, slow),
            "maximum-likelihood-reverse-kl": method(
                Trade(ReverseKL(batch=2048), likelihood, GradientNorm(3.847, ema=0.9), start=longer), fast
            ),
            "trade-grid": method(Trade(gradient, likelihood, GradientNorm(0.355, ema=0.9), start=alone), slow),
        }

    def _ours(self) -> dict[str, Method]:
        """Our flow: an equation of motion, spectrum and zero mode. TRADE is the default of ``fit``."""
        target = self.target
        batch = max(32_768 // math.prod(target.shape), 64)
        flow, steps = ContinuousLatticeFlow(target.shape, target.condition), 5_000 if target.shape[0] <= 8 else 3_500

        def method(objective: Objective | None = None) -> Method:
            return Method(flow, steps, objective, Adam(3e-3))

        likelihood = ForwardKL(batch, symmetries=True)
        return {
            "maximum-likelihood-ours": method(likelihood),
            "maximum-likelihood-reverse-kl-ours": method(Trade(ReverseKL(batch=batch), likelihood, Ramp(), start=0.2)),
            "trade-ours": method(),
        }

    def data(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Independent samples at the two boundary values."""
        n, lattice = 10_000 if budget == "quick" else 100_000, _lattice(target)
        boundaries = lattice.condition.boundary
        return {c: jnp.asarray(reference(lattice, c, n, 100 + i)["x"]) for i, c in enumerate(boundaries)}

    def validation(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Samples at κ = 0.24 ... 0.30, to choose the best model."""
        n = 2_000 if budget == "quick" else 8_000
        return {c: jnp.asarray(reference(_lattice(target), c, n, 200 + i)["x"]) for i, c in enumerate(VALIDATION)}

    def evaluate(self, name: str, target: AbstractTarget, run: Run, budget: Budget) -> list[dict[str, Any]]:
        """ESS of every seed; of the first seed also observables, log Z and a Metropolis chain."""
        lattice = _lattice(target)
        n = 10_000 if budget == "quick" else 50_000
        rows, key = [], jax.random.key(1)
        log_z: dict[float, Estimate] = {}
        for i, c in enumerate(KAPPAS):
            weighted = [weighted_samples(m, lattice, jax.random.fold_in(key, i), n, c) for m in run.best]
            rows.append(row(name, "ess", c, [w.ess for w in weighted]))
            first = weighted[0]
            for kind, log_weight in (("raw", None), ("weighted", first.log_weight)):
                rows += _estimates(name, c, f"_{kind}", observables(lattice, first.x, c, log_weight))
            log_z[c] = log_mean_weight(first.log_weight)
            chain = metropolis(first, lattice, jax.random.fold_in(key, 100 + i), c)
            rows.append(row(name, "acceptance", c, [chain.acceptance]))
            rows.append(row(name, "autocorrelation", c, [chain.autocorrelation]))
        for c, (value, error) in log_z.items():
            at_zero = log_z[REFERENCE]
            spread = 0.0 if c == REFERENCE else float(np.hypot(error, at_zero.error))
            rows += _estimates(name, c, "", {"log_z": Estimate(value - at_zero.value, spread)})
        return rows

    def truth(self, budget: Budget) -> list[dict[str, Any]]:
        """Observables and log Z of the HMC samples, at all eleven κ."""
        lattice = ScalarField(4, self.target.coupling) if budget == "quick" else self.target
        n = 10_000 if budget == "quick" else 50_000
        rows, means, variances = [], [], []
        for i, c in enumerate(KAPPAS):
            x = jnp.asarray(reference(lattice, c, n, 300 + i)["x"])
            rows += _estimates(HMC, c, "", observables(lattice, x, c))
            score = 2.0 * np.asarray(jax.vmap(lattice.hopping)(x), np.float64)
            means.append(score.mean())
            variances.append(score.var(ddof=1))
        kappas = np.array(KAPPAS)
        # log q is linear in κ: the variance of its derivative is the slope of the mean.
        slopes = np.array(variances)
        curve = thermodynamic_integration(kappas, kappas, np.array(means), np.sqrt(slopes / n), REFERENCE, slopes)
        for c, value, error in zip(KAPPAS, curve.log_z, curve.error, strict=True):
            rows += _estimates(HMC, c, "", {"log_z": Estimate(float(value), float(error))})
        return rows


def _lattice(target: AbstractTarget) -> ScalarField:
    if not isinstance(target, ScalarField):
        raise TradeError(f"This experiment needs a ScalarField, got {type(target).__name__}.")
    return target


def _estimates(name: str, c: float, suffix: str, values: dict[str, Estimate]) -> list[dict[str, Any]]:
    """Two rows a number: its value and its standard error."""
    rows = []
    for metric, (value, error) in values.items():
        rows += [row(name, metric + suffix, c, [value]), row(name, f"{metric}{suffix}_error", c, [error])]
    return rows
