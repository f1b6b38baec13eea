"""A competition proposed for an uploaded dataset: the archive is fetched, and read in the parsing process."""

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from lethe.competition.uploaded_dataset import UPLOAD
from server.config import Settings
from server.datasets.datasets import archive_limits
from server.models.dataset import Dataset
from server.parsing.client import run_on_file, turn_for_file
from server.storage import Storage, dataset_key


def propose(
    storage: Storage,
    settings: Settings,
    dataset: Dataset,
    *,
    at: datetime,
    given: Mapping[str, Any] | None = None,
    read_as: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what `server.parsing.tasks.propose_for` does.

    given: values in place of the proposed ones. read_as: options of the dataset in place of what is guessed.

    One archive at a time is fetched and read by each web process. Raises HostFault while that is another.
    """
    with turn_for_file(), tempfile.TemporaryDirectory() as made:
        archive = Path(made) / "archive"
        storage.download(dataset_key(dataset.sha256), archive)
        with archive.open("rb") as file:
            found: dict[str, Any] = run_on_file(
                "propose_competition",
                file,
                limits=archive_limits(settings),
                root=f"{UPLOAD}{dataset.name}",
                slug=dataset.name,
                title=f"Forget: {dataset.name.replace('-', ' ')}",
                at=at.isoformat(),
                read_as=dict(read_as or {}),
                given={name: v.isoformat() if isinstance(v, datetime) else v for name, v in (given or {}).items()},
            )
            return found
