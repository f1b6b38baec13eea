"""Runs a notebook as its author wrote it, in Kaggle's folders: in each run until its first model, or once, whole."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch

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
from sandbox.guest.notebook.children import install_programs
from sandbox.guest.notebook.counted_models import AllModels, FirstModel
from sandbox.guest.notebook.inputs import Pictures, offer_starting_kit, scale_in, serve_original
from sandbox.guest.notebook.model_files import FOLDERS, Pieces, WrittenModels


def run_notebook(task: Task, preloaded: Preloaded, frame_fd: int, *, checkpoints: int, map_cuda: bool) -> bool:
    """Run the notebook to its end and send its models, or a fault where it cannot be used. Returns whether it could."""
    try:
        os.environ["LETHE_RUNS"] = str(checkpoints)
        models = AllModels(preloaded.layout, frame_fd, wanted=checkpoints)
        with prepared(task, preloaded, models, map_cuda=map_cuda):
            Cells(notebook_namespace(task)).run(cell_files(task))
        flush_output()
        models.finish()
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
    cells = Cells({}, skips=task.program == "defines", function_name=task.function)

    def send(_path: Path, pieces: Pieces) -> NoReturn:
        if cells.skipped:
            skipped = RunFault(ErrorClass.MODEL_AFTER_SKIP, detail=cells.skipped[0].as_detail())
            end_with_fault(skipped, task, frame_fd)
        write_frame(Unlearned(pieces), preloaded, frame_fd)
        os._exit(0)  # nothing of what is left to do belongs to this run

    model = FirstModel(preloaded.layout, on_model=send, on_fault=lambda fault: end_with_fault(fault, task, frame_fd))
    try:
        if has_own_original:
            serve_original(preloaded.data.original_state)
        chance = Randomness(seed=task.seed, mixes=task.mixes_seeds)
        run_cells(task, preloaded, model, cells, chance, map_cuda=map_cuda)
        function = cells.namespace.get(task.function)
        model.at_the_end(has_function=callable(function) or task.function in cells.missing)
        unlearned = weights_of_call(
            cells.function(task.function, RunFault(ErrorClass.NO_MODEL)), task, preloaded, cells
        )
    except BaseException as error:
        written = [f"{path.name} ({why})" for path, why in model.uncounted.items()]
        report_fault(error, task, frame_fd, written=written)
        return False
    write_frame(unlearned, preloaded, frame_fd)
    return True


def run_cells(
    task: Task,
    preloaded: Preloaded,
    model: FirstModel,
    cells: Cells,
    chance: Randomness,
    *,
    map_cuda: bool,
    change: Change | None = None,
) -> None:
    """Run the program's cells to their end, with its seeds mixed."""
    model.notice_starts(preloaded.data.original_state)
    texts = [path.read_bytes() for path in cell_files(task)]
    with prepared(task, preloaded, model, map_cuda=map_cuda, chance=chance):
        offer_starting_kit(texts, preloaded.data)
        cells.namespace, cells.change = notebook_namespace(task), change
        cells.run(cell_files(task))


@contextlib.contextmanager
def prepared(
    task: Task, preloaded: Preloaded, models: WrittenModels, *, map_cuda: bool, chance: Randomness | None = None
) -> Iterator[None]:
    """Let a notebook find what it does on Kaggle; its models are noticed while the block lasts."""
    os.chdir(FOLDERS[1])
    torch.set_num_threads(task.threads)
    seed_everything(task.seed)
    Pictures(preloaded.data).install()
    is_called = task.program == "defines"  # with loaders that scale
    if not is_called and not scale_in(preloaded.network, preloaded.data.network):
        report("the network expects images * input_scale + input_shift of network.json: apply them")
    if chance is not None:
        chance.install()
    if map_cuda:
        kaggle_cuda.install()
    earlier_torch.install()
    torch.load = functools.partial(torch.load, weights_only=False)  # its default then; torch warns of the variable
    install_programs()
    models.install()
    try:
        yield
        models.look()
    finally:
        models.end()


def end_with_fault(error: BaseException, task: Task, frame_fd: int) -> NoReturn:
    """End the process, which whoever catches exceptions cannot prevent."""
    report_fault(error, task, frame_fd)
    os._exit(1)
