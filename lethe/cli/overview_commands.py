"""`lethe competition overview|activity`: the state of what an organiser runs."""

from typing import Annotated

import typer

from lethe.cli.context import Server
from lethe.cli.output import Columns, console, local_time, print_facts, print_rows
from lethe.client.api import JsonObject

OptionalSlug = Annotated[
    str | None, typer.Argument(help="The competition's name. Without it, all that you run.", metavar="[COMPETITION]")
]


def overview(server: Server, competition: OptionalSlug = None) -> None:
    """Show queue, workers, failures, splits and warnings."""
    found = server.client.get(f"/competitions/{competition}/overview" if competition else "/dashboard")
    server.answer(found)
    for warning in found["warnings"]:
        console.print(f"[bold red]warning:[/] {warning['text']}", highlight=False)
    _print_state(found)
    _print_queue(found)
    columns: Columns = {"class": "error_class", "competition": _place, "fault": "fault", "count#": "count"}
    columns |= {"newest": "newest_at"}
    print_rows(found["failures"], columns, title="Failures of seven days", empty="No failures.")


def activity(server: Server, competition: OptionalSlug = None) -> None:
    """Show the runs of each of the last 24 hours and the failures of the last seven days."""
    found = server.client.get(f"/competitions/{competition}/activity" if competition else "/dashboard/activity")
    server.answer(found)
    hours: Columns = {"hour": lambda row: local_time(row["hour"]), "runs#": "runs"}
    print_rows(found["runs_by_hour"], hours, title="Runs by hour", empty="No runs.")
    days = [row for row in found["failures_by_day"] if row["count"]]
    columns: Columns = {"day": "day", "fault": "fault", "count#": "count"}
    print_rows(days, columns, title="Failures by day", empty="No failures.")


def _print_state(found: JsonObject) -> None:
    facts: list[tuple[str, object]] = list(found["competitions"].items())
    facts += [
        (f"{_place(row)}, {row['visibility']} split", f"{row['state']} {row['progress']:.0%}")
        for row in found["splits"]
    ]
    facts += [
        ("teams", found.get("teams")),
        ("stages", ", ".join(f"{number} {stage}" for stage, number in (found.get("stages") or {}).items())),
        ("submissions in progress", found["unfinished"]),
        ("runs left", found["runs_left"]),
        ("runs in the last hour", found["runs_per_hour"]),
        ("free disk", f"{found['host']['disk_free'] / (1 << 30):.1f} GiB"),
    ]
    print_facts(facts)


def _print_queue(found: JsonObject) -> None:
    waiting: Columns = {"competition": _place, "team": "team", "runs#": "runs", "oldest": "oldest_at"}
    print_rows(found["waiting"], waiting, title="Queue", empty="No runs are queued.")
    running: Columns = {
        "worker": "worker",
        "competition": _place,
        "team": "team",
        "first run#": lambda row: row["first_run"] + 1,
        "done#": lambda row: f"{row['runs_done']} of {row['n_runs']}",
        "attempt#": "attempt",
    }
    print_rows(found["running"], running, title="Running", empty="No worker holds a shard.")
    workers: Columns = {"name": "name", "device": "device", "state": "state", "seen": "seen_at"}
    print_rows(found["workers"], workers, title="Workers", empty="No worker has reported today.")


def _place(row: JsonObject) -> str:
    """Return the name of a row's competition, with its task where there is one."""
    return " ".join(part for part in (row["competition"], row.get("task", "")) if part)
