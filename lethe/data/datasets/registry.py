"""Adapters by the name that a competition file uses.

An adapter is an entry of `ADAPTERS` in a module of this folder, or a function that an installed package names under the
entry point `lethe.datasets`.

A relative `root` is looked up in the configured folders of a worker's host, and nothing that is read leaves them. One
that was uploaded to the server lies where a worker unpacked it. An absolute one is read unchanged: the server takes it
from administrators only.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lethe.competition.file import Dataset
from lethe.competition.sections import uploaded_name
from lethe.data.datasets.image_dataset import Adapter, ImageDataset
from lethe.data.errors import InvalidDataset

PATHS = ("root", "cache")  # options that name a place on the host

_base: ContextVar[Path | None] = ContextVar("dataset_base", default=None)
_roots: ContextVar[tuple[Path, ...] | None] = ContextVar("dataset_roots", default=None)
_uploads: ContextVar[Mapping[str, Path]] = ContextVar("uploaded_datasets")


@contextmanager
def datasets_below(roots: Sequence[Path], *, uploads: Mapping[str, Path] | None = None) -> Iterator[None]:
    """Look relative roots up in these folders. Outside of this, they are relative to the current folder, or to that of
    a competition file (`datasets_beside`).

    uploads: folders of uploaded datasets by name.
    """
    tokens = _roots.set(tuple(root.resolve() for root in roots)), _uploads.set(uploads or {})
    try:
        yield
    finally:
        _roots.reset(tokens[0])
        _uploads.reset(tokens[1])


@contextmanager
def datasets_beside(file: Path) -> Iterator[None]:
    """Take relative paths as relative to the folder of this competition file: on the organiser's own machine."""
    token = _base.set(file.resolve().parent)
    try:
        yield
    finally:
        _base.reset(token)


def on_a_server() -> bool:
    """Return whether datasets are looked up in configured folders, which those who name them do not see."""
    return _roots.get() is not None


def placed(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with `root` as the folder that it stands for. Raises InvalidDataset if it is in none."""
    name = uploaded_name(options)
    if name is not None:
        return _uploaded(name, options)
    roots, root = _roots.get(), options.get("root")
    base = _base.get()
    if roots is None and base is not None:
        given = {name: options[name] for name in PATHS if isinstance(options.get(name), str)}
        return {**options, **{name: str(base / Path(path).expanduser()) for name, path in given.items()}}
    if roots is None or not isinstance(root, str) or Path(root).is_absolute():
        return options
    _check_relative(options)
    for folder in roots:
        path = folder / root
        if path.exists():
            _check_links(path, roots)
            return {**options, "root": str(path)}
    raise InvalidDataset(
        f"no folder for datasets of the worker holds {root!r}. Put it below one of LETHE_DATASET_ROOTS on every worker "
        "(~/.lethe/datasets if it names none); or send a zip of it with `lethe api POST /datasets -f name=NAME "
        '--upload FILE.zip`, and say root = "upload:NAME"'
    )


@dataclass(frozen=True)
class Places:
    """What another process needs to find the same dataset: `datasets_below` takes roots and uploads.

    read: folders that hold it. decoded: folders that take what is decoded of it, which are made.
    """

    roots: tuple[Path, ...]
    uploads: Mapping[str, Path]
    read: tuple[Path, ...]
    decoded: tuple[Path, ...]


def places_of(options: Mapping[str, Any]) -> Places:
    """Return the places of the dataset that has these options. Raises InvalidDataset if its root is in no folder."""
    name, root = uploaded_name(options), placed(options).get("root")
    read = (Path(root),) if isinstance(root, str) and Path(root).exists() else ()
    decoded = tuple(folder for folder in map(decoded_folder, read) if folder is not None)
    for folder in decoded:
        folder.mkdir(exist_ok=True)
    return Places(_roots.get() or (), {name: _uploads.get({})[name]} if name is not None else {}, read, decoded)


def decoded_folder(root: Path) -> Path | None:
    """Return where what is decoded of an uploaded dataset lies, so that it goes with it; None for any other."""
    return root.parent / "decoded" if root in _uploads.get({}).values() else None


def _uploaded(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    folder = _uploads.get({}).get(name)
    if folder is None:
        raise InvalidDataset(
            f"dataset {name!r} was uploaded to a server; here, its files must be named: `lethe competition validate` "
            "does that with --data FOLDER"
        )
    _check_relative(options)
    return {**options, "root": str(folder)}


def _check_relative(options: Mapping[str, Any]) -> None:
    for name in ("root", "table"):
        parts = Path(str(options.get(name, "."))).parts
        if ".." in parts or "/" in parts:
            raise InvalidDataset(f"dataset.options.{name} must be a path without '..', was {options[name]!r}")
    if "cache" in options:
        raise InvalidDataset("dataset.options.cache is for absolute roots; leave it out")


def _check_links(root: Path, roots: Sequence[Path]) -> None:
    """Raise InvalidDataset if a link at or below `root` leads out of the folders for datasets."""
    _check_inside(root, roots)
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            if path.is_symlink():
                _check_inside(path, roots)


def _check_inside(path: Path, roots: Sequence[Path]) -> None:
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise InvalidDataset(f"{path.name!r} is a link that leads out of the folders for datasets")


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
