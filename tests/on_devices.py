"""A run in a process of its own, on as many simulated devices as XLA_FLAGS says: ``python -m tests.on_devices``.

Prints the losses of every step as JSON.
"""

import json
import os
import signal
import sys

import jax
import numpy as np

from trade import Adam, Schedule, Trade, TradeError, fit
from trade.devices import join
from trade.flows import SplineFlow
from trade.objectives import ForwardKL, Gradient

join()  # before anything is computed, as in the next module

from tests.small_problems import TINY, data_at, family, random_gaussian  # noqa: E402

STEPS = 40


def run(devices=None, *, seeds=None, spline=False, out=None, resume=False, die_at=None, points=16, **options):
    """The default objective, small; losses by step."""

    def die(row):
        if die_at is not None and row["step"] >= die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    d = 2 if spline else 1
    found = fit(
        family(d=d),
        {1.0: data_at(1.0, d=d)},
        flow=SplineFlow((2,), family(d=2).condition, blocks=2, bins=4, network=TINY) if spline else random_gaussian,
        objective=Trade(Gradient(conditions_per_step=4, points_per_condition=points), ForwardKL(64), start=10),
        steps=STEPS,
        optimiser=Adam(0.01),
        schedule=Schedule(report=1, evaluate=20, checkpoint=8),
        evaluation_samples=64,
        progress=False,
        seeds=seeds,
        devices=devices,
        out=out,
        resume=resume,
        callback=die,
        **options,
    )
    rows = [row for row in found.metrics if "forward_kl" in row]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    names = ("forward_kl", "gradient", "reweighted", "lambda", "reached")
    means = np.array([jax.tree.leaves([m.sample(jax.random.key(0), 64, 0.5).mean() for m in found.best])])
    return {"losses": np.array([[row[n] for n in names] for row in rows]).tolist(), "means": means.tolist()}


def run_or_say(**options):
    """A run, or the sentence it was refused with."""
    try:
        return run(**options)
    except TradeError as error:
        return {"refused": str(error)}


def main():
    asked = json.loads(sys.argv[1])
    found = [run_or_say(**one) for one in asked]
    print(json.dumps({"devices": jax.device_count(), "process": jax.process_index(), "runs": found}))


if __name__ == "__main__":
    main()
