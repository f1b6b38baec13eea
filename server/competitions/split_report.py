"""The report of a split: what its sets hold and share, as the preparation wrote it down."""

from pydantic import ValidationError

from lethe.competition.split_report import SplitReport
from lethe.errors import HostFault, NotFound
from server.models.competition import Competition, Split
from server.storage import Storage, split_key

PLACES = ("report.json", "work/shared/report.json")  # published, or carried between hosts that still train its models


def get_split_report(storage: Storage, competition: Competition, split: Split) -> SplitReport:
    """Return the report of a split whose data is cut. Raises NotFound before that, HostFault if it is damaged."""
    report = find_split_report(storage, competition, split)
    if report is None:
        raise NotFound(f"The {split.visibility} split of {competition.slug} has no report yet: its data is not cut")
    return report


def find_split_report(storage: Storage, competition: Competition, split: Split) -> SplitReport | None:
    """Return the report of a split, None before its data is cut. Raises HostFault if it is damaged."""
    folder = split_key(competition.slug, split.visibility, split.version)
    found = next((f"{folder}/{place}" for place in PLACES if storage.exists(f"{folder}/{place}")), None)
    if found is None:
        return None
    try:
        return SplitReport.model_validate_json(storage.read(found))
    except ValidationError as error:
        raise HostFault(f"{found} is damaged: prepare {competition.slug} again to have it made again") from error
