"""Training of one model and of many at once."""
