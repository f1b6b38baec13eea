"""`lethe gc`, `migrate`, `backup`, `restore`; `lethe export` and `import`: a whole competition in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lethe.cli.output import Terminal
from server.cli.instance_commands import instance_session

if TYPE_CHECKING:
    from server.last_times import Upkeep

console = Terminal()
RETRY_AFTER_H = 1.0  # a scheduled backup that failed


def register_commands(app: typer.Typer) -> None:
    """Add the commands of an instance's upkeep to `app`."""
    app.command()(gc)
    app.command()(migrate)
    app.command()(backup)
    app.command("verify-backup")(verify_backup)
    app.command("scheduled-backup")(scheduled_backup)
    app.command()(restore)
    app.command("export")(export_competition)
    app.command("import")(import_competition)


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="Remove them. Without this, only list them.")] = False,
) -> None:
    """List files that nothing refers to and count expired rows; with --delete, remove both."""
    from server.db import Database, clock
    from server.errors import Conflict
    from server.maintenance import retention
    from server.migrate import is_migrated
    from server.private_files import instance_settings
    from server.storage import Storage

    settings = instance_settings()
    if delete and not is_migrated(settings.resolved_database_url):  # rows of another version may name what this removes
        raise Conflict("The database is not at this version's schema: nothing was removed; `lethe doctor` says more")
    storage = Storage(settings.resolved_storage_url)
    with Database(settings.resolved_database_url) as database:
        garbage = retention.collect(database, storage, keep_hours=settings.keep_garbage_hours, delete=delete)
        with database.write() if delete else database.read() as session:  # a read is never committed
            expired = retention.expire(session, settings, at=clock(session))
    table = Table("file", "bytes", "why", box=None)
    for one in garbage:
        table.add_row(one.file.key, f"{one.file.size:,}", one.reason)
    if garbage:
        console.print(table)
    total = sum(one.file.size for one in garbage)
    console.print(f"{len(garbage)} files, {total:,} bytes, that nothing refers to{': removed' if delete else ''}.")
    ended = f"{expired.web_sessions} ended log-ins, {expired.api_tokens} tokens, {expired.links} links and invitations"
    others = f"{expired.messages} messages sent or given up, {expired.datasets} datasets that no competition used"
    rows = f"{expired.run_logs} logs of runs, {ended}, {others}"
    console.print(f"Rows {'removed' if delete else 'past their time'}: {rows}.")
    if not delete:
        console.print("Nothing was removed; `lethe gc --delete` removes what there is.")


def migrate(
    down_to: Annotated[
        str,
        typer.Option(
            "--down-to",
            help="Go back to this older revision instead, and lose what only newer ones hold. Nothing may run, and a "
            "backup of the last hour must be verified.",
        ),
    ] = "",
) -> None:
    """Migrate the database to this program's schema."""
    from server.migrate import current_revision, downgrade, upgrade
    from server.private_files import instance_settings

    url = instance_settings().resolved_database_url
    before = current_revision(url)
    if down_to:
        downgrade(url, down_to)
    else:
        upgrade(url)
    after = current_revision(url)
    if before == after:
        console.print(f"Nothing to do: the database was at revision {after}, the newest.")
    else:
        console.print(f"The database went from {f'revision {before}' if before else 'empty'} to revision {after}.")


def backup(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder, which receives the copy.")],
    previous: Annotated[
        Path | None,
        typer.Option("--previous", help="An earlier backup on the same disk: what did not change is linked to it."),
    ] = None,
) -> None:
    """Copy the database and the storage of a running instance to a folder."""
    from server.last_times import Upkeep
    from server.maintenance.backup import back_up
    from server.private_files import instance_settings

    made = back_up(instance_settings(), folder, previous=previous)
    _note(Upkeep.BACKUP)
    console.print(f"{folder}: the database, {made.files} files, {made.bytes:,} bytes.", highlight=False)


def verify_backup(
    folder: Annotated[Path, typer.Argument(help="A folder that `lethe backup` made.", exists=True, file_okay=False)],
) -> None:
    """Restore a backup beside the instance, compare every file, and remove what was restored."""
    from server.last_times import Upkeep
    from server.maintenance.backup import verify
    from server.private_files import instance_settings

    files = verify(instance_settings(), folder)
    _note(Upkeep.VERIFIED_BACKUP)
    console.print(f"{folder}: whole. Its rows name {files} files, and all are there.", highlight=False)


def scheduled_backup(
    folder: Annotated[Path, typer.Argument(help="The folder of all backups of the series.")],
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many of the newest to keep.")] = 14,
    every_hours: Annotated[
        float, typer.Option("--every-hours", help="Go on for ever, with this pause. 0: one backup, for cron.")
    ] = 0.0,
) -> None:
    """Back up to the next folder of a series, verify it by a test restore, remove the oldest, and collect garbage."""
    import time

    from server.last_times import Upkeep
    from server.maintenance.backup import back_up_in_series
    from server.private_files import instance_settings

    while True:
        pause_h = min(RETRY_AFTER_H, every_hours)
        try:
            new, made = back_up_in_series(instance_settings(), folder, keep=keep)
            _note(Upkeep.BACKUP, Upkeep.VERIFIED_BACKUP)
            pause_h = every_hours
            console.print(f"{new}: the database, {made.files} files, {made.bytes:,} bytes; verified.", highlight=False)
            gc(delete=True)
        except Exception as error:  # whatever it is, the next one may go well
            if not every_hours:
                raise
            console.print(f"Failed, tried again in {pause_h:g} h: {error}", highlight=False, markup=False)
        if not every_hours:
            return
        time.sleep(3600 * pause_h)


def _note(*done: "Upkeep") -> None:
    """Note what was done, for the alert on its age."""
    from server import last_times

    with instance_session() as session:
        for what in done:
            last_times.note(session, what)


def restore(
    folder: Annotated[Path, typer.Argument(help="A folder that `lethe backup` made.", exists=True, file_okay=False)],
) -> None:
    """Restore a backup into an instance without a database."""
    from server.maintenance.backup import bring_back
    from server.private_files import instance_settings

    made = bring_back(instance_settings(), folder)
    console.print(f"Restored: the database, {made.files} files, {made.bytes:,} bytes.", highlight=False)


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
