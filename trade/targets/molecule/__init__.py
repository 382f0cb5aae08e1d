"""Molecules: energies in JAX, internal coordinates, and alanine dipeptide."""
