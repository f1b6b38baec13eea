"""What helps with writing a competition file: examples, fields for what everybody changes, mistakes at their lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from lethe.competition.estimates import DiskEstimate, estimate_disk
from lethe.competition.file import CompetitionFile, parse_competition
from lethe.errors import AppError, Violation

EXAMPLES = Path(__file__).parents[3] / "examples" / "competitions"
HEADER = re.compile(r"\s*\[\[?\s*([\w.\-]+)\s*\]\]?")
FIELDS = (  # name, label, kind, help
    ("slug", "Address", "text", "lower-case letters, digits and hyphens; it cannot be changed later"),
    ("title", "Title", "text", ""),
    ("summary", "Summary", "text", "one sentence for the list of competitions"),
    ("opens_at", "Opens, UTC", "datetime-local", ""),
    ("closes_at", "Closes, UTC", "datetime-local", "finals are then re-scored on the private split"),
    ("n_models", "Runs of a submission", "number", "and as many retrained models: 512 in the published competition"),
)
WITHOUT_QUOTES = ("datetime-local", "number")


@dataclass(frozen=True)
class StartingFile:
    """One example to begin with. first_note: the first sentence of the comment at its head."""

    name: str
    title: str
    summary: str
    dataset: str
    network: str
    forget: str
    n_models: int
    first_note: str
    text: str


@dataclass(frozen=True)
class Mistake:
    """A wrong value. line: where it stands in the file, from 1; 0 where it is missing. text: of that line."""

    violation: Violation
    line: int
    text: str


@dataclass(frozen=True)
class Cost:
    """What a competition takes. models: trained for both splits. submission_s: of one submission, at most."""

    models: int
    epochs: int
    runs: int
    submission_s: float
    finals_runs: int
    disk: DiskEstimate


@lru_cache
def templates() -> tuple[StartingFile, ...]:
    """Return the example competitions by title; none where this server came without them."""
    examples = [_template(path) for path in sorted(EXAMPLES.glob("*.toml"))]
    return tuple(sorted(examples, key=lambda template: (template.dataset != "digits", template.title)))


def get_template(name: str) -> StartingFile | None:
    return next((template for template in templates() if template.name == name), None)


def field_values(text: str) -> dict[str, str]:
    """Return the file's value of each form field, as text; empty where the file has none."""
    values = {}
    for name, _, kind, _ in FIELDS:
        line = _top_level_line(text.splitlines(), name)
        written = text.splitlines()[line].partition("=")[2].strip() if line is not None else ""
        values[name] = written[:16] if kind == "datetime-local" else written.strip("\"'")
    return values


def with_fields(text: str, values: Mapping[str, str]) -> str:
    """Return the file with these values; an empty one changes nothing."""
    lines = text.splitlines()
    for name, _, kind, _ in FIELDS:
        if not (value := values.get(name, "").strip()):
            continue
        written = f"{name} = {_toml(value, kind)}"
        at = _top_level_line(lines, name)
        if at is None:
            lines.insert(0, written)
        else:
            lines[at] = written
    return "\n".join(lines) + "\n"


def mistakes(error: AppError | None, text: str) -> list[Mistake]:
    """Return each wrong value with its line."""
    lines = text.splitlines()
    listed = []
    for violation in error.violations if error else ():
        line = violation.line or find_line(text, violation.field)
        listed.append(Mistake(violation, line, lines[line - 1].strip() if 0 < line <= len(lines) else ""))
    return listed


def find_line(text: str, field: str) -> int:
    """Return the line (from 1) of a value such as `training.epochs`; of its table if it is missing there; else 0."""
    if of_task := re.match(r"tasks\.(\d+)\.", field):
        starts = [number for number, line in enumerate(text.splitlines()) if re.match(r"\s*\[\[\s*tasks\s*\]\]", line)]
        if int(of_task[1]) < len(starts):
            first = starts[int(of_task[1])]
            in_task = find_line("\n".join(text.splitlines()[first:]), f"tasks.{field[of_task.end() :]}")
            return first + in_task if in_task else first + 1
    *tables, key = re.sub(r"\[\d+\]|\.\d+", "", field).split(".")
    table, best = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := HEADER.match(line):
            table = header[1]
            if table == ".".join([*tables, key]):
                return number
            if tables and table == ".".join(tables):
                best = number
        elif table == ".".join(tables) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
        elif tables and not table and re.match(rf"\s*{re.escape(tables[0])}\s*[=.]", line):
            best = number
    return best


def estimate_cost(file: CompetitionFile) -> Cost:
    """Return what both splits' preparation and a submission take at most."""
    if file.tasks:
        costs = [estimate_cost(task) for task in file.tasks]
        disks = [cost.disk for cost in costs]
        return Cost(
            models=sum(cost.models for cost in costs),
            epochs=max(cost.epochs for cost in costs),
            runs=sum(cost.runs for cost in costs),
            submission_s=sum(cost.submission_s for cost in costs),
            finals_runs=sum(cost.finals_runs for cost in costs),
            disk=DiskEstimate(_sum([disk.models for disk in disks]), _sum([disk.outputs for disk in disks])),
        )
    n = file.n_models
    return Cost(
        # on either split: the original, N retrained, N of the oracle, and those of the oracle that are kept once more
        models=2 * (1 + 2 * n + min(file.report.keep_weights, n)),
        epochs=file.training.epochs,
        runs=n,
        submission_s=file.limits.wall_time_s,
        finals_runs=file.limits.final_selections * n,
        disk=estimate_disk(file),
    )


def _sum(parts: Sequence[int | None]) -> int | None:
    """Return a sum, None where a part is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _template(path: Path) -> StartingFile:
    text = path.read_text(encoding="utf-8")
    file = parse_competition(text, source=path.name)
    return StartingFile(
        name=path.stem,
        title=file.title,
        summary=file.summary,
        dataset=file.dataset.name,
        network=file.network.name,
        forget=file.splits.forget.by,
        n_models=file.n_models,
        first_note=_first_sentence(text),
        text=text,
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment that a file begins with, empty if it begins otherwise."""
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    first, *rest = re.split(r"(?<!al)\. ", " ".join(line.lstrip("# ").rstrip() for line in comment), maxsplit=1)
    return f"{first}." if rest else first


def _top_level_line(lines: Sequence[str], name: str) -> int | None:
    """Return the place of a key before the first table."""
    for number, line in enumerate(lines):
        if HEADER.match(line):
            return None
        if re.match(rf"\s*{name}\s*=", line):
            return number
    return None


def _toml(value: str, kind: str) -> str:
    if kind == "datetime-local":
        return value + (":00Z" if len(value) == len("2026-01-01T00:00") else "Z")
    if kind in WITHOUT_QUOTES:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
