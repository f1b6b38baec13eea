"""Runs a notebook from top to bottom, once, and sends the models that it writes as they appear."""

import os
import sys
import types
from pathlib import Path

import torch

from lethe.runtime import earlier_torch, notebook_shell
from lethe.runtime.entry import Preloaded, Task, seed_everything
from sandbox.guest import kaggle_cuda
from sandbox.guest.harness import flush_output, report_fault
from sandbox.guest.notebook.files import CheckpointTaker, EnoughModels, Watch, free_room, hook_torch
from sandbox.guest.notebook.inputs import scale_in
from sandbox.guest.notebook.programs import install_programs

KAGGLE = Path("/kaggle")
FOLDERS = (KAGGLE / "tmp", KAGGLE / "working")
ROOM_SHARE = 0.4  # of the scratch, for models that the notebook still sees; an archive of them takes as much again


def run_notebook(task: Task, preloaded: Preloaded, frame_fd: int, *, checkpoints: int, map_cuda: bool) -> bool:
    """Run the notebook and send its models; write a fault where it cannot be used. Returns whether it could."""
    taker = CheckpointTaker(
        layout=preloaded.layout,
        frame_fd=frame_fd,
        wanted=checkpoints,
        folders=FOLDERS,
        room_bytes=int(ROOM_SHARE * free_room(FOLDERS[0])),
        tell=_tell,
    )
    watch = Watch(taker)
    try:
        _prepare(task, preloaded, taker, watch, map_cuda=map_cuda)
        at_its_end = _run_cells(task)
        watch.end()
        if not at_its_end:
            _tell(f"[lethe] ended after {checkpoints} models, which is as many as count here")
        flush_output()
        taker.finish(at_its_end=at_its_end)
    except BaseException as error:
        report_fault(error, task, frame_fd)
        return False
    return True


def _prepare(task: Task, preloaded: Preloaded, taker: CheckpointTaker, watch: Watch, *, map_cuda: bool) -> None:
    os.chdir(FOLDERS[1])
    torch.set_num_threads(task.threads)
    hook_torch(taker, watch)
    if not scale_in(preloaded.network, preloaded.data.network):
        _tell("[lethe] the network expects images * input_scale + input_shift of network.json: apply them")
    if map_cuda:
        kaggle_cuda.install()
    earlier_torch.install()
    os.environ["LETHE_RUNS"] = str(taker.wanted)
    seed_everything(task.seed)
    watch.start()


def _run_cells(task: Task) -> bool:
    """Execute the code cells in their order, in one namespace that is the main module. Return False if cut short."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    notebook_shell.install(module.__dict__)
    install_programs()
    for path in sorted(task.submission.glob("cell-*.py")):
        try:
            notebook_shell.run_cell(path.read_bytes(), str(path), module.__dict__)
        except EnoughModels:
            return False
        except SystemExit as left:
            if left.code not in (None, 0):
                raise
            return True  # exit() ends a notebook
    return True


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
