"""Processes of a test: found below a given one, so that only our own are ever ended."""

from pathlib import Path


def descendants(root: int) -> list[tuple[int, str]]:
    """Return (pid, command line) of every process below `root`."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            commands[pid] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
    found: list[tuple[int, str]] = []
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root and pid != root:
            found.append((pid, commands.get(pid, "")))
    return found
