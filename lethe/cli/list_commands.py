"""`lethe competition people|submissions|audit` and `lethe accounts`: lists for organisers and administrators."""

from typing import Annotated, Any

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.output import Columns, console, local_time, print_facts, print_rows, print_table, score_text
from lethe.cli.submission_text import is_unconfirmed, public_score, stage_text
from lethe.client.api import JsonObject

Page = Annotated[int, typer.Option("--page", min=1, help="Which page; a hundred lines each.")]


def people(
    server: Server,
    competition: Slug,
    *,
    team: Annotated[str, typer.Option("--team", help="Part of a team's name.")] = "",
    page: Page = 1,
) -> None:
    """List the organisers and the teams of a competition."""
    found = server.client.get(f"/competitions/{competition}/people", team=team, page=page)
    server.answer(found)
    print_facts([("organisers", ", ".join(found["organisers"]))])
    columns: Columns = {
        "team": "name",
        "leader": "leader",
        "members#": "members",
        "rank#": "rank",
        "entries#": "entries",
    }
    columns[""] = lambda row: "disqualified" if row["disqualified_at"] else ""
    print_rows(found["teams"], columns, empty="No team matches.")
    if found["has_more"]:
        console.print(f"There are more: --page {page + 1}.", style="dim", highlight=False)


def submissions(
    server: Server,
    competition: Slug,
    *,
    stage: Annotated[str, typer.Option("--stage", help="queued, smoke, running, scoring, scored, failed …")] = "",
    fault: Annotated[str, typer.Option("--fault", help="participant, organiser or host.")] = "",
    error_class: Annotated[str, typer.Option("--error-class", help="The class of the failure.")] = "",
    team: Annotated[str, typer.Option("--team", help="Part of a team's name.")] = "",
    only: Annotated[
        str, typer.Option("--only", help="selected, disqualified, refunded, flagged, unconfirmed, repeated.")
    ] = "",
    text: Annotated[str, typer.Option("--text", help="An id, a SHA-256's start, part of a note, file or sender.")] = "",
    page: Page = 1,
) -> None:
    """List every team's submissions, the newest first."""
    wanted = {"stage": stage, "fault": fault, "error_class": error_class, "team": team, "only": only, "text": text}
    found = server.client.get(f"/competitions/{competition}/all-submissions", page=page, **wanted)
    server.answer(found)
    columns: Columns = {
        "id": "id",
        "team": "team",
        "stage": stage_text,
        "score#": lambda row: score_text(public_score(row)),
        "": _remarks,
        "received": "received_at",
        "note": lambda row: row["message"] or row["filename"],
    }
    print_rows(found, columns, empty="No submission matches.")


def _remarks(row: JsonObject) -> str:
    same = row.get("same_file_of") or ()
    said = ["unconfirmed" if is_unconfirmed(row) else "", f"same file as {', '.join(same)}" if same else ""]
    return "; ".join(filter(None, said))


def audit(
    server: Server,
    competition: Slug,
    *,
    action: Annotated[str | None, typer.Option("--action", help="Such as submission.disqualified.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="An account's name.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many events at most.")] = 100,
    actions: Annotated[bool, typer.Option("--actions", help="List the actions that the log holds instead.")] = False,
) -> None:
    """Show the audit log of a competition, the newest first."""
    base = f"/competitions/{competition}/audit"
    asked: dict[str, Any] = {} if actions else {"action": action, "actor": actor, "limit": limit}
    found = server.client.get(f"{base}/actions" if actions else base, **asked)
    server.answer(found)
    if actions:
        print_table("", ("action",), ((name,) for name in found), empty="The log is empty.")
        return
    rows = ((local_time(row["at"]), row["actor"], row["action"], row["subject"], row["reason"]) for row in found)
    print_table("", ("time", "actor", "action", "subject", "reason"), rows, empty="No event matches.")


def accounts(
    server: Server,
    *,
    query: Annotated[str, typer.Option("--query", "-q", help="Part of a name or of an e-mail address.")] = "",
    role: Annotated[str | None, typer.Option("--role", help="participant, organiser or administrator.")] = None,
    banned: Annotated[bool, typer.Option("--banned", help="Only banned accounts.")] = False,
    page: Page = 1,
) -> None:
    """List the accounts of the instance, by name (for administrators)."""
    found = server.client.get("/admin/accounts", query=query, role=role, banned=banned, page=page)
    server.answer(found)
    columns: Columns = {
        "name": "name",
        "e-mail": "email",
        "role": "role",
        "organises#": lambda row: row["organises"] or None,
        "teams#": lambda row: row["teams"] or None,
        "": lambda row: "banned" if row["disabled_at"] else "",
    }
    print_rows(found, columns, empty="No account matches.")
