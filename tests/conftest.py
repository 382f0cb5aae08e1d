"""Less optimised code for the tests: they compile much and run little, and this takes a third off their time."""

import os
from importlib.metadata import version

flags = ["--xla_backend_optimization_level=1"]
if version("jax").startswith("0.10."):  # a flag that XLA does not know ends the process
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # nothing in the user's folders, and times that mean something
