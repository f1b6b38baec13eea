"""The report of a split: what its sets hold and share, as the preparation wrote it down."""

from pydantic import ValidationError

from server.competitions.schemas import SplitReport
from server.errors import HostFault, NotFound
from server.evaluations.claims import split_key
from server.models.competition import Competition, Visibility
from server.storage import Storage

PLACES = ("report.json", "work/shared/report.json")  # published, or carried between hosts that still train its models


def split_report(storage: Storage, competition: Competition, visibility: Visibility) -> SplitReport:
    """Return the report of a split whose data is cut. Raises NotFound before that, HostFault if it is damaged."""
    folder = split_key(competition.slug, visibility.value)
    found = next((f"{folder}/{place}" for place in PLACES if storage.exists(f"{folder}/{place}")), None)
    if found is None:
        raise NotFound(f"The {visibility.value} split of {competition.slug} has no report yet: its data is not cut")
    try:
        return SplitReport.model_validate_json(storage.read(found))
    except ValidationError as error:
        raise HostFault(f"{found} is damaged: prepare {competition.slug} again to have it made anew") from error
