"""Machine unlearning: the competition file, the metrics, the methods, and the client of a competition server.

What does not need torch imports without it: `lethe.competition`, `lethe.metrics`, `lethe.client`, `lethe.reports`.
Networks, data, training and evaluation need the extra `torch`.
"""

__version__ = "0.2.0"
