"""`lethe submit`, `submissions`, `status`, `logs`, `cancel`, `select`: your submissions."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import InCompetition, the_only_match
from lethe.cli.output import (
    OverallProgress,
    console,
    duration_text,
    get_placing,
    local_time,
    print_facts,
    print_json,
    print_notes,
    print_table,
    public_score,
    rank_text,
    score_text,
    share_text,
    stage_text,
    time_taken_s,
)
from lethe.client.api import JsonObject, LetheClient
from lethe.competition.run_limits import compare_with_limit
from lethe.errors import InvalidInput
from lethe.runtime.error_classes import last_traceback, names_line

# Exit status of a command that knows a submission's end; 1 is any other error, 2 a wrong option.
SCORED, FAILED, HOST_FAILED, CANCELLED = 0, 3, 4, 5
EVERY_S = 1.0

UNCONFIRMED = "no rank until an organiser has confirmed it, as scores above exact retraining's and some others need"

Id = Annotated[str, typer.Argument(help="The submission's id, or its first characters.", metavar="ID")]


def register_commands(app: typer.Typer) -> None:
    for command in (submit, submissions, status, logs, cancel, select):
        app.command()(command)


def submit(
    server: InCompetition,
    file: Annotated[
        Path | None, typer.Argument(help="A .py, .ipynb or .zip file.", exists=True, dir_okay=False)
    ] = None,
    *,
    method: Annotated[
        str | None, typer.Option("--method", help="Instead of a file: a method; see `lethe methods list`.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="With --method, set a constant: NAME=value. May be repeated.")
    ] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="A note to yourself.")] = "",
    tasks: Annotated[
        list[str] | None, typer.Option("--task", help="A task of the competition; may be repeated. Default: all.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for completion; the exit status says how it ended.")
    ] = False,
) -> None:
    """Send a submission. With --wait: exit status 0 scored, 3 failed, 4 failed because of the server, 5 cancelled."""
    with _chosen_file(file, method, settings) as (path, label):
        client = server.client
        sent = client.submit(server.slug, path, message=message or label, tasks=tasks or ())
        if not server.as_json:
            left, next_at = sent["quota"]["remaining"], local_time(sent["quota"]["resets_at"])
            more = f"{left} more today" if left else f"the next after {next_at}"
            received = f"Received as [bold]{sent['id']}[/] in {server.slug}; {more}."
            console.print(received, highlight=False)
            console.print(f"Its page: {client.url}/submissions/{sent['id']}", highlight=False, soft_wrap=True)
        ended = _followed(client, sent["id"], quiet=server.as_json) if wait else sent
        placing = get_placing(client, ended)
        text = _failure_text(client, ended)
    _print_submission(ended, placing, as_json=server.as_json, failure_text=text)
    if not server.as_json:
        print_notes(sent.get("notes", ()))
    if wait:
        raise typer.Exit(exit_status(ended))


def _chosen_file(
    file: Path | None, method: str | None, settings: list[str] | None
) -> AbstractContextManager[tuple[Path, str]]:
    """Return the file to send, and its note where none is given. Raises InvalidInput for two files or none."""
    if (file is None) == (method is None):
        raise InvalidInput("name a file, or a method with --method, not both")
    if method is not None:
        from lethe.methods.rendering import method_file

        return method_file(method, settings)
    if file is None or settings:
        raise InvalidInput("--set goes with --method: the constants of your own file are set in it")
    return nullcontext((file, ""))


def submissions(server: InCompetition) -> None:
    """List your team's submissions, the newest first."""
    found = server.client.submissions(server.slug)
    server.answer(found)
    columns = ("id", "received", "file", "stage", "score#", "final", "message")
    print_table("", columns, (_row(submission) for submission in found), empty="No submissions yet.")


def status(
    server: InCompetition,
    submission: Id,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for completion.")] = False,
) -> None:
    """Show a submission's progress. Exit status: that of `submit --wait` once it has ended, else 0."""
    submission_id = complete_id(server, submission)
    client = server.client
    found = _followed(client, submission_id, quiet=server.as_json) if wait else client.submission(submission_id)
    placing = get_placing(client, found)
    text = _failure_text(client, found)
    _print_submission(found, placing, as_json=server.as_json, failure_text=text)
    raise typer.Exit(exit_status(found))


def logs(server: InCompetition, submission: Id) -> None:
    """Print the output of the run on the public sample. Output of runs on hidden data is not shown."""
    submission_id = complete_id(server, submission)
    text = server.client.log(submission_id)
    server.answer({"id": submission_id, "log": text})
    if not text:
        typer.echo("The run on the public sample has printed nothing.", err=True)
        return
    typer.echo(text, nl=not text.endswith("\n"))


def cancel(
    server: InCompetition,
    submission: Id,
    *,
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Cancel a submission. Before its first run it does not count against the quota."""
    submission_id = complete_id(server, submission)
    if not (sure or server.as_json) and sys.stdin.isatty():
        begun = bool((server.client.submission(submission_id)["progress"] or {}).get("attempts"))
        cost = "It has begun, so it counts against the quota." if begun else "It has not begun: it does not count."
        typer.confirm(f"{cost} Cancel {submission_id}?", abort=True)
    found = server.client.cancel(submission_id)
    _print_submission(found, {}, as_json=server.as_json)


def select(
    server: InCompetition, submission: Id, off: Annotated[bool, typer.Option("--off", help="Deselect.")] = False
) -> None:
    """Choose a submission for the private leaderboard."""
    found = server.client.select(complete_id(server, submission), selected=not off)
    server.answer(found)
    console.print("Taken back." if off else "Chosen for the private board.")
    if not off and not found["publish_code"]:
        agree = f"lethe api PUT /submissions/{found['id']}/publication"
        console.print(f"May its code be published after the end? Then: {agree}", highlight=False, soft_wrap=True)


def exit_status(submission: JsonObject) -> int:
    """Return the exit status that says how a submission ended; 0 while it has not."""
    stage = submission["stage"]
    if stage == "failed":
        return HOST_FAILED if (submission["failure"] or {}).get("fault") != "participant" else FAILED
    return CANCELLED if stage == "cancelled" else SCORED


def complete_id(server: InCompetition, given: str) -> str:
    """Return the id that `given` is, or the only one of the caller's that begins with it.

    Without --competition those of every competition are looked through.
    """
    if len(given) == 16:
        return given
    slugs = [server.named] if server.named else [found["slug"] for found in server.client.competitions()]
    known = [found["id"] for slug in slugs for found in server.client.submissions(slug)]
    return the_only_match(given, known, what="submissions of your teams")


def _followed(client: LetheClient, submission_id: str, *, quiet: bool) -> JsonObject:
    if quiet:
        return client.wait(submission_id, every_s=EVERY_S)
    with OverallProgress({"runs": 1.0}) as bar:

        def show(submission: JsonObject) -> None:
            progress = submission["progress"] or {}
            done, total = progress.get("runs_done", 0), progress.get("runs_total") or 0
            words = f", {done} of {total} runs" if total else ""
            words += f": {waits}" if (waits := _wait_text(submission)) else ""
            bar.show("runs", done / (total or 1), submission["stage"] + words)

        return client.wait(submission_id, on_change=show, every_s=EVERY_S)


def _wait_text(submission: JsonObject) -> str | None:
    """Return why nothing of a submission runs, how many are before it, and about how long it takes."""
    wait = submission.get("wait")
    if not wait:
        return None
    ahead = f", about {wait['ahead']} before it" if wait["ahead"] else ""
    return f"{wait['reason']}{ahead}" + (f", about {duration_text(wait['seconds'])}" if wait["seconds"] else "")


def _failure_text(client: LetheClient, submission: JsonObject) -> str:
    """Return what a failed run on the public sample ended with: its whole traceback. Empty for any other end."""
    failure = submission["failure"] or {}
    if failure.get("fault") != "participant" or failure.get("bits") is not None:
        return ""
    return last_traceback(client.log(submission["id"]))


def _print_submission(submission: JsonObject, placing: JsonObject, *, as_json: bool, failure_text: str = "") -> None:
    if as_json:
        print_json(submission | placing | ({"failure_text": failure_text} if failure_text else {}))
        return
    progress, score = submission["progress"] or {}, submission["score"] or {}
    failure = submission["failure"] or {}
    context, explanation = submission.get("context") or {}, submission.get("explanation") or {}
    costs = explanation.get("costs", {}).items()
    run: list[Any] = [score.get(name) for name in ("run_time_s", "run_limit_s", "run_time_of")]
    print_facts(
        (
            ("submission", submission["id"]),
            ("file", submission["filename"]),
            ("mode", submission.get("mode")),
            ("stage", stage_text(submission) if submission.get("parts") else submission["stage"]),
            ("waits", _wait_text(submission)),
            ("runs", f"{progress['runs_done']} of {progress['runs_total']}" if progress else None),
            ("score", score_text(score.get("final_score"))),
            ("combined score", score_text(submission.get("combined_score"))),
            ("share of the oracle", share_text(placing.get("share_of_oracle"))),
            ("team's rank", rank_text(placing)),
            *((f"beside it: {one['name']}", score_text(one["score"])) for one in context.get("references", ())),
            ("share of the loss", ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in costs) or None),
            ("try next", explanation.get("advice") or context.get("advice")),
            ("one run", f"at most {compare_with_limit(*run)} (median)" if score.get("run_limit_s") else None),
            ("unconfirmed", UNCONFIRMED if score.get("is_unconfirmed") else None),
            ("time taken", duration_text(time_taken_s(submission))),
            ("error", failure.get("error_class")),
            ("fault", failure.get("fault")),
            ("exception", failure.get("exception_type")),
            ("where", _where(failure)),
            ("", failure.get("message")),
            ("quota", "this one does not count" if submission["refunded"] and not submission.get("part_of") else None),
        )
    )
    if parts := submission.get("parts"):
        columns = ("task", "submission", "stage", "score#", "private#")
        print_table("", columns, (_part_row(part) for part in parts), empty="")
    if failure_text:
        typer.echo(f"\nThe run on the public sample ended with:\n{failure_text}")


def _part_row(part: JsonObject) -> tuple[object, ...]:
    failure = part["failure"] or {}
    return (
        part["task"],
        part["id"],
        f"{part['stage']}: {failure['error_class']}" if failure else part["stage"],
        score_text((part["score"] or {}).get("final_score")),
        score_text((part["private_score"] or {}).get("final_score")),
    )


def _where(failure: JsonObject) -> str | None:
    """Return the place of a failure whose message does not say it."""
    file, line = failure.get("file"), failure.get("line")
    if not file or (line and names_line(failure.get("message") or "", line)):
        return None
    return f"{file}, line {line}" if line else str(file)


def _row(submission: JsonObject) -> tuple[object, ...]:
    return (
        submission["id"],
        local_time(submission["received_at"]),
        submission["filename"],
        stage_text(submission),
        score_text(public_score(submission)),
        "yes" if submission["selected"] else None,
        submission["message"],
    )
