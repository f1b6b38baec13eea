"""Lets code that insists on CUDA run on the CPU: every "cuda" that it names is read as "cpu".

Installed only where the competition says so, and only where there is no GPU. A mode of torch rewrites the devices of
every call on its way in; questions about the GPU get the answers of one that is there.
"""

import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

VARIABLE = "CUDA_ON_CPU"  # set where it is installed, for the processes that a program starts
_CPU = torch.device("cpu")


class CudaOnCpu(TorchFunctionMode):
    """While active, devices named cuda are the CPU in every torch call of this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory"):
            return args[0]
        if kwargs:
            kwargs = {key: on_cpu(value) if key == "device" else value for key, value in kwargs.items()}
        if args and len(args) > 1:
            args = (args[0], *(on_cpu(value) for value in args[1:]))
        return func(*args, **(kwargs or {}))


def on_cpu(value: Any) -> Any:
    """Return the CPU for anything that names a CUDA device, else the value itself."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return _CPU
    return value


def install() -> None:
    """Switch it on for the rest of this process, unless there is a GPU."""
    if torch.cuda.is_available():
        return
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", VARIABLE: "1"})
    _answer_questions()
    _wrap_load()
    _wrap_modules()
    _wrap_mixed_precision()
    _wrap_generators()
    _wrap_threads()
    CudaOnCpu().__enter__()  # type: ignore[no-untyped-call]  # stays on until the process ends


def _answer_questions() -> None:
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "CPU in place of a GPU",
        "get_device_capability": (8, 0),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (1 << 34, 1 << 34),
        "get_device_properties": SimpleNamespace(
            name="CPU in place of a GPU", major=8, minor=0, total_memory=1 << 34, multi_processor_count=1
        ),
        "memory_summary": "",
        "memory_stats": {},
        "utilization": 0,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "_lazy_init": None,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        **dict.fromkeys(
            (
                "synchronize",
                "empty_cache",
                "ipc_collect",
                "init",
                "reset_peak_memory_stats",
                "set_device",
                "manual_seed",
                "manual_seed_all",
                "seed",
                "seed_all",
                "reset_max_memory_allocated",
            )
        ),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _constant(answer))
    if hasattr(torch, "accelerator"):  # what torch itself asks must not wake a driver; older versions ask torch.cuda
        for name, answer in {"is_available": False, "current_accelerator": None, "current_stream": _Stream()}.items():
            setattr(torch.accelerator, name, _constant(answer))
    parallel: Any = sys.modules[torch.nn.DataParallel.__module__]
    parallel._get_available_device_type = _constant(None)  # with no device to spread over, it calls its module
    torch.cuda.Stream = torch.cuda.Event = _Stream  # type: ignore[misc,assignment]
    torch.cuda.get_rng_state = lambda *_a, **_k: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, *_a, **_k: torch.set_rng_state(state)
    torch.cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    torch.cuda.set_rng_state_all = lambda new_states: None  # noqa: ARG005 - torch's name


class _Stream:
    """A stream or an event of a GPU that is not there: everything on it is done already."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        self._at_s = 0.0

    def record(self, *_arguments: Any) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, later: "_Stream") -> float:
        """Return the milliseconds between two recorded events."""
        return 1000 * (later._at_s - self._at_s)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        return None

    wait_stream = wait_event = record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_arguments: object) -> None:
        return None


def _wrap_generators() -> None:
    real, set_type = torch.Generator, torch.set_default_tensor_type

    class AnyGenerator(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return type.__instancecheck__(real, value)

    class Generator(real, metaclass=AnyGenerator):  # type: ignore[valid-type,misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return real(on_cpu(device))

    def setting(kind: Any) -> None:
        set_type(kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind)

    torch.Generator, torch.set_default_tensor_type = Generator, setting  # type: ignore[misc]


def _wrap_threads() -> None:
    """Modes of torch belong to one thread: each that is started gets this one, too."""
    run = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def running(self: threading.Thread) -> None:
        with CudaOnCpu():
            run(self)

    threading.Thread._bootstrap_inner = running  # type: ignore[attr-defined]


def _constant(answer: Any) -> Any:
    def ask(*_arguments: Any, **_options: Any) -> Any:
        return answer

    return ask


def _wrap_load() -> None:
    load = torch.load

    def loading(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        return load(f, on_cpu(map_location) if map_location is not None else _CPU, *arguments, **options)

    torch.load = loading


def _wrap_modules() -> None:
    to = torch.nn.Module.to

    def moved(self: torch.nn.Module, *arguments: Any, **options: Any) -> torch.nn.Module:
        options = {key: on_cpu(value) if key == "device" else value for key, value in options.items()}
        return to(self, *(on_cpu(value) for value in arguments), **options)

    torch.nn.Module.to = moved  # type: ignore[method-assign,assignment]
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]  # noqa: ARG005


def _wrap_mixed_precision() -> None:
    """Mixed precision for a GPU becomes plain precision."""
    autocast, scaler = torch.autocast, getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
    device = ("cpu",) if hasattr(torch.amp, "GradScaler") else ()  # older versions have a scaler for cuda alone

    class Autocast(autocast):  # type: ignore[valid-type,misc]
        def __init__(self, device_type: str = "cuda", *arguments: Any, **options: Any) -> None:
            if on_cpu(device_type) == _CPU:
                device_type, arguments, options = "cpu", (), {"enabled": False}
            super().__init__(device_type, *arguments, **options)

    class CudaAutocast(Autocast):
        def __init__(self, *_arguments: Any, **_options: Any) -> None:
            super().__init__("cuda")

    class Scaler(scaler):  # type: ignore[valid-type,misc]
        def __init__(self, *_arguments: Any, **_options: Any) -> None:
            super().__init__(*device, enabled=False)

    torch.autocast = torch.amp.autocast = Autocast  # type: ignore[misc]
    torch.cuda.amp.autocast = CudaAutocast  # type: ignore[misc]
    torch.amp.GradScaler = torch.cuda.amp.GradScaler = Scaler  # type: ignore[misc]
