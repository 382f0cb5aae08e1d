"""Code that is not optimised for the tests, which compile much and run little: half their time.

Modules that run more than they compile are marked ``optimised``; processes that a test starts do as its module does.
And a core for each worker of pytest-xdist and its processes: threads of several that wait for each other cost a sixth.
"""

import gc
import os
from importlib.metadata import version
from pathlib import Path

import pytest

flags = ["--xla_backend_optimization_level=1", "--xla_cpu_parallel_codegen_split_count=1"]
if version("jax").startswith("0.10."):  # a flag that XLA does not know ends the process
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # nothing in the user's folders, and times that mean something

if hasattr(os, "sched_setaffinity") and "PYTEST_XDIST_WORKER" in os.environ:
    own, workers = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[own::workers] or {cores[own % len(cores)]})

import jax  # noqa: E402 (after its flags)

MOST_MAPS = 30_000


@pytest.fixture(scope="module", autouse=True)
def optimisation(request):
    """As little as there can be, unless the module asks for more."""
    little = request.node.get_closest_marker("optimised") is None
    jax.config.update("jax_disable_most_optimizations", little)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(little))


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Drop compiled programs before there are too many: each takes memory maps, and Linux ends a process at 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and sum(1 for _ in maps.open()) > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
