"""Datasets, their partition into sets, and forget sets."""
