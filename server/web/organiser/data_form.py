"""The form of a competition from an organiser's own images: its fields, and the file that they write."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lethe.errors import AppError, InvalidInput
from lethe.proposal.detect import words_of
from lethe.proposal.propose import NETWORKS, to_toml
from server.web.deps import timestamp

MAX_LENGTH = 2000
TIMES = ("opens_at", "closes_at")


@dataclass(frozen=True)
class Field:
    """One field. name: its place in the competition file. kind: of an <input>, or "select"."""

    name: str
    label: str
    kind: str
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        return self.name.replace(".", "-")


GROUPS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    (
        "The competition",
        (
            Field("slug", "Address", "text", "lower-case letters, digits and hyphens; it cannot be changed later"),
            Field("title", "Title", "text"),
            Field("summary", "Summary", "text", "one sentence for the list of competitions"),
            Field("opens_at", "Opens, UTC", "datetime-local"),
            Field("closes_at", "Closes, UTC", "datetime-local", "finals are then re-scored on the private split"),
        ),
    ),
    (
        "What is forgotten",
        (
            Field(
                "splits.forget.by",
                "Drawn",
                "select",
                "whole persons, or single images",
                (("person", "by person"), ("random", "at random")),
            ),
            Field("splits.forget.fraction", "Share of the training images", "number", "0.02 is usual; at most 0.5"),
            Field("splits.validation_fraction", "Share for validation", "number"),
            Field("splits.test_fraction", "Share for testing", "number", "unless the data names its own test images"),
        ),
    ),
    (
        "Network and training",
        (
            Field("dataset.options.size", "Side of an image, pixels", "number", "all images are scaled to this"),
            Field("network.name", "Network", "select", "", tuple((name, name) for name in NETWORKS)),
            Field("training.epochs", "Epochs", "number"),
            Field("training.batch_size", "Images in a batch", "number"),
            Field("training.learning_rate", "Learning rate", "number"),
            Field("n_models", "Runs of a submission, N", "number", "and as many retrained models; more is more exact"),
        ),
    ),
    (
        "Limits of a submission",
        (
            Field("limits.wall_time_s", "Time of all runs together, seconds", "number"),
            Field("limits.run_fraction_of_retraining", "Time of a run, as a share of one retraining", "number"),
            Field("limits.run_start_time_s", "Processor time of a run for starting, seconds", "number"),
            Field("limits.submissions_per_day", "Submissions of a team per day", "number"),
            Field("limits.final_selections", "Finals that a team chooses", "number"),
        ),
    ),
)
READING = (  # options of the dataset, in place of what is guessed
    Field("folders", "Levels of folders", "text", "test,label,person or any, one word for each"),
    Field("table", "Table", "text", "the CSV that names the images"),
    Field("label_column", "Column of classes", "text"),
    Field("person_column", "Column of persons", "text"),
    Field("test_column", "Column of test images", "text"),
    Field("test_values", "What means testing", "text", "values or folders, with commas"),
)
LISTS = ("folders", "test_values")
FIELDS = tuple(field for _, fields in GROUPS for field in fields)
OPTIONS = "dataset.options"
SIZE = f"{OPTIONS}.size"


def read_as(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the dataset's options that the fields of READING say."""
    return {name: words_of(text) if name in LISTS else text.strip() for name, text in texts.items() if text.strip()}


def shown_values(file: Mapping[str, Any]) -> dict[str, str]:
    """Return what the form shows of a file's values, and the dataset's options, which it keeps hidden, as JSON."""
    shown = {field.name: _shown(_at(file, field.name), field.kind) for field in FIELDS}
    return shown | {OPTIONS: json.dumps({name: v for name, v in file["dataset"]["options"].items() if name != "root"})}


def as_values(form: Mapping[str, str], *, root: str) -> dict[str, Any]:
    """Return `section.key` -> value of what the form says. Raises InvalidInput for options that are none."""
    values: dict[str, Any] = {}
    for field in FIELDS:
        text = form.get(field.name, "").strip()[:MAX_LENGTH]
        if text and field.name != SIZE:
            values[field.name] = _read(text, field)
    values["dataset.name"] = "folder"
    values[OPTIONS] = {"root": root, **_options(form)}
    values["network.options"] = NETWORKS.get(form.get("network.name", ""), {})
    return values


def as_text(form: Mapping[str, str], *, root: str) -> str:
    """Return the competition file that the form writes."""
    return to_toml(as_values(form, root=root))


def errors_of(error: AppError | None) -> dict[str, str]:
    """Return what is wrong with each field of the form."""
    known = {field.name for field in FIELDS}
    return {
        each.field: each.message.replace(", without quotation marks", "")
        for each in (error.violations if error else ())
        if each.field in known
    }


def _options(form: Mapping[str, str]) -> dict[str, Any]:
    try:
        options = json.loads(form.get(OPTIONS, "{}")[:MAX_LENGTH])
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The form lost what was found in the data; choose the dataset again") from error
    size = form.get(SIZE, "").strip()
    return {**(options if isinstance(options, dict) else {}), **({"size": _number(size)} if size else {})}


def _at(file: Mapping[str, Any], name: str) -> Any:
    value: Any = file
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _shown(value: object, kind: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)[:16] if kind == "datetime-local" else str(value)


def _read(text: str, field: Field) -> object:
    if field.name in TIMES:
        return _time(text, field)
    return _number(text) if field.kind == "number" else text


def _time(text: str, field: Field) -> datetime | str:
    try:
        return timestamp(text, field=field.name)
    except InvalidInput:
        return text  # the file's own check says what is wrong


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text
