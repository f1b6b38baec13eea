"""What a zip's requirements.txt asks for, compared with what a submission finds installed."""

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lethe.submission.libraries import LIBRARIES

REQUIREMENTS = "requirements.txt"
MOST_NOTES = 50
SHOWN_CHARACTERS = 100


def unmet_requirements(text: str) -> tuple[str, ...]:
    """Return a sentence for each line that asks for something else than what is installed. Options are passed over."""
    return tuple(note for _number, note in zip(range(MOST_NOTES), _notes(text), strict=False))


def _notes(text: str) -> Iterator[str]:
    for line in text.splitlines():
        asked = line.partition("#")[0].strip()
        if not asked or asked.startswith("-"):
            continue
        try:
            requirement = Requirement(asked)
        except InvalidRequirement:
            yield f"{REQUIREMENTS}: {asked[:SHOWN_CHARACTERS]!r} is not understood"
            continue
        shown, versions = asked[:SHOWN_CHARACTERS], LIBRARIES.get(canonicalize_name(requirement.name), "").split()
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        if not versions:
            yield f"{REQUIREMENTS}: {shown} is not installed, and a run has no network to install it"
        elif requirement.url or not any(requirement.specifier.contains(version, True) for version in versions):
            yield f"{REQUIREMENTS}: {shown} is asked for, {' or '.join(versions)} is installed"
