"""`lethe competition participants|admit|refuse|links|addresses|settings`: who takes part, for organisers."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.change_commands import Why
from lethe.cli.context import Json, Slug, Url, connected
from lethe.cli.organiser_commands import print_organised
from lethe.cli.output import console, local_time, print_json, print_table
from lethe.errors import InvalidInput

Person = Annotated[str, typer.Argument(help="An account's name.", metavar="NAME")]
SECTIONS = ("participation", "phases", "late", "pages")


def participants(
    competition: Slug,
    *,
    state: Annotated[str | None, typer.Option("--state", help="asked, admitted or refused.")] = None,
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List who asked to take part, and who was admitted or refused."""
    chosen = {"state": state} if state else {}
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/participants", page=page, **chosen)
    if as_json:
        print_json(found)
        return
    rows = (
        (row["name"], row["state"], row["message"], row["reason"], row["terms_version"], local_time(row["created_at"]))
        for row in found["participants"]
    )
    print_table("", ("name", "state", "message", "reason", "terms#", "since"), rows, empty="Nobody was asked about.")


def admit(
    competition: Slug,
    name: Person,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Sent to the person.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Admit a person, whether they asked or not."""
    _decide(competition, name, "admit", reason=reason, url=url, as_json=as_json)


def refuse(competition: Slug, name: Person, *, reason: Why, url: Url = None, as_json: Json = False) -> None:
    """Refuse a person, or remove one who takes part: they no longer submit. The reason is sent to them."""
    _decide(competition, name, "refuse", reason=reason, url=url, as_json=as_json)


def links(
    competition: Slug,
    *,
    make: Annotated[bool, typer.Option("--make", help="Make a link; it is shown this once.")] = False,
    uses: Annotated[int, typer.Option("--uses", min=1, help="How many people it admits.")] = 1,
    days: Annotated[int, typer.Option("--days", min=1, help="Until it expires.")] = 7,
    label: Annotated[str, typer.Option("--label", help="For whom it is.")] = "",
    revoke: Annotated[str | None, typer.Option("--revoke", help="End this link.", metavar="ID")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the links that admit people; with --make, make one, with --revoke, end one."""
    base = f"/competitions/{competition}/links"
    if make and revoke:
        raise InvalidInput("give --make or --revoke, not both")
    with connected(url) as client:
        if revoke:
            client.delete(f"{base}/{revoke}")
        made = client.post(base, {"uses": uses, "days": days, "label": label}) if make else None
        found = made or client.get(base)
        address = client.url
    if as_json:
        print_json(found)
    elif made:
        console.print(f"{address}/competitions/{competition}/join?token={made['token']}", soft_wrap=True)
        console.print(f"It admits {made['most_uses']} until {local_time(made['expires_at'])}, and is not shown again.")
    else:
        rows = ((r["id"], r["label"], f"{r['uses']} of {r['most_uses']}", local_time(r["expires_at"])) for r in found)
        print_table("", ("id", "for", "used", "until"), rows, empty="There is no open link.")


def addresses(
    competition: Slug,
    *,
    add: Annotated[list[str] | None, typer.Option("--add", help="An e-mail address. May be repeated.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="May be repeated.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Addresses to add, one a line.", exists=True, dir_okay=False)
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the addresses whose confirmed owners are admitted; with --add, --file or --remove, change them."""
    path = f"/competitions/{competition}/addresses"
    new = [*(add or ()), *(file.read_text(encoding="utf-8").split() if file else ())]
    with connected(url) as client:
        found = client.patch(path, {"add": new, "remove": remove or []}) if new or remove else client.get(path)
    if as_json:
        print_json(found)
        return
    for address in found:
        console.print(address, highlight=False, markup=False)


def settings(
    competition: Slug,
    file: Annotated[Path, typer.Argument(help="A TOML file with the sections to change.", exists=True)],
    *,
    reason: Why,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Change [participation], [[phases]], [late] and [pages] of a competition that runs; nothing else of the file."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file}: not TOML: {error}") from error
    body = {name: given[name] for name in SECTIONS if name in given}
    if not body:
        raise InvalidInput(f"{file} has none of the sections that can be changed: {', '.join(SECTIONS)}")
    with connected(url) as client:
        found = client.patch(f"/competitions/{competition}/settings", body | {"reason": reason})
    print_organised(found, as_json=as_json)


def _decide(competition: str, name: str, decision: str, *, reason: str, url: str | None, as_json: bool) -> None:
    with connected(url) as client:
        body = {"decision": decision, "reason": reason}
        client.post(f"/competitions/{competition}/participants/{name}/decision", body)
    if as_json:
        print_json({"name": name, "decision": decision})
        return
    console.print(f"{name} is {'admitted' if decision == 'admit' else 'refused'}.", highlight=False, markup=False)
