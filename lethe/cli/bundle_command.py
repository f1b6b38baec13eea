"""`lethe competition bundle`: the results of a competition that is over, as a site in a folder."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.context import Json, Slug, Url, connected
from lethe.cli.output import console, print_json
from lethe.errors import InvalidInput


def bundle(
    competition: Slug,
    into: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.zip", help="A new folder, or a new zip file.")],
    *,
    without_seeds: Annotated[
        bool, typer.Option("--without-seeds", help="Keep the seeds of the splits: nobody can run an entry again.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Write the results of a competition that is over as a site: it opens without a server and can be cited.

    Leaderboards, receipts, the code of those submissions whose teams agreed, a card of the data. `lethe verify FOLDER`
    checks it, `lethe replay FOLDER --entry ID` runs an entry again.
    """
    from lethe.client.bundle import unpack

    is_zip = into.suffix == ".zip"
    if into.exists() and (is_zip or not into.is_dir() or any(into.iterdir())):
        raise InvalidInput(f"{into} exists; name a new {'file' if is_zip else 'folder'}")
    with connected(url) as client, tempfile.TemporaryDirectory() as name:
        path = into if is_zip else Path(name) / "bundle.zip"
        client.download(f"/competitions/{competition}/bundle", path, seeds=not without_seeds)
        files = None if is_zip else unpack(path, into)
    if as_json:
        print_json({"competition": competition, "path": str(into), "files": files})
        return
    console.print(f"Wrote {into}." if is_zip else f"Wrote {into} with {files} files. Open {into / 'index.html'}.")
