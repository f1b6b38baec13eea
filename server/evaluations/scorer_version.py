"""The version of the scorer that evaluations are made for. A test holds it equal to `lethe.metrics.scoring`'s own."""

SCORER_VERSION = "1"
