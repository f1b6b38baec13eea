"""Reads what torch.save wrote, and makes tensors only: no object of the file is ever built, no name in it called.

The pickle inside is read opcode by opcode. Dicts, lists, tuples, numbers, texts and tensors have a meaning; everything
else becomes a mark that stands for "something", so that a file may hold it and nothing comes of it. Tensors are
descriptions until they are asked for by shape, so that no view can claim more memory than the file has bytes.
"""

import io
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

MAX_PICKLE_BYTES = 64 << 20
MAX_DEPTH_OF_STACK = 1_000_000
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP_START = b"PK\x03\x04"
_LEGACY_SIZE = struct.Struct("<q")

_UNREADABLE = (
    *(ValueError, KeyError, IndexError, TypeError, EOFError, OverflowError, RuntimeError, NotImplementedError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)

_DTYPES: Mapping[str, torch.dtype] = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


class NotTorchFile(ValueError):
    """The bytes are not a whole file of torch.save, or hold no tensors by name; the message says which."""


@dataclass(frozen=True)
class StorageRef:
    """A storage of the file: its key and, where the file says one, its element type."""

    key: str
    dtype: torch.dtype | None


@dataclass(frozen=True)
class TensorRef:
    """A tensor as the file describes it; nothing is allocated for it yet."""

    storage: StorageRef
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Name:
    """A global that the pickle names; it is never looked up."""

    module: str
    name: str


class Something:
    """Stands for an object that is neither a container, a plain value nor a tensor."""


SOMETHING = Something()


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
                return _state_of(*_read_zip(source))
            return _state_of(*_read_legacy(source))
        except NotTorchFile:
            raise
        except _UNREADABLE as error:
            raise NotTorchFile(f"not a whole torch file: {error}") from error


def _state_of(value: Any, storages: Mapping[str, bytearray]) -> StateDict:
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
    """Return a stored entry's bytes. size: of the whole file, which no entry can exceed."""
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


def unpickle(source: IO[bytes]) -> Any:
    """Return the next pickle's value, made of containers, plain values, TensorRef, Name and SOMETHING."""
    machine = _Machine()
    for opcode, argument, _position in pickletools.genops(source):
        if opcode.name == "STOP":
            return machine.stack[-1]
        machine.step(opcode.name, argument)
    raise NotTorchFile("it is cut off")


_MARK = object()
_LITERALS = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_IGNORED = frozenset({"PROTO", "FRAME"})


class _Machine:
    """A pickle machine that calls nothing."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name not in _IGNORED:
            rule = _RULES.get(name)
            if rule is None:
                raise NotTorchFile(f"its description uses {name}, which torch.save does not")
            rule(self, argument)
        if len(self.stack) > MAX_DEPTH_OF_STACK:
            raise NotTorchFile("its description is too deep")

    def to_mark(self) -> list[Any]:
        """Take off everything above the last mark, and the mark."""
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                items = self.stack[position + 1 :]
                del self.stack[position:]
                return items
        raise NotTorchFile("its description is not well-formed")

    def take(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise NotTorchFile("its description is not well-formed")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[len(machine.memo) if argument is None else argument] = machine.stack[-1]


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if isinstance(target, dict):
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(key, str | int | float | bool | None):
                target[key] = value


def _append(machine: _Machine, items: list[Any]) -> None:
    if isinstance(machine.stack[-1], list):
        machine.stack[-1].extend(items)


def _reduce(machine: _Machine, _argument: Any) -> None:
    function, arguments = machine.take(2)
    machine.stack.append(_made(function, arguments))


def _made(function: Any, arguments: Any) -> Any:
    """Return what a call means, for the few calls that torch.save writes for a state_dict."""
    if function == Name("collections", "OrderedDict"):
        return {}
    if function in (Name("torch._utils", "_rebuild_tensor_v2"), Name("torch._utils", "_rebuild_tensor_v3")):
        return _tensor_ref(*arguments)
    if function == Name("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    if function == Name("torch", "Size"):
        return tuple(arguments[0])
    return SOMETHING


def _tensor_ref(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> TensorRef:
    numbers = [offset, *shape, *strides]
    if not isinstance(storage, StorageRef) or not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
        raise NotTorchFile("a tensor in it is not well-formed")
    dtype = storage.dtype
    if dtype is None and len(rest) > 2 and isinstance(rest[2], Name):  # version 3 names the type apart
        found = getattr(torch, rest[2].name, None) if rest[2].module == "torch" else None
        dtype = found if isinstance(found, torch.dtype) else None
    if dtype is None or len(shape) != len(strides):
        raise NotTorchFile("a tensor in it has a type that is not known here")
    return TensorRef(storage, dtype, offset, tuple(shape), tuple(strides))


def _persistent(machine: _Machine, _argument: Any) -> None:
    (found,) = machine.take(1)
    if not isinstance(found, tuple) or len(found) < 5 or found[0] != "storage" or not isinstance(found[1], Name):
        raise NotTorchFile("a storage in it is not well-formed")
    machine.stack.append(StorageRef(key=str(found[2]), dtype=_DTYPES.get(found[1].name)))


def _global(machine: _Machine, argument: Any) -> None:
    module, _, name = str(argument).partition(" ")
    machine.stack.append(Name(module, name))


def _stack_global(machine: _Machine, _argument: Any) -> None:
    module, name = machine.take(2)
    machine.stack.append(Name(str(module), str(name)))


def _something(count: int) -> Callable[[_Machine, Any], None]:
    def rule(machine: _Machine, _argument: Any) -> None:
        machine.take(count)
        machine.stack.append(SOMETHING)

    return rule


def _something_to_mark(machine: _Machine, _argument: Any) -> None:
    machine.to_mark()
    machine.stack.append(SOMETHING)


def _pushes(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, _argument: machine.stack.append(make())


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _argument: machine.stack.append(tuple(machine.take(count)))


def _dict_to_mark(machine: _Machine, _argument: Any) -> None:
    items = machine.to_mark()
    machine.stack.append({})
    _set_items(machine, items)


_RULES: Mapping[str, Callable[[_Machine, Any], Any]] = {
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "NONE": _pushes(lambda: None),
    "NEWTRUE": _pushes(lambda: True),
    "NEWFALSE": _pushes(lambda: False),
    "EMPTY_DICT": _pushes(dict),
    "EMPTY_LIST": _pushes(list),
    "EMPTY_TUPLE": _pushes(tuple),
    "EMPTY_SET": _pushes(lambda: SOMETHING),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.to_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.to_mark()),
    "FROZENSET": _something_to_mark,
    "DICT": _dict_to_mark,
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "SETITEM": lambda machine, _: _set_items(machine, machine.take(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.to_mark()),
    "APPEND": lambda machine, _: _append(machine, machine.take(1)),
    "APPENDS": lambda machine, _: _append(machine, machine.to_mark()),
    "ADDITEMS": lambda machine, _: machine.to_mark(),
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": _put,
    "GET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "BINGET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "LONG_BINGET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "POP": lambda machine, _: machine.take(1),
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _something(2),
    "NEWOBJ_EX": _something(3),
    "OBJ": _something_to_mark,
    "INST": _something_to_mark,
    "BUILD": lambda machine, _: machine.take(1),
    "BINPERSID": _persistent,
}
