"""The `lethe` command."""
