"""The version of the scorer, stored with every score; raised when any number that it gives changes."""

SCORER_VERSION = "1"
