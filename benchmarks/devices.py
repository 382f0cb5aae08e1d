"""What devices say to each other in one step of training: ``python -m benchmarks.devices``.

The step of the default is compiled for eight simulated devices; the collectives in it and their bytes are counted.
They do not depend on what the devices are.
"""

import os
import re
from math import prod
from pathlib import Path
from typing import Any

COUNT = 8
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={COUNT}"
os.environ["JAX_PLATFORMS"] = "cpu"

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import tyro  # noqa: E402

import trade  # noqa: E402
from benchmarks.task import SIZES  # noqa: E402
from trade.data import make_problem  # noqa: E402
from trade.devices import Devices  # noqa: E402
from trade.experiments.results import origin  # noqa: E402
from trade.files import write_json  # noqa: E402
from trade.fit import stack  # noqa: E402
from trade.flows import MLP, SplineFlow  # noqa: E402
from trade.training.optimiser import Cooling  # noqa: E402
from trade.training.state import Program, begin, compiled_loop  # noqa: E402
from trade.training.windows import on_device  # noqa: E402

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "pred": 1, "u8": 1, "bf16": 2}


def collectives(text: str) -> dict[str, dict[str, int]]:
    """Operations of a compiled program by which devices exchange data: how many of each kind, and their bytes."""
    found: dict[str, dict[str, int]] = {}
    for result, kind in re.findall(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(", text):
        arrays = re.findall(r"(\w+)\[([\d,]*)\]", re.sub(r"/\*.*?\*/", "", result))
        size = sum(BYTES[dtype] * prod(int(n) for n in shape.split(",") if n) for dtype, shape in arrays)
        entry = found.setdefault(kind, {"count": 0, "bytes": 0})
        entry["count"] += 1
        entry["bytes"] += size
    return found


def measured(name: str, seeds: int | None) -> dict[str, Any]:
    """One size of the speed benchmark, with the objective of ``fit``."""
    size, target = SIZES[name], SIZES[name].target
    data = {1.0: target.sample(jax.random.key(0), 1000, 1.0)}
    problem = on_device(make_problem(target, data))
    recipe = SplineFlow(target.shape, target.condition, blocks=size.blocks, bins=size.bins, network=MLP(size.width))
    program = Program(trade.Trade(start=0), trade.Adam(), 8_000)  # both terms act; before, one of two gradients
    keys = jax.random.split(jax.random.key(1), seeds or 1)
    flows = [recipe(key) for key in keys]

    def start(flow: Any, key: jax.Array) -> Any:
        return begin(program, flow, problem, key)

    learners = start(flows[0], keys[0]) if seeds is None else eqx.filter_vmap(start)(stack(flows), keys)
    devices = Devices.chosen("all", seeds)
    bounds = jnp.asarray(0), jnp.asarray(1), Cooling(jnp.asarray(5_200), jnp.asarray(8_000))
    with jax.set_mesh(devices.mesh):  # pyright: ignore
        placed = devices.placed((learners, problem, *bounds))
        compiled = compiled_loop().lower(program, *placed, many=seeds is not None).compile()
    parameters = sum(a.size for a in jax.tree.leaves(eqx.filter(flows[0], eqx.is_inexact_array)))
    text = compiled.as_text() if hasattr(compiled, "as_text") else compiled.compiled.as_text()
    return {"size": name, "seeds": seeds or 1, "parameters": parameters, "collectives": collectives(text)}


def main(out: Path = Path("results/devices.json")) -> None:
    """Count what devices say to each other in one step, print and save it.

    Args:
        out: The file of results.
    """
    rows = [measured("small", None), measured("large", None), measured("small", COUNT)]
    for row in rows:
        print(row)
    write_json(out, origin() | {"devices": COUNT, "rows": rows})


if __name__ == "__main__":
    tyro.cli(main)
