"""One command for all results: what has ended is copied and not done again, what failed is named and tried again."""

import importlib
import json
import sys
from dataclasses import replace

import pytest
import tyro
from pages import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import everything
from benchmarks.everything import PARTS, Options, Part
from trade.errors import TradeError
from trade.experiments import EXPERIMENTS

SCRIPT = """
import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
(out / "figures").mkdir(parents=True, exist_ok=True)
tries = out / "model.bin"
tries.write_text((tries.read_text() if tries.exists() else "") + "x")
if "--fails-first" in sys.argv and tries.read_text() == "x":
    sys.exit(1)
(out / "results.json").write_text(json.dumps({"tries": len(tries.read_text()), "rows": sys.argv[1:]}))
(out / "figures" / "kl.png").write_bytes(b"drawn")
"""


@pytest.fixture
def options(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    parts = {
        "sure": Part(("python", str(script)), ours=("--methods", "ours")),
        "unsure": Part(("python", str(script), "--fails-first"), alone=True),
    }
    monkeypatch.setattr(everything, "PARTS", parts)
    old = tmp_path / "results" / "sure"
    old.mkdir(parents=True)
    (old / "old.png").write_bytes(b"of another run")
    old.with_name("sure_default").mkdir()
    return Options(out=tmp_path / "runs", results=tmp_path / "results")


def found(options, name):
    return json.loads((options.results / name / "results.json").read_text())


def test_what_has_ended_is_not_done_again_and_what_failed_is(options):
    assert everything.reproduce(options) == ["unsure"]
    kept = sorted(p.relative_to(options.results).as_posix() for p in options.results.rglob("*"))
    # Neither models nor what was there before.
    assert kept == ["sure", "sure/figures", "sure/figures/kl.png", "sure/results.json"]
    assert everything.reproduce(options) == []
    assert (found(options, "sure")["tries"], found(options, "unsure")["tries"]) == (1, 2)
    whole = json.loads((options.results / "reproduction.json").read_text())
    assert set(whole["seconds"]) == {"sure", "unsure"} and whole["command"]


def test_the_default_alone_has_its_own_rows_and_folder(options):
    everything.reproduce(replace(options, ours=True))
    assert found(options, "sure")["rows"][:2] == ["--methods", "ours"]
    assert not (options.results / "unsure").exists()


def test_an_unknown_part_is_named(options):
    with pytest.raises(TradeError, match="no part 'sur'"):
        everything.reproduce(replace(options, parts=("sur",)))


def test_every_result_has_a_part_that_makes_it():
    there = {p.name for p in (ROOT / "results").iterdir()}
    made = set(PARTS) | {f"{name.replace('-', '_')}_default" for name in EXPERIMENTS}
    assert there <= made | {"reproduction.json", "reproduction_ours.json"}


@pytest.mark.parametrize("name", [n for n, p in PARTS.items() if "-m" in p.command and n != "devices.json"])
def test_commands_of_benchmarks_are_understood(name):
    """Devices are left out: the module asks for eight of them as soon as it is imported."""
    part = PARTS[name]
    module = importlib.import_module(part.command[2])
    for more in ((), part.ours or ()):
        given = tyro.cli(module.Options, args=[*part.command[3:], *more, "--out", "here"])
        assert str(given.out) == "here"
    if name.startswith("zoo"):
        assert set(given.methods) <= set(module.METHODS) and module.chosen(given.problems)


def test_every_experiment_has_a_part():
    assert {name.replace("-", "_") for name in EXPERIMENTS} <= set(PARTS)
