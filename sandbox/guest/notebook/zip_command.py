"""The command `zip`, as notebooks call it: `zip [-r -q -j -m -0..-9 ...] archive files... [-x patterns]`.

Plain and complete rather than compressed: what counts afterwards is the list of members.
"""

import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

_TAKES_A_VALUE = frozenset("bnOstZ")
_NOTHING_TO_DO = 12  # zip's own status


@dataclass
class _Request:
    archive: Path | None = None
    names: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    recurse: bool = False
    junk_paths: bool = False
    move: bool = False
    quiet: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Add the named files to the archive. Return zip's exit status."""
    request = _parse(list(sys.argv[1:] if arguments is None else arguments))
    if request.archive is None:
        sys.stderr.write("zip: name an archive and files\n")
        return _NOTHING_TO_DO
    files = dict(_members(request))
    if not files:
        sys.stderr.write("zip error: Nothing to do!\n")
        return _NOTHING_TO_DO
    _write(request, files)
    return 0


def _parse(words: list[str]) -> _Request:
    request = _Request()
    excluding = only_names = False
    waiting_for_value = False
    for word in words:
        if waiting_for_value:
            waiting_for_value = False
        elif word == "--":
            only_names = True
        elif word == "@" or (word == "-@" and not only_names):
            request.names += sys.stdin.read().splitlines()
        elif word.startswith("-") and len(word) > 1 and not only_names:
            excluding = word in ("-x", "--exclude")
            waiting_for_value = _switch(request, word)
        elif excluding:
            request.excluded.append(word)
        elif request.archive is None:
            request.archive = Path(word if Path(word).suffix else f"{word}.zip")
        else:
            request.names.append(word)
    return request


def _switch(request: _Request, word: str) -> bool:
    """Note an option. Return whether the next word is its value."""
    if word.startswith("--"):
        request.recurse |= word == "--recurse-paths"
        request.junk_paths |= word == "--junk-paths"
        request.quiet |= word == "--quiet"
        return False
    letters = word[1:]
    request.recurse |= "r" in letters
    request.junk_paths |= "j" in letters
    request.move |= "m" in letters
    request.quiet |= "q" in letters
    return letters[-1] in _TAKES_A_VALUE


def _members(request: _Request) -> Iterator[tuple[str, Path]]:
    for name in request.names:
        path = Path(name)
        if path.is_dir() and request.recurse:
            members = sorted(item for item in path.rglob("*") if item.is_file())
        elif path.is_file():
            members = [path]
        else:
            if not path.is_dir():
                sys.stderr.write(f"zip warning: name not matched: {name}\n")
            members = []
        for item in members:
            member = item.name if request.junk_paths else str(item).lstrip("/").removeprefix("./")
            if not any(fnmatch(member, pattern) or fnmatch(item.name, pattern) for pattern in request.excluded):
                yield member, item


def _write(request: _Request, files: dict[str, Path]) -> None:
    archive = request.archive or Path("submission.zip")
    mode: Literal["a", "w"] = "a" if zipfile.is_zipfile(archive) else "w"
    with zipfile.ZipFile(archive, mode, zipfile.ZIP_STORED) as target:
        there = set(target.namelist())
        for member, path in files.items():
            if path.resolve() == archive.resolve():
                continue
            if member not in there:
                target.write(path, member)
            if not request.quiet:
                sys.stdout.write(f"  adding: {member} (stored 0%)\n")
    if request.move:
        for path in files.values():
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
