"""The command line with wrong input: one sentence, exit code 2, nothing half-written; and good input once refused."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import trade
from trade import cli, files

PROBLEM = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import numpy as np, trade
from small_problems import LinearGaussian, data_at, minus_quadratic

target = trade.Target(minus_quadratic, (1,), trade.Condition(0.25, 1.0))
data = {{1.0: data_at(1.0, n=400)}}
flow = LinearGaussian(rate=0.5 * np.log(2.0), log_scale=-0.5 * np.log(2.0))
objective = trade.objectives.ForwardKL(16)
steps = 4
schedule = trade.Schedule(2, 2, 2)
"""  # noqa: PTH120


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a problem file, a finished run of it, and things that are none."""
    directory = tmp_path_factory.mktemp("wrong")
    os.environ["TRADE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    here = os.getcwd()  # noqa: PTH109
    os.chdir(directory)
    (directory / "problem.py").write_text(PROBLEM)
    assert called("fit", "problem.py", "--out", "run") == 0
    (directory / "notes").mkdir()
    (directory / "notes" / "thesis.tex").write_text("mine")
    (directory / "file").write_text("mine")
    (directory / "taken.npz").write_text("mine")
    (directory / "bad.npy").write_text("mine")
    (directory / "link.npz").symlink_to(directory / "taken.npz")
    (directory / "[odd] name.py").write_text(PROBLEM + "target = 7\n")
    for name, text in BAD_PROBLEMS.items():
        (directory / f"{name}.py").write_text(PROBLEM + text + "\n")
    shutil.copytree(directory / "run", directory / "edited")
    content = json.loads((directory / "edited" / "run.json").read_text())
    (directory / "edited" / "run.json").write_text(json.dumps(content | {"steps": 9}))
    shutil.copytree(directory / "run", directory / "begun")
    for name in ("model.json", "checkpoint.json"):
        (directory / "begun" / name).unlink()
    yield directory
    os.chdir(here)
    del os.environ["TRADE_CACHE"]


def called(*arguments):
    """The exit code of the command, run here through its own entry point."""
    old, sys.argv = sys.argv, ["trade", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    finally:
        sys.argv = old
    return 0


BAD_PROBLEMS = {
    "slip": "del objective; objectve = 3",
    "short": "del steps; step = 100",
    "american": "optimizer = trade.Adam()",
    "quits": "sys.exit(5)",
    "quits_well": "sys.exit()",
    "raises": "raise RuntimeError('two\\nlines [bold]and[/] brackets')",
    "divides": "1 / 0",
    "syntax": "def (",
    "no_target": "del target",
    "target_is_number": "target = 3",
    "data_is_number": "data = 3",
    "data_shape": "data = {1.0: np.zeros((5, 2))}",
    "data_nan": "data = {1.0: np.full((5, 1), np.nan)}",
    "data_empty": "data = {1.0: np.zeros((0, 1))}",
    "data_three": "data = {1.0: (1, 2, 3)}",
    "data_outside": "data = {7.0: data_at(1.0)}",
    "flow_is_word": "flow = 'spline'",
    "flow_fails": "flow = lambda key: 1 / 0",
    "flow_shape": "flow = LinearGaussian(d=2)",
    "objective_is_class": "objective = trade.Trade",
    "steps_zero": "steps = 0",
    "steps_half": "steps = 1.5",
    "steps_word": "steps = 'ten'",
    "minutes_negative": "minutes = -1",
    "held_out_two": "held_out = 2",
    "schedule_number": "schedule = 10",
    "schedule_zero": "schedule = trade.Schedule(0)",
    "seeds_word": "seeds = 'three'",
    "seeds_none_at_all": "seeds = 0",
    "optimiser_number": "optimiser = 1e-3",
    "validation_shape": "validation = {1.0: np.zeros((5, 2))}",
    "derivative": "target = trade.Target(minus_quadratic, (1,), target.condition, condition_derivative=lambda x, c: c)",
    "vector_density": "target = trade.Target(lambda x, c: x / c, (1,), trade.Condition(0.25, 1.0))",
}
NEW = ("--out", "new")
OUT = ("--out", "new.npz")
PROBLEM_PY = ("--problem", "problem.py")
TABLE = [
    *[(f"fit {name}", ("fit", f"{name}.py", *NEW), "") for name in BAD_PROBLEMS],
    ("fit a slip names what was meant", ("fit", "slip.py", *NEW), "nearly `objective`"),
    ("fit of another spelling", ("fit", "american.py", *NEW), "nearly `optimiser`"),
    ("fit step", ("fit", "short.py", *NEW), "nearly `steps`"),
    ("fit keeps brackets", ("fit", "raises.py", *NEW), "[bold]and[/] brackets"),
    ("fit brackets in a path", ("fit", "[odd] name.py", *NEW), "target must be"),
    ("fit line of an error", ("fit", "divides.py", *NEW), "ZeroDivisionError"),
    ("fit no file", ("fit", "missing.py", *NEW), "does not exist"),
    ("fit a directory", ("fit", "notes", *NEW), "does not exist"),
    ("fit into other files", ("fit", "problem.py", "--out", "notes"), "thesis.tex"),
    ("fit into a file", ("fit", "problem.py", "--out", "file"), "is a file"),
    ("fit into a run", ("fit", "problem.py", "--out", "run"), "already holds a run"),
    ("fit below a file", ("fit", "problem.py", "--out", "file/deeper"), "file"),
    ("fit no steps", ("fit", "problem.py", *NEW, "--steps", "0"), "steps must be"),
    ("fit steps in words", ("fit", "problem.py", *NEW, "--steps", "ten"), "steps"),
    ("fit a negative seed", ("fit", "problem.py", *NEW, "--seed", "-1"), "seed must be"),
    ("fit a seed that wraps", ("fit", "problem.py", *NEW, "--seed", "4294967296"), "seed must be"),
    ("fit nothing", ("fit",), "required"),
    ("fit without out", ("fit", "problem.py"), "out"),
    ("fit a bogus option", ("fit", "problem.py", *NEW, "--bogus"), "--bogus"),
    ("no such command", ("train", "problem.py"), "train"),
    ("resume nothing there", ("resume", "nowhere"), "not a directory"),
    ("resume a file", ("resume", "file"), "not a directory"),
    ("resume other files", ("resume", "notes"), "run.json"),
    ("resume an edited run", ("resume", "edited"), "damaged"),
    ("resume before a checkpoint", ("resume", "begun"), "no checkpoint yet"),
    ("resume another problem", ("resume", "run", "--problem", "slip.py"), "nearly"),
    ("resume a problem that changed", ("resume", "run", "--problem", "changed.py"), "content has changed"),
    ("check nothing there", ("check", "nowhere"), "not a directory"),
    ("check an edited run", ("check", "edited"), "damaged"),
    ("check another problem", ("check", "run", "--problem", "changed.py"), "content has changed"),
    ("sample nothing there", ("sample", "nowhere", "--at", "1", *OUT), "not a directory"),
    ("sample out of range", ("sample", "run", "--at", "7", *OUT, "--problem", "problem.py"), "outside the range"),
    ("sample at no number", ("sample", "run", "--at", "cold", *OUT), "cold"),
    ("sample at NaN", ("sample", "run", "--at", "nan", *OUT, "--problem", "problem.py"), "condition"),
    ("sample none", ("sample", "run", "--at", "1", "-n", "0", *OUT, "--problem", "problem.py"), "n must be"),
    ("sample fewer", ("sample", "run", "--at", "1", "-n", "-3", *OUT, "--problem", "problem.py"), "n must be"),
    ("sample too many", ("sample", "run", "--at", "1", "-n", str(10**12), *OUT, "--problem", "problem.py"), "too many"),
    ("sample over a file", ("sample", "run", "--at", "1", "--out", "taken.npz"), "exists already"),
    ("sample over settings", ("sample", "run", "--at", "1", "--out", "run/run.json", "--overwrite"), "belongs to"),
    ("sample through a link", ("sample", "run", "--at", "1", "--out", "link.npz", "--overwrite"), "symbolic link"),
    ("sample into a directory", ("sample", "run", "--at", "1", "--out", "notes"), "is a directory"),
    ("sample below a file", ("sample", "run", "--at", "1", "--out", "file/a.npz"), "file"),
    ("sample into no format", ("sample", "run", "--at", "1", "--out", "new.txt"), ".npz, .csv, .nc, .pdb, .dcd"),
    ("sample nowhere", ("sample", "run", *OUT), "--at is missing"),
    ("sample at nothing", ("sample", "run", "--at", "", *OUT), "numbers such as"),
    ("sample at half a list", ("sample", "run", "--at", "0.5,", *OUT), "numbers such as"),
    ("sample twice at one", ("sample", "run", "--at", "0.5", "--at", "0.5", *OUT, *PROBLEM_PY), "that differ"),
    ("sample partly out of range", ("sample", "run", "--at", "0.5,7", "--out", "new.csv", *PROBLEM_PY), "outside the"),
    ("sample an observation", ("sample", "run", "--at", "1", *OUT, *PROBLEM_PY, "--observation", "1,2"), "takes no"),
    ("sample a word", ("sample", "run", "--at", "1", *OUT, *PROBLEM_PY, "--observation", "rain"), "--observation must"),
    ("sample a lost file", ("sample", "run", "--at", "1", *OUT, *PROBLEM_PY, "--observation", "y.npy"), "not exist"),
    ("sample a bad file", ("sample", "run", "--at", "1", *OUT, *PROBLEM_PY, "--observation", "bad.npy"), "an array of"),
    ("sample no molecule", ("sample", "run", "--at", "1", "--out", "new.dcd", *PROBLEM_PY), "is of none"),
    ("sample no trajectory", ("sample", "run", "--at", "1", *OUT, *PROBLEM_PY, "--topology", "a.pdb"), "trajector"),
    ("sample a seed that wraps", ("sample", "run", "--at", "1", *OUT, "--seed", str(2**40)), "seed must be"),
    ("sample without the flow", ("sample", "run", "--at", "1", *OUT), "flow="),
    ("sample with another problem", ("sample", "run", "--at", "1", *OUT, "--problem", "changed.py"), "has changed"),
    ("sample an unfinished run", ("sample", "begun", "--at", "1", *OUT), "not finished"),
    ("report nothing there", ("report", "nowhere"), "not a directory"),
    ("report other files", ("report", "notes"), "run.json"),
    ("report without the flow", ("report", "run"), "flow="),
    ("demo over other files", ("demo", "--out", "notes", "--overwrite"), "thesis.tex"),
    ("demo over another run", ("demo", "--out", "run", "--overwrite"), "does not hold a demo"),
    ("demo over a run unasked", ("demo", "--out", "run"), "already holds a run"),
    ("demo of no steps", ("demo", "--out", "run", "--overwrite", "--steps", "0"), "steps must be"),
    ("demo of a negative seed", ("demo", "--out", "new", "--seed", "-4"), "seed must be"),
    ("reproduce nothing", ("reproduce", "everything", *NEW), "There is no experiment"),
    ("reproduce no method", ("reproduce", "multiwell", *NEW, "--methods", ""), "No method was named"),
    ("reproduce another method", ("reproduce", "multiwell", *NEW, "--methods", "magic"), "has no method 'magic'"),
    ("reproduce no seeds", ("reproduce", "multiwell", *NEW, "--methods", "reverse-kl", "--seeds", "0"), "seeds must"),
    ("reproduce another budget", ("reproduce", "multiwell", *NEW, "--budget", "huge"), "budget"),
]  # fmt: skip
_FITS = [row for row in TABLE if row[0].startswith("fit ")]
IN_PROCESSES = [*[row for row in TABLE if row not in _FITS][::2], *_FITS[::10]][:24]  # as a user would call them


@pytest.fixture(scope="module", autouse=True)
def changed(place):
    (place / "changed.py").write_text(PROBLEM + "# another line\n")


def check_untouched(place):
    assert not (place / "new").exists()
    assert not list(place.glob("new*"))
    assert sorted(p.name for p in (place / "notes").iterdir()) == ["thesis.tex"]
    assert (place / "file").read_text() == (place / "taken.npz").read_text() == "mine"
    assert not [p for p in place.rglob("*") if p.name.startswith(".trade-") or p.name == files.LOCK]


@pytest.mark.parametrize(("arguments", "word"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_wrong_input_gets_one_sentence(place, capsys, arguments, word):
    before = (place / "run" / "run.json").read_bytes()
    assert called(*arguments) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert word in " ".join((said.err + said.out).split())
    assert said.err.startswith("trade: ") == (said.err.count("\n") == 1)  # one of ours, or a frame of tyro's
    check_untouched(place)
    assert (place / "run" / "run.json").read_bytes() == before


def test_wrong_input_in_real_processes(place):
    """The same through ``python -m trade``: exit code 2, no traceback. Three at a time."""
    assert len(IN_PROCESSES) >= 24
    waiting = []
    for _, arguments, word in IN_PROCESSES:
        command = [sys.executable, "-m", "trade", *arguments]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}
        process = subprocess.Popen(
            command, cwd=place, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        waiting.append((process, arguments, word))
        if len(waiting) == 3:
            settle(waiting)
    settle(waiting)
    check_untouched(place)


def settle(waiting):
    for process, arguments, word in waiting:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 2, (arguments, said)
        assert "Traceback" not in said, arguments
        assert word in " ".join(said.split()), (arguments, said)
    waiting.clear()


def test_table_is_large():
    assert len(TABLE) >= 80


# --- Good input


def test_a_flow_of_ones_own_is_sampled_checked_and_reported_with_its_problem(place, capsys):
    arguments = ("--at", "0.5", "-n", "50", "--out", "good.npz", "--problem", "problem.py")
    assert called("sample", "run", *arguments) == 0
    with np.load(place / "good.npz") as found:
        assert set(found) == {"x", "log_prob", "log_weight"}
    assert called("sample", "run", *arguments) == 2
    assert called("sample", "run", *arguments, "--overwrite") == 0
    assert called("check", "run", "--problem", "problem.py") == 0
    assert "Verdict: " in capsys.readouterr().out
    assert called("report", "run", "--problem", "problem.py") == 0
    page = (place / "run" / "report.html").read_text()
    assert page.index("Verdict: ") < page.index("Training")


def test_version_help_and_list(place, capsys):
    assert called("--version") == 0
    assert capsys.readouterr().out == f"trade {trade.__version__}\n"
    assert called("reproduce", "--list") == 0
    listed = capsys.readouterr().out
    assert "multiwell: maximum-likelihood" in listed
    assert "alanine-dipeptide: " in listed
    for command in ("fit", "resume", "check", "sample", "report", "reproduce", "demo"):
        assert called(command, "--help") == 0
        said = capsys.readouterr().out
        assert "{None}" not in said
        assert command in said


def test_a_useless_run_is_saved_and_exits_with_three(place, capsys):
    (place / "useless.py").write_text(PROBLEM + "data = {1.0: data_at(1.0, n=1)}\n")
    assert called("fit", "useless.py", "--out", "useless") == 3
    assert "Verdict: not usable" in capsys.readouterr().out
    assert files.holds_run(place / "useless")
    assert called("sample", "useless", "--at", "1", "-n", "9", "--out", "u.npz", "--problem", "useless.py") == 0


def test_resume_runs_only_what_this_user_ran(place, capsys, monkeypatch, tmp_path):
    """A directory from elsewhere may name any file: it is run if asked for, and never unasked."""
    assert called("resume", "run") == 0
    monkeypatch.setenv("TRADE_CACHE", str(tmp_path))  # another user
    capsys.readouterr()
    assert called("resume", "run") == 2
    assert "you have not run from there: give --problem" in " ".join(capsys.readouterr().err.split())
    assert called("resume", "run", "--problem", "problem.py") == 0


def test_resume_never_runs_a_file_of_the_run_directory(place, capsys):
    mark = place / "ran"
    shutil.copytree(place / "run", place / "trap")
    evil = place / "trap" / "evil.py"
    evil.write_text(f"open({str(mark)!r}, 'w')\n" + PROBLEM)
    settings = files.read_sealed(place / "trap" / "run.json")
    problem = evil.read_bytes()
    settings["notes"] |= {"problem": str(evil), "sha256": hashlib.sha256(problem).hexdigest()}
    (place / "trap" / "run.json").unlink()
    files.write_sealed(place / "trap" / "run.json", settings)
    assert called("resume", "trap") == 2
    assert "lies inside the run directory" in " ".join(capsys.readouterr().err.split())
    settings["notes"] |= {"problem": str(place / "changed.py")}
    (place / "trap" / "run.json").unlink()
    files.write_sealed(place / "trap" / "run.json", settings)
    assert called("resume", "trap") == 2  # its hash is another: it is compared before it is run
    assert not mark.exists()
