"""The six-mode mixture of Appendix C: data at c0 = 1 only, every power from 0.16 to 6.2."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from trade import check, files
from trade.abstract_target import AbstractTarget
from trade.evaluation.divergence import forward_kl, grid_kl
from trade.experiments import paper
from trade.experiments.reproduce import Budget, Method
from trade.experiments.results import record, row
from trade.fit import fit
from trade.flows import MLP, Flow, PowerScaled, VolumePreservingFlow, spline_flow
from trade.model import Model
from trade.objectives import (
    BatchExpectation,
    CausalGrid,
    ForwardKL,
    Gradient,
    GradientNorm,
    GridExpectation,
    GrowingInterval,
    Huber,
    ModelPoints,
    Ramp,
    ReverseKL,
    Reweighted,
    Squared,
    Trade,
    Widening,
)
from trade.objectives.term import Objective
from trade.run import Run
from trade.sampling.importance import weighted_samples
from trade.targets import GaussianMixture, six_modes
from trade.training.optimiser import Adam, OneCycle

DEMO_FLOW: dict[str, Any] = {"blocks": 5, "bins": 16, "network": MLP(32, 2), "latent": PowerScaled()}
DEMO_ADAM = Adam(learning_rate=5e-3)
DEMO_PANELS = (4.8330, 1.8330, 1.0, 0.5456, 0.2069)  # conditions of its figure of densities
DEMO_LABELS = {"trade-continuous": "TRADE", "maximum-likelihood": "maximum likelihood", "kl": "exact KL", "ess": "ESS"}


@dataclass(frozen=True)
class Demo:
    """Settings of the demonstration, sized for a few minutes on two processor cores.

    Args:
        steps: Training steps of TRADE.
        baseline_steps: Training steps of the maximum-likelihood flow.
        samples: Training samples at c0 = 1.
        seed: Random seed.
    """

    steps: int = 6500
    baseline_steps: int = 4000
    samples: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        check.integers(self, steps=1, baseline_steps=1, samples=1, seed=0)


def demonstrate(
    settings: Demo, out: Path, *, resume: bool = False, progress: bool = True
) -> tuple[dict[str, Run], dict[str, Any]]:
    """Train TRADE and the maximum-likelihood flow; evaluate both at the paper's nine conditions.

    Returns:
        The runs by method, and the content of ``results.json``, with the names of methods and metrics.
    """
    started = time.monotonic()
    target = six_modes()
    data = {1.0: target.sample(jax.random.key(settings.seed), settings.samples, 1.0)}
    run = fit(
        target,
        data,
        flow=lambda key: spline_flow(key, target, **DEMO_FLOW),
        steps=settings.steps,
        optimiser=DEMO_ADAM,
        seed=settings.seed,
        evaluate_at=(0.3360, 2.9764),
        out=out,
        resume=resume and (out / files.CHECKPOINT).exists(),
        progress=progress,
        notes={"command": "demo", "baseline_steps": settings.baseline_steps},
    )
    baseline = fit(
        target,
        data,
        flow=lambda key: spline_flow(key, target, conditional=False, **DEMO_FLOW),
        objective=ForwardKL(),
        steps=settings.baseline_steps,
        optimiser=DEMO_ADAM,
        seed=settings.seed,
        evaluate_at=(0.3360, 2.9764),
        out=out / files.BASELINE,
        resume=resume and (out / files.BASELINE / files.CHECKPOINT).exists(),
        progress=progress,
    )
    runs = {"trade-continuous": run, "maximum-likelihood": baseline}
    rows = [r for method, one in runs.items() for r in evaluate(method, one.model, target)]
    return runs, record("gaussian-mixture-demo", rows, time.monotonic() - started) | {"labels": DEMO_LABELS}


def evaluate(method: str, model: Model, target: GaussianMixture) -> list[dict[str, Any]]:
    """Exact KL (by quadrature) and ESS of one model at the nine conditions of the paper."""
    rows = []
    for c in paper.GAUSSIAN_MIXTURE_CONDITIONS:
        rows += [
            row(method, "kl", c, [exact_kl(model, target, c)], _known(method, c)),
            row(method, "ess", c, [weighted_samples(model, target, jax.random.key(1), 20_000, c).ess]),
        ]
    return rows


def exact_kl(model: Model, target: GaussianMixture, c: float, *, fine: int = 1601) -> float:
    """KL on the square that holds all the mass at every condition."""
    # Broad densities need no finer grid; at c > 1.5 the modes are a few hundredths wide.
    return grid_kl(model, target, c, extent=22.0, points=fine if c > 1.5 else fine // 2 + 1)


def _known(method: str, c: float) -> float | None:
    numbers = paper.GAUSSIAN_MIXTURE_KL.get(method.removesuffix("-ours"))
    return None if numbers is None else numbers[paper.GAUSSIAN_MIXTURE_CONDITIONS.index(c)]


@dataclass(frozen=True)
class GaussianMixtureExperiment:
    """The seven methods of Appendix C, and our own recipe."""

    target: GaussianMixture = field(default_factory=six_modes)
    name = "gaussian-mixture"
    conditions = paper.GAUSSIAN_MIXTURE_CONDITIONS
    figures = ("densities_best", "densities_final")

    def methods(self, budget: Budget) -> dict[str, Method]:
        """Appendix C: 600 epochs of 100,000 data; ``quick`` has a few steps at a larger rate, the data alone first."""
        quick = budget == "quick"
        steps, optimiser = (3000, OneCycle(5e-3, clip=2.0)) if quick else (234_375, OneCycle(1e-4, clip=2.0))
        start = 0.1 if quick else 0.0
        likelihood = ForwardKL(256)
        balance = GradientNorm(every=100, ema=0.985)
        grid = Gradient(
            CausalGrid(points=250, epsilon=1.0, decay=0.8, ema=0.9),
            expectation=GridExpectation(points=250, every=1000, samples=1000, ema=0.75),
            penalty=Huber(0.1),
            conditions_per_step=512,
            points_per_condition=1,
            reweighted=0.0,
            points=ModelPoints(wider=0.0),
        )
        continuous = Gradient(
            GrowingInterval(),
            expectation=BatchExpectation(samples=500),
            penalty=Huber(0.1),
            conditions_per_step=5,
            points_per_condition=105,
            reweighted=0.0,
            points=ModelPoints(wider=0.0),
        )
        network = MLP(32, 2)

        def flow(**options: Any) -> Callable[[Array], Flow]:
            return lambda key: spline_flow(key, self.target, blocks=4, network=network, latent=PowerScaled(), **options)

        def method(objective: Objective) -> Method:
            return Method(flow(), steps, objective, optimiser)

        volume = VolumePreservingFlow(self.target.shape, self.target.condition, blocks=20)
        methods = {
            "trade-grid": method(Trade(grid, likelihood, balance, start=start)),
            "trade-continuous": method(Trade(continuous, likelihood, balance, start=start)),
            "maximum-likelihood": Method(flow(conditional=False), steps, likelihood, optimiser),
            "reverse-kl": method(ReverseKL()),
            "maximum-likelihood-reverse-kl": method(Trade(ReverseKL(), likelihood, balance, start=0)),
            "reweighting": method(Reweighted(conditions_per_step=2, points_per_condition=256)),
            "volume-preserving": Method(volume, steps, likelihood, optimiser),
        }
        return methods | {"trade-continuous-ours": self.ours(budget)}

    def ours(self, budget: Budget) -> Method:
        """The default, with a flow of this family's latent."""
        quick = budget == "quick"
        network, blocks = (MLP(32, 2), 4) if quick else (MLP(128, 2), 8)
        return Method(
            lambda key: spline_flow(key, self.target, blocks=blocks, bins=16, network=network, latent=PowerScaled()),
            4000 if quick else 20_000,
        )

    def data(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """100,000 samples at c0 = 1."""
        return {1.0: target.sample(jax.random.key(2024), 100_000, 1.0)}

    def validation(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Exact samples at 15 conditions, to choose the best model as Appendix C.4 does."""
        at = np.exp(np.linspace(np.log(0.2069), np.log(4.8330), 15))
        n = 1000 if budget == "quick" else 10_000
        return {float(c): target.sample(jax.random.key(4000 + i), n, float(c)) for i, c in enumerate(at)}

    def truth(self, budget: Budget) -> list[dict[str, Any]]:
        """None: what is measured here is zero for a perfect model."""
        return []

    def evaluate(self, name: str, target: AbstractTarget, run: Run, budget: Budget) -> list[dict[str, Any]]:
        """KL by quadrature of the best and of the final model, KL on samples as the paper did it, and ESS."""
        assert isinstance(target, GaussianMixture)
        rows = []
        fine, samples = (801, 20_000) if budget == "quick" else (1601, 80_000)
        for i, c in enumerate(self.conditions):
            truth = target.sample(jax.random.key(8000 + i), samples, c)
            sampled = [forward_kl(m, target, truth, c, sets=20) for m in run.best]
            values = {
                "kl": [exact_kl(m, target, c, fine=fine) for m in run.best],
                "kl_final": [exact_kl(m, target, c, fine=fine) for m in run.final],
                "kl_samples": [e.value for e in sampled],
                "kl_samples_error": [e.error for e in sampled],
                "ess": [weighted_samples(m, target, jax.random.key(1), samples, c).ess for m in run.best],
            }
            rows += [
                row(name, m, c, v, _known(name, c) if m in ("kl", "kl_final", "kl_samples") else None)
                for m, v in values.items()
            ]
        return rows


@dataclass(frozen=True)
class GaussianMixtureAblation(GaussianMixtureExperiment):
    """The demo, and what becomes of it when one choice of the default at a time is undone."""

    name = "gaussian-mixture-ablation"

    def methods(self, budget: Budget) -> dict[str, Method]:
        """One row for each choice in which the default differs from Appendix C, put back."""
        gradient = Gradient()

        def method(objective: Trade | None = None, optimiser: Adam = DEMO_ADAM, **flow: Any) -> Method:
            build = lambda key: spline_flow(key, self.target, **DEMO_FLOW | flow)  # noqa: E731
            return Method(build, Demo().steps, objective, optimiser)

        def other(**options: Any) -> Method:
            return method(Trade(replace(gradient, **options)))

        return {
            "trade-default": method(),
            "trade-residual-alone": other(reweighted=0.0),
            "trade-growing-interval": other(conditions=GrowingInterval()),
            "trade-widening": other(conditions=Widening()),
            "trade-squared": other(penalty=Squared()),
            "trade-huber": other(penalty=Huber()),
            "trade-no-step-back": method(Trade(balance=Ramp(over=0.06))),
            "trade-gradient-norm": method(Trade(balance=GradientNorm(every=100, ema=0.985))),
            "trade-start-at-once": method(Trade(start=0.0)),
            "trade-half-the-points": method(
                Trade(Gradient(conditions_per_step=8, points_per_condition=64), ForwardKL(256))
            ),
            "trade-one-cycle": method(optimiser=OneCycle(5e-3)),
            "trade-ten-bins": method(bins=10),
        }
