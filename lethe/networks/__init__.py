"""Architectures by name, for images."""
