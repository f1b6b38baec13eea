"""Lower bounds of epsilon that hold with a stated probability."""
