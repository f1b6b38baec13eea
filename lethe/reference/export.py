"""Writes a prepared split as a bundle."""

import secrets
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import lethe
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord, Manifest, StepRecord, require_whole
from lethe.reference.bundle import (
    CARD,
    DESCRIPTION,
    NAME,
    SUFFIXES,
    BundleDescription,
    InvalidReference,
    description_text,
)
from lethe.reference.card import data_card

EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a zip: equal splits give equal bytes


def export_split(
    split_dir: Path,
    out: Path,
    *,
    licence: str,
    description: str = "",
    key: Ed25519PrivateKey | None = None,
    checkpoints: bool = False,
) -> BundleDescription:
    """Write the bundle of a prepared split to a new file, and return its description.

    licence: of the data in it. description: for the card. key: signs it; None leaves it unsigned. checkpoints: also
    the retrained and oracle models, if the split has them; without, their outputs alone.
    Raises SplitNotPrepared or DamagedSplit, and InvalidInput for a file that is there already.
    """
    if out.exists():
        raise InvalidInput(f"{out} exists: name a new file")
    if not licence.strip():
        raise InvalidInput("a licence is needed: whoever fetches the split must know what the data may be used for")
    complete = Manifest.read(split_dir)
    names = [name for name in sorted(complete.files) if _belongs(name, checkpoints=checkpoints)]
    manifest = _only(require_whole(split_dir, only=names), frozenset(names))
    texts = {MANIFEST: manifest.text().encode(), CARD: data_card(split_dir, manifest, licence, description).encode()}
    files = {name: manifest.files[name] for name in names}
    files |= {name: _record(text) for name, text in texts.items()}
    described = BundleDescription(
        name=f"{manifest.competition}, {manifest.visibility.value}",
        description=description,
        licence=licence,
        lethe_version=lethe.__version__,
        created_at=datetime.now(UTC).replace(microsecond=0),
        n_models=manifest.n_models,
        has_checkpoints=any(map(_is_checkpoint, names)),
        files=files,
    )
    if key is not None:
        described = described.signed(key)
    _write(out, split_dir, names, texts | {DESCRIPTION: description_text(described)})
    return described


def _belongs(name: str, *, checkpoints: bool) -> bool:
    if NAME.fullmatch(name) is None or not name.endswith(SUFFIXES):
        return False  # the sample of smoke runs, and pages
    return checkpoints or not _is_checkpoint(name)


def _is_checkpoint(name: str) -> bool:
    return name.startswith("hidden/") and Path(name).name.startswith("models-")


def _only(manifest: Manifest, names: frozenset[str]) -> Manifest:
    """Return the manifest of the files that the bundle has."""

    def kept(files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        return {name: record for name, record in files.items() if name in names}

    steps: dict[str, StepRecord] = {
        name: step.model_copy(update={"files": kept(step.files)}) for name, step in manifest.steps.items()
    }
    return manifest.model_copy(
        update={"files": kept(manifest.files), "steps": steps, "recipe": _without_paths(manifest.recipe)}
    )


def _without_paths(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the recipe without where the data lies on this machine."""
    dataset = recipe.get("dataset") or {}
    options = {name: value for name, value in (dataset.get("options") or {}).items() if name != "root"}
    return recipe | {"dataset": dataset | {"options": options}}


def _record(text: bytes) -> FileRecord:
    return FileRecord(sha256=sha256(text).hexdigest(), size=len(text))


def _write(out: Path, split_dir: Path, names: list[str], texts: dict[str, bytes]) -> None:
    part = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    try:
        with ZipFile(part, "x", ZIP_DEFLATED) as archive:
            for name, text in sorted(texts.items(), key=lambda item: item[0] != DESCRIPTION):
                archive.writestr(ZipInfo(name, EARLIEST), text, ZIP_DEFLATED)
            for name in names:
                with (split_dir / name).open("rb") as source, archive.open(ZipInfo(name, EARLIEST), "w") as target:
                    while chunk := source.read(2**20):
                        target.write(chunk)
        part.rename(out)
    except OSError as error:
        raise InvalidReference(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
