"""Starter kits in storage: made by a worker when the public split is ready, handed out here."""

from lethe.errors import NotFound
from server.storage import Storage


def kit_key(slug: str) -> str:
    """Return where in storage a competition's starter kit lies."""
    return f"kits/{slug}.zip"


def read_kit(storage: Storage, slug: str) -> bytes:
    """Return the kit's zip archive. Raises NotFound while there is none."""
    if not storage.exists(kit_key(slug)):
        raise NotFound(f"{slug} has no starter kit yet; it is made once the public split is prepared")
    return storage.read(kit_key(slug))
