"""`lethe competition new`: a competition file for a folder or a zip of one's own."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli.context import Output
from lethe.cli.output import console, notes, print_facts
from lethe.errors import InvalidInput

if TYPE_CHECKING:
    from lethe.proposal.detect import Detected
    from lethe.proposal.propose import Proposal, SetPreview

DATA = Annotated[
    Path,
    typer.Argument(help="A folder or a .zip of images, of questions (*.jsonl), or with a table (*.csv).", exists=True),
]


def new(
    output: Output,
    data: DATA,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; default: NAME.toml beside the data.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Address of the competition; default: the data's name.")] = "",
    title: Annotated[str, typer.Option("--title", help="Its title.")] = "",
    models: Annotated[int | None, typer.Option("--models", min=2, help="N; default: what 8 hours train.")] = None,
    table: Annotated[str, typer.Option("--table", help="The CSV that names the images, or is the data.")] = "",
    path_column: Annotated[str, typer.Option("--path-column", help="Its column of images.")] = "",
    label_column: Annotated[str, typer.Option("--label-column", help="Its column of classes.")] = "",
    person_column: Annotated[str, typer.Option("--person-column", help="Its column of persons.")] = "",
    test_column: Annotated[str, typer.Option("--test-column", help="Its column that tells test images.")] = "",
    test_values: Annotated[
        list[str] | None, typer.Option("--test-value", help="A value or folder that means testing. May be repeated.")
    ] = None,
    folders: Annotated[
        str, typer.Option("--folders", help="What each level of folders says: test,label,person or any.")
    ] = "",
) -> None:
    """Write a competition file for your own images, questions or table: classes, persons and sizes are detected.

    Splits, network and limits are proposed to fit them, and what they cost is estimated. Nothing is sent.
    """
    from lethe.proposal.detect import detect, words_of
    from lethe.proposal.propose import preview_cut, propose, slug_of
    from lethe.proposal.source import Folder

    slug = name or slug_of(data.resolve().stem if data.suffix.lower() == ".zip" else data.resolve().name)
    path = out or data.resolve().parent / f"{slug}.toml"
    if path.exists():
        raise InvalidInput(f"{path} is there already: name another with --out")
    folder = data if data.is_dir() else _unpacked(data, path.resolve().parent / f"{slug}-data")
    read_as = {
        "table": table, "path_column": path_column, "label_column": label_column, "person_column": person_column,
        "test_column": test_column, "test_values": test_values, "folders": words_of(folders),
    }  # fmt: skip
    detected = detect(Folder(folder), wanted=read_as)
    proposal = propose(
        detected,
        root=Path(os.path.relpath(folder.resolve(), path.resolve().parent)).as_posix(),
        slug=slug,
        title=title or f"Forget: {slug.replace('-', ' ')}",
        at=datetime.now(UTC),
        given={"n_models": models} if models else None,
    )
    sets = preview_cut(detected.images, proposal.file) if detected.images is not None else ()
    path.write_text(proposal.text, encoding="utf-8")
    output.answer(_as_json(path, detected, proposal, sets))
    _print(path, detected, proposal, sets)


def _unpacked(archive: Path, folder: Path) -> Path:
    """Return the folder that a zip was unpacked into. Raises InvalidInput for what no upload may be."""
    from lethe.proposal.source import open_archive

    if folder.exists():
        raise InvalidInput(f"{archive.name} would be unpacked to {folder}, which is there: name that instead")
    with archive.open("rb") as file:
        source = open_archive(file)
        for name in source.names:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read(name, at_most=-1))
    notes.print(f"{archive.name} is unpacked to {folder}", highlight=False, markup=False)
    return folder


def _print(path: Path, detected: "Detected", proposal: "Proposal", sets: Sequence["SetPreview"]) -> None:
    header, file, classes = detected.header, proposal.file, list(detected.class_counts.items())
    print_facts(
        (
            ("found", _found(detected)),
            ("classes", ", ".join(f"{number} {name}: {n}" for number, (name, n) in enumerate(classes[:20]))),
            ("size", f"{header.width} x {header.height}, scaled to {detected.options['size']}" if header else ""),
            ("network", f"{file.network.name} {dict(file.network.options)}"),
            ("forgets", f"{file.splits.forget.fraction:g} of the training set, by {file.splits.forget.by}"),
            ("public split", ", ".join(f"{each.n} {each.name}" for each in sets)),
            ("models to train", f"{2 * (2 * file.n_models + 1)}, {_about(proposal.preparation_s)}"),
            ("a submission", f"{file.n_models} runs, {_about(proposal.submission_s)}"),
        )
    )
    for note in detected.notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if not _is_uploaded(detected):
        console.print(
            f"note: {'tables' if detected.features else 'questions'} are not uploaded: put their folder below "
            "LETHE_DATASET_ROOTS on every worker",
            style="yellow", markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    console.print(f"\n{path} is written. Look at it, then:", markup=False, highlight=False, soft_wrap=True)
    for command in ("validate", "create"):
        more = ("" if _is_uploaded(detected) else " --no-upload") + " --prepare" if command == "create" else ""
        console.print(f"  lethe competition {command} {path}{more}", markup=False, highlight=False, soft_wrap=True)


def _is_uploaded(detected: "Detected") -> bool:
    from lethe.competition.sections import UPLOADED_ADAPTERS

    return detected.dataset in UPLOADED_ADAPTERS


def _found(detected: "Detected") -> str:
    if detected.images is None:
        return f"{detected.questions} questions of {detected.groups} groups"
    persons = f" of {len(set(detected.images.persons.tolist()))} persons" if detected.images.knows_persons else ""
    example = "rows" if detected.features else "images"
    return f"{len(detected.images)} {example} of {detected.images.n_classes} classes{persons}"


def _about(seconds: float) -> str:
    if not seconds:
        return "time not known before the data is prepared"
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"about {seconds / size:.1f} {unit} of one processor"
    return f"about {seconds:.1f} s of one processor"


def _as_json(path: Path, detected: "Detected", proposal: "Proposal", sets: Sequence["SetPreview"]) -> dict[str, Any]:
    return {
        "file": str(path),
        "dataset": detected.dataset,
        "options": dict(detected.options),
        "classes": dict(detected.class_counts),
        "notes": list(detected.notes),
        "set_sizes": {each.name: each.n for each in sets},
        "n_models": proposal.file.n_models,
        "retraining_s": proposal.retraining_s,
        "preparation_s": proposal.preparation_s,
        "submission_s": proposal.submission_s,
    }
