"""A competition as its participants see it: the list, one with its board, its starter kit, joining it, your team."""

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli import client_config
from lethe.cli.client_config import KIT_FILE
from lethe.cli.context import (
    Commands,
    InCompetition,
    Output,
    PublicCompetition,
    PublicServer,
    Server,
    Slug,
    with_options,
)
from lethe.cli.output import console, local_time, notes, print_facts, print_rows, print_table, score_text
from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.competition.task import BETWEEN
from lethe.errors import HostFault, InvalidInput, NotFound
from lethe.methods.catalogue import method_source
from lethe.submission.archive import size_limits

MAX_KIT_BYTES = 1 << 30
SUBMISSION = "submission.py"  # what the kit's run_local.py runs


def init(
    server: PublicCompetition,
    folder: Annotated[Path | None, typer.Argument(help="Folder to create. Default: the competition's name.")] = None,
    from_method: Annotated[
        str | None, typer.Option("--from", help="Begin with this method; see `lethe methods list`.", metavar="METHOD")
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


Name = Annotated[str | None, typer.Argument(help="The competition's name.", metavar="COMPETITION")]


def competitions(server: PublicServer) -> None:
    """List the competitions."""
    found = server.client.competitions()
    server.answer(found)
    columns = {"name": "slug", "state": "state", "closes": "closes_at", "runs#": "runs", "title": "title"}
    print_rows(found, columns, empty="No competitions yet.")


def show(server: PublicCompetition, name: Name = None) -> None:
    """Show a competition: dates, limits, metric, quota."""
    found = server.client.competition(name or server.slug)
    server.answer(found)
    limits = found["limits"]
    print_facts(
        (
            ("competition", f"{found['title']} ({found['slug']})"),
            ("state", found["state"]),
            ("opens", local_time(found["opens_at"])),
            ("closes", local_time(found["closes_at"])),
            ("metric", found["metric"]),
            ("scale", found.get("scale")),
            ("dataset", found["dataset"]),
            ("admission", None if found["admission"] == "open" else found["admission"]),
            ("modes", ", ".join(found.get("modes") or ())),
            ("runs", found["runs"]),
            ("time of all runs", f"{limits['wall_time_s']:g} s"),
            ("memory", f"{limits['memory_mib']} MiB"),
            ("scratch", f"{limits['scratch_mib']} MiB"),
            ("upload", size_limits(limits["upload_mib"])),
            ("submissions", f"{limits['submissions_per_day']} a day"),
            *((f"phase {phase['name']}", _phase(phase)) for phase in found["phases"]),
            ("after the close", "unofficial submissions" if found["late"]["accepted"] else None),
            ("left today", found["quota"]["remaining"] if found.get("quota") else None),
            ("free failures on the sample left today", (found.get("quota") or {}).get("free_failures_left")),
        )
    )
    if tasks := found.get("tasks"):
        rows = ((t["name"], t["title"], t["kind"], t["dataset"], t["runs"], f"{t['weight']:g}") for t in tasks)
        print_table("", ("task", "title", "kind", "dataset", "runs#", "weight#"), rows, empty="")


def _phase(phase: JsonObject) -> str:
    begin = f"from {local_time(phase['begins_at'])}" if phase["begins_at"] else "from the opening"
    return begin if phase["counts"] else f"{begin}; does not count for the final ranking"


def leaderboard(
    server: PublicCompetition,
    name: Name = None,
    *,
    private: Annotated[bool, typer.Option("--private", help="The private leaderboard, once it is revealed.")] = False,
    phase: Annotated[
        str | None, typer.Option("--phase", help="A phase's own leaderboard; late: of submissions after the close.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="The leaderboard of one task. Default: combined.")] = None,
) -> None:
    """Show the leaderboard."""
    board = server.client.leaderboard(name or server.slug, board="private" if private else None, phase=phase, task=task)
    server.answer(board)
    extra = [column["id"] for column in board.get("columns", [])]
    folded = (metric.replace("_", "_\n") + "#" for metric in extra)
    rows = (_board_row(row, extra) for row in board["rows"])
    numbers = ("score#", "of the\noracle#", *folded, "entries#", "last#")
    columns = ("rank#", "team", *numbers)
    title = f"{board['competition']}, {board.get('phase') or board['board']}, N = {board['n_models']}"
    print_table(title, columns, rows, empty="Nobody has a score yet.")
    if board.get("scale"):
        notes.print(f"{board['scale']}.", markup=False, highlight=False, soft_wrap=True)
    for warning in board["warnings"]:
        notes.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _board_row(row: JsonObject, extra: Sequence[str]) -> tuple[object, ...]:
    metrics = row.get("metrics") or {}
    share = row.get("share_of_oracle")
    kind, mode = row["kind"], row.get("mode") or "function"
    marks = [*([kind] if kind not in ("team", "oracle") else []), *([mode] if mode != "function" else [])]
    return (
        row["rank"],
        f"{row['team']} ({', '.join(marks)})" if marks else row["team"],
        score_text(row["score"]),
        f"{100 * share:.1f} %" if share is not None else None,
        *(f"{metrics[name]['value']:.4g}" if name in metrics else None for name in extra),
        row["entries"] or None,
        local_time(row.get("last_entry_at"))[:10],
    )


def use(output: Output, competition: Annotated[str, typer.Argument(help="The competition's name.")]) -> None:
    """Remember a competition as the default for commands."""
    client_config.remember(competition=competition)
    output.answer({"competition": competition})
    console.print(f"Commands are about {competition} from now on.")


YES_NO = {True: "yes", False: "no"}


commands = Commands(help="Show, create or join a team.", invoke_without_command=True)


def register_commands(app: typer.Typer) -> None:
    for command in (init, competitions, show, leaderboard, use):
        app.command()(command)
    app.command("join")(take_part)
    app.add_typer(commands, name="team")


def take_part(
    server: Server,
    competition: Slug,
    *,
    token: Annotated[str | None, typer.Option("--token", help="Of a link that the organisers sent.")] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="For the organisers, who accept or refuse.")] = "",
    accept: Annotated[
        int | None, typer.Option("--accept", help="Accept this version of the terms.", metavar="VERSION")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say whether something is missing.")] = False,
) -> None:
    """Take part in a competition: by a link, or by asking its organisers. Says what is missing.

    `lethe api GET /competitions/NAME/terms` shows its terms.
    """
    base = f"/competitions/{competition}/participation"
    if accept is not None:
        found = server.client.post(f"{base}/terms", {"version": accept})
    elif token is not None:
        found = server.client.post(f"{base}/join", {"token": token.rpartition("token=")[2]})
    else:
        found = server.client.get(base)
        if not status and found["admission"] == "approved" and found["state"] == "none":
            found = server.client.post(f"{base}/request", {"message": message})
    server.answer(found)
    _print_standing(competition, found)


def _print_standing(slug: str, found: JsonObject) -> None:
    print_facts(
        (
            ("competition", slug),
            ("you may take part", YES_NO[found["may_take_part"]]),
            ("admission", f"{found['state']} ({found['admission']})"),
            ("reason", found["reason"] or None),
            ("terms", f"version {found['terms_version']}" if found["terms_version"] else "none"),
            ("accepted", local_time(found["accepted_at"]) if found["accepted_at"] else None),
            ("address", "must be confirmed" if found["lacks_address"] else None),
            ("account", "somebody in a team has your address" if found["shares_address"] else None),
        )
    )


@commands.callback()
@with_options
def show_team(server: InCompetition, context: typer.Context) -> None:
    """Show your team, or with one of the commands below make or join one."""
    if context.invoked_subcommand is not None:
        return
    _print(server, _own_team(server.client, server.slug))


@commands.command()
def create(server: InCompetition, name: Annotated[str, typer.Argument(help="Its name on the leaderboard.")]) -> None:
    """Create a team and lead it."""
    _print(server, server.client.create_team(server.slug, name))


@commands.command()
def invite(
    server: InCompetition,
    name: Annotated[
        str | None, typer.Argument(help="An account name. Without it: create a link for one person.")
    ] = None,
) -> None:
    """Invite a person to your team (for its leader)."""
    found = server.client.post(f"/competitions/{server.slug}/team/invitations", {"name": name})
    server.answer(found)
    said = f"lethe team join {found['token']}" if found.get("token") else f"{name} accepts with: lethe team join"
    console.print(f"Invited until {local_time(found['expires_at'])}. {said}", highlight=False)


@commands.command()
def join(
    server: InCompetition,
    token: Annotated[
        str | None, typer.Argument(help="A link's token or an invitation's id. Default: your only invitation.")
    ] = None,
) -> None:
    """Join a team that invited you. With several invitations by name, lists them."""
    base = f"/competitions/{server.slug}"
    mine = server.client.get(f"{base}/invitations")
    if token is None or token in {item["id"] for item in mine}:
        if token is None and len(mine) != 1:
            teams = ", ".join(f"{item['id']} ({item['team']})" for item in mine) or "there is none"
            raise NotFound(f"Say which invitation to accept: {teams}")
        found = server.client.post(f"{base}/invitations/{token or mine[0]['id']}/accept")
    else:
        found = server.client.post(f"{base}/team/join", {"token": token})
    _print(server, found)


def _own_team(client: LetheClient, slug: str) -> JsonObject:
    try:
        return client.team(slug)
    except ApiError as error:
        if error.http_status != 404:
            raise
        raise NotFound(
            f"You are in no team of {slug}. Your first submission makes one of you alone; "
            "`lethe team create NAME` names it."
        ) from error


def _print(server: InCompetition, found: JsonObject) -> None:
    server.answer(found)
    print_facts((("team", found["name"]), ("leader", found["leader"]), ("members", ", ".join(found["members"]))))
