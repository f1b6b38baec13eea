"""Reads an archive of a competition, of which nothing is believed that was not checked.

What is checked holds for every archive, whoever wrote it: sizes, hashes, that each row refers to the archive's own rows
only and each file belongs to them. That its scores are what an instance computed, only its key can say: see `Trust`.
"""

import base64
import hashlib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from lethe.client.bundle import canonical, verify_receipt
from lethe.competition.file import CompetitionFile
from lethe.competition.section import SCHEMA_VERSION, read_stored, schema_version
from lethe.competition.task import task_name
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, Violation
from server import starter_kit
from server.archives.exporter import (
    ACCOUNT_COLUMNS,
    ADDED_LATER,
    FILES,
    FORMAT,
    MANIFEST,
    OWN_PARTS,
    PEOPLE,
    RECEIPTS,
    ROWS,
    Part,
    Row,
)
from server.competitions.lifecycle import RESCORED
from server.competitions.stored_file import check_size
from server.errors import Conflict
from server.evaluations.results import weights_key
from server.models.competition import CompetitionState
from server.storage import CHUNK as PIECE
from server.storage import Storage, content_key, split_key

MANIFEST_BYTES = RECEIPT_BYTES = 64 * 2**20
ROW_BYTES = 64 * 2**20
ROWS_BYTES = 8 * 2**30  # of one table
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read_manifest(zipped: ZipFile) -> dict[str, Any]:
    """Return the manifest. Raises InvalidInput for one that does not list the entries."""
    names = zipped.namelist()
    if MANIFEST not in names:
        raise invalid(f"is incomplete: it has no {MANIFEST}")
    if len(names) != len(set(names)):
        raise invalid("names an entry twice")
    if zipped.getinfo(MANIFEST).file_size > MANIFEST_BYTES:
        raise invalid(f"has a {MANIFEST} of more than {MANIFEST_BYTES // 2**20} MiB")
    manifest: dict[str, Any] = json.loads(zipped.read(MANIFEST))
    if manifest.get("format") != FORMAT:
        raise invalid(f"has the format {manifest.get('format')!r}; this program reads {FORMAT!r}")
    listed = set(manifest["entries"])
    if listed != set(names) - {MANIFEST}:
        raise invalid("is incomplete: its manifest does not match its entries")
    return manifest


class ManifestArchive:
    """An archive of which nothing is believed that the manifest's hashes do not say."""

    def __init__(self, zipped: ZipFile, manifest: dict[str, Any]) -> None:
        self._zip = zipped
        self._entries: dict[str, dict[str, Any]] = manifest["entries"]
        self._receipt_key = manifest["receipt_key"]
        self._check_sizes()
        for name in self._entries:
            for _piece in self.pieces(name):
                pass
        competitions = list(self.rows(OWN_PARTS[0]))
        whole = [row for row in competitions if row.get("parent_id") is None]
        if len(whole) != 1:
            raise invalid(f"holds {len(whole)} competitions; it must hold one")
        self.competition = whole[0]
        self.id, self.slug = str(self.competition["id"]), str(self.competition["slug"])
        self.slugs = [str(row["slug"]) for row in competitions]
        files = {str(row["slug"]): _checked_file(row) for row in competitions}
        self._check_tasks([row for row in competitions if row is not self.competition], files[self.slug])

    def _check_sizes(self) -> None:
        """Raise InvalidInput for what would unpack to more than it says, or to more than any archive needs."""
        for name, entry in self._entries.items():
            info = self._zip.getinfo(name)
            if info.file_size != entry.get("bytes"):
                raise invalid(f"is damaged: {name} has {info.file_size} bytes, the manifest says {entry.get('bytes')}")
            if name.startswith(FILES) and (info.compress_type != ZIP_STORED or info.compress_size != info.file_size):
                raise invalid(f"holds {name} compressed; files are stored as they are")
            at_most = ROWS_BYTES if name.startswith(ROWS) else RECEIPT_BYTES
            if not name.startswith(FILES) and info.file_size > at_most:
                raise invalid(f"holds {name} of {info.file_size} bytes; at most {at_most} are read")

    def _check_tasks(self, tasks: list[Row], file: CompetitionFile) -> None:
        """Raise InvalidInput for tasks that are not those of the competition's file, or not in its state."""
        if sorted(str(row["slug"]) for row in tasks) != sorted(task.slug for task in file.tasks):
            raise invalid(f"does not hold the tasks of {self.slug} that its file names")
        state = self.competition["state"]
        allowed = RESCORED if state == CompetitionState.CLOSED else {state}
        for row in tasks:
            if row["state"] not in allowed or row["task_name"] != task_name(str(row["slug"])):
                raise invalid(f"has the task {row['slug']} in the state {str(row['state'])[:20]} of {self.slug}")

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield an entry piece by piece. Raises InvalidInput at its end if the hash differs."""
        digest = hashlib.sha256()
        with self._zip.open(name) as entry:
            while piece := entry.read(PIECE):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != self._entries[name]["sha256"]:
            raise invalid(f"is damaged: {name} is not what the manifest says")

    def rows(self, part: Part) -> Iterator[Row]:
        """Yield the rows of a table. Raises InvalidInput if the archive should hold it and does not."""
        name = f"{ROWS}{part.name}.jsonl"
        if name not in self._entries:
            if part.name in ADDED_LATER:
                return
            raise invalid(f"is incomplete: it has no {name}")
        with self._zip.open(name) as entry:
            while line := entry.readline(ROW_BYTES):
                if len(line) == ROW_BYTES:
                    raise invalid(f"has a row in {name} of more than {ROW_BYTES // 2**20} MiB")
                yield json.loads(line)

    def keys(self) -> list[str]:
        """Return the keys of the storage that files are brought for."""
        return [name.removeprefix(FILES) for name in self._entries if name.startswith(FILES)]

    def check_files(self) -> None:
        """Raise InvalidInput for a file that is not of this competition: none of another one is ever written over."""
        parts = {part.name: part for part in OWN_PARTS}
        own = {content_key(str(row["content_sha256"])) for row in self.rows(parts["submissions"])}
        for row in self.rows(parts["shards"]):
            key = str(row["result_key"] or "")
            if key and (key.split("/")[:2] != ["evaluations", str(row["evaluation_id"])] or ".." in key.split("/")):
                raise invalid(f"has a shard whose result is {key[:200]}, which is not a file of its evaluation")
            own |= {key, weights_key(key)} if key else set()
        versions = range(1, max((int(row.get("version", 1)) for row in self.rows(parts["splits"])), default=1) + 1)
        folders = tuple(
            f"{split_key(slug, visibility.value, version)}/"
            for slug in self.slugs
            for visibility in Visibility
            for version in versions
        )
        own.update(key for slug in self.slugs for key in starter_kit.possible_keys(slug))
        for key in self.keys():
            if ".." in key.split("/") or not (key in own or key.startswith(folders)):
                raise invalid(f"holds {key}, which is not a file of {self.slug}")
            if key.startswith("submissions/") and not key.endswith(self._entries[f"{FILES}{key}"]["sha256"]):
                raise invalid(f"holds {key} with another content than its name says")

    def check_contents(self, storage: Storage) -> None:
        """Raise InvalidInput for a submission whose code the archive lacks and this storage has: it is another's."""
        brought = set(self.keys())
        for row in self.rows(next(part for part in OWN_PARTS if part.name == "submissions")):
            key = content_key(str(row["content_sha256"]))
            if key not in brought and storage.exists(key):
                raise invalid(f"has the submission {row['id']} without its code, which this instance has of another")

    def check_references(self) -> None:
        """Raise InvalidInput for a row that refers to something, or somebody, that the archive does not hold."""
        ids = {part.name: set(self._ids(part)) for part in (PEOPLE, *OWN_PARTS) if "id" in part.table.c}
        for part in OWN_PARTS:
            references = [
                (column.name, key.column.table.name) for column in part.table.c for key in column.foreign_keys
            ]
            for row in self.rows(part):
                for column, table in references:
                    if row.get(column) is not None and str(row[column]) not in ids.get(table, ()):
                        raise invalid(f"has {part.name} of {table} that it does not hold")

    def _ids(self, part: Part) -> Iterator[str]:
        for row in self.rows(part):
            if ID.fullmatch(str(row["id"])) is None:
                raise invalid(f"has {part.name} with the id {str(row['id'])[:80]!r}")
            yield str(row["id"])

    def people(self) -> Iterator[Row]:
        """Yield id, name and age of each person: roles and passwords of an archive are ignored."""
        for row in self.rows(PEOPLE):
            yield {name: row[name] for name in ACCOUNT_COLUMNS}

    def check_receipts(self) -> int:
        """Check every receipt's signature. Return how many there are."""
        names = [name for name in self._entries if name.startswith(RECEIPTS)]
        for name in names:
            verify_receipt(json.loads(self._zip.read(name)), public_key=self._receipt_key)
        return len(names)


def _checked_file(row: Row) -> CompetitionFile:
    """Return the file of a competition. Raises InvalidInput for one that this instance would not take, Conflict for one
    that a newer version computes otherwise."""
    if isinstance(row["config"], dict) and schema_version(row["config"]) > SCHEMA_VERSION:
        raise Conflict(
            f"{row['slug']} was made by a newer version of Lethe than this program: bring it up to date first"
        )
    try:
        file = read_stored(CompetitionFile, row["config"])
    except (ValidationError, KeyError) as error:
        raise invalid("has a competition file that is not valid") from error
    if file.slug != row["slug"]:
        raise invalid(f"calls its competition {str(row['slug'])[:80]!r}, and its file calls it {file.slug!r}")
    if row.get("cell_key") is not None:
        raise invalid("is a cell of a benchmark, which is not a competition")
    check_size(file, source="the archive's competition file")
    return file


def is_vouched_for(manifest: dict[str, Any], trusted: Collection[str]) -> bool:
    """Return whether a trusted key (base64) signed this manifest. Raises InvalidInput where none of them did."""
    if not trusted:
        return False
    key, signature = str(manifest["receipt_key"]), manifest.get("signature")
    if key not in trusted:
        raise invalid(f"was written by the instance with the key {key}, which is not one of those to trust")
    if signature is None:
        raise invalid("has no signature: export it again with this version, or import it without --trust")
    body = {name: value for name, value in manifest.items() if name != "signature"}
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(str(signature), validate=True), canonical(body))
    except (ValueError, InvalidSignature) as error:
        raise invalid("was changed since it was signed") from error
    return True


def invalid(what: str) -> InvalidInput:
    return InvalidInput(f"The archive {what}", violations=(Violation("archive", what),))
