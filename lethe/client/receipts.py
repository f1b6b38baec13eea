"""Whether a receipt is what an instance signed.

A receipt is canonical JSON (sorted keys, no spaces) with an Ed25519 signature over its bytes.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lethe.errors import InvalidInput, Violation

FORMAT = "lethe-receipt/1"


def verify(receipt: Mapping[str, Any], *, public_key: str | None = None, expected: str = FORMAT) -> None:
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
    for part in receipt["tasks"].values() if expected == FORMAT and "tasks" in receipt else ():
        verify(part, public_key=signer)


def of_parts(receipt: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the receipts of a submission's parts, one for each task; of any other submission its own."""
    return list(receipt["tasks"].values()) if "tasks" in receipt else [receipt]


def canonical(body: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _invalid(field: str, message: str, value: object) -> InvalidInput:
    shown = None if value is None else str(value)[:120]
    return InvalidInput(f"The receipt's {field} {message}", violations=(Violation(field, message, shown),))
