"""Loaded before the libraries of a process that others are forked from: of the modules nothing is garbage."""

import gc

gc.disable()
