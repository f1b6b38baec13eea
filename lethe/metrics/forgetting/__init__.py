"""Forgetting quality and the score, as metrics."""
