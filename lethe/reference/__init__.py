"""Reference splits: a prepared split as one signed file, for those who did not train its models."""
