"""Run directories: what was saved comes back exactly, and what was tampered with is refused."""

import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import StandardNormal
from flowjax.flows import coupling_flow
from small_problems import data_at, family, noisy, problem_of, small_flow

import trade
from trade import Adam, Model, Run, Schedule, Trade, TradeError, files, saved
from trade.objectives import ForwardKL, Gradient
from trade.targets import GaussianMixture, MultiWell
from trade.training.state import Program

WELL = MultiWell(d=1)
MIXTURE = GaussianMixture([[-1.0], [2.0]], [[[0.5]], [[0.3]]], weights=[0.25, 0.75])
X = np.linspace(-2.0, 2.0, 64)[:, None]


def make_run(target=WELL, seeds=None):
    """A run as ``fit`` would return it, with flows that are all different."""
    flow = small_flow(target.shape, target.condition)
    settings = saved.describe(flow, problem_of(target), Program(Trade(), Adam(), 5), 0, seeds, {"why": "test"})
    models = [Model(noisy(flow, 0.2, seed=i), target.condition) for i in range(2 * (seeds or 1))]
    half = seeds or 1
    return Run(target, tuple(models[:half]), tuple(models[half:]), [{"step": 5, "loss": [1.0]}], settings)


@pytest.fixture(scope="module")
def run():
    return make_run()


@pytest.fixture
def directory(run, tmp_path):
    run.save(tmp_path / "run")
    return tmp_path / "run"


def change(directory, name, edit):
    """Edit a JSON file of a run directory, with all checksums made right again, as a forger would."""
    content = files.read_sealed(directory / name)
    edit(content)
    (directory / name).unlink()
    files.write_sealed(directory / name, content)
    if name == files.SETTINGS:
        change(directory, files.MANIFEST, lambda manifest: manifest.update(run=files.seal(content)))


# --- Round trips


def test_round_trip_gives_the_same_density(run, directory):
    loaded = trade.load(directory)
    for c in (0.5, 0.8, 1.0):
        np.testing.assert_array_equal(loaded.final[0].log_prob(X, c), run.final[0].log_prob(X, c))
        np.testing.assert_array_equal(loaded.best[0].log_prob(X, c), run.best[0].log_prob(X, c))
    assert not np.array_equal(loaded.final[0].log_prob(X, 0.8), loaded.best[0].log_prob(X, 0.8))
    assert (loaded.metrics, loaded.settings) == (run.metrics, json.loads(json.dumps(run.settings)))
    assert loaded.settings["notes"] == {"why": "test"}
    assert loaded.model.condition == WELL.condition


def test_saving_leaves_only_data(directory):
    """JSON and arrays: no temporary files, no pickles."""
    assert sorted(p.name for p in directory.iterdir()) == [
        "best-0.eqx",
        "final-0.eqx",
        "metrics.jsonl",
        "model.json",
        "run.json",
    ]
    for path in directory.glob("*.eqx"):
        assert path.read_bytes().startswith(b"\x93NUMPY")


def test_saving_again_gives_the_same_files(run, directory, tmp_path):
    trade.load(directory).save(tmp_path / "again")
    for path in directory.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_every_seed_comes_back_in_its_place(tmp_path):
    run = make_run(seeds=2)
    run.save(tmp_path)
    loaded = trade.load(tmp_path)
    for kind in ("final", "best"):
        for one, two in zip(getattr(loaded, kind), getattr(run, kind), strict=True):
            pairs = zip(jax.tree.leaves(one.flow), jax.tree.leaves(two.flow), strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("target", [WELL, MIXTURE], ids=["MultiWell", "GaussianMixture"])
def test_a_shipped_target_is_at_hand_after_loading(target, tmp_path):
    make_run(target).save(tmp_path)
    loaded = trade.load(tmp_path)
    assert type(loaded.target) is type(target)
    assert loaded.target.config() == target.config()
    weighted = loaded.weighted(jax.random.key(0), 64, 0.8)
    assert 0.0 < weighted.ess <= 1.0
    log_q = jax.vmap(lambda v: target.log_density(v, jnp.asarray(0.8)))(weighted.x)
    np.testing.assert_allclose(weighted.log_weight, log_q - weighted.log_prob, rtol=1e-4, atol=1e-4)


def test_another_target_must_be_given(tmp_path):
    target = family()
    make_run(target).save(tmp_path)
    assert trade.load(tmp_path).target is None
    with pytest.raises(TradeError, match="target="):
        trade.load(tmp_path).weighted(jax.random.key(0), 64, 0.5)
    assert trade.load(tmp_path, target=target).weighted(jax.random.key(0), 64, 0.5).ess > 0.0


# --- A flow of one's own


def own_flow(key):
    return coupling_flow(key, base_dist=StandardNormal((2,)), cond_dim=1, flow_layers=1, nn_width=8, nn_depth=1)


def test_a_flowjax_flow_trains_and_is_saved(tmp_path):
    """Any flowjax distribution will do; to load it, one of the same structure is given."""
    target = family(d=2)
    objective = Trade(Gradient(conditions_per_step=4, points_per_condition=8), ForwardKL(32), start=0)
    run = trade.fit(
        target,
        {1.0: data_at(1.0, d=2)},
        flow=own_flow(jax.random.key(3)),
        objective=objective,
        steps=30,
        optimiser=Adam(1e-2),
        schedule=Schedule(report=10, evaluate=30, checkpoint=30),
        evaluation_samples=32,
        out=tmp_path,
        progress=False,
    )
    losses = [row["forward_kl"][0] for row in run.metrics if "forward_kl" in row]
    assert all(np.isfinite(losses))
    assert run.metrics[-1]["step"] == 30
    x = data_at(0.5, n=16, d=2)
    before = Model(own_flow(jax.random.key(3)), target.condition)
    trained = run.model.log_prob(x, 0.5)
    assert not np.allclose(trained, before.log_prob(x, 0.5))
    with pytest.raises(TradeError, match="flow="):
        trade.load(tmp_path)
    loaded = trade.load(tmp_path, flow=own_flow(jax.random.key(99)))
    np.testing.assert_array_equal(loaded.model.log_prob(x, 0.5), trained)
    with pytest.raises(TradeError, match="does not fit"):
        trade.load(tmp_path, flow=small_flow((2,), target.condition))


# --- What is refused


def set_class(*path):
    def edit(content):
        for name in path:
            content = content[name]
        content["class"] = "subprocess.Popen"

    return edit


@pytest.mark.parametrize(
    "path", [("recipe",), ("recipe", "network"), ("recipe", "latent"), ("condition",), ("target",)], ids=".".join
)
def test_a_class_that_is_not_ours_is_refused(directory, path):
    change(directory, "run.json", set_class(*path))
    with pytest.raises(TradeError, match=r"names 'subprocess\.Popen', which is not registered"):
        trade.load(directory)


def test_a_recipe_with_foreign_arguments_is_refused(directory):
    change(directory, "run.json", lambda content: content["recipe"].update(callback="print"))
    with pytest.raises(TradeError, match="does not fit SplineFlow"):
        trade.load(directory)


def test_a_recipe_of_another_size_is_refused(directory):
    change(directory, "run.json", lambda content: content["recipe"].update(bins=5))
    with pytest.raises(TradeError, match="does not fit the model"):
        trade.load(directory)


@pytest.mark.parametrize("name", ["final-0.eqx", "best-0.eqx"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_model_is_refused(directory, name, damage):
    path = directory / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flipped" else content[:-1])
    with pytest.raises(TradeError, match=f"{name} (is damaged: its checksum|does not exist)"):
        trade.load(directory)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_place_of_arrays_is_not_run(directory, tmp_path):
    """Even with a matching checksum."""
    fuse = tmp_path / "exploded"
    for content in (pickle.dumps(Bomb(fuse)), npy_with_objects(Bomb(fuse), tmp_path)):
        (directory / "final-0.eqx").write_bytes(content)
        checksum = hashlib.sha256(content).hexdigest()
        change(directory, "model.json", lambda manifest, c=checksum: manifest["files"].update({"final-0.eqx": c}))
        with pytest.raises(TradeError, match="does not fit"):
            trade.load(directory)
        assert not fuse.exists()
    pickle.loads(pickle.dumps(Bomb(fuse)))
    assert fuse.exists()  # it would have gone off


def npy_with_objects(value, tmp_path):
    path = tmp_path / "objects.npy"
    np.save(path, np.array([value], dtype=object), allow_pickle=True)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", None, r"run\.json does not exist"),
        ("run.json", "{", r"run\.json is damaged"),
        ("run.json", "[1, 2]", "has no checksum of itself"),
        ("run.json", "null", "has no checksum of itself"),
        ("run.json", '{"format": 1}', "has no checksum of itself"),
        ("run.json", '{"format": 2, "sha256": "0"}', r"run\.json is damaged: its checksum"),
        ("run.json", '{"format": 2, "sha256": 7}', "has no checksum of itself"),
        ("model.json", None, "is not finished"),
        ("model.json", '{"files": {}, "sha256": "abc"}', r"model\.json is damaged: its checksum"),
        ("metrics.jsonl", None, r"metrics\.jsonl does not exist"),
        ("metrics.jsonl", "", r"metrics\.jsonl is damaged"),
    ],
)
def test_missing_or_damaged_settings_are_refused(directory, name, content, message):
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_text(content)
    with pytest.raises(TradeError, match=message) as error:
        trade.load(directory)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("run.json", lambda content: content["condition"].update(low=0.1)),
        ("run.json", lambda content: content["recipe"].update(interval=5.0)),
        ("model.json", lambda content: content["files"].update({"final-0.eqx": "0"})),
    ],
)
def test_an_edited_file_is_recognised(directory, name, edit):
    """A range or an interval that was changed would load, and sample wrongly."""
    content = json.loads((directory / name).read_text())
    edit(content)
    (directory / name).write_text(json.dumps(content))
    with pytest.raises(TradeError, match=f"{name} is damaged: its checksum"):
        trade.load(directory)


def test_models_of_another_run_are_recognised(directory, tmp_path):
    """Even where all files are whole."""
    make_run(MIXTURE).save(tmp_path / "other")
    (directory / "run.json").write_bytes((tmp_path / "other" / "run.json").read_bytes())
    with pytest.raises(TradeError, match="other settings"):
        trade.load(directory)


def test_other_formats_are_refused(directory):
    change(directory, "run.json", lambda content: content.update(format=1))
    with pytest.raises(TradeError, match="not a TRADE run of format 2, got 1"):
        trade.load(directory)


def test_manifest_names_every_model(directory):
    change(directory, "model.json", lambda content: content["files"].pop("final-0.eqx"))
    with pytest.raises(TradeError, match=r"model\.json does not name final-0\.eqx"):
        trade.load(directory)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TradeError, match="nowhere is not a directory"):
        trade.load(tmp_path / "nowhere")
    with pytest.raises(TradeError, match=r"run\.json does not exist"):
        trade.load(tmp_path)


def test_settings_tell_runs_apart(tmp_path):
    """What is written at the start is what a resumed run is compared with."""
    settings = make_run().settings

    def begin(settings, *, resume):
        with saved.claimed(tmp_path, settings, resume=resume) as in_force:
            return in_force

    assert begin(settings, resume=False) == begin(settings, resume=True) == settings
    for name, value in {"steps": 6, "seed": 1, "optimiser": {"class": "Adam"}, "data": [[1, 2.0]]}.items():
        with pytest.raises(TradeError, match=f"cannot be resumed: its {name} was"):
            begin({**settings, name: value}, resume=True)
    assert begin({**settings, "notes": {}, "jax": "other"}, resume=True) == settings
    files.write_json(tmp_path / "checkpoint.json", {})
    with pytest.raises(TradeError, match="already holds a run"):
        begin(settings, resume=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.json", "run.json"]  # the lock is gone


def test_final_and_best_are_not_mixed_up(run, tmp_path):
    swapped = replace(run, final=run.best, best=run.final)
    swapped.save(tmp_path)
    pairs = zip(jax.tree.leaves(trade.load(tmp_path).model.flow), jax.tree.leaves(run.final[0].flow), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
