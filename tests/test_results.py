"""What is in ``results/`` came out of runs, and what a run notes of itself can be typed again."""

import json
import re
import subprocess
import sys

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import results_check
import results_more

HEAD = ["git", "rev-parse", "HEAD"]
COMMIT = subprocess.run(HEAD, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
GOOD = {"command": "trade reproduce multiwell", "hardware": "a card", "jax": "0.10", "commit": COMMIT[:7] or "0123456"}
WRONG = {
    "command": ({"command": "go.sh 3"}, "cannot be typed"),
    "path": ({"command": "python /home/me/examples/o_rings.py"}, "cannot be typed"),
    "commit": ({"commit": "a commit"}, "no commit before this one"),
    "note": ({"note": "measured by eye"}, "a note by hand"),
    "hardware": ({"hardware": None}, "no hardware beside"),
}


def test_every_file_keeps_the_rules():
    assert results_check.check(ROOT) == []


def test_an_honest_file_passes():
    assert results_check.complaints({**GOOD, "rows": [GOOD]}, results_check.ancestors()) == []


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("deep", [False, True])
def test_what_no_run_made_is_named(name, deep):
    change, said = WRONG[name]
    bad = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    found = results_check.complaints({**GOOD, "rows": [bad]} if deep else bad, None)
    assert any(said in line for line in found), found


def test_a_file_without_a_command_is_named():
    assert results_check.complaints({"rows": []}, None) == ["no command"]


@pytest.mark.skipif(not COMMIT, reason="no history here")
def test_a_commit_of_elsewhere_is_named():
    elsewhere = {**GOOD, "commit": "0" * 40}
    assert results_check.complaints(elsewhere, {COMMIT}) == [f"{'0' * 40} is no commit before this one"]


def test_excuses_end_with_their_reason(tmp_path, monkeypatch):
    """A file that keeps the rules, or is gone, may not stay on the list."""
    monkeypatch.setattr(results_check, "TO_RUN_AGAIN", {"results/a/results.json", "results/b/results.json"})
    (tmp_path / "results" / "a").mkdir(parents=True)
    (tmp_path / "results" / "a" / "results.json").write_text(json.dumps(GOOD))
    assert len(results_check.check(tmp_path)) == 2
    (tmp_path / "results" / "a" / "results.json").write_text("{}")
    assert results_check.check(tmp_path) == ["results/b/results.json is not there: take it out of TO_RUN_AGAIN."]


def test_tables_of_the_pages(tmp_path):
    """An ablation by problem, lattices in the order of their lengths, and the time of the whole."""
    run = GOOD | {"wall_seconds": 9.0}
    zoo = [
        {"problem": p, "method": m, "ess_least": ess, "ess_boundary": 0.99, "run": run}
        for p, m, ess in (("ring", "default", 0.97), ("well", "default", 0.5), ("ring", "paper", None))
    ]
    zoo.append({"problem": "well", "method": "paper", "failed": "why", "run": run})
    zoo += [{"problem": "later", "method": "default", "failed": "why", "run": run | {"commit": "1234567890"}}]
    (tmp_path / "zoo_quick").mkdir()
    (tmp_path / "zoo_quick" / "results.json").write_text(json.dumps({"entries": zoo}))
    text = results_more.ablation(tmp_path / "zoo_quick")
    assert "|  | ring | well | later |" in text
    assert "| default | 97.0 % (99.0 %) | 50.0 % (99.0 %) | failed |" in text
    assert "| paper | 0.0 % (99.0 %) | failed |  |" in text
    assert "--parts zoo_quick`, ring, well: " in text
    assert "later: " in text and text.endswith("commit 1234567.\n")

    (tmp_path / "lattices").mkdir()
    checks = [{"sigmas": {"action": 1.0, "binder": -3.0}}]
    lattice = {"conditions": [0.29], "ess": [0.5], "checks": checks, "steps": 7, "seconds": 2.0, "verdict": "good; all"}
    for length in (16, 8):
        (tmp_path / "lattices" / f"phi-four-{length}.json").write_text(json.dumps(GOOD | lattice))
    rows = results_more.lattices(tmp_path / "lattices")[-1].splitlines()
    assert rows[2:] == [f"| phi-four-{n} | 50.0 % | 1 of 2 | 7 | 2 | good |" for n in (8, 16)]

    at_corner = {"c": [600.0, 1.0], "ess": 0.5, "nll_gap": 0.1, "nll_gap_error": 0.02, "phi_positive": 0.06}
    at_corner |= {"phi_positive_weighted": 0.07, "phi_positive_exchange": [0.067, 0.001]}
    at_corner |= {"log_z_cold_hot": 10.4, "by_ladder": [10.39, 0.01]}
    molecule = {"checks": [at_corner], "ess": [0.5], "ess_mean": 0.5, "ess_least": 0.5, "frames": 7}
    (tmp_path / "axes").mkdir()
    (tmp_path / "axes" / "dipeptide.json").write_text(json.dumps(GOOD | lattice | molecule))
    rows = results_more.several_axes(tmp_path / "axes")[-1].splitlines()
    assert rows[2] == (
        "| 600 K, 1 | 50.0 % | 0.100 ± 0.020 | 0.0600 | 0.0700 | 0.0670 ± 0.0010 | 10.400 | 10.390 ± 0.010 |"
    )

    alone = {"ess": 0.5, "phi_positive": 0.02, "phi_positive_weighted": 0.0214, "phi_positive_error": 0.001}
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "m.json").write_text(json.dumps(GOOD | lattice | alone | {"evaluations": 4_352_000}))
    rows = results_more.without_data(tmp_path / "alone")[-1].splitlines()
    assert "| 0 < φ < 130° 2.1 % ± 0.1 % (raw 2.0 %), 4,352,000 energies |" in rows[2]

    (tmp_path / "whole.json").write_text(json.dumps(run | {"seconds": {"demo": 4.2}}))
    assert "| demo | 4 |" in results_more.whole(tmp_path / "whole.json", "The whole")[-1]


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (["-m", "module"], r"python -m module 'two words' --x 1"),
        (["folder/script.py"], r"python folder/script.py 'two words' --x 1"),
    ],
)
def test_a_program_knows_how_it_was_typed(start, wanted, tmp_path):
    (tmp_path / "folder").mkdir()
    for file in (tmp_path / "module.py", tmp_path / "folder" / "script.py"):
        file.write_text("from trade.experiments.results import typed\nprint(typed())\n")
    command = [sys.executable, *start, "two words", "--x", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(wanted, done.stdout.strip())
