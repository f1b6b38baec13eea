"""A method of the catalogue as a file that can be submitted."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def method_file(method_id: str, pairs: Sequence[str] | None) -> Iterator[tuple[Path, str]]:
    """Yield a file of the method with constants set by `NAME=value` texts, and a note that says which.

    Raises NotFound for an unknown method, InvalidInput for an unknown constant or a wrong value.
    """
    from lethe.methods.rendering import parse_settings, render

    settings = parse_settings(list(pairs or []))
    text = render(method_id, settings)
    with tempfile.TemporaryDirectory(prefix="lethe-") as folder:
        path = Path(folder) / f"{method_id}.py"
        path.write_text(text, encoding="utf-8")
        yield path, " ".join([method_id, *(f"{name}={value}" for name, value in settings.items())])
