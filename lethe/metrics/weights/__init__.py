"""Metrics of probes that need the unlearned weights."""
