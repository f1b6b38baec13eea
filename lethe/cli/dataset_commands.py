"""`lethe dataset upload`, `list`, `delete`: an organiser's own data on a server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lethe.cli.context import Json, Url, connected
from lethe.cli.output import console, notes, print_json

Name = Annotated[str, typer.Argument(help="How competition files call it: a-z, 0-9 and -.")]
Archive = Annotated[Path, typer.Argument(help="A zip of plain files.", exists=True, dir_okay=False)]


def register_commands(app: typer.Typer) -> None:
    group = typer.Typer(help="Upload datasets for competitions. For organisers.", no_args_is_help=True)
    group.command()(upload)
    group.command("list")(list_datasets)
    group.command()(delete)
    app.add_typer(group, name="dataset")


def upload(name: Name, archive: Archive, url: Url = None, as_json: Json = False) -> None:
    """Upload a dataset. A competition file then says: root = "upload:NAME"."""
    with connected(url) as client:
        made = client.upload_dataset(name, archive)
    if as_json:
        print_json(made)
        return
    stored = f'{made["files"]} files are stored. Use them with root = "upload:{name}".'
    console.print(stored, highlight=False, markup=False)


def list_datasets(url: Url = None, as_json: Json = False) -> None:
    """List your datasets on the server."""
    with connected(url) as client:
        found = client.get("/datasets")
    if as_json:
        print_json(found)
        return
    table = Table("name", "files", "bytes", "unpacked", "uploaded", box=None)
    for one in found:
        sizes = (f"{one[key]:,}" for key in ("files", "archive_bytes", "unpacked_bytes"))
        table.add_row(one["name"], *sizes, one["created_at"][:10] if one["stored_at"] else "incomplete")
    console.print(table)


def delete(name: Name, url: Url = None) -> None:
    """Delete a dataset that no competition uses."""
    with connected(url) as client:
        client.delete(f"/datasets/{name}")
    notes.print(f"{name} is deleted; the name is free again.", highlight=False)
