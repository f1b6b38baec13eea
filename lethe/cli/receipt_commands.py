"""`lethe receipt` and `lethe verify`: the signed receipt of a score, and whether an instance signed it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import Competition, Json, Url, connected
from lethe.cli.output import Terminal, print_json
from lethe.cli.submission_commands import Id, complete_id
from lethe.errors import InvalidInput

console = Terminal()
Key = Annotated[str | None, typer.Option("--key", help="The instance's public key, from GET /api/v1/receipt-key.")]


def register_commands(app: typer.Typer) -> None:
    app.command()(receipt)
    app.command()(verify)


def receipt(
    submission: Id,
    *,
    into: Annotated[Path | None, typer.Option("--into", "-o", help="File to write. Default: ID.receipt.json.")] = None,
    split: Annotated[str, typer.Option("--split", help="public or private.")] = "public",
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Download the signed receipt of a score. `lethe verify` checks it, `lethe replay` runs it again."""
    with connected(url) as client:
        submission_id = complete_id(client, submission, competition)
        found = client.get(f"/submissions/{submission_id}/receipt", split=split)
    if as_json:
        print_json(found)
        return
    path = into or Path(f"{submission_id}.receipt.json")
    if path.exists():
        raise InvalidInput(f"{path} exists; name another file with --into")
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    console.print(f"Wrote {path}.", highlight=False)


def verify(receipt: Annotated[Path, typer.Argument(help="The receipt, a JSON file.")], key: Key = None) -> None:
    """Check a receipt's signature; with --key also its signer. Exit status 1: the signature is not valid."""
    from lethe.client import receipts

    body = read_receipt(receipt)
    receipts.verify(body, public_key=key)
    score, submission = body["score"], body["submission"]
    console.print(
        f"[green]whole[/] {submission['id']} on the {body['split']['visibility']} split of {body['competition']}"
    )
    console.print(f"score {score['final_score']!r}, scorer {score['scorer_version']}, code {submission['sha256']}")
    if key is None:
        console.print(f"signed by {body['public_key']}: compare it with the instance's own key, or give --key")


def read_receipt(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InvalidInput."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no receipt")
    return found
