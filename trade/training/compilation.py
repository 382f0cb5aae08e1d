"""Compiled programs are kept between runs, so that the second run of a problem starts at once."""

import os
from pathlib import Path

import jax


def cache_directory() -> Path:
    """What is kept between runs: the folder ``TRADE_CACHE`` names, or one in the user's cache."""
    return Path(os.environ.get("TRADE_CACHE", Path.home() / ".cache" / "trade"))


def keep_compiled() -> None:
    """Let JAX keep what it compiles in our cache folder, unless the user has chosen another, or none."""
    if jax.config.jax_compilation_cache_dir is None and jax.config.jax_enable_compilation_cache:  # pyright: ignore
        folder = cache_directory() / "compiled"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:  # a home that cannot be written is no reason not to train
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
