"""JSON documents as a command prints or writes them."""

import json
from pathlib import Path
from typing import Any

import typer


def write_json(document: Any, file: Path | None) -> None:
    """Print the document, or write it to the file. Raises typer.BadParameter if the file cannot be written."""
    text = json.dumps(document, indent=2, allow_nan=False)
    if file is None:
        typer.echo(text)
        return
    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from error
