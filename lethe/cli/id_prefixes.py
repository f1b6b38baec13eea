"""An id by its first characters."""

from collections.abc import Iterable

from lethe.errors import InvalidInput


def the_only_match(given: str, known: Iterable[str], *, what: str) -> str:
    """Return the one id that begins with `given`. Raises InvalidInput for none or several.

    what: what the ids are of.
    """
    matching = sorted({each for each in known if each.startswith(given)})
    if not matching:
        raise InvalidInput(f"No id of the {what} begins with {given!r}")
    if len(matching) > 1:
        raise InvalidInput(f"{given!r} begins {len(matching)} ids of the {what}: {', '.join(matching[:5])}")
    return matching[0]
