"""What ``docs/results.md`` says beside the numbers: titles of metrics, what was done, captions of figures."""

from dataclasses import dataclass

METRICS = {
    "kl": "Exact KL, nats",
    "kl_final": "Exact KL of the model after the last step, nats",
    "kl_samples": "KL on samples, nats",
    "nll": "NLL",
    "nll_gap": "NLL above that of the exact distribution",
    "nll_leapfrog": "NLL on data of the leapfrog integrator",
    "nll_gap_leapfrog": "NLL above that of the exact distribution, on data of the leapfrog integrator",
    "ess": "ESS",
    "d_hist": "D_hist of (φ, ψ)",
    "coverage_error": "Largest error of the coverage of r",
    "sbc_1": "Distance of the ranks of ψ₁ to uniform",
    "sbc_2": "Distance of the ranks of ψ₂ to uniform",
    "c2st": "Classifier two-sample test; 0.5 is perfect",
    "d_chirality": "Part of the samples with the wrong chirality",
}
# Metrics of which neither more nor less is better: they are compared with a reference.
COMPARED = {
    "d_hist_floor": "D_hist of a perfect model, from as many samples",
    "phi_positive": "Population of 0 < φ < 130°",
    "energy": "Mean energy, kJ/mol",
    "energy_leapfrog": "Mean energy of the leapfrog integrator, kJ/mol",
    "log_z_difference": "log Z(300 K) − log Z(600 K)",
    "exchange": "Part of the exchanges accepted, with the next temperature",
    "log_z": "log Z, up to a constant",
    "intercept": "Log odds of distress at 70 °F, mean",
    "slope": "Change of the log odds over 7 °F, mean",
    "slope_low": "Change of the log odds over 7 °F, lower end of the 90 % interval",
    "slope_high": "Change of the log odds over 7 °F, upper end of the 90 % interval",
    "risk": "Probability of distress at 31 °F, mean",
}
OBSERVABLES = {
    "magnetisation": "Magnetisation ⟨|m|⟩",
    "action": "Action per site",
    "susceptibility": "Susceptibility",
    "binder": "Binder cumulant",
}
EARLIER = {  # files made by recipes that today's default replaces, by the commit that they name
    "alanine_dipeptide": "201dfd3",
    "gaussian_mixture": "7eadcf6",
    "gaussian_mixture_ablation": "7e48555",
    "multiwell": "2d9e97e",
    "multiwell_default": "f7b1b1f",  # before surges of the gradient were clipped
    "multiwell_ablation": "f0ad807",
    "o_rings": "83cdd00",
    "scalar_field": "2852051",
    "scalar_field_16": "f0ad807",
    "two_moons": "f0ad807",
    "two_moons_uniform": "f0ad807",
}


@dataclass(frozen=True)
class Section:
    """What the page says of one experiment beside its numbers.

    Args:
        title: Its heading.
        symbol: What the condition is called.
        text: What was done.
        figures: Pictures with captions, by file in its directory.
    """

    title: str
    symbol: str
    text: str
    figures: dict[str, str]


SECTIONS = {
    "demo": Section(
        "The demo: six-mode mixture on two CPU cores",
        "c",
        "Data at c = 1 only; `make demo` runs it in a few minutes. Maximum likelihood is the same flow without the "
        "gradient term, its latent scaled with c.",
        {"densities.png": "Target, TRADE and maximum likelihood at five conditions."},
    ),
    "gaussian_mixture": Section(
        "Six-mode mixture",
        "c",
        "The mixture of the paper's Appendix C, data at c = 1 only. All rows but the last have the paper's small "
        "flow and an eighth of its steps; `trade-continuous-ours` has our recipe and a larger flow. Its settings "
        "were chosen on other seeds and data, and at conditions that share only c = 1 with the table.",
        {"figures/densities_best.png": "All methods at five powers of the mixture."},
    ),
    "gaussian_mixture_ablation": Section(
        "Six-mode mixture, one choice at a time",
        "c",
        "An earlier recipe of the demo, and the same with one choice put back. [What we "
        "changed](changes.md#the-mixture-one-choice-at-a-time) reads the table.",
        {"figures/kl.png": "Exact KL against c, one choice at a time."},
    ),
    "multiwell": Section(
        "Multi-well in five dimensions",
        "T",
        "Data at T = 1 only: every row of the paper's Table 1 with its flow and its learning rate, and our own "
        "recipe (`-ours`). Two rows are not stable: the grid without causality weights, which ran away in the "
        "paper too, and the row without a ramp, which shows why λ is reached gradually. The temperature-steerable "
        "flow stays below the paper's number.",
        {"figures/marginals.png": "First coordinate at T = 0.5: samples of each method and the target."},
    ),
    "multiwell_ablation": Section(
        "Multi-well, one choice at a time",
        "T",
        "Our recipe, and the same with one choice put back, 10,000 steps each. [What we "
        "changed](changes.md#the-multi-well) reads the table.",
        {},
    ),
    "scalar_field": Section(
        "Scalar field on an 8×8 lattice",
        "κ",
        "Data at κ = 0.25 and 0.29 only, on both sides of the phase transition. Rows ending in `-ours` have our "
        "lattice flow; the first has the paper's, with a fifth of its steps. The paper has figures only.",
        {
            "figures/observables.png": "Observables against κ: HMC, the weighted model, and the models without "
            "weights. Without weights a few states lie far out at the largest κ.",
            "figures/fields.png": "One configuration from κ = 0.22 to 0.32, from the same random numbers.",
        },
    ),
    "scalar_field_16": Section(
        "Scalar field on a 16×16 lattice",
        "κ",
        "The same code on four times as many sites.",
        {"figures/observables.png": "Observables against κ on 16×16."},
    ),
    "two_moons": Section(
        "Two moons, a power posterior for every observation",
        "β",
        "The posterior of two parameters for every observation and every power β of the likelihood, from 100,000 "
        "simulated pairs at β = 1. `energy-free` rows are given no likelihood. KL is exact, over 100 held-out "
        "observations. The paper has figures only.",
        {
            "figures/calibration.png": "Observed against nominal coverage of r at three powers.",
            "figures/posteriors.png": "Samples of each method beside exact ones, for the observation y = 0.",
        },
    ),
    "two_moons_uniform": Section(
        "Two moons with the prior of the sbibm benchmark",
        "β",
        "The uniform prior of that benchmark and its 10⁵ simulations. NPE scores 0.542 there in the two-sample "
        "test at β = 1 (a number of the benchmark's paper, not run here).",
        {"figures/calibration.png": "Observed against nominal coverage of r at three powers."},
    ),
    "alanine_dipeptide": Section(
        "Alanine dipeptide, from 600 K to 300 K",
        "T",
        "22 atoms in implicit solvent, with our own batched force field. 735,000 frames at 600 K from our replica "
        "exchange, none at 300 K. The paper's data have the bias of an old integrator; data of that kind "
        "(leapfrog) are for comparison with it only.",
        {"figures/ramachandran_300.png": "Ramachandran plots at 300 K beside the simulation, φ marginal and energies."},
    ),
    "o_rings": Section(
        "O-rings: how much a posterior depends on its likelihood",
        "β",
        "A logistic regression on 23 flights of the Space Shuttle at every power of its likelihood, beside HMC at both "
        "ends. This file is of a version that was given HMC samples at β = 1; "
        "[today's example](../examples/o_rings.py) starts from draws of the prior.",
        {"sensitivity.png": "Posterior means and 90 % intervals against the power of the likelihood."},
    ),
}
CAPTIONS = {  # of figures that the page of results does not show
    "calibration.png": "Observed against nominal coverage.",
    "conditions.png": "KL and ESS against the condition.",
    "densities_best.png": "All methods at five conditions, the best model of each run.",
    "densities_final.png": "All methods at five conditions, the model after the last step.",
    "ess.png": "ESS against the condition, all methods.",
    "fields.png": "One configuration at several κ, from the same random numbers.",
    "free_energy.png": "log Z against the condition.",
    "kl.png": "Exact KL against the condition, all methods.",
    "posteriors.png": "Samples of each method beside exact ones.",
    "ramachandran_600.png": "Ramachandran plots at 600 K beside the simulation, φ marginal and energies.",
    "training.png": "Losses and ESS during training.",
}
