"""Starter kits and pictures of the public sample: made by a worker when the public split is ready, handed out here."""

from pathlib import Path

import examples
from lethe.competition.task import Kind
from lethe.errors import NotFound
from server.cost_cache import CostCache
from server.storage import Storage

_KIT = Path(next(iter(examples.__path__))) / "starter_kit"
SOURCES: dict[Kind, Path] = {"image-classification": _KIT, "causal-lm": _KIT / "causal-lm"}  # with the kit's entry
PICTURED_SETS = ("forget", "retain")
_has_pictures: CostCache[bool] = CostCache()


def kit_key(slug: str) -> str:
    """Return where in storage a competition's starter kit lies."""
    return f"kits/{slug}.zip"


def read_kit(storage: Storage, slug: str) -> bytes:
    """Return the kit's zip archive. Raises NotFound while there is none."""
    if not storage.exists(kit_key(slug)):
        raise NotFound(
            f"{slug} has no starter kit yet; it is made with the public split. If that is ready, ask its organiser to"
            " prepare it again"
        )
    return storage.read(kit_key(slug))


def picture_key(slug: str, name: str) -> str:
    """Return where in storage the pictures of one set of a competition's public sample lie."""
    return f"kits/{slug}-{name}.png"


def has_pictures(storage: Storage, slug: str) -> bool:
    """Return whether there are pictures of the sample: not before the public split is prepared."""
    keys = [picture_key(slug, name) for name in PICTURED_SETS]
    return _has_pictures.get((id(storage), slug), lambda: all(storage.exists(key) for key in keys))


def read_picture(storage: Storage, slug: str, name: str) -> bytes:
    """Return a PNG of some pictures of the sample's forget or retain set. Raises NotFound."""
    if name not in PICTURED_SETS or not storage.exists(picture_key(slug, name)):
        raise NotFound(
            f"{slug} has no pictures of {name!r}; there are some of {', '.join(PICTURED_SETS)} once prepared"
        )
    return storage.read(picture_key(slug, name))


def possible_keys(slug: str) -> list[str]:
    """Return where in storage kit and pictures lie, if there are any."""
    return [kit_key(slug), *(picture_key(slug, name) for name in PICTURED_SETS)]


def stored_keys(storage: Storage, slug: str) -> list[str]:
    """Return which of the possible keys there are."""
    return [key for key in possible_keys(slug) if storage.exists(key)]
