"""The two moons of Section 5.2: simulated pairs at β = 1, the posterior at every power of the likelihood."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.evaluation.calibration import coverage, ranks, uniformity_error
from trade.evaluation.classifier import c2st
from trade.experiments.reproduce import Budget, Method
from trade.experiments.results import row
from trade.flows import MLP, spline_flow
from trade.model import Model
from trade.objectives import (
    EnergyFree,
    Fixed,
    ForwardKL,
    Gradient,
    Huber,
    ModelPoints,
    Ramp,
    Trade,
    TrueDensity,
    Widening,
)
from trade.objectives.density import Density
from trade.objectives.term import Objective
from trade.run import Run
from trade.targets.two_moons import (
    Prior,
    TwoMoons,
    grid_posterior,
    pairs,
    radius_and_parameters,
    sample_posterior,
    tempered_pairs,
)
from trade.training.optimiser import Adam, OneCycle

POWERS = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class TwoMoonsExperiment:
    """TRADE without a likelihood and with one, beside a flow that knows β = 1 only.

    Args:
        prior: ``"normal"`` as in the paper, or ``"uniform"`` as in the sbibm benchmark.
        name: Its name on the command line.
    """

    prior: Prior = "normal"
    name: str = "two-moons"
    conditions = POWERS
    figures = ("calibration", "posteriors")

    @property
    def target(self) -> TwoMoons:
        """The posterior with its likelihood; rows without one train on a target of their own."""
        return TwoMoons(self.prior)

    def methods(self, budget: Budget) -> dict[str, Method]:
        """Appendix B.4, and our own recipe; ``quick`` has ours alone, with a smaller flow."""
        return self._ours(quick=True) if budget == "quick" else {**self._paper(), **self._ours()}

    def _paper(self) -> dict[str, Method]:
        gradient = Gradient(
            Widening(),
            ModelPoints(noise=3e-4, wider=0.0),
            penalty=Huber(),
            conditions_per_step=32,
            points_per_condition=16,
            reweighted=0.0,
        )

        def trade(density: Density) -> Trade:
            return Trade(replace(gradient, density=density), ForwardKL(512), Ramp(Fixed(0.1)), start=0.2)

        flow = {"blocks": 15, "network": MLP(128)}
        return self._rows("", flow, 10_000, OneCycle(4e-4), trade(TrueDensity()), trade(EnergyFree()))

    def _ours(self, *, quick: bool = False) -> dict[str, Method]:
        """The default of ``fit``, with a flow that is large enough for thin moons."""
        blocks, width, steps = (6, 64, 2500) if quick else (15, 128, 10_000)
        flow = {"blocks": blocks, "network": MLP(width), "bins": 16, "adapter": 32}
        return self._rows("-ours", flow, steps, Adam())

    def _rows(
        self,
        suffix: str,
        flow: dict[str, Any],
        steps: int,
        optimiser: Adam,
        known: Objective | None = None,
        unknown: Objective | None = None,
    ) -> dict[str, Method]:
        """A flow that sees β = 1 alone, TRADE with a likelihood and TRADE without one."""
        likely, free = self.target, TwoMoons(self.prior, likelihood=False)

        def method(target: TwoMoons, objective: Objective | None, **options: Any) -> Method:
            def build(key: Array) -> AbstractDistribution:
                return spline_flow(key, target, **flow, **options)

            return Method(build, steps, objective, optimiser, target)

        return {
            # One posterior for all powers: what it learned at β = 1 is all it has.
            f"maximum-likelihood{suffix}": method(likely, ForwardKL(512), conditional=False),
            f"trade-likelihood{suffix}": method(likely, known),
            f"trade-energy-free{suffix}": method(free, unknown),
        }

    def data(self, target: AbstractTarget, budget: Budget) -> dict[float, Any]:
        """100,000 pairs at β = 1."""
        return {1.0: pairs(jax.random.key(2024), 50_000 if budget == "quick" else 100_000, self.prior)}

    def validation(self, target: AbstractTarget, budget: Budget) -> dict[float, Any]:
        """Further pairs."""
        return {1.0: pairs(jax.random.key(2025), 10_000, self.prior)}

    def truth(self, budget: Budget) -> list[dict[str, Any]]:
        """None: what is measured here is zero, or one half, for a perfect model."""
        return []

    def evaluate(self, name: str, target: AbstractTarget, run: Run, budget: Budget) -> list[dict[str, Any]]:
        """Coverage of r, ranks of both parameters, exact KL and the classifier test, at three powers."""
        prior, quick = self.prior, budget == "quick"
        n, samples = (4000, 100) if quick else (300_000, 300)
        observed, told = (20, 2) if quick else (100, 10)
        rows = []
        for i, beta in enumerate(POWERS):
            x, y = tempered_pairs(jax.random.key(7000 + i), n, beta, prior)
            held_out = pairs(jax.random.key(8000), observed, prior)[1]
            values: dict[str, list[float]] = {m: [] for m in ("coverage_error", "sbc_1", "sbc_2", "kl", "c2st")}
            for model in run.final:
                found = ranks(model, radius_and_parameters, x, y, jax.random.key(1), samples, beta)
                values["coverage_error"].append(coverage(found[:, 0]).error)
                values["sbc_1"].append(uniformity_error(found[:, 1]))
                values["sbc_2"].append(uniformity_error(found[:, 2]))
                values["kl"].append(mean_kl(model, held_out, beta, prior))
                values["c2st"].append(mean_c2st(model, held_out[:told], beta, prior, 2000 if quick else 10_000))
            rows += [row(name, metric, beta, v) for metric, v in values.items()]
        return rows


def mean_kl(model: Model, observations: Array, beta: float, prior: Prior) -> float:
    """KL(p(ψ|y, β) || p_θ(ψ|y, β)) by quadrature, averaged over observations."""
    found = []
    for y in observations:
        grid = grid_posterior(y, beta, prior)
        exact, weight = np.asarray(grid.log_prob, np.float64), np.asarray(grid.weight, np.float64)
        seen = weight > 0
        difference = exact[seen] - np.asarray(model.log_prob(grid.x, beta, y), np.float64)[seen]
        found.append(weight[seen] @ difference)
    return float(np.mean(found))


def mean_c2st(model: Model, observations: Array, beta: float, prior: Prior, n: int) -> float:
    """The classifier test against exact samples, averaged over observations."""
    found = []
    for i, y in enumerate(observations):
        keys = jax.random.split(jax.random.key(9000 + i), 3)
        exact = sample_posterior(keys[0], y, beta, n, prior)
        found.append(c2st(exact, supported(model, keys[1], n, beta, y, prior), keys[2]))
    return float(np.mean(found))


def supported(model: Model, key: Array, n: int, beta: float, y: Array, prior: Prior) -> Array:
    """n samples of the model inside the prior's support: the known prior is used, as the benchmark does."""
    if prior == "normal":
        return model.sample(key, n, beta, y)
    x = model.sample(key, 2 * n, beta, y)
    inside = np.flatnonzero(np.max(np.abs(np.asarray(x)), axis=1) <= 1.0)
    return x[np.resize(inside, n)] if len(inside) else x[:n]
