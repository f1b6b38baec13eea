"""Read by every Python process that a notebook starts, before its own code."""

from sandbox.guest.notebook import children

children.begin()
