"""The description of a bundle, and who signed it.

A bundle is a zip (or a folder) of a prepared split's files and of `reference.json`, which names each with its size and
hash. The signature is over canonical JSON of everything else in reference.json, and so over every file.
"""

import base64
import json
import os
import re
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lethe.client.bundle import canonical
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord

DESCRIPTION = "reference.json"
CARD = "card.md"
FORMAT: Literal["lethe-reference-1"] = "lethe-reference-1"
MAX_DESCRIPTION_BYTES = 4 * 2**20
MAX_FILES = 10_000
# Nothing but data: no name leads out of its folder, is hidden, or is a program or a page.
NAME = re.compile(r"(?:manifest\.json|card\.md|(?:visible|hidden)(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){1,4})", re.ASCII)
SUFFIXES = (".safetensors", ".json", ".model", ".md")


class InvalidReference(InvalidInput):
    """A bundle is not what its description says, or nobody who is trusted signed it."""

    slug, title = "invalid-reference", "The reference split is not taken"


class BundleDescription(BaseModel):
    """The content of reference.json.

    files: every other file of the bundle. public_key, signature: Ed25519, base64; None where nobody signed.
    """

    model_config = ConfigDict(frozen=True, extra="allow")  # keys of a newer version are kept: they are signed

    format: Literal["lethe-reference-1"] = FORMAT
    name: str = Field(max_length=200)
    description: str = Field(max_length=20_000)
    licence: str = Field(max_length=2_000)
    lethe_version: str = Field(max_length=40)
    created_at: datetime
    n_models: int = Field(ge=1)
    has_checkpoints: bool
    files: dict[str, FileRecord] = Field(max_length=MAX_FILES)
    public_key: str | None = None
    signature: str | None = None

    @field_validator("files")
    @classmethod
    def _only_data(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for name, record in files.items():
            if NAME.fullmatch(name) is None or not name.endswith(SUFFIXES):
                raise ValueError(f"{name[:120]!r} is no file of a split")
            if record.size < 0:
                raise ValueError(f"{name} has a size of {record.size}")
        if MANIFEST not in files:
            raise ValueError(f"there is no {MANIFEST}")
        if files[MANIFEST].size > MAX_DESCRIPTION_BYTES:
            raise ValueError(f"{MANIFEST} is more than {MAX_DESCRIPTION_BYTES // 2**20} MiB")
        return files

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the description. Raises InvalidReference naming the wrong value, or the format of another version."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidReference(f"{DESCRIPTION} is not JSON: {error}") from error
        version = found.get("format") if isinstance(found, dict) else None
        if version != FORMAT:
            raise InvalidReference(f"{DESCRIPTION} has the format {str(version)[:80]!r}; this program reads {FORMAT!r}")
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            raise InvalidReference.from_validation(error, source=DESCRIPTION) from error

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(record.size for record in self.files.values())

    def signed(self, key: Ed25519PrivateKey) -> Self:
        """Return the same with a signature."""
        named = self.model_copy(update={"public_key": public_text(key.public_key())})
        signature = base64.b64encode(key.sign(named._signed_bytes())).decode()
        return named.model_copy(update={"signature": signature})

    def check_signature(self, trusted: Collection[str]) -> None:
        """Raise InvalidReference unless one of the `trusted` keys (base64) has signed it."""
        if self.public_key is None or self.signature is None:
            raise InvalidReference("nobody signed this reference split; only with --any-signer is it taken")
        if self.public_key not in trusted:
            named = f"one of the keys to trust: {', '.join(trusted)}" if trusted else "trusted: no key is named"
            raise InvalidReference(
                f"this split was signed by {self.public_key}, which is not {named}. Compare the key with what "
                "its authors publish, then give it with --key"
            )
        self.check_is_intact()

    def check_is_intact(self) -> None:
        """Raise InvalidReference unless the signature, if there is one, is of the key that the description names."""
        if (self.public_key is None) != (self.signature is None):
            raise InvalidReference("a signature and its key stand in a description together, or neither does")
        if self.public_key is None:
            return
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(self.public_key, validate=True))
            key.verify(base64.b64decode(str(self.signature), validate=True), self._signed_bytes())
        except (ValueError, InvalidSignature) as error:
            raise InvalidReference(
                f"{DESCRIPTION} was changed since it was signed, or is not signed by its key"
            ) from error

    def _signed_bytes(self) -> bytes:
        return canonical(self.model_dump(mode="json", exclude={"signature"}))


def new_key(path: Path) -> str:
    """Write a new private key to a new file that its owner alone can read. Return the public key, base64."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    return public_text(key.public_key())


def read_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file. Raises InvalidInput for anything else."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path} cannot be read as a private key (PEM, without a password): {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path} holds no Ed25519 key; `lethe reference key FILE` makes one")
    return key


def public_text(key: Ed25519PublicKey) -> str:
    """Return a public key as it is written and compared: base64."""
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def description_text(description: BundleDescription) -> bytes:
    """Return the content of reference.json."""
    found: dict[str, Any] = description.model_dump(mode="json")
    return (json.dumps(found, indent=1, sort_keys=True) + "\n").encode()
