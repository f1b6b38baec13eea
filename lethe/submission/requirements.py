"""What a submission asks for, by requirements.txt or by its imports, compared with what it finds installed."""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lethe.submission.libraries import LIBRARIES, OLDER_SETS

REQUIREMENTS = "requirements.txt"
MAX_NOTES = 50
SHOWN_CHARACTERS = 100
LIBRARY_OF_MODULE = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "mpl_toolkits": "matplotlib",
    "pkg_resources": "setuptools",
    "pylab": "matplotlib",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def unmet_requirements(text: str, *, libraries: str = "") -> tuple[str, ...]:
    """Return a sentence for each line that asks for something else than what is installed. Options are passed over.

    libraries: the set of older libraries that the competition names, if it names one.
    """
    return tuple(note for _number, note in zip(range(MAX_NOTES), _notes(text, installed(libraries)), strict=False))


def installed(libraries: str) -> Mapping[str, str]:
    """Return versions by library: of the set of this name, or of the worker for ""."""
    return OLDER_SETS[libraries] if libraries else LIBRARIES


def _notes(text: str, known: Mapping[str, str]) -> Iterator[str]:
    for line in text.splitlines():
        asked = line.partition("#")[0].strip()
        if not asked or asked.startswith("-"):
            continue
        try:
            requirement = Requirement(asked)
        except InvalidRequirement:
            yield f"{REQUIREMENTS}: {asked[:SHOWN_CHARACTERS]!r} is not understood"
            continue
        shown, versions = asked[:SHOWN_CHARACTERS], known.get(canonicalize_name(requirement.name), "").split()
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        if not versions:
            yield f"{REQUIREMENTS}: {shown} is no listed library, and a run has no network to install it"
        elif requirement.url or not any(requirement.specifier.contains(version, True) for version in versions):
            yield f"{REQUIREMENTS}: {shown} is asked for, {' or '.join(versions)} is installed"


def missing_modules(trees: Sequence[ast.Module], *, libraries: str = "") -> tuple[str, ...]:
    """Return a sentence for each module that a notebook imports and that is not installed."""
    known = installed(libraries)
    names = sorted({name for tree in trees for node in ast.walk(tree) for name in _imported(node)})
    written = {str(node.value) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return tuple(
        f"{name} is imported, which is no listed library, and a run has no network to install it"
        for name in names
        if name not in sys.stdlib_module_names
        and canonicalize_name(LIBRARY_OF_MODULE.get(name, name)) not in known
        and not any(f"{name}.py" in text for text in written)  # a cell's own %%writefile
    )[:MAX_NOTES]


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]
