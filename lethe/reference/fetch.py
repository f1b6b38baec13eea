"""Takes a bundle from a stranger: checks who signed it and every byte, then makes it a split in a folder."""

import secrets
import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import IO

from lethe.data.errors import DamagedSplit
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord, Manifest
from lethe.reference.bundle import (
    CARD,
    DESCRIPTION,
    MAX_DESCRIPTION_BYTES,
    BundleDescription,
    InvalidReference,
)
from lethe.reference.sources import CHUNK, Source, opened

MAX_BYTES = 2 * 2**30


def fetch(
    source: str | Path,
    into: Path,
    *,
    keys: Collection[str] = (),
    any_signer: bool = False,
    max_bytes: int = MAX_BYTES,
) -> BundleDescription:
    """Unpack a reference split into a new folder, which then is a prepared split, and return its description.

    source: a file, a folder or an address. keys: public keys (base64) that are trusted. any_signer: take it whoever
    signed it, or nobody; its files are still what its description says. max_bytes: of all files together.
    Raises InvalidReference naming what is wrong; then nothing is left in `into`.
    """
    if into.exists():
        raise InvalidInput(f"{into} exists: name a new folder")
    part = into.with_name(f".{into.name}.{secrets.token_hex(4)}.part")
    try:
        with opened(source, max_bytes=max_bytes) as bundle:
            described = _described(bundle, keys=keys, any_signer=any_signer, max_bytes=max_bytes)
            for name, record in described.files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with bundle.open(name) as file, path.open("xb") as target:
                    _copy(file, target, name, record)
        _require_split(part, described)
        part.rename(into)
    except OSError as error:
        raise InvalidReference(f"{into} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return described


def verify(
    source: str | Path, *, keys: Collection[str] = (), any_signer: bool = False, max_bytes: int = MAX_BYTES
) -> BundleDescription:
    """Return the description of a bundle whose every byte was checked; nothing is unpacked. Raises InvalidReference."""
    with opened(source, max_bytes=max_bytes) as bundle:
        described = _described(bundle, keys=keys, any_signer=any_signer, max_bytes=max_bytes)
        for name, record in described.files.items():
            with bundle.open(name) as file:
                _copy(file, None, name, record)
    return described


def _described(bundle: Source, *, keys: Collection[str], any_signer: bool, max_bytes: int) -> BundleDescription:
    names = bundle.names()
    if DESCRIPTION not in names:
        raise InvalidReference(f"this is no reference split: it has no {DESCRIPTION}")
    with bundle.open(DESCRIPTION) as file:
        text = file.read(MAX_DESCRIPTION_BYTES + 1)
    if len(text) > MAX_DESCRIPTION_BYTES:
        raise InvalidReference(f"{DESCRIPTION} is more than {MAX_DESCRIPTION_BYTES // 2**20} MiB")
    described = BundleDescription.parse(text)
    if any_signer:
        described.check_is_intact()
    else:
        described.check_signature(keys)
    if described.size > max_bytes:
        raise InvalidReference(
            f"its files are {described.size / 2**20:.0f} MiB, allowed are {max_bytes / 2**20:g}; --max-mib allows more"
        )
    listed = sorted([*described.files, DESCRIPTION])
    if sorted(names) != listed:
        odd = sorted(set(names) ^ set(listed)) or [name for name in set(names) if names.count(name) > 1]
        raise InvalidReference(f"its files are not those that {DESCRIPTION} names: {odd[0][:120]!r}")
    return described


def _copy(source: IO[bytes], target: IO[bytes] | None, name: str, record: FileRecord) -> None:
    """Copy one file; no more is read than its description says. Raises InvalidReference for other bytes."""
    found, left = sha256(), record.size + 1
    while left and (piece := source.read(min(CHUNK, left))):
        left -= len(piece)
        found.update(piece)
        if target is not None:
            target.write(piece)
    if left != 1 or found.hexdigest() != record.sha256:
        raise InvalidReference(f"{name} is not what {DESCRIPTION} says: other bytes than were signed")


def _require_split(folder: Path, described: BundleDescription) -> None:
    """Raise InvalidReference unless the split's own manifest names just the files whose hashes were checked."""
    try:
        manifest = Manifest.read(folder)
    except (DamagedSplit, RecursionError) as error:
        raise InvalidReference(f"its {MANIFEST} is none of a prepared split: {error}") from error
    if manifest.files != {name: record for name, record in described.files.items() if name not in (MANIFEST, CARD)}:
        raise InvalidReference(f"its {MANIFEST} names other files than {DESCRIPTION}")
