"""The report that the preparation of a split leaves: counts, classes, what sets share."""

import json
from typing import Any

from server.errors import NotFound
from server.models.competition import Visibility
from server.storage import Storage

Report = dict[str, Any]


def report_of(storage: Storage, slug: str, visibility: Visibility) -> Report | None:
    """Return the report of a prepared split, None if there is none."""
    try:
        found: Report = json.loads(storage.read(f"splits/{slug}/{visibility.value}/report.json"))
    except NotFound:
        return None
    return found


def class_names(report: Report | None) -> list[str]:
    """Return the names of the classes in the order of their labels; nothing without a report."""
    return list(report["classes"]["retain"]) if report else []
