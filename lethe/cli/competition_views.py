"""`lethe competitions`, `show`, `leaderboard`, `use`: what anyone in a competition looks at."""

from collections.abc import Sequence
from typing import Annotated

import typer

from lethe.cli import client_config
from lethe.cli.context import Output, PublicCompetition, PublicServer
from lethe.cli.output import console, local_time, notes, print_facts, print_rows, print_table, score_text
from lethe.client.api import JsonObject
from lethe.submission.archive import size_limits

Name = Annotated[str | None, typer.Argument(help="The competition's name.", metavar="COMPETITION")]


def register_commands(app: typer.Typer) -> None:
    for command in (competitions, show, leaderboard, use):
        app.command()(command)


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
