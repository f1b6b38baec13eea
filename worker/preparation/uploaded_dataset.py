"""The dataset that was uploaded for a competition, unpacked on this host for as long as a preparation reads it."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lethe.competition.file import CompetitionFile
from lethe.errors import HostFault
from server.datasets import service
from server.datasets.upload import archive_limits
from server.parsing.client import run_on_file
from server.storage import dataset_key
from worker.context import WorkerContext
from worker.host.stage_folder import own_folder


@contextmanager
def uploaded_datasets(context: WorkerContext, competition: CompetitionFile) -> Iterator[Mapping[str, Path]]:
    """Yield name and folder of the uploaded dataset that the competition asks for, if it does.

    Raises InvalidCompetitionFile if there is none for it, or HostFault if storage gives another file.
    """
    with context.database.read() as session:
        dataset = service.find_for_competition(session, competition)
    if dataset is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(dir=own_folder(context.settings.scratch / "datasets")) as made:
        folder = Path(made)
        archive = folder / "archive"
        context.storage.download(dataset_key(dataset.sha256), archive)
        (folder / "files").mkdir()
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != dataset.sha256:
                raise HostFault(f"storage gave a damaged dataset {dataset.name}")
            limits = archive_limits(context.settings)
            run_on_file("unpack_dataset", file, folder=str(folder / "files"), limits=limits)
        archive.unlink()
        yield {dataset.name: folder / "files"}
