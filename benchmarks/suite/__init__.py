"""How well the tests notice faults."""
