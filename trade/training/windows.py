"""Data that do not fit on a device: they stay on the host, and a window of them at a time is on the devices."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trade import check
from trade.devices import Devices
from trade.objectives.term import Problem

PART = 0.25  # of a device's memory that data may take


class Windows:
    """A problem with its data on the host, as the devices see it by turns.

    The data of each boundary value are put in random order; a window is the next part of them, and after the last comes
    the first again. Which window it is depends on the turn alone, so a run that is resumed sees the same.

    Args:
        problem: Target, and all data, on the host.
        size: States of each boundary value in a window; None for all of them.
        devices: Where they go.

    Attributes:
        first: The problem with the first window, on the default device.
    """

    def __init__(self, problem: Problem, size: int | None, devices: Devices) -> None:
        self.problem, self.size, self.devices = problem, size, devices
        self.orders = [np.random.default_rng(i).permutation(len(x)) for i, x in enumerate(problem.data) if size]
        self.first = self._make(0)
        self._turn, self._placed = 0, devices.placed(self.first)

    def at(self, turn: int) -> Problem:
        """The problem with the data of one turn.

        Args:
            turn: Its number, from 0.

        Returns:
            The problem, on the devices.
        """
        if self.size is not None and turn != self._turn:
            self._turn, self._placed = turn, self.devices.placed(self._make(turn))
        return self._placed

    def _make(self, turn: int) -> Problem:
        problem, ys = self.problem, self.problem.observations
        if self.size is None:
            return on_device(problem)
        places = np.arange(turn * self.size, (turn + 1) * self.size)

        def part(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
            pairs = zip(arrays, self.orders, strict=True)
            return tuple(np.asarray(x)[order[places % len(x)][: len(x)]] for x, order in pairs)

        chosen = Problem(problem.target, problem.condition, part(problem.data), None if ys is None else part(ys))
        return on_device(chosen)


def on_device(problem: Problem) -> Problem:
    """A problem whose data are on the default device, ready for a compiled step.

    Args:
        problem: Target and data, as ``make_problem`` gives them on the host.

    Returns:
        The same problem.
    """
    ys = problem.observations
    there = tuple(map(jnp.asarray, problem.data)), None if ys is None else tuple(map(jnp.asarray, ys))
    return Problem(problem.target, problem.condition, *there)


def resident_states(problem: Problem, asked: object = None) -> int | None:
    """How many states of each boundary value are on a device at a time; None for all.

    Args:
        problem: Target and all data.
        asked: A number, or None for as many as take a quarter of the device's memory.

    Returns:
        A number smaller than the largest number of states, or None.
    """
    if not problem.data:
        return None
    size = None if asked is None else check.integer(asked, "resident")
    if size is None:
        memory = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
        if memory is None:  # a CPU: host and device are one
            return None
        observed = 0 if problem.observations is None else prod(problem.target.observation_shape or ())
        each = (prod(problem.target.shape) + observed) * problem.data[0].dtype.itemsize * len(problem.data)
        size = max(int(PART * memory / each), 1)
    return size if size < max(len(x) for x in problem.data) else None
