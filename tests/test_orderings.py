"""Reproductions at the quick budget, through the command line: TRADE is ahead where there are no data."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import trade
from trade.targets import two_moons

BASELINES = {"gaussian-mixture": 5, "multiwell": 4}


@pytest.mark.slow
@pytest.mark.parametrize("experiment", BASELINES)
def test_trade_is_ahead_of_every_baseline_away_from_the_data(experiment, tmp_path):
    results = reproduced(experiment, tmp_path)
    rows = [r for r in results["rows"] if r["metric"] == "kl" and r["condition"] != 1.0]
    for c in {r["condition"] for r in rows}:
        kl = {r["method"]: r["mean"] for r in rows if r["condition"] == c}
        ours = [v for name, v in kl.items() if name.startswith("trade")]
        others = [v for name, v in kl.items() if not name.startswith("trade")]
        assert len(others) == BASELINES[experiment]
        assert min(ours) < min(others), (c, kl)


@pytest.mark.slow
def test_trade_fills_the_gap_between_two_couplings(tmp_path):
    rows = reproduced("scalar-field", tmp_path)["rows"]
    ess = {r["method"]: r["mean"] for r in rows if r["metric"] == "ess" and r["condition"] == 0.27}
    assert ess["trade-ours"] > ess["maximum-likelihood"] + 0.1


@pytest.mark.slow
def test_power_posteriors_are_calibrated_where_there_are_no_pairs(tmp_path):
    """Coverage of r at β = 2; and r contracts as the square of the likelihood has it, by 1/√2."""
    rows = reproduced("two-moons", tmp_path)["rows"]
    error = {r["method"]: r["mean"] for r in rows if r["metric"] == "coverage_error" and r["condition"] == 2.0}
    assert error["trade-energy-free-ours"] < 0.06
    assert error["trade-energy-free-ours"] < error["maximum-likelihood-ours"] - 0.05

    model = trade.load(tmp_path / "out" / "trade-energy-free-ours").model
    widths = {beta: np.mean([width_of_r(model, beta, i) for i in range(40)]) for beta in (0.5, 1.0, 2.0)}
    np.testing.assert_allclose(widths[2.0] / widths[1.0], np.sqrt(0.5), rtol=0.1)
    np.testing.assert_allclose(widths[0.5] / widths[1.0], np.sqrt(2.0), rtol=0.1)


def width_of_r(model, beta, i):
    """Distance of the quartiles of r, in one posterior of the model."""
    y = two_moons.pairs(jax.random.key(i), 1)[1][0]
    x = model.sample(jax.random.key(0), 2000, beta, y)
    return np.subtract(*np.quantile(np.asarray(jax.vmap(lambda p: two_moons.moon(y, p)[0])(x)), [0.75, 0.25]))


def reproduced(experiment, folder):
    """The results of the quick budget."""
    command = [sys.executable, "-m", "trade", "reproduce", experiment, "--out", str(folder / "out")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "out" / "results.json").read_text())
    print(experiment, results["wall_seconds"], "s")
    return results
