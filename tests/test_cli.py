"""The command line, through real processes, with good and bad input."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROBLEM = """
import jax, trade
from trade.flows import MLP
from trade.objectives import ForwardKL, Gradient

def log_density(x, T):
    return -(x**2).sum() / (2 * T)

target = trade.Target(log_density, shape=(1,), condition=trade.Condition(0.5, 1.0))
data = {1.0: jax.random.normal(jax.random.key(0), (500, 1))}
flow = lambda key: trade.flows.spline_flow(key, target, blocks=2, network=MLP(8, 2), bins=4)
objective = trade.Trade(Gradient(conditions_per_step=4, points_per_condition=8), ForwardKL(32))
steps = 20
schedule = trade.Schedule(report=5, evaluate=10, checkpoint=5)
"""


def trade(*arguments, cwd):
    """The command in a process of its own; what one has compiled is kept for the next."""
    kept = {"JAX_ENABLE_COMPILATION_CACHE": "true", "TRADE_CACHE": str(cwd / "cache")}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200", **kept}
    return subprocess.run(
        [sys.executable, "-m", "trade", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def refused(result, *words):
    """One sentence, exit code 2, no traceback."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr + result.stdout
    return True


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a problem file and a finished run of it."""
    directory = tmp_path_factory.mktemp("cli")
    (directory / "problem.py").write_text(PROBLEM)
    result = trade("fit", "problem.py", "--out", "run", cwd=directory)
    assert result.returncode == 0, result.stderr
    return directory


def test_fit_writes_a_run_and_shows_progress(place):
    names = {p.name for p in (place / "run").iterdir()}
    assert {"run.json", "metrics.jsonl", "model.json", "final-0.eqx", "best-0.eqx", "checkpoint.json"} <= names
    steps = [json.loads(line)["step"] for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 20


def test_sample_without_and_with_the_target(place):
    result = trade("sample", "run", "--at", "0.6", "-n", "100", "--out", "plain.npz", cwd=place)
    assert result.returncode == 0, result.stderr
    with np.load(place / "plain.npz") as plain:
        assert set(plain) == {"x", "log_prob"}
        assert plain["x"].shape == (100, 1)
    arguments = ("--at", "0.6", "-n", "100", "--out", "weighted.npz", "--problem", "problem.py")
    assert trade("sample", "run", *arguments, cwd=place).returncode == 0
    with np.load(place / "weighted.npz") as weighted:
        log_q = -(weighted["x"] ** 2).sum(axis=1) / (2 * 0.6)
        np.testing.assert_allclose(weighted["log_weight"], log_q - weighted["log_prob"], atol=1e-4)


def test_report_is_one_self_contained_page(place):
    result = trade("report", "run", "--problem", "problem.py", cwd=place)
    assert result.returncode == 0, result.stderr
    page = (place / "run" / "report.html").read_text()
    assert "Verdict: " in page and 'id="curve-ess"' in page and 'type="range"' in page
    assert "http://" not in page and "https://" not in page
    assert "trade fit problem.py --out run" in page


def test_resume_of_a_finished_run_changes_nothing(place):
    before = (place / "run" / "final-0.eqx").read_bytes()
    result = trade("resume", "run", cwd=place)
    assert result.returncode == 0, result.stderr
    assert (place / "run" / "final-0.eqx").read_bytes() == before


def test_help_names_every_command(place):
    result = trade("--help", cwd=place)
    assert result.returncode == 0
    for command in ("demo", "fit", "resume", "sample", "report"):
        assert command in result.stdout


@pytest.mark.slow
def test_demo_writes_everything(tmp_path):
    result = trade("demo", "--out", "demo", "--steps", "30", "--baseline-steps", "20", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert {r["method"] for r in results["rows"]} == {"trade-continuous", "maximum-likelihood"}
    assert len(results["rows"]) == 2 * 2 * 9
    figures = {p.name for p in (tmp_path / "demo" / "figures").iterdir()}
    assert figures == {"densities.png", "conditions.png", "training.png", "free_energy.png"}
    assert (tmp_path / "demo" / "report.html").exists()
    assert "ESS TRADE" in result.stdout
    refused(trade("demo", "--out", "demo", cwd=tmp_path), "not empty")


def test_bad_input_is_refused_in_one_sentence(place):
    refused(trade("sample", "run", "--at", "3.0", "--out", "no.npz", cwd=place), "outside the range", "0.5")
    refused(trade("sample", "nowhere", "--at", "1", "--out", "no.npz", cwd=place), "nowhere", "not a directory")
    refused(trade("sample", "run", "--at", "1", "--out", "no.npz", "--bogus", cwd=place), "--bogus")
    refused(trade("fit", "missing.py", "--out", "no", cwd=place), "missing.py", "does not exist")
    refused(trade("resume", "nowhere", cwd=place), "not a directory")
    assert not (place / "no.npz").exists()


def test_bad_problem_leaves_nothing_behind(place):
    (place / "empty.py").write_text(PROBLEM.replace("(500, 1)", "(0, 1)"))
    refused(trade("fit", "empty.py", "--out", "no", cwd=place), "empty")
    (place / "broken.py").write_text("target = 1 / 0\n")
    refused(trade("fit", "broken.py", "--out", "no", cwd=place), "line 1", "ZeroDivisionError")
    (place / "vector.py").write_text(PROBLEM.replace("-(x**2).sum()", "-(x**2)"))
    refused(trade("fit", "vector.py", "--out", "no", cwd=place), "scalar")
    assert not (place / "no").exists()


def test_damaged_run_is_refused(place, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (place / "run").iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    content = bytearray((copy / "best-0.eqx").read_bytes())
    content[-5] ^= 1
    (copy / "best-0.eqx").write_bytes(bytes(content))
    refused(trade("sample", copy, "--at", "1", "--out", "no.npz", cwd=tmp_path), "checksum")
    (copy / "run.json").write_text("{")
    refused(trade("report", copy, cwd=tmp_path), "damaged")
