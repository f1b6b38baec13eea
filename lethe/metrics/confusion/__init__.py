"""Metrics of confusion matrices: planted confusions and removed classes."""
