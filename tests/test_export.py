"""What others read, read by them: ArviZ, MDTraj, pymbar, TensorBoard, and files of NumPy and text."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from small_problems import LinearGaussian, data_at, family, random_gaussian
from test_cli_wrong import called

import trade
from trade import Condition, Model, Run, Schedule, Target, TradeError, fit
from trade.objectives import ForwardKL
from trade.targets.molecule import AlanineDipeptide, ForceField, Molecule, ZMatrix, read_trajectory, write_trajectory
from trade.targets.molecule.alanine_dipeptide import _TORSIONS
from trade.targets.molecule.boltzmann import GAS_CONSTANT
from trade.targets.molecule.force_field import Constraints, HarmonicTerms, Pairs, Torsions
from trade.training import TensorBoard

KEY = jax.random.key(1)
WIDE = LinearGaussian(0.1, 0.0, -0.5 * np.log(2.0) + 0.2, 0.5 * np.log(2.0))  # not the family: weights matter


def run_of(flow, target):
    """A run without any training."""
    model = Model(flow, target.condition, target.observation_shape)
    return Run(target, (model,), (model,))


RUN = run_of(WIDE, family())


class Seeing(LinearGaussian):
    """N(y, 1) for an observation y of two numbers."""

    def __init__(self):
        super().__init__(d=2)
        self.cond_shape = (3,)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, condition[1:]).sum()

    def _sample(self, key, condition=None):
        return condition[1:] + jax.random.normal(key, (2,))


def log_seen(x, c, y):
    return -((x - y) ** 2).sum() / (2.0 * c)


SEEING = run_of(Seeing(), Target(log_seen, (2,), Condition(0.5, 1.0, boundary=(1.0,)), observation_shape=(2,)))


# --- A molecule whose free energies are known: butane of four particles, without interactions of the first and the last

BOND, BEND, TURN = (0.154, 2.6e5), (np.deg2rad(114.0), 520.0), 6.58
FIELD = ForceField(
    HarmonicTerms(np.array([(0, 1), (1, 2), (2, 3)]), np.full(3, BOND[0]), np.full(3, BOND[1])),
    HarmonicTerms(np.array([(0, 1, 2), (1, 2, 3)]), np.full(2, BEND[0]), np.full(2, BEND[1])),
    Torsions(np.array([(0, 1, 2, 3)]), np.array([3]), np.zeros(1), np.array([TURN])),
    Pairs(*np.zeros((3, 4, 4))),
    None,
    Constraints(np.zeros((0, 2), int), np.zeros(0)),
    np.array([15.03, 14.03, 14.03, 15.03]),
)
BUTANE = Molecule(
    FIELD, ZMatrix.from_bonds([(0, 1), (1, 2), (2, 3)]), Condition(300.0, 600.0, scale="log", boundary=(600.0,))
)


class Loose(LinearGaussian):
    """Bonds and angles as harmonic as they are at 600 K, and the torsion anywhere."""

    def __init__(self):
        stiffness = np.array([BOND[1]] * 3 + [BEND[1]] * 2 + [1.0])
        rest = np.array([BOND[0]] * 3 + [BEND[0]] * 2 + [0.0])
        super().__init__(rest, 0.0, 0.5 * np.log(GAS_CONSTANT * 600.0 / stiffness), 0.0, d=6)

    def _log_prob(self, x, condition=None):
        return super()._log_prob(x[:5], condition) - jnp.log(2.0 * jnp.pi)

    def location(self, u):
        return super().location(u)[:5]

    def deviation(self, u):
        return super().deviation(u)[:5]

    def _sample(self, key, condition=None):
        k1, k2 = jax.random.split(key)
        stiff = self.location(condition[0]) + self.deviation(condition[0]) * jax.random.normal(k1, (5,))
        return jnp.append(stiff, jax.random.uniform(k2, (), minval=-jnp.pi, maxval=jnp.pi))


LOOSE = run_of(Loose(), BUTANE)


def log_z_of_butane(temperature):
    """By quadrature: the coordinates are independent."""
    beta = 1.0 / (GAS_CONSTANT * temperature)
    bond = quad(lambda b: b**2 * np.exp(-0.5 * beta * BOND[1] * (b - BOND[0]) ** 2), 0.1, 0.21)[0]
    bend = quad(lambda a: np.sin(a) * np.exp(-0.5 * beta * BEND[1] * (a - BEND[0]) ** 2), 0.5, 3.1)[0]
    turn = quad(lambda t: np.exp(-beta * TURN * (1.0 + np.cos(3.0 * t))), -np.pi, np.pi)[0]
    return 3.0 * np.log(bond) + 2.0 * np.log(bend) + np.log(turn)


# --- ArviZ


def test_arviz_has_weights_conditions_and_ess():
    found = RUN.to_arviz([0.25, 1.0], n=200, key=KEY)
    assert found.posterior["x"].dims == ("chain", "draw", "condition", "x_dim_0")
    np.testing.assert_array_equal(found.posterior["condition"], [0.25, 1.0])
    at = {"condition": 0.25}
    x, stats = found.posterior["x"].sel(at).values[0], found.sample_stats.sel(at)
    np.testing.assert_allclose(stats["log_prob"].values[0], RUN.model.log_prob(x, 0.25), rtol=1e-5)
    np.testing.assert_allclose(
        stats["log_weight"].values[0], -(x[:, 0] ** 2) / 0.5 - stats["log_prob"].values[0], rtol=1e-4, atol=1e-5
    )
    weight = np.exp(stats["log_weight"].values[0])
    np.testing.assert_allclose(found.posterior.attrs["ess"][0], weight.sum() ** 2 / 200 / (weight**2).sum(), rtol=1e-4)
    assert found.posterior.attrs["inference_library_version"] == trade.__version__


def test_arviz_summarises_resampled_samples_and_its_file_comes_back(tmp_path):
    """Of resampled ones the mean and the width are those of the target."""
    arviz = pytest.importorskip("arviz")
    found = RUN.to_arviz((0.25, 1.0), n=4000, resampled=True)
    assert set(found.sample_stats.data_vars) == {"log_prob"}
    table = arviz.summary(found, var_names=["x"], round_to=6).astype(float)
    np.testing.assert_allclose(table["mean"], 0.0, atol=0.05)
    np.testing.assert_allclose(table["sd"], [0.5, 1.0], rtol=0.05)
    found.to_netcdf(str(tmp_path / "samples.nc"))
    again = arviz.from_netcdf(str(tmp_path / "samples.nc"))
    np.testing.assert_array_equal(again.posterior["x"], found.posterior["x"])
    np.testing.assert_allclose(again.posterior.attrs["ess"], found.posterior.attrs["ess"])


def test_arviz_has_the_observation_and_needs_no_target():
    y = np.array([3.0, -2.0])
    found = SEEING.to_arviz(0.5, n=50, observation=y)
    np.testing.assert_array_equal(found.observed_data["observation"], y)
    np.testing.assert_allclose(found.posterior["x"].values.mean(axis=(0, 1, 2)), y, atol=0.6)
    alone = Run(None, RUN.final, RUN.best)
    assert "log_weight" not in alone.to_arviz(0.5, n=5).sample_stats
    with pytest.raises(TradeError, match="without its target"):
        alone.to_arviz(0.5, n=5, resampled=True)


WRONG = {
    "no condition": ({"conditions": []}, "several that differ"),
    "a word": ({"conditions": "cold"}, "must be a number"),
    "one twice": ({"conditions": [0.5, 0.5]}, "several that differ"),
    "one outside": ({"conditions": np.array([0.5, 2.0])}, "outside the range"),
    "no samples": ({"n": 0}, "n must be"),
    "half a sample": ({"n": 1.5}, "n must be"),
    "too many samples": ({"n": 10**10}, "too many"),
    "a number for a key": ({"key": 3}, "key must be"),
    "an observation": ({"observation": [1.0]}, "takes no observation"),
}


@pytest.mark.parametrize("method", ["to_arviz", "reduced_potentials"])
@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_gets_one_sentence(method, what):
    options, words = WRONG[what]
    with pytest.raises(TradeError, match=words):
        getattr(RUN, method)(**{"conditions": 0.5, "n": 5, **options})


# --- pymbar


def free_energies(found):
    """f - f of the first flow and its error, by MBAR; and the switch to 64 bits undone."""
    pymbar = pytest.importorskip("pymbar")
    with jax.enable_x64(True):
        result = pymbar.MBAR(found.u_kn, found.N_k).compute_free_energy_differences()
    return result["Delta_f"], result["dDelta_f"]


def test_mbar_has_the_free_energies_of_a_gaussian_family():
    """-log Z of each target against a flow, which is normalised; the flows against each other are zero."""
    c = (0.25, 0.4, 1.0)
    found = RUN.reduced_potentials(c, n=1000)
    assert found.u_kn.shape == (6, 3000)
    assert found.N_k.tolist() == [1000] * 3 + [0] * 3
    np.testing.assert_allclose(found.u_kn[5], found.x[:, 0] ** 2 / 2.0, rtol=1e-5)
    np.testing.assert_allclose(found.u_kn[1], -RUN.model.log_prob(found.x, 0.4), rtol=1e-4, atol=1e-5)
    f, error = free_energies(found)
    exact = np.concatenate([np.zeros(3), -0.5 * np.log(2.0 * np.pi * np.array(c))])
    assert np.all(np.abs(f - (exact - exact[:, None])) <= 3.0 * error + 1e-9)
    block = np.ix_(found.targets, found.targets)
    curve = RUN.log_partition(points=9, samples=4000)
    ours, our_error = np.array([curve.at(value) for value in c]).T
    assert np.all(np.abs(-f[block][-1] - ours) <= 3.0 * np.hypot(error[block][-1], our_error) + 0.01)  # interpolated
    assert jnp.zeros(()).dtype == jnp.float32


def test_log_weights_are_those_of_each_sample_at_its_own_condition():
    found = RUN.reduced_potentials([0.3, 0.9], n=4)
    own = -(found.x[:, 0] ** 2) / (2.0 * np.repeat([0.3, 0.9], 4))
    flows = [RUN.model.log_prob(found.x[i * 4 : i * 4 + 4], c) for i, c in enumerate((0.3, 0.9))]
    np.testing.assert_allclose(found.log_weight.ravel(), own - np.concatenate(flows), rtol=1e-4, atol=1e-5)


def test_mbar_has_the_free_energies_of_a_molecule():
    """From flows that know one temperature, all alike, to the others: with weights, and exactly."""
    temperatures = (300.0, 400.0, 600.0)
    found = LOOSE.reduced_potentials(temperatures, n=2000)
    f, error = free_energies(found)
    exact = np.array([-log_z_of_butane(t) for t in temperatures])
    differences = f[np.ix_(found.targets, found.targets)] - (exact - exact[:, None])
    assert np.all(np.abs(differences) <= 3.0 * error[np.ix_(found.targets, found.targets)] + 1e-9)
    assert error[3, 5] < 0.1
    np.testing.assert_allclose(f[0, found.targets], exact, atol=4.0 * error[0, found.targets].max())


# --- Trajectories


def states_of(molecule, n=20):
    """States near a rough structure of alanine dipeptide."""
    free, angles = len(molecule.free), len(molecule.z_matrix.rows) + 1
    rough = np.concatenate([np.full(free, 0.145), np.full(angles, 1.95), np.deg2rad(_TORSIONS)])
    scale = np.concatenate([np.full(free, 0.005), np.full(len(rough) - free, 0.05)])
    return rough + scale * np.random.default_rng(0).standard_normal((n, len(rough)))


def apart(molecule, one, two):
    """The largest difference of bonds, and of angles and torsions."""
    difference, first = np.abs(np.asarray(one) - np.asarray(two)), len(molecule.free)
    turned = np.abs((difference[:, first:] + np.pi) % (2.0 * np.pi) - np.pi)
    return difference[:, :first].max(), turned.max()


@pytest.mark.parametrize(("kind", "bonds", "angles"), [("dcd", 1e-6, 1e-5), ("pdb", 2e-4, 5e-3), ("xtc", 2e-3, 5e-2)])
def test_trajectory_comes_back(tmp_path, kind, bonds, angles):
    """To the digits that the format has; MDTraj sees the residues and the elements."""
    mdtraj = pytest.importorskip("mdtraj")
    molecule = AlanineDipeptide()
    states, path = states_of(molecule), tmp_path / f"frames.{kind}"
    write_trajectory(path, states, molecule)
    found = apart(molecule, read_trajectory(str(path), molecule), states)
    assert found[0] < bonds
    assert found[1] < angles
    if kind == "pdb":
        topology = mdtraj.load(str(path)).topology
        assert [str(r) for r in topology.residues] == ["ACE1", "ALA2", "NME3"]
        assert "".join(a.element.symbol for a in topology.atoms) == "HCHHCONHCHCHHHCONHCHHH"
        assert topology.n_bonds == 21


def test_what_is_no_trajectory_of_the_molecule_is_refused(tmp_path):
    molecule, path = AlanineDipeptide(), tmp_path / "frames.dcd"
    states = np.asarray(LOOSE.model.sample(KEY, 3, 300.0))
    write_trajectory(path, states, BUTANE)
    text = tmp_path / "text.dcd"
    text.write_text("no trajectory")
    turned = Molecule(FIELD, ZMatrix.from_bonds([(0, 2), (2, 1), (1, 3)]), BUTANE.condition)  # atoms in another order
    write_trajectory(tmp_path / "turned.dcd", states, turned)
    for call, words in (
        (lambda: read_trajectory(path, molecule), "cannot be read as a trajectory"),
        (lambda: read_trajectory(text, BUTANE), "cannot be read as a trajectory"),
        (lambda: read_trajectory(tmp_path / "none.dcd", BUTANE), "does not exist"),
        (lambda: read_trajectory(3, BUTANE), "path of a file"),
        (lambda: read_trajectory(path, family()), "target must be"),
        (lambda: read_trajectory(tmp_path / "turned.dcd", BUTANE), "in the target's order"),
        (lambda: write_trajectory(tmp_path / "new.trr", states, BUTANE), "ends in"),
        (lambda: write_trajectory(tmp_path / "new.dcd", states[:, :5], BUTANE), "states must have shape"),
        (lambda: write_trajectory(tmp_path / "new.dcd", np.full((1, 6), np.nan), BUTANE), "finite"),
        (lambda: write_trajectory(tmp_path / "new.dcd", states, BUTANE, text), "as a topology"),
        (lambda: write_trajectory(tmp_path / "new.dcd", states, BUTANE, 3), "topology must be"),
    ):
        with pytest.raises(TradeError, match=words):
            call()
    assert not list(tmp_path.glob("new*"))


# --- trade sample


@pytest.fixture
def sample(tmp_path, monkeypatch, capsys):
    """The command on a run that is at hand: the exit code, and what it said."""
    monkeypatch.chdir(tmp_path)

    def call(run, *arguments):
        monkeypatch.setattr("trade.problem_file.load_with", lambda directory, problem: (run, None))
        code = called("sample", "run", *arguments)
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return call


def test_sample_writes_numpy_files(sample, tmp_path):
    """As before at one condition; an axis for several."""
    assert sample(RUN, "--at", "0.5", "-n", "7", "--out", "one.npz", "--seed", "1")[0] == 0
    one = np.load(tmp_path / "one.npz")
    weighted = RUN.weighted(KEY, 7, 0.5)
    assert set(one) == {"x", "log_prob", "log_weight"}
    for name in one:
        np.testing.assert_array_equal(one[name], getattr(weighted, name))
    code, said = sample(RUN, "--at", "0.5,0.6", "--at", "1", "-n", "7", "--out", "many.npz")
    assert code == 0
    assert said.startswith("7 samples at c = 0.5, 0.6, 1 in many.npz; ESS ")
    many = np.load(tmp_path / "many.npz")
    assert many["condition"].tolist() == [0.5, 0.6, 1.0]
    assert many["x"].shape == (3, 7, 1)
    np.testing.assert_allclose(many["log_prob"][1], RUN.model.log_prob(many["x"][1], 0.6), rtol=1e-4, atol=1e-5)


def test_sample_writes_text_and_arviz_files(sample, tmp_path):
    arviz = pytest.importorskip("arviz")
    options = ("--at", "0.5,1", "-n", "5", "--seed", "3")
    for name in ("a.npz", "a.csv", "a.nc"):
        assert sample(RUN, *options, "--out", name)[0] == 0
    arrays = np.load(tmp_path / "a.npz")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "condition,x0,log_prob,log_weight"
    rows = np.array([line.split(",") for line in lines[1:]], np.float64)
    np.testing.assert_array_equal(rows[:, 0], np.repeat([0.5, 1.0], 5))
    for column, name in enumerate(("x", "log_prob", "log_weight"), 1):
        np.testing.assert_array_equal(rows[:, column].astype(np.float32), arrays[name].ravel())
    found = arviz.from_netcdf(str(tmp_path / "a.nc"))
    np.testing.assert_array_equal(found.posterior["x"].values[0].swapaxes(0, 1), arrays["x"])


def test_sample_takes_observations(sample, tmp_path):
    np.save(tmp_path / "y.npy", np.array([30.0, -20.0]))
    for y in ("30,-20", "y.npy"):
        assert sample(SEEING, "--at", "1", "-n", "9", "--observation", y, "--out", "y.npz", "--overwrite")[0] == 0
        np.testing.assert_allclose(np.load(tmp_path / "y.npz")["x"].mean(axis=0), [30.0, -20.0], atol=2.0)
    for options, words in (((), "needs an observation"), (("--observation", "1"), "must have shape (2,)")):
        code, said = sample(SEEING, "--at", "1", *options, "--out", "new.npz")
        assert code == 2
        assert words in said
    assert not (tmp_path / "new.npz").exists()


def test_sample_writes_a_trajectory_for_each_condition(sample, tmp_path):
    code, said = sample(LOOSE, "--at", "300,450.5", "-n", "6", "--resampled", "--out", "b.dcd")
    assert code == 0, said
    assert "drawn by their weights" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b-300.dcd", "b-450.5.dcd"]
    states = read_trajectory(tmp_path / "b-300.dcd", BUTANE)
    assert len(np.unique(states[:, 5])) < 6  # some twice
    (tmp_path / "b-300.dcd").unlink()
    before = (tmp_path / "b-450.5.dcd").read_bytes()
    code, said = sample(LOOSE, "--at", "300,450.5", "-n", "6", "--out", "b.dcd")
    assert code == 2
    assert "exists already" in said
    assert [p.name for p in tmp_path.iterdir()] == ["b-450.5.dcd"]
    assert (tmp_path / "b-450.5.dcd").read_bytes() == before
    assert sample(LOOSE, "--at", "300", "-n", "2", "--out", "c.pdb")[0] == 0
    assert sample(LOOSE, "--at", "300", "-n", "2", "--out", "c.xtc", "--topology", "c.pdb")[0] == 0
    code, said = sample(LOOSE, "--at", "300", "-n", "2", "--out", "d.pdb", "--topology", "none.pdb")
    assert code == 2
    assert "none.pdb cannot be read as a topology" in said
    assert not (tmp_path / "d.pdb").exists()


@pytest.mark.parametrize(("library", "name"), [("mdtraj", "new.dcd"), ("arviz", "new.nc")])
def test_a_missing_library_gets_one_sentence(sample, tmp_path, monkeypatch, library, name):
    monkeypatch.setitem(sys.modules, library, None)
    code, said = sample(LOOSE, "--at", "300", "-n", "2", "--out", name)
    assert code == 2
    assert f"This needs {library}" in said
    assert "pip install 'trade-flows[export]'" in said
    assert not list(tmp_path.iterdir())


# --- Callbacks


def trained(callback, out=None, **options):
    return fit(
        family(),
        {1.0: data_at(1.0)},
        flow=random_gaussian,
        objective=ForwardKL(16),
        steps=12,
        schedule=Schedule(report=2, evaluate=4, checkpoint=6),
        evaluation_samples=32,
        progress=False,
        callback=callback,
        out=out,
        **options,
    )


class Collect:
    """Keeps what it is told, and spoils it; fails where it is asked to."""

    def __init__(self, fail_at=None):
        self.rows, self.fail_at = [], fail_at

    def __call__(self, row):
        self.rows.append({k: list(v) if isinstance(v, list) else v for k, v in row.items()})
        if len(self.rows) == self.fail_at:
            raise OSError("disk full")
        row["skipped"] = row.pop("step")


def test_a_callback_is_told_of_every_row_once_also_over_a_failure(tmp_path):
    whole, first, second = Collect(), Collect(fail_at=8), Collect()
    run = trained(whole)
    assert whole.rows == run.metrics
    with pytest.raises(TradeError, match=r"^callback failed: .*disk full\.$"):
        trained(first, tmp_path / "run")
    assert [row["step"] for row in first.rows] == [2, 4, 4, 6, 8, 8, 10, 12]
    again = trained(second, tmp_path / "run", resume=True)  # from the checkpoint at step 6
    assert first.rows + second.rows == run.metrics == again.metrics
    np.testing.assert_array_equal(again.final[0].flow.mean, run.final[0].flow.mean)
    third = Collect()
    trained(third, tmp_path / "run", resume=True)
    assert third.rows == []


def test_a_callback_must_be_callable(tmp_path):
    with pytest.raises(TradeError, match="callback must be a function of one row"):
        trained("print", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_every_metric(tmp_path, monkeypatch):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = trained(TensorBoard(tmp_path / "logs"), seeds=2)
    found = events.EventAccumulator(str(tmp_path / "logs"))
    found.Reload()
    for seed in range(2):
        told = [(e.step, e.value) for e in found.Scalars(f"forward_kl/{seed}")]
        rows = [(row["step"], row["forward_kl"][seed]) for row in run.metrics if "forward_kl" in row]
        np.testing.assert_allclose(told, rows, rtol=1e-6)
    assert {"ess_least/0", "held_out_nll/1"} <= set(found.Tags()["scalars"])
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(TradeError, match="This needs tensorboard"):
        TensorBoard(tmp_path / "other")
    assert not (tmp_path / "other").exists()
