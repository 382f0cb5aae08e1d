"""Alanine dipeptide of Section 5.3: frames at 600 K, the ensemble at every temperature down to 300 K (Table 2)."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.ess import kish_ess
from trade.evaluation.divergence import Estimate
from trade.evaluation.free_energy import bennett, by_ladder
from trade.evaluation.ramachandran import floor, histogram, histogram_kl
from trade.experiments import paper
from trade.experiments.alanine_data import COLD, HOT, Simulation, energies, frames, full, leapfrog_frames, small
from trade.experiments.reproduce import Budget, Method
from trade.experiments.results import curve, row
from trade.flows import MLP, AffineFlow, CircularFlow, Normal, PowerScaled, ResidualMLP
from trade.flows.flow import Recipe
from trade.flows.latent import LatentSpec
from trade.flows.spline import wrapped
from trade.model import Model
from trade.objectives import (
    CausalGrid,
    Fixed,
    ForwardKL,
    Gradient,
    GradientNorm,
    GridExpectation,
    Huber,
    ModelPoints,
    Ramp,
    ReverseKL,
    Trade,
    Widening,
)
from trade.objectives.term import Objective
from trade.run import Run
from trade.sampling.importance import log_density_batch, weighted_samples
from trade.targets import Augmented
from trade.targets.molecule.alanine_dipeptide import HA, PHI, PSI, ROTORS, AlanineDipeptide
from trade.targets.molecule.boltzmann import GAS_CONSTANT, Molecule
from trade.training.optimiser import Adam, OneCycle

TEMPERATURES = (COLD, HOT)
MD = "md"  # the row of the reference values
ROTATIONS = 2.0 * np.log(2.0 * np.pi)  # what the paper's NLL counts for rigid motions
ENERGY_BINS = np.linspace(-140.0, 160.0, 151)  # kJ/mol
SCALED = PowerScaled(1.0, HOT)  # a latent that follows the temperature
BALANCE = Ramp(GradientNorm(0.3, every=1, ema=0.0))  # never stronger than the data
LEFT_HANDED = (0.0, np.deg2rad(130.0))  # φ of the basins that dynamics at 300 K never reaches


@dataclass(frozen=True)
class AlanineDipeptideExperiment:
    """The six rows of Table 2 with our flows, and a flow that knows 600 K only."""

    target: AlanineDipeptide = field(default_factory=AlanineDipeptide)
    name = "alanine-dipeptide"
    conditions = TEMPERATURES
    figures = ("ramachandran_300", "ramachandran_600")

    def methods(self, budget: Budget) -> dict[str, Method]:
        """Table 2 with the settings of Appendix B.5, and the default; ``quick`` has a small spline flow.

        The flows are ours. Of the backward KL the paper does not say when it begins and how strong it is.
        """
        if budget == "quick":
            rows = self._splines(_Recipe(4, 32, 1600, Adam(2e-3), ForwardKL(64, symmetries=True)))
            return {n: rows[n] for n in ("maximum-likelihood-spline", "trade-spline-ours")}
        rate = OneCycle(1e-4, clip=3.0, weight_decay=3.7e-6)
        splines = _Recipe(18, 256, 83_000, rate, ForwardKL(289, symmetries=True), self._on_a_grid())
        rate = OneCycle(3e-4, clip=3.0, weight_decay=1e-6)
        affine = _Recipe(20, 128, 58_000, rate, ForwardKL(1024, symmetries=True), self._continuous())
        return self._splines(splines) | self._affine(affine)

    def _on_a_grid(self) -> Trade:
        gradient = Gradient(
            CausalGrid(points=25, epsilon=0.12),
            ModelPoints(noise=3e-4, wider=0.0),
            GridExpectation(points=25, every=1000, samples=5000),
            penalty=Huber(),
            conditions_per_step=17,  # the paper names the number of evaluation points nowhere: as many as data
            points_per_condition=17,
            reweighted=0.0,
        )
        return Trade(gradient, ForwardKL(289, symmetries=True), Fixed(0.23), start=25 / 83)

    def _continuous(self) -> Trade:
        gradient = Gradient(
            Widening(),
            ModelPoints(noise=3e-4, wider=0.0),
            penalty=Huber(),
            conditions_per_step=32,
            points_per_condition=32,
            reweighted=0.0,
        )
        return Trade(gradient, ForwardKL(1024, symmetries=True), Fixed(0.1), start=23 / 58)

    def _splines(self, recipe: "_Recipe") -> dict[str, Method]:
        """Only torsions about which parts turn freely need a circle; the others, such as ω, stay near one value."""
        target = self.target
        rotors = tuple(target.torsions[i] for i in ROTORS)

        def flow(latent: LatentSpec = SCALED, **options: Any) -> CircularFlow:
            return CircularFlow(
                target.shape,
                target.condition,
                rotors,
                cut=tuple(i for i in target.torsions if i not in rotors),
                blocks=recipe.blocks,
                network=ResidualMLP(recipe.width),
                latent=latent,
                **options,
            )

        return {
            # One density for all temperatures: what it learned at 600 K is all it has.
            "maximum-likelihood-spline": recipe.method(flow(conditional=False, latent=Normal()), recipe.likelihood),
            "steerable-spline": recipe.method(flow(steerable=HOT), recipe.likelihood),
            "backward-kl-spline": recipe.method(flow(), recipe.backward),
            "trade-spline": recipe.method(flow(), recipe.trade),
            "trade-spline-ours": Method(flow(), 1600 if recipe.trade is None else 24_000, None, Adam(2e-3)),
        }

    def _affine(self, recipe: "_Recipe") -> dict[str, Method]:
        """With 60 more coordinates, of which the molecule's are independent."""
        target = Augmented(self.target, extra=60, exponent=1.0, reference=HOT)

        def flow(**options: Any) -> AffineFlow:
            return AffineFlow(
                target.shape,
                target.condition,
                self.target.torsions,
                blocks=recipe.blocks,
                network=MLP(recipe.width, 3),
                latent=SCALED,
                **options,
            )

        # The paper decays the weights of the other two rows ten times as much.
        decayed = replace(recipe, optimiser=replace(recipe.optimiser, weight_decay=1e-5))
        return {
            "steerable-affine": decayed.method(flow(volume="mean"), recipe.likelihood, target),
            "backward-kl-affine": decayed.method(flow(), recipe.backward, target),
            "trade-affine": recipe.method(flow(), recipe.trade, target),
            "trade-affine-ours": Method(flow(), 20_000, None, Adam(5e-4), target),
        }

    def data(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Most ensembles' frames at 600 K: 735,000, or 26,250 for ``quick``."""
        return {HOT: _extended(target, jax.random.key(2024), frames(_simulation(budget)).training(), HOT)}

    def validation(self, target: AbstractTarget, budget: Budget) -> dict[float, Array]:
        """Frames of other ensembles at 600 K; none at 300 K, which is for evaluation alone."""
        return {HOT: _extended(target, jax.random.key(2025), frames(_simulation(budget)).validation(), HOT)}

    def evaluate(self, name: str, target: AbstractTarget, run: Run, budget: Budget) -> list[dict[str, Any]]:
        """NLL and gap on both kinds of data, D_hist, ESS, populations and log Z, at both temperatures."""
        molecule, simulation = self.target, _simulation(budget)
        samples, scored = _sizes(budget)
        values: dict[tuple[str, float], list[float]] = {}
        curves: list[dict[str, Any]] = []
        for seed, model in enumerate(run.final):
            log_z = {}
            for c in TEMPERATURES:
                found = {}
                drawn = _draw(model, target, molecule, jax.random.key(7000 + seed), samples, c)
                found["ess"] = float(kish_ess(jnp.asarray(drawn.log_weight, jnp.float32)))
                reference = frames(simulation).evaluation(c)
                truth = _score(model, target, molecule, _spread(reference, scored), c)
                leapfrog = _score(model, target, molecule, _spread(leapfrog_frames(simulation)[c], scored), c)
                log_z[c] = bennett(drawn.log_weight, truth.log_weight)
                found["nll"], found["nll_leapfrog"] = truth.nll, leapfrog.nll
                # The exact model is q/Z: what its log density has more than the flow's.
                found["nll_gap"] = float(truth.log_weight.mean() - log_z[c].value)
                found["nll_gap_leapfrog"] = float(leapfrog.log_weight.mean() - log_z[c].value)
                found["log_z"], found["log_z_error"] = log_z[c]
                counts = _ramachandran(molecule, reference).sum(axis=0)
                found["d_hist"] = histogram_kl(_ramachandran(molecule, drawn.x[None])[0], counts)
                found |= populations(molecule, drawn.x)
                for metric, value in found.items():
                    values.setdefault((metric, c), []).append(value)
                if seed == 0:
                    curves += _curves(name, c, molecule, drawn.x[None], energies(molecule, drawn.x[None]))
            difference = _difference(log_z[COLD], log_z[HOT])
            values.setdefault(("log_z_difference", COLD), []).append(difference.value)
            values.setdefault(("log_z_difference_error", COLD), []).append(difference.error)
        known = paper.ALANINE_DIPEPTIDE.get(name.removesuffix("-ours"), {})
        return curves + [row(name, metric, c, v, known.get(metric, {}).get(c)) for (metric, c), v in values.items()]

    def truth(self, budget: Budget) -> list[dict[str, Any]]:
        """Of the simulation: energies, populations, rates, the floor of D_hist, and log Z(300) - log Z(600)."""
        simulated, molecule = frames(_simulation(budget)), self.target
        rows = []

        def add(metric: str, c: float, estimate: Estimate) -> None:
            rows.extend([row(MD, metric, c, [estimate.value]), row(MD, f"{metric}_error", c, [estimate.error])])

        for c, energy in zip(TEMPERATURES, simulated.energies[[0, -1]], strict=True):
            states = simulated.by_temperature[c]
            rows += _curves(MD, c, molecule, states, energy)
            add("energy", c, _over_ensembles(energy.mean(axis=1)))
            hotter = energies(molecule, leapfrog_frames(_simulation(budget))[c].swapaxes(0, 1))
            add("energy_leapfrog", c, _over_ensembles(np.asarray(hotter, np.float64).mean(axis=0)))
            found = [populations(molecule, ensemble) for ensemble in states]
            for metric in found[0]:
                add(metric, c, _over_ensembles(np.array([each[metric] for each in found])))
            held_out = _ramachandran(molecule, simulated.evaluation(c))
            rows.append(row(MD, "d_hist_floor", c, [floor(held_out, _sizes(budget)[0])]))
        for metric, rates in simulated.rates.items():  # exchanges are one less than temperatures
            rows += [row(MD, metric, c, [float(rate)]) for c, rate in zip(simulated.ladder, rates, strict=False)]
        groups = np.array_split(np.arange(simulated.energies.shape[1]), 16)
        beta = 1.0 / (GAS_CONSTANT * simulated.ladder)
        each = [by_ladder(beta, simulated.energies[:, g]) for g in groups]
        add("log_z_difference", COLD, _over_ensembles(np.array(each)))
        return rows


class _Drawn(NamedTuple):
    x: np.ndarray
    log_weight: np.ndarray


class _Score(NamedTuple):
    nll: float
    log_weight: np.ndarray


def _simulation(budget: Budget) -> Simulation:
    return small() if budget == "quick" else full()


def _sizes(budget: Budget) -> tuple[int, int]:
    """Samples of a model, and frames it is scored on, at each temperature."""
    return (50_000, 10_000) if budget == "quick" else (1_000_000, 200_000)


def _extended(target: AbstractTarget, key: Array, x: np.ndarray, c: float) -> Array:
    return target.extend(key, jnp.asarray(x), c) if isinstance(target, Augmented) else jnp.asarray(x)


def _spread(states: np.ndarray, n: int) -> np.ndarray:
    """At most n of them, evenly over all ensembles."""
    flat = states.reshape(-1, states.shape[-1])
    return flat[np.linspace(0, len(flat) - 1, min(n, len(flat))).astype(int)]


def _draw(model: Model, target: AbstractTarget, molecule: AlanineDipeptide, key: Array, n: int, c: float) -> _Drawn:
    """Samples without extra coordinates, with log q/p_θ."""
    (dim,), parts = molecule.shape, []
    for k in jax.random.split(key, -(-n // 50_000)):
        found = weighted_samples(model, target, k, min(n, 50_000), c)
        parts.append((np.asarray(found.x[:, :dim]), np.asarray(found.log_weight, np.float64)))
    return _Drawn(*(np.concatenate(p) for p in zip(*parts, strict=True)))


def _score(model: Model, target: AbstractTarget, molecule: AlanineDipeptide, x: np.ndarray, c: float) -> _Score:
    """The NLL of frames in the paper's measure, and log q/p_θ; less the entropy of extra coordinates."""
    states = _extended(target, jax.random.key(2026), x, c)
    log_p = np.asarray(model.log_prob(states, c), np.float64)
    log_q = np.asarray(log_density_batch(target, states, jnp.asarray(c, states.dtype)), np.float64)
    extra = target.extra_entropy(c) if isinstance(target, Augmented) else 0.0
    volume = np.asarray(_volumes(molecule, jnp.asarray(x)), np.float64)
    return _Score(float((volume - log_p).mean() + ROTATIONS - extra), log_q - log_p)


@eqx.filter_jit
def _volumes(molecule: AlanineDipeptide, x: Array) -> Array:
    return jax.vmap(molecule.log_volume)(x)


def _ramachandran(molecule: AlanineDipeptide, states: np.ndarray) -> np.ndarray:
    """A histogram of (φ, ψ) for each ensemble."""
    phi, psi = (molecule.torsions[i] for i in (PHI, PSI))
    return np.array([histogram(x[:, phi], x[:, psi]) for x in states])


def _curves(name: str, c: float, molecule: AlanineDipeptide, states: np.ndarray, energy: Any) -> list[dict[str, Any]]:
    """Histograms for the figures: of (φ, ψ), and of the energy."""
    heights, _ = np.histogram(np.asarray(energy), ENERGY_BINS)
    counts = _ramachandran(molecule, states).sum(axis=0)
    return [curve(name, "ramachandran", c, counts.ravel()), curve(name, "energies", c, heights, edges=ENERGY_BINS)]


def populations(molecule: Molecule, x: np.ndarray) -> dict[str, float]:
    """Parts with φ in the left-handed basins, and with the chirality of the D form."""
    chirality = np.asarray(x[:, molecule.torsions[HA]], np.float64)
    return {
        "phi_positive": float(left_handed(molecule, x).mean()),
        "d_chirality": float((np.sin(chirality) < 0).mean()),
    }


def left_handed(molecule: Molecule, x: np.ndarray) -> np.ndarray:
    """Which of the states have φ in the left-handed basins."""
    turned = np.asarray(wrapped(jnp.asarray(x[:, molecule.torsions[PHI]], float), np.pi))
    return (turned > LEFT_HANDED[0]) & (turned < LEFT_HANDED[1])


def _over_ensembles(values: np.ndarray) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def _difference(one: Estimate, two: Estimate) -> Estimate:
    return Estimate(one.value - two.value, float(np.hypot(one.error, two.error)))


@dataclass(frozen=True)
class _Recipe:
    """What all of the paper's rows of one architecture share; symmetries are those of extra coordinates."""

    blocks: int
    width: int
    steps: int
    optimiser: Adam
    likelihood: ForwardKL
    trade: Trade | None = None

    @property
    def backward(self) -> Trade:
        return Trade(ReverseKL(batch=self.likelihood.batch // 2), self.likelihood, BALANCE, start=0.3)

    def method(self, flow: Recipe, objective: Objective | None, target: AbstractTarget | None = None) -> Method:
        return Method(flow, self.steps, objective, self.optimiser, target)
