"""What a run's output says to its author: files under the author's names, and warnings."""

import re

CELL_FILE = re.compile(r"cell-0*(\d+)\.py")
STAGED_FILE = re.compile(r'File "[^"\n]*/submission\.py"')  # a lone file, where it runs

WARNING = "lethe: warning:"  # begins a line of the output that is shown apart from it


def warnings_in(log: str) -> list[str]:
    """Return what a run was warned of, each once."""
    lines = [line.removeprefix(WARNING).strip() for line in log.splitlines() if line.startswith(WARNING)]
    return list(dict.fromkeys(lines))


def name_as_sent(file: str, sent_as: str) -> str:
    """Return how to name a file of a package to its author.

    sent_as: the upload's name. A lone .py file has that name whatever it is run as, a notebook's cell a number; a zip's
    files keep theirs.
    """
    if sent_as.endswith(".py"):
        return sent_as
    if sent_as.endswith(".ipynb"):
        cell = CELL_FILE.fullmatch(file)
        return f"{sent_as}, cell {cell[1]}" if cell else sent_as
    return file


def log_as_sent(log: str, sent_as: str) -> str:
    """Return what a run printed, with a lone .py file in its tracebacks under the upload's name, `sent_as`."""
    return STAGED_FILE.sub(lambda _: f'File "{sent_as}"', log) if sent_as.endswith(".py") else log
