"""Metrics that compare the outputs of unlearned and other models."""
