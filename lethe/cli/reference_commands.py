"""What is signed: `lethe reference`, a prepared split for others with its retrained models' outputs, as one file.

`lethe verify`: whether a receipt, or a folder of published results, is as an instance signed it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli.context import Commands, Output
from lethe.cli.output import console, print_facts
from lethe.errors import InvalidInput
from lethe.text_files import read_text

if TYPE_CHECKING:
    from lethe.reference.bundle import BundleDescription

app = Commands(
    name="reference", help="Publish a prepared split, and score against one of somebody else's.", no_args_is_help=True
)
Source = Annotated[str, typer.Argument(help="A file, a folder or an https:// address.", metavar="SOURCE")]
Keys = Annotated[
    list[str] | None, typer.Option("--key", help="A public key that you trust, as its owner publishes it. Repeatable.")
]
AnySigner = Annotated[bool, typer.Option("--any-signer", help="Take it whoever signed it, or nobody.")]
MaxMib = Annotated[int, typer.Option("--max-mib", min=1, help="Refuse more than this.")]
Private = Annotated[Path, typer.Argument(help="A new file for the private key.", dir_okay=False)]


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)
    parent.command("verify")(verify_results)


@app.command()
def export(
    output: Output,
    split: Annotated[Path, typer.Argument(help="Folder of a prepared split.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Argument(help="The file to write, such as digits.lethe.zip.", dir_okay=False)],
    *,
    licence: Annotated[str, typer.Option("--licence", help="Of the data in it, such as CC-BY-4.0.")],
    description: Annotated[str, typer.Option("--description", help="For the data card.")] = "",
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Your private key, from `lethe reference key`.", dir_okay=False)
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also the retrained models, not their outputs alone.")
    ] = False,
    leave_out: Annotated[
        list[int] | None,
        typer.Option("--leave-out", help="A capture level whose arrays stay behind; 2, logits, is most of the size."),
    ] = None,
) -> None:
    """Write a split as one file: data, original model, outputs of the retrained models and the oracle, a data card.

    The hidden test set and labels are in it: export no split of a competition that is still open.
    """
    from lethe.reference.bundle import read_key
    from lethe.reference.export import export_split

    key = None if sign is None else read_key(sign)
    described = export_split(
        split,
        out,
        licence=licence,
        description=description,
        key=key,
        checkpoints=checkpoints,
        leave_out=leave_out or (),
    )
    _show(output, described, out)


@app.command()
def fetch(
    output: Output,
    source: Source,
    into: Annotated[Path, typer.Argument(help="A new folder for the split.", file_okay=False)],
    *,
    key: Keys = None,
    any_signer: AnySigner = False,
    max_mib: MaxMib = 2048,
) -> None:
    """Take a reference split: check its signature and every byte, and unpack it into a folder."""
    from lethe.reference.fetch import fetch as take

    described = take(source, into, keys=key or (), any_signer=any_signer, max_bytes=max_mib * 2**20)
    _show(output, described, into)
    console.print(f"Next: lethe methods run METHOD --split {into}", style="dim", highlight=False)


@app.command()
def verify(
    output: Output, source: Source, *, key: Keys = None, any_signer: AnySigner = False, max_mib: MaxMib = 2048
) -> None:
    """Check a reference split without unpacking it."""
    from lethe.reference.fetch import verify as check

    described = check(source, keys=key or (), any_signer=any_signer, max_bytes=max_mib * 2**20)
    _show(output, described, None)


@app.command("key")
def make_key(file: Private) -> None:
    """Make a key to sign with, and print its public half, which you publish."""
    from lethe.reference.bundle import new_key

    typer.echo(new_key(file))


@app.command()
def easydub(
    folder: Annotated[Path, typer.Argument(help="The data set of EasyDUB.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Argument(help="A new folder for retrained.npz, oracle.npz, original.npz.")],
    *,
    forget_set: Annotated[int, typer.Option("--forget-set", min=0, help="Its number.")],
    n_models: Annotated[
        int | None, typer.Option("--n-models", min=2, help="Retrained models; as many more are the oracle.")
    ] = None,
) -> None:
    """Turn the margins that EasyDUB publishes into files that `lethe evaluate` and `lethe score` read."""
    from lethe.reference.easydub import read_easydub, write_sides

    sides = read_easydub(folder, forget_set=forget_set, n_models=n_models)
    write_sides(sides, out)
    print_facts(
        (side, f"{len(arrays['confidences'])} models, {arrays['confidences'].shape[1]} forget examples")
        for side, arrays in sides.items()
    )


def _show(output: Output, described: "BundleDescription", where: Path | None) -> None:
    facts = {
        "name": described.name,
        "n_models": described.n_models,
        "has_checkpoints": described.has_checkpoints,
        "files": len(described.files),
        "bytes": described.size,
        "licence": described.licence,
        "signed_by": described.public_key,
        "path": None if where is None else str(where),
    }
    output.answer(facts)
    print_facts(
        (name.replace("_", " "), "nobody" if name == "signed_by" and not value else value)
        for name, value in facts.items()
    )


DIFFERENT = 3  # exit status where what was looked at does not agree
Key = Annotated[str | None, typer.Option("--key", help="The instance's public key, from GET /api/v1/receipt-key.")]


def verify_results(
    output: Output,
    what: Annotated[Path, typer.Argument(help="A receipt, a JSON file; or a folder of published results.")],
    key: Key = None,
) -> None:
    """Check a receipt's signature, or every file, signature and score of a folder that `lethe competition bundle` made.

    With --key also who signed. Exit status 1: not valid; 3: the folder's files or scores do not agree.
    """
    if what.is_dir():
        _verify_bundle(what, key, output)
        return
    from lethe.client.bundle import receipt_parts, verify_receipt

    body = read_receipt(what)
    verify_receipt(body, public_key=key)
    output.answer(body)
    for part in receipt_parts(body):
        _print_receipt(part)
    if key is None:
        console.print(f"signed by {body['public_key']}: compare it with the instance's own key, or give --key")


def _print_receipt(body: Mapping[str, Any]) -> None:
    score, submission = body["score"], body["submission"]
    phase = f", phase {submission['phase']}" if submission.get("phase") else ""
    console.print(
        f"[green]whole[/] {submission['id']} on the {body['split']['visibility']} split of {body['competition']}{phase}"
    )
    console.print(f"score {score['final_score']!r}, scorer {score['scorer_version']}, code {submission['sha256']}")


def _verify_bundle(folder: Path, key: str | None, output: Output) -> None:
    from lethe.client.bundle import check

    found = check(folder, public_key=key)
    ended = DIFFERENT if found.differences else 0
    output.answer(vars(found), exit_status=ended)
    for difference in found.differences:
        console.print(difference, style="red", markup=False, highlight=False, soft_wrap=True)
    for name in found.unlisted:
        console.print(f"{name} is in the folder, and not of the bundle", markup=False, highlight=False)
    looked_at = f"{found.files} files, {found.receipts} receipts, {found.scores} scores"
    verdict = "[bold red]do not agree[/]" if found.differences else "[green]agree[/]"
    console.print(f"{found.competition}: {looked_at} {verdict}", highlight=False)
    if key is None:
        console.print(f"signed by {found.public_key}: compare it with the instance's own key, or give --key")
    raise typer.Exit(ended)


def read_receipt(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InvalidInput."""
    try:
        found = json.loads(read_text(path))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no receipt")
    return found
