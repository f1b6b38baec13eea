"""What all metrics share: the registry, the catalogue of arrays, inputs, checks, results and their evaluation."""
