"""How good a model is: divergences and free energies."""
