"""`lethe replay`: whether a score comes out again, to the bit, from what is stored."""

import tempfile
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli.context import Json
from lethe.cli.output import console, notes, print_facts, print_json
from lethe.cli.reference_commands import Key, read_receipt
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput

if TYPE_CHECKING:
    from worker.evaluation.replay import Replayed

DIFFERENT = 3
BACKEND = "bubblewrap"


def replay(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT|SUBMISSION|FOLDER",
            help="A receipt's file, a submission's id, or a folder of published results.",
        ),
    ],
    *,
    split: Annotated[
        Visibility, typer.Option("--split", help="The split, for a submission or an entry; a receipt names its own.")
    ] = Visibility.PUBLIC,
    entry: Annotated[str, typer.Option("--entry", help="With a folder: an entry's id, or its first characters.")] = "",
    task: Annotated[str, typer.Option("--task", help="With a folder: a task, by its name.")] = "",
    prepared: Annotated[
        Path | None, typer.Option("--prepared", help="With a folder: of the split, prepared already or to be.")
    ] = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Run a scored submission again and compare. Exit status 3: the score differs.

    On this instance's stored data; an entry of published results (`lethe competition bundle`) on a split that is
    prepared from their seeds. A receipt is checked first, with --key also against the key of the instance that signed.
    """
    if Path(what).is_dir():
        _replay_entry(Path(what), entry, task=task, split=split, prepared=prepared, key=key, as_json=as_json)
        return
    if entry or task or prepared:
        raise InvalidInput(f"--entry, --task and --prepared are for a folder of published results, which {what} is not")
    _replay_here(what, split=split, key=key, as_json=as_json)


def _replay_here(what: str, *, split: Visibility, key: str | None, as_json: bool) -> None:
    from server.db import Database
    from server.logging import configure
    from server.private_files import instance_settings
    from server.storage import get_storage
    from worker.evaluation import replay

    receipt = _receipt(what, key)
    submission, visibility = (receipt["submission"]["id"], receipt["split"]["visibility"]) if receipt else (what, split)
    settings = instance_settings()
    configure(as_json=settings.log_json, level=WARNING)
    with Database(settings.resolved_database_url) as database:
        stored = replay.stored_score(database, submission, Visibility(visibility))
    notes.print(f"Running {sum(shard.n_runs for shard, *_ in stored.shards)} runs of {stored.submission_id} again.")
    replayed = replay.replay(settings, get_storage(), stored)
    disputed = replay.differs_from_receipt(stored, receipt) if receipt else []
    replayed.differences[:0] = disputed
    _tell(replayed, as_json=as_json)
    if disputed or not replayed.is_equal:
        raise typer.Exit(DIFFERENT)


def _replay_entry(
    folder: Path, entry: str, *, task: str, split: Visibility, prepared: Path | None, key: str | None, as_json: bool
) -> None:
    from lethe.client.bundle import check
    from worker.evaluation import bundle_replay

    if wrong := check(folder, public_key=key).differences:
        raise InvalidInput(f"{folder} is not what was published: {wrong[0]}")
    published = bundle_replay.read_published(folder, entry, task=task, visibility=split)
    with tempfile.TemporaryDirectory(prefix="lethe-replay-") as name:
        split_dir = prepared or Path(name) / "split"
        again = bundle_replay.replay(published, folder, split_dir, backend=BACKEND, on_stage=notes.print)
    facts: dict[str, Any] = {
        "submission": published.entry_id,
        "task": published.task,
        "split": published.visibility.value,
        "equal": again.is_equal,
        "published_score": published.score,
        "score": again.score,
        "runs": again.runs,
        "differences": again.differences,
    }
    _print(facts, shown={name: repr(facts[name]) for name in ("published_score", "score")}, as_json=as_json)
    if not again.is_equal:
        raise typer.Exit(DIFFERENT)


def _receipt(what: str, key: str | None) -> dict[str, Any] | None:
    """Return the checked receipt in the file `what`, None if there is no such file. Raises InvalidInput."""
    from lethe.client.bundle import verify_receipt

    if not Path(what).is_file():
        return None
    receipt = read_receipt(Path(what))
    verify_receipt(receipt, public_key=key)
    if "tasks" in receipt:
        ids = ", ".join(part["submission"]["id"] for part in receipt["tasks"].values())
        raise InvalidInput(f"{what} is of several tasks; replay each part by its id: {ids}")
    return receipt


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
    shown = {"stored_score": repr(stored.score), "score": repr(replayed.score)}
    shown["different_runs"] = f"{len(replayed.different_runs)} of {replayed.runs}"
    _print(facts, shown=shown, as_json=as_json)


def _print(facts: dict[str, Any], *, shown: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    console.print("[green]equal[/], to the last bit" if facts["equal"] else "[bold red]different[/]")
    print_facts([(name.replace("_", " "), shown.get(name, value)) for name, value in facts.items() if name != "equal"])
