"""Writes a prepared split as a bundle."""

import secrets
import shutil
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import save

import lethe
from lethe.data.files import read_tensors_and_metadata
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord, Manifest, StepRecord, require_whole
from lethe.metrics.core.array_catalogue import ARRAYS
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
    leave_out: Collection[int] = (),
) -> BundleDescription:
    """Write the bundle of a prepared split to a new file, and return its description.

    licence: of the data in it. description: for the card. key: signs it; None leaves it unsigned. checkpoints: also
    the retrained and oracle models, if the split has them; without, their outputs alone. leave_out: capture levels
    whose arrays stay behind, and with them the metrics that need them (2: logits, most of the size).
    Raises SplitNotPrepared or DamagedSplit, and InvalidInput for a file that is there already.
    """
    if out.exists():
        raise InvalidInput(f"{out} exists: name a new file")
    if not licence.strip():
        raise InvalidInput("a licence is needed: whoever fetches the split must know what the data may be used for")
    complete = Manifest.read(split_dir)
    names = [name for name in sorted(complete.files) if _belongs(name, checkpoints=checkpoints)]
    manifest = require_whole(split_dir, only=names)
    changed = _smaller_outputs(split_dir, names, leave_out) if leave_out else {}
    names = [name for name in names if changed.get(name) != b""]
    records = {name: _record(changed[name]) if name in changed else manifest.files[name] for name in names}
    manifest = _only(manifest, records, leave_out)
    texts = {name: text for name, text in changed.items() if text} | {
        MANIFEST: manifest.text().encode(),
        CARD: data_card(split_dir, manifest, licence, description).encode(),
    }
    files = records | {name: _record(text) for name, text in texts.items()}
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
    _write(
        out,
        split_dir,
        [name for name in names if name not in texts],
        texts | {DESCRIPTION: description_text(described)},
    )
    return described


def _belongs(name: str, *, checkpoints: bool) -> bool:
    if NAME.fullmatch(name) is None or not name.endswith(SUFFIXES):
        return False  # the sample of smoke runs, and pages
    return checkpoints or not _is_checkpoint(name)


def _is_checkpoint(name: str) -> bool:
    return name.startswith("hidden/") and Path(name).name.startswith("models-")


def _smaller_outputs(split_dir: Path, names: list[str], leave_out: Collection[int]) -> dict[str, bytes]:
    """Return the files of outputs without the arrays of some capture levels; nothing for one that has no others."""
    changed = {}
    for name in names:
        if name.startswith("hidden/") and name.endswith("/outputs.safetensors"):
            tensors, metadata = read_tensors_and_metadata(split_dir / name)
            kept = {key: tensor for key, tensor in tensors.items() if _level(key) not in leave_out}
            changed[name] = save(kept, metadata=metadata or None) if kept else b""
    return changed


def _level(array: str) -> int:
    return int(ARRAYS[array].level) if array in ARRAYS else 0


def _only(manifest: Manifest, records: Mapping[str, FileRecord], leave_out: Collection[int]) -> Manifest:
    """Return the manifest of the files that the bundle has."""

    def kept(files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        return {name: records[name] for name in files if name in records}

    steps: dict[str, StepRecord] = {
        name: step.model_copy(update={"files": kept(step.files)}) for name, step in manifest.steps.items()
    }
    return manifest.model_copy(
        update={
            "files": kept(manifest.files),
            "steps": steps,
            "recipe": _without_paths(manifest.recipe),
            "evaluation": manifest.evaluation.model_copy(
                update={"capture": tuple(level for level in manifest.evaluation.capture if level not in leave_out)}
            ),
        }
    )


def _without_paths(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the recipe without where the data lies on this machine."""
    dataset = recipe.get("dataset") or {}
    options = {name: value for name, value in (dataset.get("options") or {}).items() if name != "root"}
    return recipe | {"dataset": dataset | {"options": options}}


def _record(text: bytes) -> FileRecord:
    return FileRecord(sha256=sha256(text).hexdigest(), size=len(text))


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name, EARLIEST)
    entry.compress_type = ZIP_DEFLATED
    return entry


def _write(out: Path, split_dir: Path, names: list[str], texts: dict[str, bytes]) -> None:
    part = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    try:
        with ZipFile(part, "x") as archive:
            for name, text in sorted(texts.items(), key=lambda item: item[0] != DESCRIPTION):
                archive.writestr(_entry(name), text)
            for name in names:
                with (split_dir / name).open("rb") as source, archive.open(_entry(name), "w") as target:
                    shutil.copyfileobj(source, target, 2**20)
        part.rename(out)
    except OSError as error:
        raise InvalidReference(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
