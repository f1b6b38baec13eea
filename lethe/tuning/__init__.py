"""Methods on a prepared split: run them, and search their constants."""
