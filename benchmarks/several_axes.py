"""One flow for every point of a region: families with two and three parameters, beside what is exact or simulated.

``python -m benchmarks.several_axes``: Gaussians whose answers are known in closed form; φ⁴ in (κ, λ) and a
Lennard-Jones crystal in (T, P), beside Markov chains; powers of prior and likelihood of the eight schools and of the
O-rings, beside Markov chains and ArviZ's local sensitivity (``arviz-stats``, if it is installed). Flow, objective and
the end of training are those of ``fit``.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import tyro

import trade
from benchmarks.axes_gaussian import cost, gaussian
from benchmarks.axes_physics import crystal, phi_four
from benchmarks.axes_powers import eight_schools, powers, rings
from benchmarks.axes_run import Options
from trade.experiments.results import commit, hardware
from trade.files import plain, write_json

PROBLEMS: dict[str, Callable[[Options], dict[str, Any]]] = {
    "gaussian-2": lambda options: gaussian(2, options),
    "gaussian-3": lambda options: gaussian(3, options),
    "cost": cost,
    "o-rings": lambda options: powers(rings, "o-rings", options),
    "eight-schools": lambda options: powers(eight_schools, "eight-schools", options),
    "phi-four": phi_four,
    "crystal": crystal,
}


def main(options: Options) -> None:
    """Run what is missing; every result with its own commit and hardware."""
    for name in options.problems or PROBLEMS:
        if name not in PROBLEMS:
            raise trade.TradeError(f"There is no problem {name!r}; there are {', '.join(PROBLEMS)}.")
        file = options.out / f"{name}.json"
        if file.exists():
            continue
        about = {
            "command": " ".join(["python -m benchmarks.several_axes", *sys.argv[1:]]),
            "hardware": hardware(),
            "jax": jax.__version__,
            "commit": commit(),
        }
        found = about | plain(PROBLEMS[name](options))
        write_json(file, found)
        long = (*about, "checks", "conditions", "sensitivity", "ess", "kl")
        print(name, {k: v for k, v in found.items() if k not in long}, flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
