"""Imports every table, so that `Base.metadata` is intact wherever migrations or tests need it."""

from importlib import import_module
from pkgutil import iter_modules

from server import models
from server.db import Base

for found in iter_modules(models.__path__):
    import_module(f"server.models.{found.name}")

metadata = Base.metadata
