"""Calls an entry's function on the original model and returns its weights, or says what went wrong.

It shares an interpreter with code that may rewrite it, so nothing it says is believed outside: its
fault is a claim about the participant's own run, and its weights are checked again.
"""

import contextlib
import importlib.util
import inspect
import random
import sys
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lethe.runtime import data_loaders, earlier_torch, notebook_shell
from lethe.runtime.error_classes import WARNING, ErrorClass
from lethe.runtime.notebook_cells import CELL_FILES, Cells
from lethe.runtime.weights_layout import TensorSlot, WeightsLayout


class ClassWeights(Tensor):
    """A tensor of balanced weights [n_classes], which also answers as the mapping from class names to counts.

    The competition's file holds counts under texts, and entries invert them; a loss wants weights. The weight of a
    class is n / (n_classes * count), and 0 for a class without examples.
    """

    counts: dict[str, int]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """Return the weights for these counts, in the order of the classes' numbers."""
        named = dict(sorted(counts.items(), key=lambda item: int(item[0])))
        n = sum(named.values())
        weights = torch.tensor([n / (len(named) * count) if count else 0.0 for count in named.values()])
        made = weights.as_subclass(cls)
        made.counts = named
        return made

    def __getitem__(self, key: Any) -> Any:
        return self.counts[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.counts if isinstance(key, str) else bool(super().__contains__(key))

    def keys(self) -> KeysView[str]:
        return self.counts.keys()

    def items(self) -> ItemsView[str, int]:
        return self.counts.items()

    def get(self, key: str, default: int | None = None) -> int | None:
        return self.counts.get(key, default)

    def values(self) -> ValuesView[int]:  # type: ignore[override]  # a dense tensor has no values() of its own
        return self.counts.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.as_subclass(Tensor))


@dataclass(frozen=True)
class Task:
    """One run: where the participant's code lies, what to call, and the seed.

    The run can read all of it. So it holds neither the run's number nor whether its data is hidden.
    program: how a notebook is run: "saves" until its first model is written, "defines" to the end, whose function is
    then called. mixes_seeds: whether the seeds that such a program sets are mixed with the run's.
    """

    submission: Path
    file: str
    function: str
    style: data_loaders.Style
    keywords: tuple[str, ...]
    seed: int
    threads: int
    device: str
    program: str = ""
    mixes_seeds: bool = False


NOTEBOOK = "notebook.py"  # the entry file that a notebook's cells stand for


@dataclass(frozen=True)
class Preloaded:
    """What the zygote holds for every run: the data, the network with the original weights, their layout."""

    data: data_loaders.GuestData
    network: nn.Module
    layout: WeightsLayout


@dataclass(frozen=True)
class Unlearned:
    """The bytes of a run's weights, in the frame's order.

    is_wrong_return: they are the given network's, since the function returned something that is neither None nor a
    network. Whoever runs it decides whether that counts.
    """

    pieces: list[memoryview]
    is_wrong_return: bool = False


class RunFault(Exception):
    """The participant's code cannot be used; `error_class` says why. written: files of which none counts as a model."""

    def __init__(
        self, error_class: str, *, detail: Mapping[str, Any] | None = None, written: Sequence[str] = ()
    ) -> None:
        super().__init__(error_class)
        self.error_class = error_class
        self.detail = dict(detail or {})
        self.written = list(written)


def unlearned_weights(task: Task, preloaded: Preloaded) -> Unlearned:
    """Call the participant's function on the original model and return its weights."""
    seed_everything(task.seed, device=task.device)
    earlier_torch.install()
    torch.set_num_threads(task.threads)
    if task.device != "cpu":
        preloaded.network.to(task.device)
    cells, function = load_function(task)
    return weights_of_call(function, task, preloaded, cells)


def weights_of_call(found: Callable[..., Any], task: Task, preloaded: Preloaded, cells: Cells) -> Unlearned:
    """Call what the participant's code defines, and return the weights."""
    net = preloaded.network
    # A seed that the file sets is for what the file draws, not for every run.
    seed_everything(task.seed, device=task.device)
    data = data_loaders.make_loaders(preloaded.data, style=task.style)
    counts = data.class_counts
    offered = {
        **({"class_weights": ClassWeights.of(counts), "class_counts": dict(counts)} if counts else {}),
        "param_names": [name for name, _ in net.named_parameters()],
        "device": torch.device(task.device),
        "seed": task.seed,
    }
    keywords = {name: offered[name] for name in task.keywords if name in offered}
    function = _bound_run(found) if inspect.isclass(found) else found
    _require_signature(function, keywords)
    try:
        returned = function(net, data.retain, data.forget, data.validation, **keywords)
    except NameError as error:
        raise cells.explained(error) from error
    is_wrong = returned is not None and not isinstance(returned, nn.Module)
    if is_wrong:
        kind = type(returned).__name__
        print(f"{WARNING} {task.function} returned a {kind}; only None or a network count, so `net` is taken.")
    state = _state_of(returned if isinstance(returned, nn.Module) else net, preloaded.layout)
    return Unlearned(checked_pieces(state, preloaded.layout), is_wrong)


def _state_of(model: nn.Module, layout: WeightsLayout) -> Mapping[str, Any]:
    """Return the network's state, without what DataParallel and the like put around it."""
    state = model.state_dict()
    while not any(slot.name in state for slot in layout.tensors) and isinstance(
        inner := getattr(model, "module", None), nn.Module
    ):
        model, state = inner, inner.state_dict()
    return state


def seed_everything(seed: int, *, device: str = "") -> None:
    """Seed Python, numpy (where it is loaded) and torch alike. device: the only one that is used; empty: any."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if device == "cpu":  # to note a seed for accelerators that nobody uses takes milliseconds
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def load_function(task: Task) -> tuple[Cells, Callable[..., Any]]:
    """Run the participant's file, or a notebook's cells, and return what ran and the entry point."""
    if task.file == NOTEBOOK:
        cells = Cells(notebook_namespace(task), skips=True, function_name=task.function)
        cells.run(cell_files(task))
    else:
        cells = _loaded_file(task)
    return cells, cells.function(task.function, RunFault(ErrorClass.NO_ENTRY_POINT))


def notebook_namespace(task: Task) -> dict[str, Any]:
    """Return the namespace that a notebook's cells share, which is the main module's."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    asks_ipython = any(b"IPython" in path.read_bytes() for path in cell_files(task))
    notebook_shell.install(module.__dict__, at_once=asks_ipython)
    return module.__dict__


def cell_files(task: Task) -> list[Path]:
    """Return the files of a notebook's cells, in their order."""
    return sorted(task.submission.glob(CELL_FILES))


def _loaded_file(task: Task) -> Cells:
    path = task.submission / task.file
    if not path.is_file():
        raise RunFault(ErrorClass.NO_ENTRY_POINT)
    for folder in dict.fromkeys((str(path.parent), str(task.submission))):
        sys.path.insert(0, folder)
    name = _module_name(path, task.submission)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise RunFault(ErrorClass.NO_ENTRY_POINT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that worker processes can find its classes
    cells = Cells(module.__dict__, skips=True, function_name=task.function)
    cells.run([path])
    return cells


def _module_name(path: Path, submission: Path) -> str:
    """Return the name that a file is imported by; of one in a package, after the package itself was imported."""
    *folders, _ = path.relative_to(submission).parts
    if not folders or any("." in name for name in folders):
        return path.stem
    if (path.parent / "__init__.py").is_file():
        with contextlib.suppress(Exception):  # the file's own import of it fails likewise, and says where
            importlib.import_module(".".join(folders))
    return ".".join((*folders, path.stem))


def _bound_run(made: type[Any]) -> Callable[..., Any]:
    """Return what calls a class's `run`: made without arguments and run with four, or made with four and run."""
    try:
        inspect.signature(made).bind()
    except TypeError:
        return lambda *four, **keywords: made(*four, **keywords).run()
    return made().run  # type: ignore[no-any-return]


def _require_signature(function: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a built-in or the like: let the call itself decide
    try:
        signature.bind(None, None, None, None, **keywords)
    except TypeError as error:
        raise RunFault(ErrorClass.WRONG_SIGNATURE) from error


def checked_pieces(state: Mapping[str, Any], layout: WeightsLayout) -> list[memoryview]:
    """Return the bytes of weights in the frame's order. Raises RunFault where they are not like the original's."""
    return [tensor_bytes(state, slot) for slot in _checked_slots(state, layout)]


def _checked_slots(state: Mapping[str, Any], layout: WeightsLayout) -> tuple[TensorSlot, ...]:
    for slot in layout.tensors:
        value = state.get(slot.name)
        if not isinstance(value, torch.Tensor):
            raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "missing", "tensor": slot.name})
        if not _is_plain(value):
            raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "storage", "tensor": slot.name})
        if tuple(value.shape) != slot.shape:
            raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "shape", "tensor": slot.name})
        if value.dtype != data_loaders.TORCH_DTYPES[slot.dtype]:
            raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "dtype", "tensor": slot.name})
    if len(state) != len(layout.tensors):
        raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "extra"})
    return layout.tensors


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's numbers lie one after the other: it is not sparse, quantised or without any."""
    return tensor.layout is torch.strided and not (
        tensor.is_meta or tensor.is_quantized or tensor.is_nested or is_lazy(tensor)
    )


def tensor_bytes(state: Mapping[str, torch.Tensor], slot: TensorSlot) -> memoryview:
    """Return a tensor's bytes. Raises RunFault where it has none of its own, as a tracer's has not."""
    try:
        flat = state[slot.name].detach().to("cpu").contiguous().reshape(-1)
        if flat.is_conj() or flat.is_neg():
            flat = flat.resolve_conj().resolve_neg()
        return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")
    except (TypeError, RuntimeError) as error:
        if "memory" in str(error):
            raise
        raise RunFault(ErrorClass.WRONG_WEIGHTS, detail={"kind": "storage", "tensor": slot.name}) from error
