"""Forgetting quality and the score, as metrics, and probes of what is left in the weights."""
