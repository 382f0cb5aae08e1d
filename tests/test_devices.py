"""Many devices: the same losses as on one, in one process and in two, and runs that go on with another number."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from trade import TradeError, cli, devices
from trade.devices import ONE, Devices

ROOT = Path(__file__).parent.parent


def start(*asked, count=4, process=None, address=""):
    """A process with simulated devices, which does the runs that are asked for."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    if process is not None:
        env |= {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": str(process)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.on_devices", json.dumps(asked)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process, wait=240):
    out, err = process.communicate(timeout=wait)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def together(*asked):
    """Two processes with two devices each; both do the same runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [start(*asked, count=2, process=i, address=address) for i in (0, 1)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By name, of a process with four devices, in which one device is one of them; one was killed and goes on."""
    out = str(tmp_path_factory.mktemp("four") / "run")
    killed = start({"devices": 4, "out": out, "die_at": 22})
    killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL
    asked = {
        "alone": {},
        "seeds alone": {"seeds": 4},
        "four": {"devices": "all"},
        "three": {"devices": 3},
        "seeds on four": {"devices": 4, "seeds": 4},
        "resumed on two": {"devices": 2, "out": out, "resume": True},
    }
    found = finished(start(*asked.values()))
    assert found["devices"] == 4
    return dict(zip(asked, found["runs"], strict=True))


def same(found, expected):
    """To float tolerance, over forty steps of training."""
    for name in ("losses", "means"):
        one, two = np.array(found[name]), np.array(expected[name])
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["four", "three", "resumed on two"])
def test_four_devices_give_the_losses_of_one(runs, name):
    """Batches shared out evenly and unevenly, and a run that was killed on four."""
    same(runs[name], runs["alone"])


def test_seeds_over_devices_give_the_losses_of_seeds_on_one(runs):
    same(runs["seeds on four"], runs["seeds alone"])


@pytest.mark.slow
def test_four_devices_give_the_losses_of_a_spline_flow_on_one():
    one, four = finished(start({"spline": True}, {"spline": True, "devices": "all"}))["runs"]
    same(four, one)


def test_two_processes_give_the_losses_of_one(runs, tmp_path):
    """One run directory, written by the first; what the first is refused is refused in both."""
    out = str(tmp_path / "run")
    for one in [finished(p) for p in together({"out": out}, {"seeds": 4}, {"out": out})]:
        assert one["devices"] == 4
        same(one["runs"][0], runs["alone"])
        same(one["runs"][1], runs["seeds alone"])
        assert "already holds a run" in one["runs"][2]["refused"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 42


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one_and_back(runs, tmp_path):
    """Killed with two, resumed and killed with one, resumed with two."""
    out = str(tmp_path / "run")
    first, second = together({"out": out, "die_at": 14})
    first.communicate(timeout=240)
    assert first.returncode == -signal.SIGKILL
    second.kill()
    second.communicate(timeout=60)
    alone_again = start({"out": out, "resume": True, "die_at": 30}, count=1)
    alone_again.communicate(timeout=240)
    assert alone_again.returncode == -signal.SIGKILL
    for one in [finished(p) for p in together({"out": out, "resume": True})]:
        same(one["runs"][0], runs["alone"])


def test_without_several_devices_nothing_changes():
    """One device is no mesh: the same program as ever."""
    assert Devices.chosen(None, None) == Devices.chosen("all", None) == Devices.chosen(1, 3) == ONE
    assert Devices.chosen(jax.devices()[:1], None) == ONE
    x = np.ones(3)
    assert devices.shared_out(x) is x
    assert devices.on_each(x) is x
    assert ONE.placed(x) is x
    assert ONE.agreed(x) is x
    assert ONE.run(lambda v: v, x) is x


def test_a_mesh_of_the_users_own_is_left_alone():
    x = np.ones(3)
    with jax.set_mesh(jax.make_mesh((1,), ("mine",))):
        assert devices.shared_out(x) is x
        assert devices.on_each(x) is x


@pytest.mark.parametrize(("given", "sentence"), [("some", "--devices takes a number"), ("1.5", "takes a number")])
def test_wrong_devices_of_the_command_get_one_sentence(given, sentence):
    with pytest.raises(TradeError, match=sentence):
        cli._devices(given)
    assert cli._devices("all") == ("all", True)


@pytest.mark.parametrize("wrong", ["some", 0, 2, -1, 1.5, True, [], ["cpu"], "", b"all", [None]])
def test_wrong_devices_get_one_sentence(wrong):
    with pytest.raises(TradeError, match="devices must be"):
        Devices.chosen(wrong, None)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "must be set together: JAX_COORDINATOR_ADDRESS is not"),
        ({"JAX_COORDINATOR_ADDRESS": "here:1", "JAX_NUM_PROCESSES": "2"}, "JAX_PROCESS_ID is not"),
        ({"JAX_COORDINATOR_ADDRESS": "here:1", "JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0"}, "integers"),
        ({"JAX_COORDINATOR_ADDRESS": "here:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"}, "from 0 to 1"),
    ],
)
def test_wrong_environments_get_one_sentence(monkeypatch, environment, sentence):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TradeError, match=sentence):
        devices.join()


def test_a_process_that_stands_alone_joins_nothing(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    devices.join()
    assert jax.process_count() == 1
