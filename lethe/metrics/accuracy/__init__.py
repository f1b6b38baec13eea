"""Metrics of the accuracies on the forget, retain and test set, and of confusions between classes."""
