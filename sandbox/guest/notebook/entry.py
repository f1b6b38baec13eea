"""Runs a notebook as its author wrote it, in Kaggle's folders: in each run until its first model, or once, whole."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from lethe.runtime import earlier_torch
from lethe.runtime.entry import (
    Preloaded,
    RunFault,
    Task,
    Unlearned,
    cell_files,
    notebook_namespace,
    seed_everything,
    weights_of_call,
)
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.notebook_cells import Cells, Change
from lethe.runtime.notebook_shell import report
from lethe.runtime.randomness import Randomness
from sandbox.guest import kaggle_cuda
from sandbox.guest.harness import flush_output, report_fault, write_frame
from sandbox.guest.notebook import children
from sandbox.guest.notebook.file_watch import Watch, hook_starts, hook_torch
from sandbox.guest.notebook.files import CheckpointTaker, free_room
from sandbox.guest.notebook.first_model import FirstModel, Pieces
from sandbox.guest.notebook.pictures import INPUT, Pictures
from sandbox.guest.notebook.starting_kit import offer_starting_kit

PROGRAMS = Path("/scratch/.lethe/bin")
PATH = f"{PROGRAMS}:/bin:/usr/bin:/opt/python/bin"


def install_programs() -> None:
    """Write the programs, and let the shell find them."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    zip_program = PROGRAMS / "zip"
    zip_program.write_text(
        f"#!{sys.executable} -S\nimport sys\nfrom sandbox.guest.notebook.zip_command import main\nsys.exit(main())\n",
        encoding="utf-8",
    )
    zip_program.chmod(0o755)
    for name in ("python", "python3"):
        (PROGRAMS / name).unlink(missing_ok=True)
        (PROGRAMS / name).symlink_to(sys.executable)
    os.environ["PATH"] = PATH
    children.prepare()


class ScaleInputs:
    """A hook before a layer: its input, scaled. One number for all channels, or one for each."""

    def __init__(self, scale: Any, shift: Any) -> None:
        self.scale = scale
        self.shift = shift

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        first = inputs[0]
        if not isinstance(first, Tensor):
            return inputs
        return (first * _per_channel(first, self.scale) + _per_channel(first, self.shift), *inputs[1:])


def scale_in(network: nn.Module, description: Mapping[str, Any]) -> bool:
    """Let networks of this class scale their inputs from now on. Return False where a notebook must do it itself.

    description: the parsed network.json. Only torchvision's classes are known to notebooks.
    """
    scale, shift = description.get("input_scale", 1.0), description.get("input_shift", 0.0)
    if _is_plain(scale, 1.0) and _is_plain(shift, 0.0):
        return True
    kind = type(network)
    if not kind.__module__.startswith("torchvision."):
        return False
    build = kind.__init__

    def building(self: nn.Module, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        layer = next((m for m in self.modules() if isinstance(m, nn.Conv2d)), None)
        if layer is not None:
            layer.register_forward_pre_hook(ScaleInputs(scale, shift))

    kind.__init__ = building  # type: ignore[method-assign]
    return True


def _is_plain(value: Any, neutral: float) -> bool:
    return all(number == neutral for number in (value if isinstance(value, list) else [value]))


def _per_channel(inputs: Tensor, value: Any) -> Any:
    return inputs.new_tensor(value).view(-1, 1, 1) if isinstance(value, list) else value


KAGGLE = Path("/kaggle")
FOLDERS = (KAGGLE / "tmp", KAGGLE / "working")
ROOM_SHARE = 0.4  # of the scratch, for models that the notebook still sees; an archive of them takes as much again


def run_notebook(task: Task, preloaded: Preloaded, frame_fd: int, *, checkpoints: int, map_cuda: bool) -> bool:
    """Run the notebook to its end and send its models, or a fault where it cannot be used. Returns whether it could."""
    taker = CheckpointTaker(
        layout=preloaded.layout,
        frame_fd=frame_fd,
        wanted=checkpoints,
        folders=FOLDERS,
        room_bytes=int(ROOM_SHARE * free_room(FOLDERS[0])),
        tell=report_plainly,
    )
    try:
        os.environ["LETHE_RUNS"] = str(checkpoints)
        with prepared(task, preloaded, Watch(taker), map_cuda=map_cuda):
            Cells(notebook_namespace(task)).run(cell_files(task))
        flush_output()
        taker.finish()
    except BaseException as error:
        report_fault(error, task, frame_fd)
        return False
    return True


def run_program(
    task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool, has_own_original: bool = False
) -> bool:
    """Run the program until its first model that counts, and send it; without one, call the program's function.

    has_own_original: the run starts from another model than the one in the folders.
    """
    cells = Cells({}, skips=task.program == "defines", function_name=task.function, tell=report_plainly)

    def send(path: Path, pieces: Pieces, *, is_late: bool) -> NoReturn:  # noqa: ARG001 - late or not, it ends here
        if cells.skipped:
            end_with_fault(RunFault(ErrorClass.MODEL_AFTER_SKIP, detail=cells.skipped[0].as_detail()), task, frame_fd)
        write_frame(Unlearned(pieces), preloaded, frame_fd)
        os._exit(0)  # nothing of what is left to do belongs to this run

    taker = FirstModel(
        layout=preloaded.layout,
        folders=FOLDERS,
        on_model=send,
        on_fault=lambda fault: end_with_fault(fault, task, frame_fd),
        tell=report_plainly,
    )
    try:
        chance = Randomness(seed=task.seed, mixes=task.mixes_seeds)
        run_cells(task, preloaded, Watch(taker), cells, chance, map_cuda=map_cuda, has_own_original=has_own_original)
        function = cells.namespace.get(task.function)
        taker.at_the_end(has_function=callable(function) or task.function in cells.missing)
        unlearned = weights_of_call(
            cells.function(task.function, RunFault(ErrorClass.NO_MODEL)), task, preloaded, cells
        )
    except BaseException as error:
        report_fault(error, task, frame_fd, written=taker.uncounted_in_words())
        return False
    write_frame(unlearned, preloaded, frame_fd)
    return True


def run_cells(
    task: Task,
    preloaded: Preloaded,
    watch: Watch,
    cells: Cells,
    chance: Randomness,
    *,
    map_cuda: bool,
    change: Change | None = None,
    has_own_original: bool = False,
) -> None:
    """Run the program's cells to their end, with its seeds mixed."""
    texts = [path.read_bytes() for path in cell_files(task)]
    folders = INPUT.glob("*") if has_own_original else ()
    served = {folder / "original_model.pth": preloaded.data.original_state for folder in folders}
    with prepared(task, preloaded, watch, map_cuda=map_cuda, chance=chance, served=served):
        hook_starts(preloaded.data.original_state, watch.taker.begun)
        offer_starting_kit(texts, preloaded.data, tell=report_plainly)
        cells.namespace, cells.change = notebook_namespace(task), change
        cells.run(cell_files(task))


class prepared:  # noqa: N801 - used as a context
    """A process in which a notebook finds what it does on Kaggle. Its files are watched while the block lasts."""

    def __init__(
        self,
        task: Task,
        preloaded: Preloaded,
        watch: Watch,
        *,
        map_cuda: bool,
        chance: Randomness | None = None,
        served: dict[Path, dict[str, torch.Tensor]] | None = None,
    ) -> None:
        self._task, self._preloaded, self._map_cuda, self._chance = task, preloaded, map_cuda, chance
        self._watch = watch
        self._hook: Callable[[], None] = lambda: hook_torch(watch, served=served or {})

    def __enter__(self) -> None:
        os.chdir(FOLDERS[1])
        torch.set_num_threads(self._task.threads)
        seed_everything(self._task.seed, device=self._task.device)
        self._hook()
        Pictures(self._preloaded.data).install()
        is_called = self._task.program == "defines"  # with loaders that scale
        if not is_called and not scale_in(self._preloaded.network, self._preloaded.data.network):
            report("the network expects images * input_scale + input_shift of network.json: apply them")
        if self._chance is not None:
            self._chance.install()
        if self._map_cuda:
            kaggle_cuda.install()
        earlier_torch.install()
        install_programs()
        self._watch.install()
        self._watch.start()

    def __exit__(self, *_error: Any) -> None:
        self._watch.end()


def end_with_fault(fault: RunFault, task: Task, frame_fd: int) -> NoReturn:
    """End the process, which whoever catches exceptions cannot prevent."""
    report_fault(fault, task, frame_fd)
    os._exit(1)


def report_plainly(text: str) -> None:
    """Say something in the run's log that begins with who says it already."""
    report(text.removeprefix("[lethe] "))
