"""From a model's weights to the arrays that metrics read."""
