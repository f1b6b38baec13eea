"""Which files a person means: not the hidden ones, nor those that systems and archivers add by themselves."""

from pathlib import Path

FROM_SYSTEMS = frozenset(
    {"__macosx", ".ds_store", "__pycache__", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin"}
)


def is_from_system(name: str) -> bool:
    """Return whether a path leads to what a system or an archiver adds beside a person's files."""
    return any(part.lower() in FROM_SYSTEMS or part.startswith("._") for part in name.split("/"))


def is_visible(name: str) -> bool:
    """Return whether a person sees this file of a folder: neither it nor a folder around it is hidden.

    name: relative to the folder, with "/" between folders.
    """
    return not is_from_system(name) and not any(part.startswith(".") for part in name.split("/"))


def visible_files(root: Path) -> list[Path]:
    """Return the files below a folder that are not hidden, sorted by their names."""
    named = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*"))
    return [path for name, path in named if is_visible(name) and path.is_file()]
