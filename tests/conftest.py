"""Less optimised code for the tests: they compile much and run little, and this takes a fifth off their time."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1"
