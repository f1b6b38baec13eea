"""Writes a prepared split as a bundle, with a card of its data."""

import secrets
import shutil
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import save

import lethe
from lethe.data.files import read_tensors, read_tensors_and_metadata
from lethe.data.stored_sets import SET_PATHS
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord, Manifest, StepRecord, require_whole
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, OUTPUT_PATHS, read_stored_outputs
from lethe.metrics.core.array_catalogue import ARRAYS
from lethe.metrics.scoring.arrays import ModelOutputs
from lethe.metrics.scoring.score import score
from lethe.reference.bundle import (
    CARD,
    DESCRIPTION,
    NAME,
    SUFFIXES,
    BundleDescription,
    InvalidReference,
    description_text,
)

SIDES = {"retrained": OUTPUT_PATHS["retrained"], "oracle": OUTPUT_PATHS["oracle"], "original": ORIGINAL_OUTPUTS}


def data_card(split_dir: Path, manifest: Manifest, licence: str, description: str) -> str:
    """Return the card as Markdown. Its score is the reference attacks', whatever the competition ranks by."""
    recipe = manifest.recipe
    lines = [
        f"# Reference split: {manifest.competition} ({manifest.visibility.value})",
        "",
        *([description, ""] if description else []),
        f"- **Licence of the data**: {licence}",
        f"- **Data set**: {_named(recipe.get('dataset'))}",
        f"- **Network**: {_named(recipe.get('network'))}",
        f"- **Training**: {_listed(recipe.get('training'))}",
        f"- **Forget set**: {_listed((recipe.get('splits') or {}).get('forget'))}",
        f"- **Examples**: {_sizes(split_dir, manifest)}",
        f"- **Models**: {manifest.n_models} retrained without the forget set, as many of the oracle, one original",
        f"- **One retraining**: {manifest.retraining_time_s:.3g} s",
        f"- **Made with**: Lethe {lethe.__version__}; {_listed(manifest.versions)}",
        "",
        *_accuracies(split_dir, manifest),
        "",
        "A score of this split compares with scores of the same split alone. Retrained models differ by their seeds; "
        "the oracle's row says what exact unlearning reaches.",
    ]
    return "\n".join(lines) + "\n"


def _accuracies(split_dir: Path, manifest: Manifest) -> list[str]:
    stored = {side: read_stored_outputs(split_dir / path)[0] for side, path in SIDES.items() if path in manifest.files}
    retrained = stored["retrained"]
    lines = ["| models | retain accuracy | test accuracy | score |", "|---|---|---|---|"]
    for side, outputs in stored.items():
        compared = (_as_many(each, len(retrained)) for each in (outputs, retrained))
        value = "" if side == "retrained" else f"{score(*compared).headline:.4g}"
        lines.append(
            f"| {side} | {outputs.retain_accuracy.mean():.4f} | {outputs.test_accuracy.mean():.4f} | {value} |"
        )
    return lines


def _as_many(outputs: Any, n_models: int) -> ModelOutputs:
    """Return the outputs; those of one model stand for as many copies."""
    arrays = [outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy]
    return ModelOutputs(*(np.repeat(array, n_models, axis=0) if len(outputs) == 1 else array for array in arrays))


def _sizes(split_dir: Path, manifest: Manifest) -> str:
    sizes = {
        name: len(read_tensors(split_dir / path)["ids"]) for name, path in SET_PATHS.items() if path in manifest.files
    }
    return ", ".join(f"{size} {name}" for name, size in sizes.items())


def _named(part: Any) -> str:
    """Return a section's name and options in a line; an option that is a long text is left to the manifest."""
    if not isinstance(part, dict):
        return "not stated"
    options = {name: value for name, value in (part.get("options") or {}).items() if name not in ("source", "root")}
    return str(part.get("name")) + (f" ({_listed(options)})" if options else "")


def _listed(part: Any) -> str:
    return (
        ", ".join(f"{name} {value}" for name, value in part.items() if value not in (None, [], {}))
        if part
        else "not stated"
    )


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
    # without the sample of smoke runs, and pages
    of_split = [name for name in sorted(complete.files) if NAME.fullmatch(name) and name.endswith(SUFFIXES)]
    names = [name for name in of_split if checkpoints or not _is_checkpoint(name)]
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


def _is_checkpoint(name: str) -> bool:
    return name.startswith("hidden/") and Path(name).name.startswith("models-")


def _smaller_outputs(split_dir: Path, names: list[str], leave_out: Collection[int]) -> dict[str, bytes]:
    """Return the files of outputs without the arrays of some capture levels; nothing for one that has no others."""
    changed = {}
    for name in names:
        if name.startswith("hidden/") and name.endswith("/outputs.safetensors"):
            tensors, metadata = read_tensors_and_metadata(split_dir / name)
            levels = {key: int(ARRAYS[key].level) if key in ARRAYS else 0 for key in tensors}
            kept = {key: tensor for key, tensor in tensors.items() if levels[key] not in leave_out}
            changed[name] = save(kept, metadata=metadata or None) if kept else b""
    return changed


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
