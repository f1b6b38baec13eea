"""`lethe competition update|replace-split`: changing one that exists."""

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.organiser_commands import File, FileOnly, checked_and_sent, print_organised
from lethe.client.api import JsonObject
from lethe.errors import InvalidInput

Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]


def update(server: Server, file: File, *, file_only: FileOnly = False) -> None:
    """Replace the file of a draft. `lethe api PATCH /competitions/NAME` changes one that runs."""
    checked, text = checked_and_sent(server, file, looks=not file_only)
    print_organised(server, server.client.replace_competition_file(checked.slug, text))


def replace_split(
    server: Server,
    competition: Slug,
    visibility: Annotated[str, typer.Argument(help="public or private.", metavar="SPLIT")],
    *,
    reason: Why,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A competition file whose section dataset names the corrected data.", exists=True),
    ] = None,
    file_only: FileOnly = False,
) -> None:
    """Prepare a split again beside the present one, from corrected data. Nothing changes until `lethe rejudge start
    --changed split` is applied; a split on which nothing was evaluated is replaced as soon as the new one is ready.
    """
    body: JsonObject = {"reason": reason}
    if file is not None:
        body["dataset"] = _dataset_section(server, file, competition, looks=not file_only)
    found = server.client.post(f"/competitions/{competition}/splits/{visibility}/replacement", body)
    print_organised(server, found)


def _dataset_section(server: Server, path: Path, slug: str, *, looks: bool) -> JsonObject:
    """Return the section of a competition or a task, checked as by `create`; what lies beside the file is uploaded."""
    from lethe.competition.file import parse_competition, read_competition_file

    known = [each.slug for each in read_competition_file(path).evaluated]
    if slug not in known:
        raise InvalidInput(f"{path} is the file of {', '.join(known)}, not of {slug}")
    _, text = checked_and_sent(server, path, looks=looks, is_new=False)
    sections = {each.slug: each.dataset for each in parse_competition(text, source=str(path)).evaluated}
    return sections[slug].model_dump(mode="json")
