"""Many devices, by JAX's own runtime: batches are shared out among them, what is learned is on each of them.

Nothing else in the house knows of a mesh. Without one all of this does nothing, and the compiled programs are the same.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from trade import check
from trade.errors import TradeError

T = TypeVar("T")
SEEDS, POINTS = "seeds", "points"  # axes of the mesh


def shared_out(tree: T, axis: str = POINTS) -> T:
    """Arrays whose first axis is shared out among the devices in use; as they are where there is only one.

    Args:
        tree: Arrays with a first axis of points, or of seeds.
        axis: ``POINTS`` or ``SEEDS``.

    Returns:
        The same values.
    """
    if not _several():
        return tree
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, PartitionSpec(axis)), tree)


def on_each(tree: T) -> T:
    """Arrays that are whole on every device in use.

    Args:
        tree: Arrays.

    Returns:
        The same values.
    """
    if not _several():
        return tree
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, PartitionSpec()), tree)


def mapped_over_seeds(function: Callable[..., T], in_axes: Any) -> Callable[..., T]:
    """``vmap`` over a first axis of seeds, which is shared out among devices where there are several."""
    return jax.vmap(function, in_axes, spmd_axis_name=SEEDS if _several() else None)


def _several() -> bool:
    """Whether a mesh of ours is set; one of the user's own is not touched."""
    return jax.sharding.get_abstract_mesh().axis_names == (SEEDS, POINTS)


@cache
def _gathered(where: NamedSharding) -> Callable[[Any], Any]:
    """Makes arrays whole on every device; compiled once for each mesh and shape."""
    return jax.jit(lambda tree: tree, out_shardings=where)


@dataclass(frozen=True)
class Devices:
    """The devices of a run, of all its processes.

    Args:
        mesh: Devices in axes of seeds and of points; None for the default device alone.
    """

    mesh: Mesh | None = None

    @classmethod
    def chosen(cls, devices: Any, seeds: int | None) -> "Devices":
        """The devices that a user asked for.

        Args:
            devices: ``"all"``, how many, a sequence of JAX's devices, or None for the default device. In one of
                several processes None stands for all.
            seeds: Number of seeds, which are shared out first: they need not talk to each other.

        Returns:
            The devices.
        """
        there = jax.devices()
        if devices is None and jax.process_count() == 1:
            return cls()
        if isinstance(devices, str) and devices != "all":
            raise TradeError(f"devices must be 'all', a number or a list of JAX devices, got {devices!r}.")
        if devices is None or isinstance(devices, str):
            used = there
        elif isinstance(devices, Sequence):
            used = list(devices)
            if not used or not all(isinstance(d, jax.Device) for d in used) or len(set(used)) < len(used):
                raise TradeError("devices must be a list of different JAX devices, such as jax.devices()[:2].")
        else:
            used = there[: check.integer(devices, "devices", most=len(there), takes=f"from 1 to {len(there)}")]
        if {d.process_index for d in used} != set(range(jax.process_count())):
            raise TradeError("devices must include some of every process: use devices='all'.")
        if len(used) == 1:
            return cls()
        rows = gcd(seeds or 1, len(used))
        grid = np.array(used).reshape(rows, -1)
        return cls(Mesh(grid, (SEEDS, POINTS), axis_types=(AxisType.Auto,) * 2))

    @property
    def first(self) -> bool:
        """Whether this process is the one that decides and writes."""
        return jax.process_index() == 0

    @property
    def several_processes(self) -> bool:
        """Whether there are others."""
        return jax.process_count() > 1

    def placed(self, tree: T) -> T:
        """Arrays on every device; every process has the same ones.

        Args:
            tree: Any tree; only its arrays are touched, and those that are there already are left.

        Returns:
            The same tree.
        """
        if self.mesh is None:
            return tree
        where = NamedSharding(self.mesh, PartitionSpec())

        def place(a: Any) -> Any:
            if not eqx.is_array(a) or (isinstance(a, jax.Array) and a.sharding == where):
                return a
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(place(jax.random.key_data(a)), impl=jax.random.key_impl(a))
            value = np.asarray(a)
            return jax.make_array_from_callback(value.shape, where, lambda index: value[index])

        return jax.tree.map(place, tree)

    def run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A compiled function, run on all devices.

        Args:
            function: Reads ``shared_out`` and ``on_each``.
            arguments: Trees of arrays, the same in every process.
            options: Passed on as they are.

        Returns:
            What it returns, as ordinary arrays of this process.
        """
        if self.mesh is None:
            return function(*arguments, **options)
        where = NamedSharding(self.mesh, PartitionSpec())
        with jax.set_mesh(self.mesh):
            found, static = eqx.partition(function(*self.placed(arguments), **options), eqx.is_array)
            whole = _gathered(where)(found)
        return eqx.combine(jax.tree.map(lambda a: jnp.asarray(np.asarray(a.addressable_data(0))), whole), static)

    def agreed(self, tree: T) -> T:
        """The arrays of the first process, in every process.

        Args:
            tree: Arrays of the same shapes in every process.

        Returns:
            The first one's.
        """
        if not self.several_processes:
            return tree
        arrays, static = eqx.partition(tree, eqx.is_array)
        return eqx.combine(jax.tree.map(jnp.asarray, multihost_utils.broadcast_one_to_all(arrays)), static)

    def once(self, function: Callable[[], T], otherwise: T) -> T:
        """A function of the first process alone; its errors are raised in every process.

        Args:
            function: Reads or writes files, say.
            otherwise: What the other processes go on with.

        Returns:
            What the function returned, in the first process.
        """
        if not self.several_processes:
            return function()
        result, failure = otherwise, None
        if self.first:
            try:
                result = function()
            except Exception as error:
                failure = error
        said = self.heard(None if failure is None else str(failure))
        if failure is not None:
            raise failure
        if said is not None:
            raise TradeError(said)
        return result

    def heard(self, value: Any) -> Any:
        """What the first process has, in every process.

        Args:
            value: Plain data, as JSON has it.

        Returns:
            The first one's.
        """
        if not self.several_processes:
            return value
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        length = int(multihost_utils.broadcast_one_to_all(np.asarray(len(text))))
        mine = text if self.first else np.zeros(length, np.uint8)
        return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(mine)).tobytes())


ONE = Devices()


def join() -> None:
    """Become one of several processes, where a launcher such as SLURM or Open MPI started this one so.

    Plain processes are told by ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``. It must be
    called before anything is computed, and does nothing in a process that stands alone.
    """
    if jax.distributed.is_initialized():
        return
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    given = [os.environ.get(name) for name in names]
    if any(given):
        if not all(given):
            raise TradeError(f"{', '.join(names)} must be set together: {_missing(names, given)} is not.")
        try:
            count, own = int(given[1] or ""), int(given[2] or "")
        except ValueError:
            raise TradeError(
                f"{names[1]} and {names[2]} must be integers, got {given[1]!r} and {given[2]!r}."
            ) from None
        if not 0 <= own < count:
            raise TradeError(f"{names[2]} must be from 0 to {count - 1}, got {own}.")
        _initialise(given[0], count, own)
    elif any(os.environ.get(name, "1") != "1" for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")):
        _initialise()


def _initialise(*told: Any) -> None:
    try:
        jax.distributed.initialize(*told)
    except RuntimeError as error:
        raise TradeError(f"This process cannot join the others: {check.reason(error)}.") from error


def _missing(names: Sequence[str], given: Sequence[str | None]) -> str:
    return next(name for name, value in zip(names, given, strict=True) if not value)
