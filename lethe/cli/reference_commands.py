"""`lethe reference`: a prepared split for others, with its retrained models' outputs, as one signed file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.context import Json
from lethe.cli.output import console, print_facts, print_json

if TYPE_CHECKING:
    from lethe.reference.bundle import BundleDescription

app = typer.Typer(
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


@app.command()
def export(
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
    as_json: Json = False,
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
    _show(described, out, as_json)


@app.command()
def fetch(
    source: Source,
    into: Annotated[Path, typer.Argument(help="A new folder for the split.", file_okay=False)],
    *,
    key: Keys = None,
    any_signer: AnySigner = False,
    max_mib: MaxMib = 2048,
    as_json: Json = False,
) -> None:
    """Take a reference split: check its signature and every byte, and unpack it into a folder."""
    from lethe.reference.fetch import fetch as take

    described = take(source, into, keys=key or (), any_signer=any_signer, max_bytes=max_mib * 2**20)
    _show(described, into, as_json)
    if not as_json:
        console.print(f"Next: lethe methods run METHOD --split {into}", style="dim", highlight=False)


@app.command()
def verify(
    source: Source, *, key: Keys = None, any_signer: AnySigner = False, max_mib: MaxMib = 2048, as_json: Json = False
) -> None:
    """Check a reference split without unpacking it."""
    from lethe.reference.fetch import verify as check

    described = check(source, keys=key or (), any_signer=any_signer, max_bytes=max_mib * 2**20)
    _show(described, None, as_json)


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


def _show(described: "BundleDescription", where: Path | None, as_json: bool) -> None:
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
    if as_json:
        print_json(facts)
        return
    print_facts(
        (name.replace("_", " "), "nobody" if name == "signed_by" and not value else value)
        for name, value in facts.items()
    )
