"""Metrics of several submissions or of a benchmark's cells, and what unlearning costs."""
