"""`lethe competition people|submissions|audit` and `lethe accounts`: lists for organisers and administrators."""

from typing import Annotated, Any

import typer

from lethe.cli.context import Json, Slug, Url, connected
from lethe.cli.output import console, local_time, print_facts, print_json, print_table, score_text

Page = Annotated[int, typer.Option("--page", min=1, help="Which page; a hundred lines each.")]


def people(
    competition: Slug,
    *,
    team: Annotated[str, typer.Option("--team", help="Part of a team's name.")] = "",
    page: Page = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the organisers and the teams of a competition."""
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/people", team=team, page=page)
    if as_json:
        print_json(found)
        return
    print_facts([("organisers", ", ".join(found["organisers"]))])
    rows = (
        (
            row["name"],
            row["leader"],
            row["members"],
            row["rank"],
            row["entries"],
            "disqualified" if row["disqualified_at"] else "",
        )
        for row in found["teams"]
    )
    print_table("", ("team", "leader", "members#", "rank#", "entries#", ""), rows, empty="No team matches.")
    if found["has_more"]:
        console.print(f"There are more: --page {page + 1}.", style="dim", highlight=False)


def submissions(
    competition: Slug,
    *,
    stage: Annotated[str, typer.Option("--stage", help="queued, smoke, running, scoring, scored, failed …")] = "",
    fault: Annotated[str, typer.Option("--fault", help="participant, organiser or host.")] = "",
    error_class: Annotated[str, typer.Option("--error-class", help="The class of the failure.")] = "",
    team: Annotated[str, typer.Option("--team", help="Part of a team's name.")] = "",
    only: Annotated[str, typer.Option("--only", help="selected, disqualified, refunded, flagged or repeated.")] = "",
    text: Annotated[str, typer.Option("--text", help="An id, a SHA-256's start, part of a note, file or sender.")] = "",
    page: Page = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List every team's submissions, the newest first."""
    wanted = {"stage": stage, "fault": fault, "error_class": error_class, "team": team, "only": only, "text": text}
    filled = {name: value for name, value in wanted.items() if value}
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/all-submissions", page=page, **filled)
    if as_json:
        print_json(found)
        return
    rows = (
        (
            row["id"],
            row["team"],
            row["stage"],
            row["failure"]["error_class"] if row["failure"] else "",
            score_text(row["score"]["final_score"]) if row["score"] else "",
            local_time(row["received_at"]),
            row["message"] or row["filename"],
        )
        for row in found
    )
    columns = ("id", "team", "stage", "failure", "score#", "received", "note")
    print_table("", columns, rows, empty="No submission matches.")


def audit(
    competition: Slug,
    *,
    action: Annotated[str | None, typer.Option("--action", help="Such as submission.disqualified.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="An account's name.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many events at most.")] = 100,
    actions: Annotated[bool, typer.Option("--actions", help="List the actions that the log holds instead.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the audit log of a competition, the newest first."""
    with connected(url) as client:
        if actions:
            found: Any = client.get(f"/competitions/{competition}/audit/actions")
        else:
            wanted = {"action": action, "actor": actor, "limit": limit}
            given = {name: value for name, value in wanted.items() if value is not None}
            found = client.get(f"/competitions/{competition}/audit", **given)
    if as_json:
        print_json(found)
    elif actions:
        print_table("", ("action",), ((name,) for name in found), empty="The log is empty.")
    else:
        rows = ((local_time(row["at"]), row["actor"], row["action"], row["subject"], row["reason"]) for row in found)
        print_table("", ("time", "actor", "action", "subject", "reason"), rows, empty="No event matches.")


def accounts(
    *,
    query: Annotated[str, typer.Option("--query", "-q", help="Part of a name or of an e-mail address.")] = "",
    role: Annotated[str | None, typer.Option("--role", help="participant, organiser or administrator.")] = None,
    banned: Annotated[bool, typer.Option("--banned", help="Only banned accounts.")] = False,
    page: Page = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the accounts of the instance, by name (for administrators)."""
    wanted = {"query": query, "banned": banned, "page": page} | ({"role": role} if role else {})
    with connected(url) as client:
        found = client.get("/admin/accounts", **wanted)
    if as_json:
        print_json(found)
        return
    rows = (
        (
            row["name"],
            row["email"],
            row["role"],
            row["organises"] or None,
            row["teams"] or None,
            "banned" if row["disabled_at"] else "",
        )
        for row in found
    )
    print_table("", ("name", "e-mail", "role", "organises#", "teams#", ""), rows, empty="No account matches.")
