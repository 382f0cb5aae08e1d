"""Data that stay on the host: every state has its turn, and a run that is resumed sees the same ones."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from small_problems import data_at, family, problem_of, random_gaussian

from trade import Adam, Schedule, TradeError, fit
from trade.devices import ONE
from trade.objectives import ForwardKL
from trade.objectives.term import Problem
from trade.training import windows
from trade.training.windows import Windows, resident_states


def numbered(*sizes):
    """Data that are their own numbers."""
    states = tuple(np.arange(n, dtype=float)[:, None] for n in sizes)
    return Problem(family(), family().condition, states, tuple(-x for x in states))


def test_every_state_has_its_turn_and_then_again():
    found = Windows(numbered(10, 3), 4, ONE)
    turns = [found.at(i) for i in range(5)]
    first = np.concatenate([t.data[0][:, 0] for t in turns])
    np.testing.assert_array_equal(np.sort(first), np.repeat(np.arange(10), 2))
    assert first.tolist() != sorted(first)
    np.testing.assert_array_equal(first[:10], first[10:])
    for turn in turns:
        assert sorted(turn.data[1][:, 0].tolist()) == [0, 1, 2]  # all that there are
        np.testing.assert_array_equal(turn.observations[0], -turn.data[0])
    np.testing.assert_array_equal(found.at(1).data[0], turns[1].data[0])  # whatever came before
    np.testing.assert_array_equal(found.first.data[0], turns[0].data[0])


def test_data_that_fit_are_there_as_they_are():
    found = Windows(numbered(10), None, ONE)
    assert found.at(0) is found.at(7)
    np.testing.assert_array_equal(found.at(3).data[0][:, 0], np.arange(10))
    assert isinstance(found.at(0).data[0], jax.Array)


def test_how_many_fit_is_told_by_the_memory_of_the_device(monkeypatch):
    problem = problem_of(family(), data_at(1.0, n=1000))
    assert resident_states(problem) is None  # on a CPU, host and device are one
    assert resident_states(problem, 1000) is None
    assert resident_states(problem, np.int64(10)) == 10
    assert resident_states(Problem(family(), family().condition)) is None
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 8000})
    monkeypatch.setattr(windows.jax, "local_devices", lambda: [device])
    assert resident_states(problem) == 500  # a quarter, of four bytes each


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "all", True])
def test_a_wrong_number_gets_one_sentence(wrong):
    with pytest.raises(TradeError, match="resident must be"):
        fit(family(), {1.0: data_at(1.0)}, resident=wrong)


def test_a_run_by_windows_learns_all_data_and_resumes_as_it_was(tmp_path):
    """Two halves of the data differ: a model of one window would have its mean."""
    data = np.concatenate([data_at(0.1, n=300) - 1.0, data_at(0.1, n=300, seed=1) + 1.0])

    def train(die_at=None, **options):
        def die(row):
            if die_at is not None and row["step"] >= die_at:
                raise KeyboardInterrupt

        return fit(
            family(),
            {1.0: data},
            flow=random_gaussian,
            objective=ForwardKL(64),
            steps=400,
            optimiser=Adam(0.03),
            schedule=Schedule(report=10, evaluate=200, checkpoint=25),
            resident=40,
            progress=False,
            callback=die,
            **options,
        )

    whole = train()
    flow = whole.final[0].flow
    np.testing.assert_allclose(flow.location(1.0)[0], data.mean(), atol=0.1)
    np.testing.assert_allclose(flow.deviation(1.0)[0], data.std(), rtol=0.1)
    assert whole.settings["resident"] == 40
    with pytest.raises(KeyboardInterrupt):
        train(die_at=180, out=tmp_path / "run")
    again = train(out=tmp_path / "run", resume=True)
    for one, two in zip(jax.tree.leaves(again.final[0]), jax.tree.leaves(whole.final[0]), strict=True):
        np.testing.assert_array_equal(one, two)
