"""Metrics made of membership attacks."""
