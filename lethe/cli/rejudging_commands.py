"""`lethe rejudge …`: scoring a set of submissions again. For organisers."""

from typing import Annotated, Any

import typer

from lethe.cli.context import Commands, InCompetition, the_only_match
from lethe.cli.output import Columns, console, print_facts, print_rows, score_text
from lethe.client.api import JsonObject

commands = Commands(help="Score submissions again, beside the live results (for organisers).", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="The re-judging's id, or its first characters.", metavar="ID")]
Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="rejudge")


@commands.command()
def start(
    server: InCompetition,
    *,
    changed: Annotated[str, typer.Option("--changed", help="What changed: scorer, limits, split or host.")],
    reason: Why,
    submission: Annotated[
        list[str] | None, typer.Option("--submission", help="A submission's id or its beginning; may be repeated.")
    ] = None,
    team: Annotated[str | None, typer.Option("--team", help="All submissions of a team, by its id.")] = None,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="All submissions with this error class.")
    ] = None,
    attacks: Annotated[
        str | None, typer.Option("--attacks", help="Score all by another attack family: crossfit, reference …")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Score all by another delta.")] = None,
    split: Annotated[str, typer.Option("--split", help="public or private.")] = "public",
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
    _print(server, server.client.post(f"/competitions/{server.slug}/rejudgings", body))


@commands.command("list")
def list_rejudgings(server: InCompetition) -> None:
    """List the re-judgings, the newest first."""
    found = server.client.get(f"/competitions/{server.slug}/rejudgings")
    server.answer(found)
    columns: Columns = {
        "id": "id",
        "split": "visibility",
        "state": "state",
        "started": "created_at",
        "changed": "changed",
    }
    print_rows(found, columns | {"reason": "reason"}, empty="There is none yet.")


@commands.command("status")
def show_status(server: InCompetition, rejudging: Id) -> None:
    """Show how far a re-judging is."""
    _print(server, server.client.get(_path(server, rejudging)))


@commands.command()
def preview(server: InCompetition, rejudging: Id) -> None:
    """Show whose score and rank a re-judging would change."""
    found = server.client.post(f"{_path(server, rejudging)}/preview")
    _print(server, found)
    mark = "" if found["complete"] else "?"  # at every number that may still change
    columns: Columns = {
        "team": "team",
        "rank#": "old_rank",
        "becomes#": lambda team: f"{team['new_rank'] or '-'}{mark}",
        "score#": lambda team: score_text(team["old_score"]),
        "becomes##": lambda team: f"{score_text(team['new_score']) or '-'}{mark}",
    }
    print_rows(found["teams"], columns, empty="No team's rank or score would change.")
    if mark:
        console.print("? not final: evaluations of this re-judging have not ended yet.", highlight=False)


@commands.command("apply")
def apply_rejudging(server: InCompetition, rejudging: Id) -> None:
    """Apply the new scores, all at once."""
    _print(server, server.client.post(f"{_path(server, rejudging)}/apply"))


@commands.command()
def discard(server: InCompetition, rejudging: Id, *, reason: Why) -> None:
    """Stop a re-judging; everything stays as it was."""
    _print(server, server.client.post(f"{_path(server, rejudging)}/discard", {"reason": reason}))


def _path(server: InCompetition, given: str) -> str:
    """Return the address of the re-judging whose id begins with `given`."""
    base = f"/competitions/{server.slug}/rejudgings"
    if len(given) == 16:
        return f"{base}/{given}"
    known = [row["id"] for row in server.client.get(base)]
    return f"{base}/{the_only_match(given, known, what=f're-judgings of {server.slug}')}"


def _print(server: InCompetition, found: JsonObject) -> None:
    server.answer(found)
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
