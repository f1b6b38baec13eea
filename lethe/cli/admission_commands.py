"""`lethe competition participants|admit|refuse|links|addresses|settings`: who takes part, for organisers."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.change_commands import Why
from lethe.cli.context import Server, Slug
from lethe.cli.organiser_commands import print_organised
from lethe.cli.output import Columns, console, local_time, print_rows
from lethe.errors import InvalidInput
from lethe.text_files import read_text

Person = Annotated[str, typer.Argument(help="An account's name.", metavar="NAME")]
SECTIONS = ("participation", "phases", "late", "pages")


def participants(
    server: Server,
    competition: Slug,
    *,
    state: Annotated[str | None, typer.Option("--state", help="asked, admitted or refused.")] = None,
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
) -> None:
    """List who asked to take part, and who was admitted or refused."""
    found = server.client.get(f"/competitions/{competition}/participants", page=page, state=state)
    server.answer(found)
    columns = {name: name for name in ("name", "state", "message", "reason")}
    columns |= {"terms#": "terms_version", "since": "created_at"}
    print_rows(found["participants"], columns, empty="Nobody was asked about.")


def admit(
    server: Server,
    competition: Slug,
    name: Person,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Sent to the person.")] = "",
) -> None:
    """Admit a person, whether they asked or not."""
    _decide(server, competition, name, "admit", reason)


def refuse(server: Server, competition: Slug, name: Person, *, reason: Why) -> None:
    """Refuse a person, or remove one who takes part: they no longer submit. The reason is sent to them."""
    _decide(server, competition, name, "refuse", reason)


def links(
    server: Server,
    competition: Slug,
    *,
    make: Annotated[bool, typer.Option("--make", help="Make a link; it is shown this once.")] = False,
    uses: Annotated[int, typer.Option("--uses", min=1, help="How many people it admits.")] = 1,
    days: Annotated[int, typer.Option("--days", min=1, help="Until it expires.")] = 7,
    label: Annotated[str, typer.Option("--label", help="For whom it is.")] = "",
    revoke: Annotated[str | None, typer.Option("--revoke", help="End this link.", metavar="ID")] = None,
) -> None:
    """List the links that admit people; with --make, make one, with --revoke, end one."""
    base = f"/competitions/{competition}/links"
    if make and revoke:
        raise InvalidInput("give --make or --revoke, not both")
    if revoke:
        server.client.delete(f"{base}/{revoke}")
    made = server.client.post(base, {"uses": uses, "days": days, "label": label}) if make else None
    found = made or server.client.get(base)
    server.answer(found)
    if made:
        console.print(f"{server.client.url}/competitions/{competition}/join?token={made['token']}", soft_wrap=True)
        console.print(f"It admits {made['most_uses']} until {local_time(made['expires_at'])}, and is not shown again.")
    else:
        columns: Columns = {"id": "id", "for": "label", "used": lambda row: f"{row['uses']} of {row['most_uses']}"}
        print_rows(found, columns | {"until": "expires_at"}, empty="There is no open link.")


def addresses(
    server: Server,
    competition: Slug,
    *,
    add: Annotated[list[str] | None, typer.Option("--add", help="An e-mail address. May be repeated.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="May be repeated.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Addresses to add, one a line.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """List the addresses whose confirmed owners are admitted; with --add, --file or --remove, change them."""
    path = f"/competitions/{competition}/addresses"
    new = [*(add or ()), *(_text(file).split() if file else ())]
    client, change = server.client, {"add": new, "remove": remove or []}
    found = client.patch(path, change) if new or remove else client.get(path)
    server.answer(found)
    for address in found:
        console.print(address, highlight=False, markup=False)


def settings(
    server: Server,
    competition: Slug,
    file: Annotated[Path, typer.Argument(help="A TOML file with the sections to change.", exists=True)],
    *,
    reason: Why,
) -> None:
    """Change the sections participation, phases, late and pages of a competition that runs, nothing else of it."""
    try:
        given = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file}: not TOML: {error}") from error
    body = {name: given[name] for name in SECTIONS if name in given}
    if not body:
        raise InvalidInput(f"{file} has none of the sections that can be changed: {', '.join(SECTIONS)}")
    found = server.client.patch(f"/competitions/{competition}/settings", body | {"reason": reason})
    print_organised(server, found)


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _decide(server: Server, competition: str, name: str, decision: str, reason: str) -> None:
    body = {"decision": decision, "reason": reason}
    server.client.post(f"/competitions/{competition}/participants/{name}/decision", body)
    server.answer({"name": name, "decision": decision})
    console.print(f"{name} is {'admitted' if decision == 'admit' else 'refused'}.", highlight=False, markup=False)
