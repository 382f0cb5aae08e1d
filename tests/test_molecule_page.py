"""The page for users of OpenMM, run as it is printed."""

import jax
import numpy as np
import pytest
from pages import DOCS, run_page

from trade.targets.molecule.boltzmann import GAS_CONSTANT

pytestmark = pytest.mark.optimised


def test_molecule_page_leads_from_a_trajectory_to_300_kelvin(tmp_path, monkeypatch):
    """Energies, populations and log Z at 300 K are those of the frames at 600 K, weighted: enough for five atoms."""
    pytest.importorskip("openmm")
    monkeypatch.chdir(tmp_path)
    page = run_page(DOCS / "molecule.md")
    values = np.asarray(jax.vmap(page["energy_and_trans"])(page["states"]), np.float64)
    log_weight = -values[:, 0] * (1 / 300.0 - 1 / 600.0) / GAS_CONSTANT
    weight = np.exp(log_weight - log_weight.max())
    energy, trans = weight @ values / weight.sum()
    log_z = np.log(weight.mean()) + log_weight.max()

    assert page["run"].verdict.level in ("good", "usable with weights"), page["run"].verdict
    cold = page["again"].weighted(jax.random.key(0), 10_000, 300.0)  # saved, and loaded with its force field
    assert cold.ess > 0.75
    found = np.asarray(cold.mean(page["energy_and_trans"]))
    assert abs(found[0] - energy) < 0.5
    assert abs(found[1] - trans) < 0.03
    assert abs(page["log_z"] - log_z) < 0.08
    assert (tmp_path / "pentane_300K.pdb").read_text().count("MODEL ") == 100
