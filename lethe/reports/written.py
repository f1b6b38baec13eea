"""Text of results, returned and, if a file is named, written."""

import json
from pathlib import Path
from typing import Any

from lethe.errors import InvalidInput


def json_text(document: Any) -> str:
    """Return a document as JSON that ends with a line break; NaN has become null before."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def written(text: str, path: str | Path | None) -> str:
    """Return the text, and write it to a file if one is named. Raises InvalidInput if it cannot be written."""
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    return text
