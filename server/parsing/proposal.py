"""What an uploaded dataset holds, and a competition for it. Only the parsing process calls this: see `tasks`."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import IO, Any

from lethe.errors import InvalidCompetitionFile, InvalidInput
from lethe.proposal.detect import Detected, detect
from lethe.proposal.preview import preview_cut
from lethe.proposal.propose import propose
from lethe.proposal.source import Archive
from server.parsing import dataset_archive as archive

MAX_CLASSES = 50  # whose counts are shown


def propose_for(
    file: IO[bytes],
    *,
    limits: Mapping[str, int],
    root: str,
    slug: str,
    title: str,
    at: str,
    given: Mapping[str, Any],
    read_as: Mapping[str, Any],
) -> dict[str, Any]:
    """Return facts, proposed file, cost and the cut with pictures, as plain data.

    at: now, as text. read_as: options of the dataset in place of what is guessed. given: values in place of the
    proposed ones. Raises InvalidInput, or InvalidCompetitionFile.
    """
    try:
        with archive.opened(file, limits) as (zipped, entries):
            source = Archive(zipped, entries)
            detected = detect(source, wanted={**given.get("dataset.options", {}), **read_as})
            if detected.images is None or detected.features:
                raise InvalidInput(
                    "questions and tables cannot be uploaded: put them into a folder for datasets of the workers; "
                    "`lethe competition new` writes their file"
                )
            made = propose(
                detected, root=root, slug=slug, title=title, at=datetime.fromisoformat(at), given=_with_times(given)
            )
            sets = preview_cut(detected.images, made.file, source=source)
    except InvalidCompetitionFile as error:
        raise InvalidInput(error.detail, violations=error.violations) from error  # also those of lethe.data
    return {
        "text": made.text,
        "values": made.file.model_dump(mode="json"),
        "found": _facts(detected),
        "sets": [asdict(each) for each in sets],
        "retraining_s": made.retraining_s,
        "preparation_s": made.preparation_s,
        "submission_s": made.submission_s,
    }


def _facts(detected: Detected) -> dict[str, Any]:
    images, header = detected.images, detected.header
    assert images is not None  # noqa: S101 - questions were refused
    return {
        "images": len(images),
        "classes": list(detected.class_counts.items())[:MAX_CLASSES],
        "n_classes": images.n_classes,
        "persons": len(set(images.persons.tolist())) if images.knows_persons else 0,
        "size": f"{header.width} x {header.height}" if header else "",
        "notes": list(detected.notes),
    }


def _with_times(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with times as such: between processes they are text."""
    times = {name: datetime.fromisoformat(given[name]) for name in ("opens_at", "closes_at") if name in given}
    return {**given, **times}
