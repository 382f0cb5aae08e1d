"""From flow samples to samples of the target: weights and their effective number."""
