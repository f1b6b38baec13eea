"""`lethe init`: a competition's starter kit in a folder."""

import io
import json
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.client_config import KIT_FILE
from lethe.cli.context import PublicCompetition
from lethe.cli.output import console
from lethe.competition.tasks_section import BETWEEN
from lethe.errors import HostFault, InvalidInput
from lethe.methods.catalogue import method_source

MAX_KIT_BYTES = 1 << 30
SUBMISSION = "submission.py"  # what the kit's run_local.py runs


def register_commands(app: typer.Typer) -> None:
    app.command()(init)


def init(
    server: PublicCompetition,
    folder: Annotated[Path | None, typer.Argument(help="Folder to create. Default: the competition's name.")] = None,
    from_method: Annotated[
        str | None,
        typer.Option("--from", help="Begin with this method; see `lethe methods list`.", metavar="METHOD"),
    ] = None,
    *,
    task: Annotated[str, typer.Option("--task", help="A task of the competition, by its name.")] = "",
) -> None:
    """Put a competition's starter kit into a new folder: sample data, a first submission, a notebook, the rules."""
    first = None if from_method is None else method_source(from_method)
    slug = f"{server.slug}{BETWEEN}{task}" if task else server.slug
    into = folder or Path(slug)
    if into.exists() and any(into.iterdir()):
        raise InvalidInput(f"{into} is not empty; name another folder")
    files = unpack_kit(server.client.starter_kit(server.slug, task=task), into)
    if first is not None:
        (into / SUBMISSION).write_text(first, encoding="utf-8")
        files = sorted({*files, SUBMISSION})
    remembered = {"url": server.client.url, "competition": slug}
    (into / KIT_FILE).write_text(json.dumps(remembered, indent=2), encoding="utf-8")
    server.answer({"folder": str(into), "competition": slug, "files": files})
    console.print(f"Made {into} with {len(files)} files. Next: [bold]cd {into}[/], then [bold]python run_local.py[/].")


def unpack_kit(content: bytes, into: Path) -> list[str]:
    """Unpack a kit below `into`, without its topmost folder. Return the files' names. Raises HostFault."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if sum(entry.file_size for entry in entries) > MAX_KIT_BYTES:
                raise HostFault("the starter kit is larger than a kit can be")
            return [_unpacked(archive, entry, into) for entry in entries]
    except zipfile.BadZipFile as error:
        raise HostFault(f"the server's starter kit is damaged: {error}") from error


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, into: Path) -> str:
    parts = Path(entry.filename).parts[1:]
    if not parts or ".." in parts or Path(entry.filename).is_absolute():
        raise HostFault(f"the server's starter kit holds a file of the name {entry.filename!r}")
    path = into.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive.read(entry))
    return "/".join(parts)
