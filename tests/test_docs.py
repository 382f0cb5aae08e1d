"""The pages of the documentation that promise to run, run as they are printed."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import DOCS, run_page


def test_simulator_page_leads_from_pairs_to_power_posteriors():
    """Mean and width of both parameters follow the exact power posteriors, on a grid, at powers without pairs."""
    page = run_page("simulator.md")
    assert page["samples"].shape == (1000, 2)
    axis = np.linspace(-4.0, 4.0, 201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    decay = grid[:, :1] * np.exp(-np.exp(0.5 * grid[:, 1:]) * np.linspace(0.0, 2.0, 5))
    prior = np.asarray(jax.vmap(page["log_prior"])(jnp.asarray(grid)))
    for beta in (0.5, 2.0):
        means, widths = [], []
        for y in np.asarray(page["y"][:8]):
            log_q = prior - 0.5 * beta * (((y - decay) / 0.2) ** 2).sum(axis=1)
            weight = np.exp(log_q - log_q.max())
            mean = weight @ grid / weight.sum()
            width = np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())
            x = np.asarray(page["run"].model.sample(jax.random.key(1), 4000, beta, y))
            means.append((x.mean(axis=0) - mean) / width)
            widths.append(np.log(x.std(axis=0) / width))
        assert np.abs(means).mean() < 0.2
        assert np.abs(np.mean(widths, axis=0)).max() < 0.1


@pytest.mark.slow
def test_o_rings_agree_with_hmc_at_both_ends(tmp_path):
    """The worked example, through its command line: means and intervals at β = 0.25 and 2, without data there."""
    script = DOCS.parent / "examples" / "o_rings.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    values = {(r["method"], r["metric"], r["condition"]): r["mean"] for r in rows}
    assert min(v for (_, metric, _), v in values.items() if metric == "ess") > 0.85
    for beta in (0.25, 2.0):
        for metric in ("slope", "slope_low", "slope_high", "intercept"):
            width = values["hmc", "slope_high", beta] - values["hmc", "slope_low", beta]
            assert abs(values["trade", metric, beta] - values["hmc", metric, beta]) < 0.05 * width
    assert (tmp_path / "sensitivity.png").stat().st_size > 10_000
