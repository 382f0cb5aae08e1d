"""The experiment on alanine dipeptide: its parts on every run, all of it as a slow test."""

import numpy as np
import pytest

from trade.evaluation.free_energy import by_ladder
from trade.experiments.alanine_data import COLD, HOT, Frames
from trade.experiments.alanine_dipeptide import AlanineDipeptideExperiment, populations
from trade.experiments.reproduce import reproduce
from trade.report.molecules import ramachandran
from trade.report.tables import write_reproduction
from trade.targets.molecule.alanine_dipeptide import HA, PHI, AlanineDipeptide
from trade.targets.molecule.boltzmann import GAS_CONSTANT

MOLECULE = AlanineDipeptide()


def test_log_z_of_a_ladder_is_that_of_a_classical_oscillator():
    """U of 24 degrees of freedom is Gamma(12, kT), and Z grows like T^12."""
    random, ladder = np.random.default_rng(0), np.geomspace(COLD, HOT, 7)
    energies = random.gamma(12.0, size=(7, 4, 5000)) * GAS_CONSTANT * ladder[:, None, None]
    np.testing.assert_allclose(by_ladder(1.0 / (GAS_CONSTANT * ladder), energies), 12.0 * np.log(COLD / HOT), atol=0.03)


def test_data_are_split_by_ensemble():
    states = np.broadcast_to(np.arange(100.0)[:, None, None], (100, 3, 48))
    frames = Frames({COLD: states, HOT: states}, np.array([COLD, HOT]), np.zeros((2, 100, 3)), {})
    parts = [set(x[:, 0]) for x in (frames.training(), frames.validation(), frames.evaluation(HOT).reshape(-1, 48))]
    assert [len(part) for part in parts] == [70, 2, 28]
    assert len(set.union(*parts)) == 100
    assert frames.training().shape == (210, 48)


def test_populations_know_basins_and_chirality():
    x = np.zeros((4, 48))
    x[:, MOLECULE.torsions[PHI]] = np.deg2rad([60.0, 60.0 - 360.0, 170.0, -60.0])
    x[:, MOLECULE.torsions[HA]] = np.deg2rad([120.0, 120.0, -120.0, 480.0])
    assert populations(MOLECULE, x) == {"phi_positive": 0.5, "d_chirality": 0.25}


def test_the_figure_shows_every_method_and_the_simulation():
    random, curves = np.random.default_rng(0), []
    for name in ("trade-spline-ours", "md"):
        counts, heights = random.integers(0, 9, 2500).tolist(), random.integers(0, 9, 10).tolist()
        curves.append({"method": name, "metric": "ramachandran", "condition": 300.0, "values": counts})
        edges = list(range(11))
        curves.append({"method": name, "metric": "energies", "condition": 300.0, "values": heights, "edges": edges})
    figure = ramachandran(curves, 300.0)
    titles = [axis.get_title() for part in figure.subfigs for axis in part.axes]
    assert {"trade-spline-ours", "simulation"} <= set(titles)


@pytest.mark.slow
def test_quick_budget_beats_a_flow_that_knows_600_kelvin_only(tmp_path):
    experiment = AlanineDipeptideExperiment()
    results = reproduce(experiment, tmp_path, seeds=1, budget="quick", progress=False)
    found = {(r["method"], r["metric"], r["condition"]): r["mean"] for r in results["rows"]}
    assert found["trade-spline-ours", "nll", COLD] < found["maximum-likelihood-spline", "nll", COLD] - 1.0
    assert abs(found["md", "energy", HOT] + 16.3) < 4 * max(found["md", "energy_error", HOT], 0.3)
    assert abs(found["md", "energy", COLD] + 74.3) < 4 * max(found["md", "energy_error", COLD], 0.3)
    assert abs(found["md", "log_z_difference", COLD] - 10.40) < 0.3
    table = write_reproduction(experiment.target, experiment.figures, results, tmp_path)
    assert "NLL above that of the exact model" in table
    assert (tmp_path / "figures" / "ramachandran_300.png").stat().st_size > 10_000
