"""From a competition file to a prepared split."""
