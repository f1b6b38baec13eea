"""Metrics of whole runs: how the models' confidences are distributed over all forget examples together."""
