"""The published results of a competition in a folder: whether they are whole, and say what their receipts say.

A receipt is canonical JSON (sorted keys, no spaces) with an Ed25519 signature over its bytes.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import BadZipFile, ZipFile

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lethe.errors import HostFault, InvalidInput, Violation

RECEIPT_FORMAT = "lethe-receipt/1"


def verify_receipt(
    receipt: Mapping[str, Any], *, public_key: str | None = None, expected: str = RECEIPT_FORMAT
) -> None:
    """Raise InvalidInput unless the receipt is intact and was signed by its key, or by `public_key` if that is given.

    Without `public_key` this shows only that nothing was changed since: compare the key with the instance's own.
    Of a submission to several tasks, the receipt of each part is checked as well. expected: the format.
    """
    body = {name: value for name, value in receipt.items() if name not in ("public_key", "signature")}
    if receipt.get("format") != expected:
        raise _invalid("format", f"is not {expected}", receipt.get("format"))
    signer = receipt.get("public_key")
    if public_key is not None and signer != public_key:
        raise _invalid("public_key", f"is not the expected key {public_key}", signer)
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(str(signer), validate=True))
        key.verify(base64.b64decode(str(receipt.get("signature")), validate=True), canonical(body))
    except (ValueError, InvalidSignature) as error:
        raise _invalid("signature", "does not fit: the receipt was changed, or is not one", None) from error
    for part in receipt["tasks"].values() if expected == RECEIPT_FORMAT and "tasks" in receipt else ():
        verify_receipt(part, public_key=signer)


def receipt_parts(receipt: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the receipts of a submission's parts, one for each task; of any other submission its own."""
    return list(receipt["tasks"].values()) if "tasks" in receipt else [receipt]


def canonical(body: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _invalid(field: str, message: str, value: object) -> InvalidInput:
    shown = None if value is None else str(value)[:120]
    return InvalidInput(f"The receipt's {field} {message}", violations=(Violation(field, message, shown),))


FORMAT = "lethe-bundle/1"
MANIFEST, COMPETITION = "manifest.json", "competition.json"
PUBLIC_DIGITS = 5  # decimals of a public score on pages; its receipt holds every bit
MAX_BYTES = 8 << 30  # that a bundle may unpack to
Score = tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]  # an entry, a part of it, the split, the score


@dataclass
class CheckedBundle:
    """What was looked at. differences: what does not agree, as sentences; nothing else may be believed then.

    unlisted: files in the folder that the manifest does not name, of which nothing is known.
    """

    competition: str
    public_key: str
    files: int = 0
    receipts: int = 0
    scores: int = 0
    differences: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)


def unpack(archive: Path, into: Path) -> int:
    """Unpack a bundle's zip into a new or empty folder. Return how many files it has.

    Raises InvalidInput for another folder, HostFault for a damaged file, or one beyond MAX_BYTES.
    """
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise InvalidInput(f"{into} is not an empty folder; name another one")
    try:
        with ZipFile(archive) as zipped:
            names = zipped.namelist()
            if wrong := [name for name in names if not _is_inside(name)]:
                raise HostFault(f"the server's bundle holds a file of the name {wrong[0]!r}")
            if (size := sum(each.file_size for each in zipped.infolist())) > MAX_BYTES:
                raise HostFault(f"the server's bundle unpacks to {size:,} bytes; at most {MAX_BYTES:,} are taken")
            zipped.extractall(into)
    except BadZipFile as error:
        raise HostFault(f"the server's bundle is damaged: {error}") from error
    return len(names)


def read(folder: Path, name: str) -> Any:
    """Return a JSON file of a bundle. Raises InvalidInput where it is not there or no JSON."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"{folder} is no bundle of a competition: {name} cannot be read: {error}") from error


def check(folder: Path, *, public_key: str | None = None) -> CheckedBundle:
    """Check every hash and signature of a bundle, and its scores against its receipts.

    public_key: of the instance, base64; without it, that of the bundle itself, which proves only that nothing was
    changed since. Raises InvalidInput for a folder without a manifest, one with a wrong format or signature, and where
    files that are as they were signed do not hold what a bundle's hold.
    """
    try:
        return _checked(folder, public_key)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        wrong = f"what its files hold is not of the form of a bundle's ({type(error).__name__}: {str(error)[:120]})"
        raise InvalidInput(f"{folder} is no bundle of a competition: {wrong}") from error


def _checked(folder: Path, public_key: str | None) -> CheckedBundle:
    manifest = read(folder, MANIFEST)
    verify_receipt(manifest, public_key=public_key, expected=FORMAT)
    found = CheckedBundle(str(manifest["competition"]), str(manifest["public_key"]))
    for name, entry in manifest["files"].items():
        found.files += 1
        if not _is_inside(name) or not (folder / name).is_file():
            found.differences.append(f"{name} is missing")
        elif _sha256(folder / name) != entry["sha256"]:
            found.differences.append(f"{name} is not what the manifest says")
    there = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if not path.is_dir())
    found.unlisted = [name for name in there if name != MANIFEST and name not in manifest["files"]]
    if not found.differences:
        _check_entries(folder, found, listed=manifest["files"])
    return found


def scores(entries: list[dict[str, Any]]) -> Iterator[Score]:
    """Yield entry, part, split and score of every score of a bundle's entries."""
    for entry in entries:
        for part in entry["parts"]:
            for split, score in part["scores"].items():
                yield entry, part, split, score


def _check_entries(folder: Path, found: CheckedBundle, *, listed: Mapping[str, Any]) -> None:
    entries = read(folder, "entries.json")
    named = {score["receipt"] for *_, score in scores(entries)} | {entry["code"] for entry in entries if entry["code"]}
    if strange := sorted(named - listed.keys()):
        found.differences.append(f"{strange[0]} is named by an entry, and the manifest does not name it")
        return
    known: dict[tuple[str, str], float] = {}
    for where in scores(entries):
        _entry, part, split, score = where
        receipt = read(folder, score["receipt"])
        found.receipts += 1
        try:
            verify_receipt(receipt, public_key=found.public_key)
        except InvalidInput as error:
            found.differences.append(f"{score['receipt']}: {error.detail}")
            continue
        known[part["submission"], split] = score["final_score"]
        found.differences += _unlike_receipt(found.competition, where, receipt)
        found.scores += 1
    for entry in entries:
        if entry["code"] and _sha256(folder / entry["code"]) != entry["sha256"]:
            found.differences.append(f"{entry['code']} is not the code of the entry {entry['id']}")
    for board in read(folder, "boards.json"):
        found.differences += _unlike_entries(board, known)


def _unlike_receipt(competition: str, where: Score, receipt: Mapping[str, Any]) -> list[str]:
    entry, part, split, score = where
    bits = receipt["score"]["final_score_bits"]
    exact = float.fromhex(bits) if bits else receipt["score"]["final_score"]
    slug = f"{competition}--{part['task']}" if part["task"] else competition
    pairs = (
        ("score", score["final_score"], exact if split == "private" else round(exact, PUBLIC_DIGITS)),
        ("runs", score["runs"], receipt["evaluation"]["runs"]),
        ("submission", part["submission"], receipt["submission"]["id"]),
        ("code", entry["sha256"], receipt["submission"]["sha256"]),
        ("phase", entry["phase"], receipt["submission"].get("phase", "")),
        ("split", split, receipt["split"]["visibility"]),
        ("competition", slug, receipt["competition"]),
    )
    it = f"{entry['id']} on the {split} split"
    return [f"{it}: its {name} is {here}, the receipt says {says}" for name, here, says in pairs if here != says]


def _unlike_entries(board: Mapping[str, Any], known: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """Yield what a leaderboard says otherwise than its entries, and ranks that do not follow from its scores."""
    name = " ".join(part for part in (board["task"], board["phase"], board["split"], "leaderboard") if part)
    ranked = [row for row in board["rows"] if row["rank"] is not None]
    for row in board["rows"]:
        score = known.get((row["submission"], board["split"])) if row["submission"] else row["score"]
        if score != row["score"]:
            yield f"{name}: {row['team']} has {row['score']}, the entry has {score}"
        better = 1 + sum(other["score"] > row["score"] for other in ranked)
        if row["rank"] not in (None, better):
            yield f"{name}: {row['team']} has rank {row['rank']}, by its score it is {better}"


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entry_of(folder: Path, entry_id: str) -> dict[str, Any]:
    """Return the only entry whose id begins so. Raises InvalidInput, naming those whose code is there."""
    entries = read(folder, "entries.json")
    found = [entry for entry in entries if entry_id and entry["id"].startswith(entry_id)]
    if len(found) != 1 or not found[0]["code"]:
        with_code = ", ".join(entry["id"] for entry in entries if entry["code"]) or "none"
        allowed = f"names no entry whose code is in the bundle; there are {with_code}"
        raise InvalidInput(f"{entry_id!r} {allowed}", violations=(Violation("entry", allowed, entry_id),))
    only: dict[str, Any] = found[0]
    return only
