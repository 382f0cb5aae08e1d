"""One flow for every point of a region: families with two and three parameters, beside what is exact or simulated.

``python -m benchmarks.several_axes``: Gaussians whose answers are known in closed form; φ⁴ in (κ, λ) and a
Lennard-Jones crystal in (T, P), beside Markov chains; alanine dipeptide in temperature and the strength of a torsion,
beside replica exchange; powers of prior and likelihood of the eight schools and of the
O-rings, beside Markov chains and ArviZ's local sensitivity (``arviz-stats``, if it is installed). Flow, objective and
the end of training are those of ``fit``.
"""

from dataclasses import replace
from pathlib import Path

import tyro

from benchmarks.axes_gaussian import cost, gaussian
from benchmarks.axes_molecule import dipeptide
from benchmarks.axes_physics import crystal, phi_four
from benchmarks.axes_powers import eight_schools, powers, rings
from benchmarks.one_by_one import Options, Problems, run_missing

PROBLEMS: Problems = {
    "gaussian-2": lambda options: gaussian(2, options),
    "gaussian-3": lambda options: gaussian(3, options),
    "cost": cost,
    "o-rings": lambda options: powers(rings, "o-rings", options),
    "eight-schools": lambda options: powers(eight_schools, "eight-schools", options),
    "phi-four": phi_four,
    "dipeptide": dipeptide,
    "crystal-4": lambda options: crystal((1, 1, 1), options),
    "crystal-8": lambda options: crystal((1, 1, 2), options),
    "crystal-16": lambda options: crystal((1, 2, 2), options),
    "crystal-32": lambda options: crystal((2, 2, 2), options),
}


if __name__ == "__main__":
    run_missing(PROBLEMS, tyro.cli(Options, default=replace(Options(), out=Path("runs/several_axes"))))
