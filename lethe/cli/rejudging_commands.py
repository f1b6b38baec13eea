"""`lethe rejudge …` and `lethe competition table`: scoring a set again, and exporting tables. For organisers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import Competition, Json, Url, chosen_competition, connected
from lethe.cli.id_prefixes import the_only_match
from lethe.cli.output import console, local_time, print_facts, print_json, print_table, score_text
from lethe.client.api import JsonObject, LetheClient
from lethe.errors import InvalidInput

commands = typer.Typer(help="Score submissions again, beside the live results (for organisers).", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="The re-judging's id, or its first characters.", metavar="ID")]
Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="rejudge")


@commands.command()
def start(
    *,
    changed: Annotated[str, typer.Option("--changed", help="What changed: scorer, limits, split or host.")],
    reason: Why,
    submission: Annotated[
        list[str] | None,
        typer.Option("--submission", help="A submission's id or its beginning; may be repeated."),
    ] = None,
    team: Annotated[str | None, typer.Option("--team", help="All submissions of a team, by its id.")] = None,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="All submissions with this error class.")
    ] = None,
    attacks: Annotated[
        str | None, typer.Option("--attacks", help="Score all by another attack family: reference, exact …")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Score all by another delta.")] = None,
    split: Annotated[str, typer.Option("--split", help="public or private.")] = "public",
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a re-judging of all submissions, or of those named. Nothing changes until it is applied.

    With --changed scorer stored outputs are scored again, and no code is run.
    """
    chosen: dict[str, Any] = {"submissions": submission or None, "team_id": team, "error_class": error_class}
    body: dict[str, Any] = {"changed": changed, "reason": reason, "split": split}
    body |= {name: value for name, value in chosen.items() if value is not None}
    scoring = {name: value for name, value in (("attacks", attacks), ("delta", delta)) if value is not None}
    if scoring:
        body["scoring"] = scoring
    with connected(url) as client:
        found = client.post(f"/competitions/{chosen_competition(client, competition)}/rejudgings", body)
    _print(found, as_json=as_json)


@commands.command("list")
def list_rejudgings(competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """List the re-judgings, the newest first."""
    with connected(url) as client:
        found = client.get(f"/competitions/{chosen_competition(client, competition)}/rejudgings")
    if as_json:
        print_json(found)
        return
    rows = (
        (r["id"], r["visibility"], r["state"], local_time(r["created_at"]), r["changed"], r["reason"]) for r in found
    )
    print_table("", ("id", "split", "state", "started", "changed", "reason"), rows, empty="There is none yet.")


@commands.command("status")
def show_status(rejudging: Id, competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Show how far a re-judging is."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        found = client.get(f"/competitions/{slug}/rejudgings/{_complete_id(client, slug, rejudging)}")
    _print(found, as_json=as_json)


@commands.command()
def preview(rejudging: Id, competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Show whose score and rank a re-judging would change."""
    found = _act(rejudging, "preview", None, competition=competition, url=url)
    if as_json:
        print_json(found)
        return
    _print(found, as_json=False)
    mark = "" if found["complete"] else "?"  # at every number that may still change
    rows = (
        (
            team["team"],
            team["old_rank"],
            f"{team['new_rank'] or '-'}{mark}",
            score_text(team["old_score"]),
            f"{score_text(team['new_score']) or '-'}{mark}",
        )
        for team in found["teams"]
    )
    columns = ("team", "rank#", "becomes#", "score#", "becomes#")
    print_table("", columns, rows, empty="No team's rank or score would change.")
    if mark:
        console.print("? not final: evaluations of this re-judging have not ended yet.", highlight=False)


@commands.command("apply")
def apply_rejudging(rejudging: Id, competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Apply the new scores, all at once."""
    _print(_act(rejudging, "apply", None, competition=competition, url=url), as_json=as_json)


@commands.command()
def discard(
    rejudging: Id, *, reason: Why, competition: Competition = None, url: Url = None, as_json: Json = False
) -> None:
    """Stop a re-judging; everything stays as it was."""
    _print(_act(rejudging, "discard", {"reason": reason}, competition=competition, url=url), as_json=as_json)


def export_table(
    table: Annotated[
        str,
        typer.Argument(
            help="public-leaderboard, private-leaderboard, submissions, evaluations, metrics, terms or audit."
        ),
    ],
    *,
    phase: Annotated[
        str, typer.Option("--phase", help="With public-leaderboard: of this phase; late: of late submissions.")
    ] = "",
    task: Annotated[str, typer.Option("--task", help="Of one task of the competition, by its name.")] = "",
    into: Annotated[Path | None, typer.Option("--into", "-o", help="File to write.", dir_okay=False)] = None,
    form: Annotated[str, typer.Option("--format", help="csv or jsonl.")] = "csv",
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Export a table of a competition with its scores, as CSV or JSON Lines (for organisers)."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        path = into or Path("-".join(part for part in (slug, task, table, phase) if part) + f".{form}")
        if path.exists():
            raise InvalidInput(f"{path} exists; name another file with --into")
        asked = {name: value for name, value in (("phase", phase), ("task", task)) if value}
        client.download(f"/competitions/{slug}/exports/{table}", path, format=form, **asked)
    if as_json:
        print_json({"competition": slug, "table": table, "file": str(path), "bytes": path.stat().st_size})
        return
    console.print(f"Wrote {path}.")


def _act(
    rejudging: str, action: str, body: dict[str, Any] | None, *, competition: str | None, url: str | None
) -> JsonObject:
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        known = _complete_id(client, slug, rejudging)
        found: JsonObject = client.post(f"/competitions/{slug}/rejudgings/{known}/{action}", body)
        return found


def _complete_id(client: LetheClient, slug: str, given: str) -> str:
    if len(given) == 16:
        return given
    known = [row["id"] for row in client.get(f"/competitions/{slug}/rejudgings")]
    return the_only_match(given, known, what=f"re-judgings of {slug}")


def _print(found: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_facts(
        (
            ("re-judging", found["id"]),
            ("split", found["visibility"]),
            ("state", found["state"]),
            ("complete", found.get("complete")),
            ("started by", found.get("author")),
            ("evaluations", ", ".join(f"{n} {state}" for state, n in (found.get("evaluations") or {}).items())),
            ("runs done", f"{found['runs_done']} of {found['runs']}" if "runs" in found else None),
            ("changed", found["changed"]),
            ("scoring", ", ".join(f"{name} {value}" for name, value in (found.get("scoring") or {}).items())),
            ("reason", found["reason"]),
        )
    )
