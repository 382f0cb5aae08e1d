"""Files that are whole or absent."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import LinearGaussian

from trade import TradeError, files
from trade.files import load_tree, read_json, save_tree, write_bytes, write_json, write_sealed
from trade.training.checkpoint import Checkpoints

TREE = {
    "flow": LinearGaussian(0.1, -0.0, 1e-30, np.pi),
    "odd": jnp.array([np.inf, -np.inf, np.nan, 1e-45], dtype=jnp.float32),
    "count": jnp.array(2**31 - 1, dtype=jnp.int32),
    "key": jax.random.key_data(jax.random.key(3)),
    "flag": jnp.array([True, False]),
    "empty": jnp.zeros((0, 3)),
}
LIKE = jax.tree.map(jnp.zeros_like, TREE)


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def check_same(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_round_trip_is_exact(tmp_path):
    """Every bit comes back: subnormals, NaN, signed zeros, integers, keys, flags."""
    store = Checkpoints(tmp_path)
    store.save(7, TREE)
    step, loaded = store.load(LIKE)
    assert step == 7
    check_same(loaded, TREE)


def test_only_the_newest_checkpoint_stays_and_no_temporary_file(tmp_path):
    store = Checkpoints(tmp_path)
    for step in (10, 20, 1_000_000_000):
        store.save(step, {"a": jnp.full(3, float(step))})
    assert names(tmp_path) == ["checkpoint-1000000000.eqx", "checkpoint.json"]
    step, loaded = store.load({"a": jnp.zeros(3)})
    assert step == 1_000_000_000
    np.testing.assert_array_equal(loaded["a"], np.full(3, 1e9))


def test_what_a_killed_run_left_behind_is_cleared(tmp_path):
    """A kill between two writes leaves an unnamed checkpoint or a temporary file: neither counts, neither stays."""
    store = Checkpoints(tmp_path)
    store.save(10, TREE)
    (tmp_path / "checkpoint-000000020.eqx").write_bytes(b"half")
    (tmp_path / ".trade-checkpoint-000000030.eqx.4242.tmp").write_bytes(b"half")
    (tmp_path / ".trade-checkpoint.json.4242.tmp").write_bytes(b"{")
    others = [".notes.tmp", ".vim.swp.tmp", "checkpoint-mine.eqx"]
    for name in others:  # of somebody else
        (tmp_path / name).write_bytes(b"mine")
    assert store.load(LIKE)[0] == 10
    store.save(40, TREE)
    assert names(tmp_path) == sorted([*others, "checkpoint-000000040.eqx", "checkpoint.json"])


def test_a_failed_write_keeps_the_old_content_and_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(TradeError, match=r"a\.json could not be written: No space left on device"):
        write_json(path, {"new": 2})
    assert read_json(path) == {"old": 1}
    assert names(tmp_path) == ["a.json"]


def test_a_crash_before_the_manifest_leaves_the_old_checkpoint_valid(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    store.save(10, TREE)

    def killed(path, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_sealed", killed)
    with pytest.raises(KeyboardInterrupt):
        store.save(20, jax.tree.map(jnp.zeros_like, TREE))
    step, loaded = store.load(LIKE)
    assert step == 10
    check_same(loaded, TREE)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "longer", "empty"])
def test_damaged_checkpoint_is_refused(tmp_path, damage):
    store = Checkpoints(tmp_path)
    store.save(10, TREE)
    path = tmp_path / "checkpoint-000000010.eqx"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes({"truncated": content[:-8], "flipped": content, "longer": content + b"\0", "empty": b""}[damage])
    with pytest.raises(TradeError, match=r"checkpoint-000000010\.eqx is damaged: its checksum"):
        store.load(LIKE)


def test_missing_files_are_refused(tmp_path):
    store = Checkpoints(tmp_path)
    with pytest.raises(TradeError, match=r"checkpoint\.json does not exist"):
        store.load(LIKE)
    store.save(10, TREE)
    (tmp_path / "checkpoint-000000010.eqx").unlink()
    with pytest.raises(TradeError, match="does not exist"):
        store.load(LIKE)


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", "null", '{"step": 3}', '{"step": "x", "file": "a", "sha256": "b"}', b"\xff\xfe"]
)
def test_damaged_manifest_is_refused(tmp_path, manifest):
    write_bytes(tmp_path / "checkpoint.json", manifest if isinstance(manifest, bytes) else manifest.encode())
    with pytest.raises(TradeError, match=r"checkpoint\.json (is damaged|was not written by this version)"):
        Checkpoints(tmp_path).load(LIKE)


@pytest.mark.parametrize("change", [{"step": 11}, {"file": "other.eqx"}, {"run": "x"}, {"arrays": "0"}])
def test_an_edited_manifest_is_refused(tmp_path, change):
    """A step that was changed would resume another run than the one that was interrupted."""
    store = Checkpoints(tmp_path)
    store.save(10, TREE)
    write_json(tmp_path / "checkpoint.json", read_json(tmp_path / "checkpoint.json") | change)
    with pytest.raises(TradeError, match=r"checkpoint\.json is damaged: its checksum"):
        store.load(LIKE)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    Checkpoints(tmp_path, "one").save(10, TREE)
    with pytest.raises(TradeError, match="other settings"):
        Checkpoints(tmp_path, "two").load(LIKE)


def test_a_manifest_cannot_point_outside_its_directory(tmp_path):
    secret = tmp_path / "secret.eqx"
    checksum = save_tree(secret, TREE)
    inside = tmp_path / "run"
    manifest = {"step": 1, "file": "../secret.eqx", "arrays": checksum, "run": ""}
    write_sealed(inside / "checkpoint.json", manifest)
    with pytest.raises(TradeError, match="does not exist"):
        Checkpoints(inside).load(LIKE)


@pytest.mark.parametrize(
    "like", [{"a": jnp.zeros(4)}, {"a": jnp.zeros(3, int)}, {"a": jnp.zeros(3), "b": jnp.zeros(2)}]
)
def test_a_file_of_another_structure_is_refused(tmp_path, like):
    path = tmp_path / "a.eqx"
    checksum = save_tree(path, {"a": jnp.ones(3)})
    with pytest.raises(TradeError, match="does not fit"):
        load_tree(path, like, checksum)


def test_json_is_readable_and_ends_in_a_newline(tmp_path):
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": [1, None, "x"]})
    assert path.read_text().endswith("}\n")
    assert json.loads(path.read_text()) == {"a": [1, None, "x"]}
