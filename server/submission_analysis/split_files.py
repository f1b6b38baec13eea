"""Files of a prepared split as the pages of analysis read them, compared with the split's manifest."""

import json

from lethe.errors import NotFound
from server.storage import Storage

MANIFEST = "manifest.json"
RETRAINED = "hidden/retrained/outputs.safetensors"


def read_split_file(storage: Storage, folder: str, name: str, *, manifest_sha256: str) -> bytes:
    """Return a file of a split. Raises NotFound, or DamagedFile where it is not what the split's manifest says."""
    try:
        manifest = storage.read_verified(f"{folder}/{MANIFEST}", manifest_sha256)
    except NotFound:
        return storage.read(f"{folder}/{name}")
    record = json.loads(manifest)["files"].get(name)
    if record is None:
        raise NotFound(f"{folder} has no {name}")
    return storage.read_verified(f"{folder}/{name}", record["sha256"])
