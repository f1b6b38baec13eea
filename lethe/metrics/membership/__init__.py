"""Metrics made of membership attacks, and bounds of epsilon from how often they err."""
