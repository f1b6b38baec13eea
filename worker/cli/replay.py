"""`lethe replay`: whether a score comes out again, to the bit, from what is stored."""

from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli.context import Json
from lethe.cli.output import console, notes, print_facts, print_json
from lethe.cli.receipt_commands import Key, read_receipt
from lethe.competition.visibility import Visibility

if TYPE_CHECKING:
    from worker.evaluation.replay import Replayed

DIFFERENT = 3


def replay(
    what: Annotated[str, typer.Argument(metavar="RECEIPT|SUBMISSION", help="A receipt's file, or a submission's id.")],
    *,
    split: Annotated[
        Visibility, typer.Option("--split", help="The split, for a submission; a receipt names its own.")
    ] = Visibility.PUBLIC,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Run a scored submission again on this instance's stored data and compare. Exit status 3: the score differs.

    A receipt is checked first, with --key also against the key of the instance that signed it.
    """
    from server.db import Database
    from server.logging import configure
    from server.private_files import instance_settings
    from server.storage import get_storage
    from worker.evaluation import replay

    receipt = _receipt(what, key)
    submission, visibility = (receipt["submission"]["id"], receipt["split"]["visibility"]) if receipt else (what, split)
    settings = instance_settings()
    configure(as_json=settings.log_json, level=WARNING)
    database = Database(settings.resolved_database_url)
    try:
        stored = replay.stored_score(database, submission, Visibility(visibility))
    finally:
        database.dispose()
    notes.print(f"Running {sum(shard.n_runs for shard, *_ in stored.shards)} runs of {stored.submission_id} again.")
    replayed = replay.replay(settings, get_storage(), stored)
    disputed = replay.differs_from_receipt(stored, receipt) if receipt else []
    replayed.differences[:0] = disputed
    _tell(replayed, as_json=as_json)
    if disputed or not replayed.is_equal:
        raise typer.Exit(DIFFERENT)


def _receipt(what: str, key: str | None) -> dict[str, Any] | None:
    """Return the checked receipt in the file `what`, None if there is no such file. Raises InvalidInput."""
    from lethe.client.receipts import verify

    if not Path(what).is_file():
        return None
    found = read_receipt(Path(what))
    verify(found, public_key=key)
    return found


def _tell(replayed: "Replayed", *, as_json: bool) -> None:
    stored = replayed.stored
    facts: dict[str, Any] = {
        "submission": stored.submission_id,
        "split": stored.visibility,
        "equal": replayed.is_equal,
        "stored_score": stored.score,
        "score": replayed.score,
        "runs": replayed.runs,
        "different_runs": replayed.different_runs,
        "differences": replayed.differences,
    }
    if as_json:
        print_json(facts)
        return
    console.print("[green]equal[/], to the last bit" if replayed.is_equal else "[bold red]different[/]")
    shown = {"stored_score": repr(stored.score), "score": repr(replayed.score)}
    shown["different_runs"] = f"{len(replayed.different_runs)} of {replayed.runs}"
    print_facts([(name.replace("_", " "), shown.get(name, value)) for name, value in facts.items() if name != "equal"])
