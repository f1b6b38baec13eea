"""Kaggle's notebooks, run honestly in one process and through Lethe."""
