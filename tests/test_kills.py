"""Fifty kills at random moments, the final save among them: every run goes on, and ends as if nothing had happened."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_problems import stateful_run

from trade import files

KILLS = 50
CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from small_problems import stateful_run
from trade import files

files.os.fsync = lambda handle: time.sleep(0.03)  # the moment between writing and renaming lasts
out = Path(sys.argv[1])
print("begun", flush=True)
stateful_run(out=out, resume=(out / files.CHECKPOINT).exists())
"""


def killed(out, late):
    """Start or resume the run in another process and kill it; False if it came to its end before."""
    arguments = [sys.executable, "-c", CHILD, str(out), str(Path(__file__).parent)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        if late:  # after the last checkpoint, when models and verdict are saved
            while process.poll() is None and not (out / "checkpoint-000000300.eqx").exists():
                time.sleep(0.005)
        time.sleep(random.uniform(0.0, 1.5 if late else 5.0))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -9), errors[-2000:]
        return process.returncode == -9


@pytest.mark.slow
def test_fifty_kills(tmp_path):
    stateful_run(out=tmp_path / "reference")
    expected = {p.name: p.read_bytes() for p in (tmp_path / "reference").iterdir()}
    kills = late_kills = runs = 0
    while kills < KILLS:
        out, runs = tmp_path / f"run{runs}", runs + 1
        for attempt in range(8):
            late = attempt % 3 == 2
            if not killed(out, late):
                break
            kills, late_kills = kills + 1, late_kills + late
            for name in (files.SETTINGS, files.CHECKPOINT):  # whole or absent, at any moment
                if (out / name).exists():
                    files.read_sealed(out / name)
        stateful_run(out=out, resume=(out / files.CHECKPOINT).exists())
        found = {p.name: p.read_bytes() for p in out.iterdir()}
        assert sorted(found) == sorted(expected)
        assert [n for n in found if found[n] != expected[n]] == []
    print(f"{kills} kills, {late_kills} of them after the last step, in {runs} runs")
    assert late_kills >= 10
    assert json.loads(expected["checkpoint.json"])["step"] == 300
