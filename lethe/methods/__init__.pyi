"""The type of what `lethe.methods` loads when it is asked for."""

from lethe.api.run_method import run as run
