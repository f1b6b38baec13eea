"""Loaded after those libraries: no process that is forked looks through them, or has pages of its own for that."""

import gc

gc.freeze()
gc.enable()
