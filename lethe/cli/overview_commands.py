"""`lethe competition overview|activity`: the state of what an organiser runs."""

from typing import Annotated

import typer

from lethe.cli.context import Json, Url, connected
from lethe.cli.output import console, local_time, print_facts, print_json, print_table
from lethe.client.api import JsonObject

OptionalSlug = Annotated[
    str | None, typer.Argument(help="The competition's name. Without it, all that you run.", metavar="[COMPETITION]")
]


def overview(competition: OptionalSlug = None, url: Url = None, as_json: Json = False) -> None:
    """Show queue, workers, failures, splits and warnings."""
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/overview" if competition else "/dashboard")
    if as_json:
        print_json(found)
        return
    for warning in found["warnings"]:
        console.print(f"[bold red]warning:[/] {warning['text']}", highlight=False)
    _print_state(found)
    _print_queue(found)
    failures = (
        (row["error_class"], row["fault"], row["count"], local_time(row["newest_at"])) for row in found["failures"]
    )
    print_table("Failures of seven days", ("class", "fault", "count#", "newest"), failures, empty="No failures.")


def activity(competition: OptionalSlug = None, url: Url = None, as_json: Json = False) -> None:
    """Show the runs of each of the last 24 hours and the failures of the last seven days."""
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/activity" if competition else "/dashboard/activity")
    if as_json:
        print_json(found)
        return
    hours = ((local_time(row["hour"]), row["runs"]) for row in found["runs_by_hour"])
    print_table("Runs by hour", ("hour", "runs#"), hours, empty="No runs.")
    days = ((row["day"], row["fault"], row["count"]) for row in found["failures_by_day"] if row["count"])
    print_table("Failures by day", ("day", "fault", "count#"), days, empty="No failures.")


def _print_state(found: JsonObject) -> None:
    facts: list[tuple[str, object]] = list(found["competitions"].items())
    facts += [
        (f"{row['competition']}, {row['visibility']} split", f"{row['state']} {row['progress']:.0%}")
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
    waiting = ((row["competition"], row["team"], row["runs"], local_time(row["oldest_at"])) for row in found["waiting"])
    print_table("Queue", ("competition", "team", "runs#", "oldest"), waiting, empty="No runs are queued.")
    running = (
        (row["worker"], row["team"], row["first_run"] + 1, f"{row['runs_done']} of {row['n_runs']}", row["attempt"])
        for row in found["running"]
    )
    columns = ("worker", "team", "first run#", "done#", "attempt#")
    print_table("Running", columns, running, empty="No worker holds a shard.")
    workers = ((row["name"], row["device"], row["state"], local_time(row["seen_at"])) for row in found["workers"])
    print_table("Workers", ("name", "device", "state", "seen"), workers, empty="No worker has reported today.")
