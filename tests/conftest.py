"""Less optimised code for the tests: they compile much and run little, and this takes a third off their time."""

import gc
import os
from importlib.metadata import version
from pathlib import Path

import pytest

flags = ["--xla_backend_optimization_level=1"]
if version("jax").startswith("0.10."):  # a flag that XLA does not know ends the process
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # nothing in the user's folders, and times that mean something

import jax  # noqa: E402 (after its flags)

MOST_MAPS = 30_000


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Drop compiled programs before there are too many: each takes memory maps, and Linux ends a process at 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and sum(1 for _ in maps.open()) > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
