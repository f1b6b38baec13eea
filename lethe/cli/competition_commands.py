"""`lethe competition …`: making and running competitions, over HTTP."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.competition_files import TaskCheck, check_file, planned_uploads, read_new_file
from lethe.cli.context import Commands, Output, Server, Slug
from lethe.cli.output import OverallProgress, console, local_time, notes, preparation_so_far, print_facts
from lethe.cli.proposal_command import new
from lethe.client.api import JsonObject, LetheClient
from lethe.errors import HostFault, InvalidInput
from lethe.text_files import read_text

if TYPE_CHECKING:
    from lethe.competition.file import CompetitionFile


EVERY_S = 0.5
WAITING_PAGES = {  # of the organisers' pages, by what waits
    "unconfirmed_scores": "submissions?only=unconfirmed",
    "requests_to_take_part": "participants?state=asked",
    "open_questions": "questions",
}
DECISIONS = ("exclude", "run-again", "use-next-choice")  # on a final that failed on the private split
UNSUCCESSFUL = 3  # exit status when preparation ends without a prepared split


File = Annotated[Path, typer.Argument(help="A competition file (TOML).", exists=True, dir_okay=False)]
Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it can open, or both splits are checked.")]
AtOnce = Annotated[bool, typer.Option("--prepare", help="Prepare the splits, and wait until it can open.")]
FileOnly = Annotated[bool, typer.Option("--file-only", help="Do not look at the data, which is on another machine.")]
Measure = Annotated[
    bool, typer.Option("--measure", help="Measure one retraining again, which a run's limit rests on. It is announced.")
]
AnyDevice = Annotated[
    bool,
    typer.Option(
        "--any-device", help="Do not wait for the kind of worker that started a split: another kind starts it again."
    ),
]


def validate(
    output: Output,
    file: File,
    file_only: FileOnly = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The files of a dataset that was uploaded.", exists=True, file_okay=False),
    ] = None,
) -> None:
    """Check a competition file as preparing does: data, network, both forget sets. Nothing is sent.

    Relative paths are relative to the file. A dataset that was uploaded is looked at where --data names its files.
    """
    check = check_file(file, data=data, looks=not file_only)
    by_task = {each.file.slug: each.set_sizes for each in check.tasks}
    costs = [each.recipes for each in check.tasks]
    more = {
        "set_sizes": by_task if check.file.tasks else by_task[check.file.slug],
        "recipe_models": sum(cost.n_models for cost in costs),
        "recipe_seconds": sum(known) if (known := [cost.seconds for cost in costs if cost.seconds]) else None,
        "warnings": list(check.warnings),
    }
    output.answer(check.file.model_dump(mode="json") | more)
    for each in check.tasks:
        _print_plan(each)
    for warning in check.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def create(
    server: Server,
    file: File,
    at_once: AtOnce = False,
    keep_root: Annotated[
        bool,
        typer.Option("--no-upload", help="Send no data: `root` is a folder on the workers, though it is here too."),
    ] = False,
    file_only: FileOnly = False,
) -> None:
    """Create a draft from a competition file; with --prepare, its splits too.

    It refuses what `validate` refuses. A `root` that lies beside the file is uploaded: workers do not see this
    machine's files.
    """
    if keep_root:
        checked, text = read_new_file(file), read_text(file)
    else:
        checked, text = checked_and_sent(server, file, looks=not file_only)
    made = server.client.create_competition(text)
    if at_once:
        prepare(server, checked.slug, wait=True)
    else:
        print_organised(server, made)


def checked_and_sent(server: Server, path: Path, *, looks: bool, is_new: bool = True) -> tuple["CompetitionFile", str]:
    """Return the file, and its text once what lies beside it is uploaded. First all is checked as `validate` does."""
    uploads = planned_uploads(path, read_new_file(path, is_new=is_new))
    check = check_file(path, looks=looks, is_sent=True, is_new=is_new)
    for warning in check.warnings:
        notes.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    return check.file, uploads.send(server.client)


def prepare(
    server: Server, competition: Slug, wait: Wait = False, any_device: AnyDevice = False, measure: Measure = False
) -> None:
    """Prepare both splits: original models, retrained models, their outputs. Called again, it retries what failed."""
    found = server.client.prepare(competition, any_device=any_device, measure=measure)
    if wait:
        found = _prepared(server.client, competition, quiet=server.as_json)
    ended = UNSUCCESSFUL if any(split["state"] == "failed" for split in found["splits"]) else 0
    print_organised(server, found, exit_status=ended)
    raise typer.Exit(ended)


def show_status(server: Server, competition: Slug) -> None:
    """Show a competition as its organisers see it."""
    print_organised(server, server.client.preparation(competition))


def open_competition(server: Server, competition: Slug, reason: Why = "") -> None:
    """Open a prepared competition now. Otherwise it opens automatically at `opens_at`."""
    print_organised(server, server.client.act(competition, "open", {"reason": reason}))


def close_competition(server: Server, competition: Slug, reason: Why = "") -> None:
    """Close a competition now: the chosen submissions are then scored on the private split."""
    print_organised(server, server.client.act(competition, "close", {"reason": reason}))


def _prepared(client: LetheClient, slug: str, *, quiet: bool) -> JsonObject:
    """Return the competition once both splits are ready or one has failed; in a first preparation, once it can open."""
    with OverallProgress({"preparing both splits": 1.0}, quiet=quiet) as progress:
        while True:
            found = client.preparation(slug)
            progress.show("preparing both splits", *preparation_so_far(found["splits"]))
            states = {split["state"] for split in found["splits"]}
            if states == {"ready"} or "failed" in states:
                return found
            if found["state"] not in ("draft", "preparing"):
                if all(split["state"] == "ready" for split in found["splits"] if split["visibility"] == "public"):
                    return found
                raise HostFault(f"{slug} is {found['state']}, but its splits are not ready")
            time.sleep(EVERY_S)


def print_organised(server: Server, found: JsonObject, *, exit_status: int = 0) -> None:
    """Print a competition as its organisers see it; with --json, end the command with the exit status."""
    server.answer(found, exit_status=exit_status)
    facts: list[tuple[str, object]] = [
        ("competition", f"{found['title']} ({found['slug']})"),
        ("state", found["state"]),
    ]
    for split in (*(found.get("splits") or ()), *(found.get("replacements") or ())):
        name = _split_name(found, split)
        facts.append((name, f"{split['state']} {split['stage']} {split['error']}".strip()))
        facts += [("warning", f"{name}: {said}") for said in split.get("warnings") or ()]
    facts += [("same file sent by", ", ".join(teams)) for teams in found.get("same_files") or ()]
    facts += [("decision needed", _failed_final(found, final)) for final in found.get("failed_finals") or ()]
    facts += [
        ("decision needed", f"{n} {kind.replace('_', ' ')}: /organise/{found['slug']}/{WAITING_PAGES.get(kind, '')}")
        for kind, n in (found.get("waiting") or {}).items()
        if n
    ]
    print_facts(facts)


def _failed_final(competition: JsonObject, final: JsonObject) -> str:
    path = f"/competitions/{competition['slug']}/finals/{final['submission']}/decision"
    act = f"lethe api POST {path} -f decision={'|'.join(DECISIONS)} -f reason=WHY"
    return f"final {final['submission']} of {final['team']} failed: {final['error_class']}; {act}"


def _split_name(competition: JsonObject, split: JsonObject) -> str:
    """Return what a split is called beside the others: where there are tasks, with the name of its own."""
    task = next((task["name"] for task in competition.get("tasks") or () if task["slug"] == split["competition"]), "")
    version = f"version {split['version']}" if split.get("version", 1) > 1 else ""
    return " ".join(part for part in (task, f"{split['visibility']} split", version) if part)


def _print_plan(check: TaskCheck) -> None:
    file, set_sizes, recipes = check.file, check.set_sizes, check.recipes
    examples = f"{file.task.example}s"
    looked_at = "the file is in order." if set_sizes else "the file is in order; data and network were not looked at."
    console.print(f"[bold]{file.slug}[/]: {looked_at}", highlight=False)
    print_facts(
        (
            ("title", file.title),
            ("opens", local_time(file.opens_at.isoformat())),
            ("closes", local_time(file.closes_at.isoformat())),
            ("dataset", file.dataset.name),
            ("classes", ", ".join(f"{number} {name}" for number, name in enumerate(check.class_names))),
            ("network", file.network.name),
            ("parameters", f"{check.parameters:,}" if check.parameters else ""),
            ("runs", file.n_models),
            ("attacks", file.scoring.attacks),
            *(
                (f"{visibility} split", ", ".join(f"{n} {name}" for name, n in sizes.items()) + f" {examples}")
                for visibility, sizes in set_sizes.items()
            ),
            ("models to train", f"{2 * (2 * file.n_models + 1)} on both splits, the oracle's included"),
            *([("of other recipes", str(recipes))] if recipes.n_models else ()),
        )
    )


def update(server: Server, file: File, *, file_only: FileOnly = False) -> None:
    """Replace the file of a draft. `lethe api PATCH /competitions/NAME` changes one that runs."""
    checked, text = checked_and_sent(server, file, looks=not file_only)
    print_organised(server, server.client.replace_competition_file(checked.slug, text))


def replace_split(
    server: Server,
    competition: Slug,
    visibility: Annotated[str, typer.Argument(help="public or private.", metavar="SPLIT")],
    *,
    reason: Why,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A competition file whose section dataset names the corrected data.", exists=True),
    ] = None,
    file_only: FileOnly = False,
) -> None:
    """Prepare a split again beside the present one, from corrected data. Nothing changes until `lethe rejudge start
    --changed split` is applied; a split on which nothing was evaluated is replaced as soon as the new one is ready.
    """
    body: JsonObject = {"reason": reason}
    if file is not None:
        body["dataset"] = _dataset_section(server, file, competition, looks=not file_only)
    found = server.client.post(f"/competitions/{competition}/splits/{visibility}/replacement", body)
    print_organised(server, found)


def _dataset_section(server: Server, path: Path, slug: str, *, looks: bool) -> JsonObject:
    """Return the section of a competition or a task, checked as by `create`; what lies beside the file is uploaded."""
    from lethe.competition.file import parse_competition, read_competition_file

    known = [each.slug for each in read_competition_file(path).evaluated]
    if slug not in known:
        raise InvalidInput(f"{path} is the file of {', '.join(known)}, not of {slug}")
    _, text = checked_and_sent(server, path, looks=looks, is_new=False)
    sections = {each.slug: each.dataset for each in parse_competition(text, source=str(path)).evaluated}
    return sections[slug].model_dump(mode="json")


def bundle(
    server: Server,
    competition: Slug,
    into: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.zip", help="A new folder, or a new zip file.")],
    *,
    without_seeds: Annotated[
        bool, typer.Option("--without-seeds", help="Keep the seeds of the splits: nobody can run an entry again.")
    ] = False,
) -> None:
    """Write the results of a competition that is over as a site: it opens without a server and can be cited.

    Leaderboards, receipts, the code of those submissions whose teams agreed, a card of the data. `lethe verify FOLDER`
    checks it, `lethe replay FOLDER --entry ID` runs an entry again.
    """
    from lethe.client.bundle import unpack

    is_zip = into.suffix == ".zip"
    if into.exists() and (is_zip or not into.is_dir() or any(into.iterdir())):
        raise InvalidInput(f"{into} exists; name a new {'file' if is_zip else 'folder'}")
    with tempfile.TemporaryDirectory() as name:
        path = into if is_zip else Path(name) / "bundle.zip"
        server.client.download(f"/competitions/{competition}/bundle", path, seeds=not without_seeds)
        files = None if is_zip else unpack(path, into)
    server.answer({"competition": competition, "path": str(into), "files": files})
    console.print(f"Wrote {into}." if is_zip else f"Wrote {into} with {files} files. Open {into / 'index.html'}.")


COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "validate": validate,
    "create": create,
    "update": update,
    "prepare": prepare,
    "replace-split": replace_split,
    "status": show_status,
    "open": open_competition,
    "close": close_competition,
    "bundle": bundle,
}


def register_commands(app: typer.Typer) -> None:
    group = Commands(help="Make and run competitions (for organisers).", no_args_is_help=True)
    for name, command in COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="competition")
