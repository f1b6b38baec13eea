"""Reads the pickle of torch.save into descriptions: it builds no object and calls no name in it.

It is read opcode by opcode. Dicts, lists, tuples, numbers, texts and tensors have a meaning; everything else becomes a
mark that stands for "something", so that a file may hold it and nothing comes of it.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import torch

MAX_DEPTH_OF_STACK = 1_000_000

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
    """The bytes are not a complete file of torch.save, or hold no tensors by name; the message says which."""


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


def unpickle(source: IO[bytes]) -> Any:
    """Return the next pickle's value, made of containers, plain values, TensorRef, Name and SOMETHING."""
    machine = _Machine()
    while code := source.read(1):
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise NotTorchFile("its description is not well-formed")
        if opcode.name == "STOP":
            return machine.stack[-1]
        if opcode.name not in _KNOWN:  # before its argument is read, which could warn about its text or be large
            raise NotTorchFile(f"its description uses {opcode.name}, which torch.save does not")
        machine.step(opcode.name, _read_argument(opcode, source))
    raise NotTorchFile("it is cut off")


def _read_argument(opcode: pickletools.OpcodeInfo, source: IO[bytes]) -> Any:
    if opcode.name in _NAMING:
        return _read_name(source)
    return None if opcode.arg is None else opcode.arg.reader(source)


def _read_name(source: IO[bytes]) -> str:
    """Return a module and a name unchanged. The reader of pickletools looks for escapes in them, and warns."""
    lines = [source.readline() for _ in range(2)]
    if not all(line.endswith(b"\n") for line in lines):
        raise NotTorchFile("it is cut off")
    return " ".join(line[:-1].decode("ascii") for line in lines)


_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}
_MARK = object()
_LITERALS = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_IGNORED = frozenset({"PROTO", "FRAME"})
_NAMING = frozenset({"GLOBAL", "INST"})


class _Machine:
    """A pickle machine that calls nothing."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name not in _IGNORED:
            _RULES[name](self, argument)
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


def _make_tuple(count: int) -> Callable[[_Machine, Any], None]:
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
    "TUPLE1": _make_tuple(1),
    "TUPLE2": _make_tuple(2),
    "TUPLE3": _make_tuple(3),
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
_KNOWN = _LITERALS | _IGNORED | _RULES.keys()
