"""Reads what torch.save wrote: the container, the storages in it, and tensors made of their bytes.

The description inside is a pickle, which `notebook_pickle` reads without building any object of it. Tensors are
descriptions until they are asked for by shape, so that no view can claim more memory than the file has bytes.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from sandbox.guest.notebook.pickle_reader import NotTorchFile, TensorRef, unpickle

__all__ = ["NotTorchFile", "StateDict", "read_state_dict"]
MAX_PICKLE_BYTES = 64 << 20
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP_START = b"PK\x03\x04"
_LEGACY_SIZE = struct.Struct("<q")

_UNREADABLE = (
    *(ValueError, KeyError, IndexError, TypeError, EOFError, OverflowError, RuntimeError, NotImplementedError),
    MemoryError,  # a length that the file claims and has not
    *(struct.error, zlib.error, zipfile.BadZipFile),
)


@dataclass(frozen=True)
class StateDict:
    """The tensors of a file by name, described; `tensor` makes one."""

    refs: Mapping[str, TensorRef]
    read_storage: Callable[[str], bytearray]

    def tensor(self, name: str) -> Tensor:
        """Return one tensor, contiguous and with its own memory. Raises NotTorchFile if it reaches past its bytes."""
        ref = self.refs[name]
        try:
            data = self.read_storage(ref.storage.key)
        except KeyError:
            raise NotTorchFile(f"the tensor {name!r} has a storage that the file lacks") from None
        n_elements = len(data) // ref.dtype.itemsize
        if 0 in ref.shape:
            return torch.empty(ref.shape, dtype=ref.dtype)
        pairs = zip(ref.shape, ref.strides, strict=True)
        last = ref.offset + sum((size - 1) * stride for size, stride in pairs)
        if min(ref.offset, *ref.strides, 0) < 0 or last >= n_elements:
            raise NotTorchFile(f"the tensor {name!r} reaches past the bytes of its storage")
        flat = torch.frombuffer(data, dtype=ref.dtype, count=n_elements)
        return flat.as_strided(ref.shape, ref.strides, ref.offset).clone(memory_format=torch.contiguous_format)


def read_state_dict(content: Path | bytes) -> StateDict:
    """Return the named tensors of a torch file. Raises NotTorchFile."""
    source: IO[bytes] = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
    with source:
        try:
            start = source.read(4)
            source.seek(0)
            if start == _ZIP_START:
                return _read_state(*_read_zip(source))
            return _read_state(*_read_legacy(source))
        except NotTorchFile:
            raise
        except _UNREADABLE as error:
            raise NotTorchFile(f"not a whole torch file: {error}") from error


def _read_state(value: Any, storages: Mapping[str, bytearray]) -> StateDict:
    if not isinstance(value, dict):
        raise NotTorchFile("it holds no state_dict; save net.state_dict()")
    refs = {name: item for name, item in value.items() if isinstance(name, str) and isinstance(item, TensorRef)}
    if not refs or len(refs) != len(value):
        raise NotTorchFile("it holds something else than tensors by name; save net.state_dict()")
    return StateDict(refs=refs, read_storage=storages.__getitem__)


def _read_zip(source: IO[bytes]) -> tuple[Any, Mapping[str, bytearray]]:
    size = source.seek(0, io.SEEK_END)
    with zipfile.ZipFile(source) as archive:
        names = {info.filename: info for info in archive.infolist()}
        pickled = next((name for name in names if name.endswith("/data.pkl") or name == "data.pkl"), None)
        if pickled is None:
            raise NotTorchFile("it is a zip archive, but not one of torch.save")
        if names[pickled].file_size > MAX_PICKLE_BYTES:
            raise NotTorchFile("its description is too long")
        root = pickled.removesuffix("data.pkl")
        order = names.get(f"{root}byteorder")
        if order is not None and archive.read(order) != b"little":
            raise NotTorchFile("it was written by a big-endian machine")
        value = unpickle(io.BytesIO(archive.read(pickled)))
        return value, {key: _stored(archive, names[f"{root}data/{key}"], size=size) for key in _keys_in(value)}


def _stored(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, size: int) -> bytearray:
    """Return a stored entry's bytes. size: of the complete file, which no entry can exceed."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise NotTorchFile("its tensors are compressed")
    if info.file_size > size:
        raise NotTorchFile("it is cut off")
    content = bytearray(info.file_size)
    with archive.open(info) as entry:
        position = 0
        while chunk := entry.read(1 << 22):
            content[position : position + len(chunk)] = chunk
            position += len(chunk)
    if position != info.file_size:
        raise NotTorchFile("it is cut off")
    return content


def _read_legacy(source: IO[bytes]) -> tuple[Any, Mapping[str, bytearray]]:
    """Read the form from before torch 1.6: five pickles, then each storage's length and bytes."""
    if unpickle(source) != LEGACY_MAGIC:
        raise NotTorchFile("it was not written by torch.save")
    unpickle(source)  # protocol version
    unpickle(source)  # sizes on the writing machine
    value = unpickle(source)
    keys = unpickle(source)
    itemsizes = {ref.storage.key: ref.dtype.itemsize for ref in _refs_in(value)}
    storages = {}
    for key in keys:
        (n_elements,) = _LEGACY_SIZE.unpack(source.read(_LEGACY_SIZE.size))
        size = n_elements * itemsizes[key]
        content = bytearray(source.read(size)) if n_elements >= 0 else bytearray()
        if len(content) != size:
            raise NotTorchFile("it is cut off")
        storages[key] = content
    return value, storages


def _keys_in(value: Any) -> set[str]:
    return {ref.storage.key for ref in _refs_in(value)}


def _refs_in(value: Any) -> Iterator[TensorRef]:
    values = value.values() if isinstance(value, dict) else ()
    return (item for item in values if isinstance(item, TensorRef))
