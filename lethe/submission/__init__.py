"""Reading an upload without running it: packages, notebooks, entry points."""
