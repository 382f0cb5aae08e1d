"""The training loop, its guard, checkpoints and metrics."""
