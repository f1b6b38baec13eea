"""`lethe benchmark`."""
