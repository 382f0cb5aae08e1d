"""The paper's experiments, composed of what the other rooms offer."""
