"""A metric, a method, a dataset and a network for Lethe."""
