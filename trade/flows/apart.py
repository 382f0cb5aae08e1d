"""Elementwise arithmetic that XLA is to compile once, and not again for every result that needs it."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

T = TypeVar("T")


def compiled_apart(rule: Callable[..., T]) -> Callable[..., T]:
    """Compiled as a unit on the CPU: fused with what surrounds it, XLA would repeat it for each value that needs it.

    Args:
        rule: A function of arrays, which is never differentiated: of a ``custom_jvp`` function, or its rule.

    Returns:
        The same function.
    """
    compiled = jax.jit(rule)

    def call(*args: Any) -> T:
        if jax.default_backend() != "cpu":
            return rule(*args)
        with set_xla_metadata(inlineable="false"):
            return compiled(*args)

    return call
