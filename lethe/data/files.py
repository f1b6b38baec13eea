"""Reading and writing the files of a split: safetensors and JSON, completely or not at all."""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lethe.data.errors import DamagedSplit, SplitNotPrepared


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; a reader sees the old file or the complete new one."""
    own: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        on_host = tensor.detach().cpu().contiguous()
        storage = on_host.untyped_storage().data_ptr()
        own[name] = on_host.clone() if storage in taken else on_host  # the format has no shared (tied) tensors
        taken.add(storage)
    _atomically(path, lambda part: save_file(own, part, metadata=metadata))


def write_text(path: Path, text: str) -> None:
    _atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file that the host wrote, memory-mapped. Raises DamagedSplit or SplitNotPrepared."""
    return read_tensors_and_metadata(path)[0]


def read_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise SplitNotPrepared(f"{path} does not exist: prepare the split first") from error
    except (SafetensorError, OSError) as error:
        raise DamagedSplit(f"{path} is damaged ({error}): prepare the split again to make this file again") from error


def read_json(path: Path) -> Any:
    """Return the parsed JSON of a file that the host wrote. Raises DamagedSplit or SplitNotPrepared."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SplitNotPrepared(f"{path} does not exist: prepare the split first") from error
    except (OSError, ValueError) as error:
        raise DamagedSplit(f"{path} is damaged ({error}): prepare the split again to make this file again") from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _atomically(path: Path, write: Callable[[Path], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
