"""`lethe export` and `lethe import`: a complete competition in one file, from one instance to another."""

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.output import Terminal

console = Terminal()


def register_commands(app: typer.Typer) -> None:
    app.command("export")(export_competition)
    app.command("import")(import_competition)


def export_competition(
    slug: Annotated[str, typer.Argument(help="The competition.")],
    file: Annotated[Path, typer.Argument(help="A new file, a zip archive.", dir_okay=False)],
) -> None:
    """Export a competition of this machine's instance into one file, with its splits, code, scores and audit log.

    The file contains the seeds and the private scores: protect it like the database.
    """
    from server.archives.exporter import write
    from server.db import Database
    from server.errors import Conflict
    from server.migrate import is_migrated
    from server.private_files import instance_settings
    from server.storage import Storage

    settings = instance_settings()
    if not is_migrated(settings.resolved_database_url):
        raise Conflict("This instance's database is not at this version's schema: start it once with `lethe up`")
    with Database(settings.resolved_database_url) as database:
        made = write(database, Storage(settings.resolved_storage_url), settings, slug=slug, path=file)
    told = f"{made.rows} rows, {made.files} files, {made.receipts} receipts, {file.stat().st_size:,} bytes"
    console.print(f"{file}: {made.slug}, {told}.", highlight=False)
    console.print("It holds the splits' seeds and the private scores; no address and no password.", highlight=False)


def import_competition(
    file: Annotated[Path, typer.Argument(help="A file that `lethe export` wrote.", exists=True, dir_okay=False)],
    trust: Annotated[
        list[str] | None,
        typer.Option(help="Receipt key of an instance whose scores you believe. Without it, they are marked."),
    ] = None,
) -> None:
    """Import a competition from such a file into this machine's instance. Every hash and signature is checked first.

    That proves who wrote the file only with --trust: ask the other instance's operators for their key
    (`GET /api/v1/receipt-key`).
    """
    from server.archives.importer import read
    from server.db import Database
    from server.migrate import upgrade
    from server.private_files import instance_settings
    from server.storage import Storage

    settings = instance_settings()
    upgrade(settings.resolved_database_url)
    with Database(settings.resolved_database_url) as database:
        made = read(database, Storage(settings.resolved_storage_url), file, trusted=trust or ())
    told = f"{made.rows} rows, {made.files} files; {made.receipts} receipts hold"
    console.print(f"{made.slug}: {told}, signed with {made.receipt_key}", highlight=False)
    if not made.is_vouched_for:
        console.print("Its scores are marked as not verified: nobody vouches for that key (--trust).", highlight=False)
    console.print("Its people are placeholders: banned, without address or password.", highlight=False)
    if made.left_out:
        told = ", ".join(made.left_out)
        console.print(f"Left out, because this version does not have them: {told}", highlight=False)
    for before, after in made.renamed.items():
        console.print(f"  {before} is called {after} here: somebody else bears that name", highlight=False)
