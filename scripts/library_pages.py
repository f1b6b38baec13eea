"""Write what a submission finds installed, from docker/worker.lock: `python -m scripts.library_pages`."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "docker" / "worker.lock"
LIST = ROOT / "lethe" / "submission" / "libraries.py"
PAGE = ROOT / "docs" / "participants" / "libraries.md"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)
DRIVERS = ("nvidia-", "cuda-")  # parts of torch
TEXT = """\
# Libraries

What a submission may import, beside Python's own library. The versions are those of the worker image
(`docker/worker.lock`); two stand there where they depend on Python's version. A run has no network, so nothing else can
be installed: what is missing goes into your zip as source. A `requirements.txt` in a zip is compared with this list at
upload.
The starter kit's README names the versions of the worker that prepared the competition.

| library | version |
|---|---|
{rows}
"""


MODULE = '''\
"""What a submission finds installed: versions by library. Written by `python -m scripts.library_pages`."""

LIBRARIES = {{
{entries}
}}
'''


def libraries() -> dict[str, list[str]]:
    """Return the versions by name."""
    found = defaultdict(list)
    for name, version in PINNED.findall(LOCK.read_text(encoding="utf-8")):
        if not name.startswith(DRIVERS):
            found[name].append(version)
    return dict(sorted(found.items()))


def files() -> dict[Path, str]:
    """Return the text of each file."""
    known = libraries()
    rows = "\n".join(f"| {name} | {', '.join(versions)} |" for name, versions in known.items())
    entries = "\n".join(f'    "{name}": "{" ".join(versions)}",' for name, versions in known.items())
    return {LIST: MODULE.format(entries=entries), PAGE: TEXT.format(rows=rows)}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
