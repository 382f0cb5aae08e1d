"""The zoo: problems that no setting was chosen for, and a quick half-dozen of them trained with nothing chosen."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo import METHODS, QUICK, Options, chosen, collect, main, make_table, solve
from trade import TradeError
from trade.files import read_json, write_json

pytestmark = pytest.mark.optimised
ROOT = Path(__file__).parent.parent
LEAST = 0.9  # ESS over the range, in a quarter of the steps of the default


def test_problems_are_found_by_name_and_by_group():
    """Names, groups, all; and one sentence for what is none."""
    assert [p.name for p in chosen(("ring", "curved"))] == ["ring", "curved"]
    assert len(chosen(("seen",))) + len(chosen(("unseen",))) == len(chosen(()))
    assert [p.name for p in chosen(("quick",))] == list(QUICK)
    with pytest.raises(TradeError, match="no problem 'rings'"):
        chosen(("rings",))


def test_table_shows_what_failed_and_marks_the_unseen():
    """A problem without exact log Z, an unseen one, and one that stopped."""
    numbers = {"ess_least": 0.5, "ess_boundary": None, "steps": 3, "seconds": 1.0}
    entries = [
        {"problem": "a", "method": "default", "unseen": True, **numbers},
        {"problem": "b", "method": "default", "unseen": False, "failed": "why"},
    ]
    table = make_table(entries)
    assert table.row_count == 2
    assert list(table.columns[0].cells) == ["a *", "b"]
    assert list(table.columns[2].cells) == ["50.0 %", "failed"]
    assert {"default", "paper", "likelihood", "likelihood-reverse-kl"} <= set(METHODS)


def test_results_keep_what_was_run_before_and_take_what_is_new(tmp_path):
    """Each entry has the command that made it."""
    old, new = {"command": "old"}, {"command": "new"}
    entries = [{"problem": p, "method": "default", "run": old} for p in ("ring", "funnel")]
    write_json(tmp_path / "results.json", {"entries": entries})
    (tmp_path / "runs").mkdir()
    write_json(tmp_path / "runs" / "ring.default.json", {"problem": "ring", "method": "default", "run": new})
    write_json(tmp_path / "runs" / "ode.paper.json", {"problem": "ode", "method": "paper", "run": new})
    found = [(e["problem"], e["method"], e["run"]) for e in collect(tmp_path)]
    assert found == [("ring", "default", new), ("funnel", "default", old), ("ode", "paper", new)]


def test_what_a_stopped_call_had_finished_is_kept_by_the_next(tmp_path):
    """It is not run again, and keeps the command that found it."""
    numbers = {"ess_least": 0.5, "ess_boundary": 0.9, "steps": 3, "seconds": 1.0}
    (tmp_path / "runs").mkdir()
    entry = {"problem": "ring", "method": "default", "unseen": False, **numbers, "run": {"command": "before"}}
    write_json(tmp_path / "runs" / "ring.default.json", entry)
    main(Options(problems=("ring",), out=tmp_path))
    (found,) = read_json(tmp_path / "results.json")["entries"]
    assert found == entry


def test_verdicts_and_errors_of_log_z_in_the_results_mean_what_they_say():
    """No false alarm where the KL divergence is small; exact log Z within two errors as often as it should be."""
    entries = read_json(ROOT / "results" / "zoo" / "results.json")["entries"]
    found = [e for e in entries if e["method"] == "default"]
    exact = [e for e in found if (e.get("kl_most") or np.inf) < 0.05]
    assert len(exact) >= 15
    assert {e["problem"]: e["verdict"]["level"] for e in exact if e["verdict"]["level"] == "not usable"} == {}
    away = np.abs(np.concatenate([np.array(e["curves"]["log_z_sigmas"], float) for e in found]))
    assert 0.90 <= np.mean(away <= 2.0) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_quick_zoo(name):
    """Nothing chosen, 2,000 steps: the range is reached, the boundary kept, and log Z is right."""
    found = solve(chosen((name,))[0], "default", Options(steps=2000))
    assert found["ess_least"] > LEAST
    assert found["ess_boundary"] > 0.95
    assert found["log_z_most"] < 0.02
    assert np.all(np.isfinite(found["curves"]["ess"]))
