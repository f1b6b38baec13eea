"""`lethe dataset upload`, `list`, `delete`: an organiser's own data on a server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lethe.cli.context import Commands, Server
from lethe.cli.output import console, notes

Name = Annotated[str, typer.Argument(help="How competition files call it: a-z, 0-9 and -.")]
Archive = Annotated[Path, typer.Argument(help="A zip of plain files.", exists=True, dir_okay=False)]


def register_commands(app: typer.Typer) -> None:
    group = Commands(help="Upload datasets for competitions. For organisers.", no_args_is_help=True)
    group.command()(upload)
    group.command("list")(list_datasets)
    group.command()(delete)
    app.add_typer(group, name="dataset")


def upload(server: Server, name: Name, archive: Archive) -> None:
    """Upload a dataset. A competition file then says: root = "upload:NAME"."""
    made = server.client.upload_dataset(name, archive)
    server.answer(made)
    stored = f'{made["files"]} files are stored. Use them with root = "upload:{name}".'
    console.print(stored, highlight=False, markup=False)


def list_datasets(server: Server) -> None:
    """List your datasets on the server."""
    found = server.client.get("/datasets")
    server.answer(found)
    table = Table("name", "files", "bytes", "unpacked", "uploaded", box=None)
    for one in found:
        sizes = (f"{one[key]:,}" for key in ("files", "archive_bytes", "unpacked_bytes"))
        table.add_row(one["name"], *sizes, one["created_at"][:10] if one["stored_at"] else "incomplete")
    console.print(table)


def delete(server: Server, name: Name) -> None:
    """Delete a dataset that no competition uses."""
    server.client.delete(f"/datasets/{name}")
    server.answer({"dataset": name, "deleted": True})
    notes.print(f"{name} is deleted; the name is free again.", highlight=False)
