"""Adapters by the name that a competition file uses.

An adapter is an entry of `ADAPTERS` in a module of this folder, or a function that an installed package names under the
entry point `lethe.datasets`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import Adapter, ImageDataset
from lethe.data.datasets.roots import on_a_server, placed
from lethe.data.errors import InvalidDataset

ENTRY_POINTS = "lethe.datasets"


@cache
def adapters() -> Mapping[str, Adapter]:
    """Return every adapter by name, sorted. Raises ValueError for a name that two adapters have."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path != Path(__file__))
    found: dict[str, Adapter] = {}
    for part in (
        *(getattr(import_module(f"lethe.data.datasets.{name}"), "ADAPTERS", {}) for name in names),
        *({point.name: point.load()} for point in entry_points(group=ENTRY_POINTS)),
    ):
        if twice := sorted(part.keys() & found.keys()):
            raise ValueError(f"two datasets are called {twice[0]!r}")
        found |= part
    return dict(sorted(found.items()))


def open_dataset(dataset: Dataset) -> ImageDataset:
    """Return the dataset that the competition file names. Raises InvalidDataset saying what is wrong or missing."""
    adapter = adapters().get(dataset.name)
    if adapter is None:
        raise InvalidDataset(f"dataset.name {dataset.name!r} is not known: allowed are {', '.join(adapters())}")
    options = placed(dataset.options)
    try:
        return adapter(options).checked()
    except InvalidDataset as error:
        if not on_a_server():
            raise
        # It names files by their place on this host, which organisers must not see.
        folder, root = str(options.get("root", "")), str(dataset.options.get("root", ""))
        detail = error.detail.replace(folder, root) if folder else error.detail
        raise InvalidDataset(detail, violations=error.violations) from error
