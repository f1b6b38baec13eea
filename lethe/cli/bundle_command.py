"""`lethe competition bundle`: the results of a competition that is over, as a site in a folder."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.output import console
from lethe.errors import InvalidInput


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
