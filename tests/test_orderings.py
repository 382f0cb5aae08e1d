"""Reproductions at the quick budget, through the command line: TRADE is ahead where there are no data."""

import json
import os
import subprocess
import sys

import pytest

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


def reproduced(experiment, folder):
    """The results of the quick budget."""
    command = [sys.executable, "-m", "trade", "reproduce", experiment, "--out", str(folder / "out")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "out" / "results.json").read_text())
    print(experiment, results["wall_seconds"], "s")
    return results
