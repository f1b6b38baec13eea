"""What the papers claim of methods and metrics, held against a benchmark's results: `lethe benchmark check`."""
