"""`lethe verify`: whether a receipt, or a folder of published results, is as an instance signed it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import Output
from lethe.cli.output import Terminal, print_json
from lethe.errors import InvalidInput
from lethe.text_files import read_text

console = Terminal()
DIFFERENT = 3  # exit status where what was looked at does not agree
Key = Annotated[str | None, typer.Option("--key", help="The instance's public key, from GET /api/v1/receipt-key.")]


def register_commands(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    output: Output,
    what: Annotated[Path, typer.Argument(help="A receipt, a JSON file; or a folder of published results.")],
    key: Key = None,
) -> None:
    """Check a receipt's signature, or every file, signature and score of a folder that `lethe competition bundle` made.

    With --key also who signed. Exit status 1: not valid; 3: the folder's files or scores do not agree.
    """
    if what.is_dir():
        _verify_bundle(what, key, as_json=output.as_json)
        return
    from lethe.client import receipts

    body = read_receipt(what)
    receipts.verify(body, public_key=key)
    output.answer(body)
    for part in receipts.of_parts(body):
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


def _verify_bundle(folder: Path, key: str | None, *, as_json: bool) -> None:
    from lethe.client.bundle import check

    found = check(folder, public_key=key)
    if as_json:
        print_json(vars(found))
    else:
        for difference in found.differences:
            console.print(difference, style="red", markup=False, highlight=False, soft_wrap=True)
        for name in found.unlisted:
            console.print(f"{name} is in the folder, and not of the bundle", markup=False, highlight=False)
        looked_at = f"{found.files} files, {found.receipts} receipts, {found.scores} scores"
        verdict = "[bold red]do not agree[/]" if found.differences else "[green]agree[/]"
        console.print(f"{found.competition}: {looked_at} {verdict}", highlight=False)
        if key is None:
            console.print(f"signed by {found.public_key}: compare it with the instance's own key, or give --key")
    if found.differences:
        raise typer.Exit(DIFFERENT)


def read_receipt(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InvalidInput."""
    try:
        found = json.loads(read_text(path))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no receipt")
    return found
