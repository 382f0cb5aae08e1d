"""Files: whole or absent, nobody else's harmed, one process at a time, and one sentence for what the system refuses."""

import json
import os
import subprocess
import sys

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import LinearGaussian, data_at, family

from trade import Adam, Run, Schedule, TradeError, files, fit, load
from trade.files import check_directory, check_output, locked, moved_aside, read_sealed, write_bytes, write_sealed
from trade.objectives import ForwardKL


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def small_run(**options):
    options = {"objective": ForwardKL(16), "steps": 4, "optimiser": Adam(0.01), "progress": False, **options}
    return fit(family(), {1.0: data_at(1.0, n=64)}, flow=LinearGaussian(), schedule=Schedule(2, 2, 2), **options)


@pytest.fixture(scope="module")
def run():
    return small_run()


# --- Nothing is overwritten


def test_fit_refuses_a_directory_with_other_files(tmp_path):
    """Also where they have names that a run uses, and hidden ones that end in .tmp."""
    for name in ("notes.txt", ".notes.tmp"):
        place = tmp_path / name[1:6]
        place.mkdir()
        (place / name).write_text("mine")
        with pytest.raises(TradeError, match="which no run of ours wrote"):
            small_run(out=place)
        assert names(place) == [name]
        assert (place / name).read_text() == "mine"
    place = tmp_path / "settings"
    place.mkdir()
    (place / "metrics.jsonl").write_text("mine")
    with pytest.raises(TradeError, match="not empty but holds no run"):
        small_run(out=place)
    assert (place / "metrics.jsonl").read_text() == "mine"


def test_fit_begins_again_where_a_run_was_killed_before_its_first_checkpoint(tmp_path):
    small_run(out=tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        if path.name not in ("run.json", "metrics.jsonl"):
            path.unlink()
    (tmp_path / "run" / ".trade-run.json.77.tmp").write_text("{")
    (tmp_path / "run" / "run.lock").write_text('{"pid": 77, "host": "gone"}')  # of a process that was killed
    assert small_run(out=tmp_path / "run").metrics[-1]["step"] == 4
    assert not any(n.startswith(".") or n == "run.lock" for n in names(tmp_path / "run"))


def test_save_refuses_what_exists_and_replaces_only_a_run(run, tmp_path):
    place = tmp_path / "run"
    run.save(place)
    with pytest.raises(TradeError, match="already holds a run"):
        run.save(place)
    (place / "checkpoint-000000001.eqx").write_text("of an earlier run")
    run.save(place, overwrite=True)
    assert "checkpoint-000000001.eqx" not in names(place)
    assert names(tmp_path) == ["run"]
    (place / "thesis.tex").write_text("mine")
    with pytest.raises(TradeError, match=r"holds 'thesis\.tex', which no run of ours wrote"):
        run.save(place, overwrite=True)
    assert (place / "thesis.tex").read_text() == "mine"
    load(place, flow=LinearGaussian())


def test_save_that_fails_leaves_the_old_run(run, tmp_path, monkeypatch):
    place = tmp_path / "run"
    run.save(place)
    before = {p.name: p.read_bytes() for p in place.iterdir()}

    def full(path, tree):
        raise TradeError("full")

    monkeypatch.setattr(files, "save_tree", full)
    with pytest.raises(TradeError, match="full"):
        run.save(place, overwrite=True)
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before
    assert names(tmp_path) == ["run"]


@pytest.mark.parametrize("name", ["run.json", "model.json", "best-0.eqx", "metrics.jsonl", "verdict.json"])
def test_samples_are_never_written_over_a_runs_own_files(run, tmp_path, name):
    run.save(tmp_path / "run")
    with pytest.raises(TradeError, match="belongs to the run"):
        check_output(tmp_path / "run" / name, overwrite=True)
    check_output(tmp_path / "run" / "samples.npz", overwrite=False)


def test_an_output_that_exists_is_refused(tmp_path):
    path = tmp_path / "samples.npz"
    path.write_text("mine")
    with pytest.raises(TradeError, match="exists already"):
        check_output(path, overwrite=False)
    assert check_output(path, overwrite=True) == path
    with pytest.raises(TradeError, match="is a directory"):
        check_output(tmp_path, overwrite=True)
    with pytest.raises(TradeError, match=r"[Nn]ot a directory"):
        check_output(path / "deeper.npz", overwrite=True)


def test_nothing_is_written_through_a_symbolic_link(run, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    (tmp_path / "folder").symlink_to(tmp_path / "there")
    for action in (
        lambda: write_bytes(tmp_path / "link", b"new"),
        lambda: check_output(tmp_path / "link", overwrite=True),
        lambda: run.save(tmp_path / "folder", overwrite=True),
        lambda: small_run(out=tmp_path / "folder"),
    ):
        with pytest.raises(TradeError, match="is a symbolic link"):
            action()
    assert (tmp_path / "there" / "file").read_text() == "mine"
    assert names(tmp_path / "there") == ["file"]


@pytest.mark.parametrize("content", ["mine", "{}", '{"format": 2, "sha256": "0"}'])
def test_settings_of_somebody_else_are_not_overwritten(run, tmp_path, content):
    """By their name alone they would be ours; and no run can be told what to replace by a file with that name."""
    place = tmp_path / "mine"
    place.mkdir()
    (place / "run.json").write_text(content)
    (place / "metrics.jsonl").write_text("mine")
    for action in (lambda: small_run(out=place), lambda: run.save(place), lambda: run.save(place, overwrite=True)):
        with pytest.raises(TradeError, match=r"'run\.json', which no run of ours wrote"):
            action()
    assert names(place) == ["metrics.jsonl", "run.json"]
    assert [(place / name).read_text() for name in names(place)] == ["mine", content]


def test_what_was_moved_aside_comes_back_or_goes_last(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    (place / "run.json").write_text("old")
    with pytest.raises(KeyboardInterrupt), moved_aside(place):
        place.mkdir()
        (place / "half").write_text("new")
        raise KeyboardInterrupt
    assert names(place) == ["run.json"]
    with moved_aside(place):
        assert not place.exists()
        place.mkdir()
        (place / "model.json").write_text("new")
    assert names(place) == ["model.json"]
    assert names(tmp_path) == ["run"]


# --- One process at a time

HOLD = """
import sys
from pathlib import Path
from trade.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_gets_one_sentence_and_a_killed_one_leaves_no_obstacle(run, tmp_path):
    place = tmp_path / "run"
    run.save(place)
    arguments = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        sentence = f"is in use by process {process.pid} on "
        with pytest.raises(TradeError, match=sentence), locked(place):
            pass
        with pytest.raises(TradeError, match=sentence):
            run.save(place, overwrite=True)
        process.kill()
    assert json.loads((place / "run.lock").read_text())["pid"] == process.pid  # stale
    with locked(place):
        assert json.loads((place / "run.lock").read_text())["pid"] == os.getpid()
    assert not (place / "run.lock").exists()


def test_a_directory_is_held_within_one_process_too(tmp_path):
    with locked(tmp_path), pytest.raises(TradeError, match="is in use by process"), locked(tmp_path):
        pass
    (tmp_path / "run.lock").write_text("not json")
    with locked(tmp_path):
        pass


# --- What the operating system refuses


def test_a_file_where_a_directory_should_be(run, tmp_path):
    (tmp_path / "file").write_text("mine")
    for action in (
        lambda: small_run(out=tmp_path / "file"),
        lambda: small_run(out=tmp_path / "file" / "deeper"),
        lambda: run.save(tmp_path / "file"),
        lambda: run.save(tmp_path / "file" / "deeper"),
        lambda: load(tmp_path / "file"),
        lambda: load(tmp_path / "file" / "deeper"),
    ):
        with pytest.raises(TradeError, match=r"file"):
            action()
    assert names(tmp_path) == ["file"]


def test_a_loop_of_symbolic_links(run, tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    for action in (
        lambda: small_run(out=tmp_path / "one"),
        lambda: run.save(tmp_path / "one" / "run"),
        lambda: load(tmp_path / "one"),
    ):
        with pytest.raises(TradeError, match="one"):
            action()


def test_a_name_that_is_too_long(run, tmp_path):
    with pytest.raises(TradeError, match="too long"):
        run.save(tmp_path / ("x" * 300))


@pytest.fixture
def mounted(tmp_path):
    """A file system of 400 kB; skipped where none may be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("mounting needs more rights than this user has")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_ends_in_one_sentence_with_the_last_checkpoint_whole(run, mounted):
    place = mounted / "run"
    run.save(place)
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    (mounted / "others").write_bytes(b"x" * 330_000)
    with pytest.raises(TradeError, match="could not be written: No space left on device"):
        write_bytes(place / "run.json", b"y" * 200_000)
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before
    with pytest.raises(TradeError, match="No space left on device"):
        small_run(out=mounted / "new", notes={"long": "z" * 200_000})


def test_a_read_only_folder_is_refused_before_any_training(run, mounted):
    run.save(mounted / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    for action in (lambda: small_run(out=mounted / "new"), lambda: run.save(mounted / "other")):
        with pytest.raises(TradeError, match="Read-only file system"):
            action()
    assert load(mounted / "run", flow=LinearGaussian()).metrics == run.metrics


# --- Sealed files, and files of any content


@settings(max_examples=60, deadline=None)
@given(content=st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_what_is_sealed_comes_back(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("seal") / "a.json"
    content.pop(files.SEAL, None)
    write_sealed(path, content)
    assert read_sealed(path) == content


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "run"
    run.save(place)
    return place


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_run_directory_with_any_one_file_changed_loads_as_it_was_or_is_refused(data, saved, tmp_path_factory):
    """Bytes flipped, cut off, put in, or JSON of another kind: one sentence, and never another model."""
    name = data.draw(st.sampled_from([n for n in names(saved) if n != "verdict.json"]))
    old = (saved / name).read_bytes()
    new = data.draw(
        st.one_of(
            st.binary(max_size=60),
            st.integers(0, len(old)).map(lambda n: old[:n]),
            st.integers(0, len(old) - 1).map(lambda i: old[:i] + bytes([old[i] ^ 1]) + old[i + 1 :]),
            st.sampled_from([b"null", b"[]", b"{}", b"7", b'"run"', b"[" * 5000, b'{"format": 2}', b"\xff\xfe"]),
        )
    )
    (saved / name).write_bytes(new)
    try:
        found = load(saved, flow=LinearGaussian())
    except TradeError as error:
        assert "\n" not in str(error)
        assert name in str(error) or "not finished" in str(error) or "other settings" in str(error)
    else:
        assert isinstance(found, Run)
        pairs = zip(jax.tree.leaves(found.model.flow), jax.tree.leaves(load_original(saved, name, old)), strict=True)
        assert all((a == b).all() for a, b in pairs)
    finally:
        (saved / name).write_bytes(old)


def load_original(saved, name, old):
    (saved / name).write_bytes(old)
    return load(saved, flow=LinearGaussian()).model.flow


def test_check_directory_says_what_stands_there(tmp_path):
    check_directory(tmp_path / "new", overwrite=False)
    check_directory(tmp_path, overwrite=False)
    for i in range(3):
        (tmp_path / f"file{i}").write_text("")
    with pytest.raises(TradeError, match="holds 'file0' and 2 more"):
        check_directory(tmp_path, overwrite=True)
