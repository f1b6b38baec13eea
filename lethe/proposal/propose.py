"""A competition file for data that was looked at, with its cost, and a preview of what it makes of the data."""

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from lethe.competition.estimates import mlp_operations, retraining_seconds, small_cnn_operations
from lethe.competition.file import CompetitionFile, parse_competition
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_list import ImageList
from lethe.data.forget_sets import Indices, cut_dataset
from lethe.data.seeds import numpy_generator
from lethe.proposal.detect import Detected
from lethe.proposal.source import Source, read_header

MAX_PICTURE = 128 << 10  # bytes of one that is shown


@dataclass(frozen=True)
class Picture:
    """One image. url: a data URL; "" for one that is too large, or of a format that browsers do not show."""

    label: str
    url: str


@dataclass(frozen=True)
class SetPreview:
    """One set of the public split. persons: 0 where they are not known. classes: the number of images of each."""

    name: str
    n: int
    persons: int
    classes: tuple[tuple[str, int], ...]
    pictures: tuple[Picture, ...] = ()


def preview_cut(images: ImageList, file: CompetitionFile, *, source: Source | None = None) -> tuple[SetPreview, ...]:
    """Return the sets of the public split. source: where the pictures are read; None shows none.

    Raises InvalidSplit as preparing does.
    """
    cut_dataset(images, file, Visibility.PRIVATE)  # it may fail where the public one does not
    cut = cut_dataset(images, file, Visibility.PUBLIC)
    sets = dict(cut.sets())
    return tuple(_preview(images, name, sets[name], source) for name in ("forget", "retain", "validation", "test"))


def _preview(images: ImageList, name: str, indices: Indices, source: Source | None) -> SetPreview:
    counts = Counter(images.labels[indices].tolist())
    return SetPreview(
        name=name,
        n=len(indices),
        persons=len(np.unique(images.persons[indices])) if images.knows_persons else 0,
        classes=tuple((each, counts[number]) for number, each in enumerate(images.class_names)),
        pictures=() if source is None else tuple(_pictures(images, indices, source)),
    )


def _pictures(images: ImageList, indices: Indices, source: Source) -> Sequence[Picture]:
    chosen = numpy_generator(0).permutation(indices)[:PICTURES]
    return [Picture(images.class_names[images.labels[i]], _url(source, images.names[i])) for i in chosen]


def _url(source: Source, name: str) -> str:
    data = source.read(name, at_most=MAX_PICTURE + 1)
    header = read_header(data)
    if len(data) > MAX_PICTURE or header is None or not header.mime:
        return ""
    return f"data:{header.mime};base64,{base64.b64encode(data).decode()}"


PICTURES = 8  # of each set in a preview
MODELS = (512, 256, 128, 64, 32)  # N: the most that are trained in the time
MAX_PREPARATION_S = 8 * 3600
MIN_PERSONS = 20  # to draw whole persons from
MLP_SIDE = 12  # up to here a perceptron is enough
NETWORKS: dict[str, dict[str, Any]] = {  # those that are proposed, or offered, with their options
    "mlp": {"hidden": [64]},
    "small_cnn": {"widths": [16, 32, 64]},
    "resnet18": {},
}
SHARE = 0.2  # of a retraining that a run has
START_S = 0.1  # that a run takes beyond its limit


@dataclass(frozen=True)
class Proposal:
    """A file's text, and what it costs. Seconds: on one process of a processor; 0 where they are not known."""

    text: str
    file: CompetitionFile
    retraining_s: float
    preparation_s: float
    submission_s: float


def propose(
    detected: Detected, *, root: str, slug: str, title: str, at: datetime, given: Mapping[str, Any] | None = None
) -> Proposal:
    """Return the proposal. root: how the file names the data. at: now. given: `section.key` -> a value of the
    organiser's, in place of the proposed one. Raises InvalidCompetitionFile for a wrong one."""
    given = given or {}
    values = {**_values(detected, root=root, slug=slug, title=title, at=at), **given}
    file = parse_competition(to_toml(values))
    retraining_s = _retraining_s(detected, file)
    if "n_models" not in given and retraining_s:
        affordable = (n for n in MODELS if 2 * (2 * n + 1) * retraining_s <= MAX_PREPARATION_S)
        values["n_models"] = next(affordable, MODELS[-1])
    run_s = SHARE * retraining_s
    if "limits.run_start_time_s" not in given and retraining_s:  # too little to retrain in
        values["limits.run_start_time_s"] = round(min(1.0, max(0.05, run_s / 4)), 2)
    if "limits.wall_time_s" not in given:
        of_a_run = 2 * (run_s + values.get("limits.run_start_time_s", 1.0) + START_S) if retraining_s else 60.0
        values["limits.wall_time_s"] = max(3600, -(-int(of_a_run * values["n_models"]) // 600) * 600)
    text = to_toml(values, notes=detected.notes)
    file = parse_competition(text)
    models = 2 * (2 * file.n_models + 1)
    submission_s = file.n_models * (run_s + START_S) if retraining_s else 0.0
    return Proposal(text, file, retraining_s, models * retraining_s, submission_s)


def slug_of(name: str) -> str:
    """Return a competition's address from a folder's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].strip("-") or "my-competition"


def to_toml(values: Mapping[str, Any], *, notes: tuple[str, ...] = ()) -> str:
    """Return a competition file. values: `key` or `section.key` -> value, in the order to write them in."""
    top = {name: value for name, value in values.items() if "." not in name}
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        if section:
            sections.setdefault(section, {})[key] = value
    lines = [*(f"# {note}" for note in notes), *(f"{name} = {_written(value)}" for name, value in top.items())]
    for section, keys in sections.items():
        lines += ["", f"[{section}]", *(f"{name} = {_written(value)}" for name, value in keys.items())]
    return "\n".join(lines) + "\n"


def _values(detected: Detected, *, root: str, slug: str, title: str, at: datetime) -> dict[str, Any]:
    opens_at = (at + timedelta(days=7)).replace(hour=12, minute=0, second=0, microsecond=0)
    example = "rows" if detected.features else "images" if detected.images is not None else "questions"
    return {
        "slug": slug,
        "title": title,
        "summary": f"Make a network forget some of its training {example}, as if it had never seen them.",
        "opens_at": opens_at,
        "closes_at": opens_at + timedelta(days=60),
        "n_models": MODELS[0] if detected.images is not None else 16,
        **({} if detected.images is not None else {"task.kind": "causal-lm", "task.loss_on": "all"}),
        "dataset.name": detected.dataset,
        "dataset.options": {"root": root, **detected.options},
        **(_of_images(detected) if detected.images is not None else _of_questions(detected)),
        "limits.run_fraction_of_retraining": SHARE,
        "limits.submissions_per_day": 5,
        "limits.final_selections": 2,
    }


def _of_images(detected: Detected) -> dict[str, Any]:
    images = detected.images
    assert images is not None  # noqa: S101 - who calls has asked
    n, few = len(images), len(images) < 2000
    part = 0.2 if few else 0.1
    by_person = images.knows_persons and len(set(images.persons.tolist())) >= MIN_PERSONS
    largest = Counter(images.persons.tolist()).most_common(1)[0][1] if by_person else 1
    n_train = n * (1 - 2 * part) if images.is_test is None else float((~images.is_test).sum()) * (1 - part)
    fraction = min(0.2, max(0.02, 50 / n_train, 3 * largest / n_train))
    network = "mlp" if detected.features or int(detected.options["size"]) <= MLP_SIDE else "small_cnn"
    return {
        "network.name": network,
        "network.options": NETWORKS[network],
        "training.epochs": 30 if few else 20,
        "training.batch_size": 32 if few else 64,
        "training.learning_rate": 0.05,
        "training.momentum": 0.9,
        "splits.validation_fraction": part,
        "splits.test_fraction": part,
        "splits.forget.by": "person" if by_person else "random",
        "splits.forget.fraction": round(fraction, 3),
    }


def _of_questions(detected: Detected) -> dict[str, Any]:
    part = max(0.1, round(1.5 / max(detected.groups, 3), 2))
    return {
        "network.name": "llama",
        "network.options": {"width": 128, "layers": 3, "heads": 4, "hidden_width": 352, "context": 256},
        "training.epochs": 20,
        "training.batch_size": 16,
        "training.optimizer": "adamw",
        "training.learning_rate": 0.002,
        "training.schedule": "cosine",
        "splits.validation_fraction": part,
        "splits.test_fraction": part,
        "splits.forget.by": "person",
        "splits.forget.fraction": round(min(0.3, max(0.05, 1.5 / max(detected.groups, 1))), 3),
    }


def _retraining_s(detected: Detected, file: CompetitionFile) -> float:
    """Return about how long one retraining takes; 0 for questions and for a network whose work is not known here."""
    if detected.images is None:
        return 0.0
    options, n_classes = file.dataset.options, detected.images.n_classes
    side = int(options.get("size", 32))
    shape = (detected.features, 1, 1) if detected.features else (int(options.get("channels", 3)), side, side)
    if file.network.name == "mlp":
        operations = mlp_operations(shape, n_classes, file.network.options.get("hidden", (64,)))
    elif file.network.name == "small_cnn":
        operations = small_cnn_operations(shape, n_classes, file.network.options.get("widths", (8, 16, 32)))
    else:
        return 0.0
    splits = file.splits
    n_train = len(detected.images) * (1 - splits.validation_fraction - splits.test_fraction)
    n_retain = int(n_train * (1 - splits.forget.fraction))
    return retraining_seconds(operations, file.training, n_images=n_retain)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_written(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
