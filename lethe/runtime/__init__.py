"""What code inside a run shares with the trusted side. Standard library and torch only."""
