"""The fork server of one sandbox: a fork of the template. It reads the split's data, then forks a child for every run.

It never imports a participant's code, never starts a thread and never touches an accelerator, so
that a fork of it is a clean beginning. Requests come as JSON over one socket, together with the
run's own pipe ends; the runs themselves never see that socket. The zygote does not read them either:
what it held of one run, the next would find in its memory. It forks a keeper for each, which reads
the request, forks the run, waits for its end and tells of it.
"""

import base64
import copy
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

gc.disable()  # of the modules nothing is garbage, and looking for it takes a sixth of the time of loading them

import numpy  # noqa: F401 - loaded here so that a run need not
import torch
import torch._dynamo  # an optimiser's first step imports it, which takes two seconds
import torchvision  # noqa: F401 - the networks' home
from torch import nn

from lethe.networks import builders
from lethe.runtime import data_loaders, earlier_torch
from lethe.runtime.entry import Preloaded, Task, weights_of_call
from lethe.runtime.notebook_cells import Cells
from lethe.runtime.weights_layout import ORIGINAL_MODEL, read_layout
from sandbox.guest import isolate, kaggle_cuda, linux
from sandbox.guest.harness import report_fault, run_task
from sandbox.guest.notebook.comparison import compare_runs
from sandbox.guest.notebook.entry import run_notebook, run_program

gc.freeze()  # nor does any later collection look through them, which would take as long
gc.enable()

FRAME_FD, GATE_FD = 3, 4
MAX_MESSAGE = 1024 * 1024
_HARNESS_FAILED = 70


def stay_single_threaded() -> None:
    """Let torch have no thread pool: none may exist before a fork."""
    torch.set_num_threads(1)


def serve(control: socket.socket, config: Mapping[str, Any]) -> None:
    """Read the split's data and serve the socket until it closes."""
    control.set_inheritable(False)
    preloaded = preload(Path(config["data"]))
    rehearse(preloaded)
    gc.collect()
    gc.freeze()  # a run's collections then leave the shared pages alone
    if config["isolate"]:
        isolate.use_huge_pages()  # writing to one has divided it into small ones
        isolate.mark_all_pages()
    send(control, {"event": "ready", "anonymous_kib": _anonymous_kib(), "torch": torch.__version__})
    while control.recv(1, socket.MSG_PEEK):
        keeper = os.fork()
        if keeper == 0:
            _keep(config, preloaded, control)
        if os.waitpid(keeper, 0)[1] != 0:
            sys.exit("a run's keeper ended before the run")


def preload(data_dir: Path) -> Preloaded:
    """Read the split's data and build its network with the original weights.

    A network that is source code is left out: each run builds it, under its own limits and filter.
    """
    data = data_loaders.load_data(data_dir)
    layout = read_layout((data_dir / ORIGINAL_MODEL).read_bytes())
    network = nn.Module() if builders.is_source(data.network) else _original_network(data)
    return Preloaded(data=data, network=network, layout=layout)


def _original_network(data: data_loaders.GuestData) -> nn.Module:
    network = builders.build(data.network)
    network.load_state_dict(data.original_state)
    return network.train()


def rehearse(preloaded: Preloaded) -> None:
    """Do once what every run does around the participant's function: what libraries set up at their first use, runs
    then inherit."""
    if builders.is_source(preloaded.data.network):
        return  # it is code, which runs nowhere but in a run
    code: dict[str, Any] = {"submission": Path(), "file": "", "function": "", "style": "dict", "keywords": ()}
    task = Task(**code, seed=0, threads=1, device="cpu")
    earlier_torch.install()
    own = replace(preloaded, network=copy.deepcopy(preloaded.network))
    weights_of_call(lambda *_: None, task, own, Cells({}))


def start_from(preloaded: Preloaded, original: Path) -> Preloaded:
    """Return what was preloaded with another original model's weights, which its network then holds."""
    state = data_loaders.read_safetensors(original)
    if not builders.is_source(preloaded.data.network):
        preloaded.network.load_state_dict(state)
    return replace(preloaded, data=replace(preloaded.data, original_state=state))


def _keep(config: Mapping[str, Any], preloaded: Preloaded, control: socket.socket) -> NoReturn:
    """Read one request, fork its run, wait until that and all it started are gone, and say how it ended.

    The host knows the answer by the request's token, which is random: a number would tell the run how many went before.
    """
    fds: list[int] = []
    try:
        message, fds, _flags, _address = socket.recv_fds(control, MAX_MESSAGE, 3)
        request = json.loads(message)
        linux.become_subreaper()
        if config["isolate"]:
            isolate.enter_namespaces()
        run = os.fork()  # with namespaces, process 1 in its own
        if run == 0:
            control.close()
            _run(request, fds, config, preloaded)
        for fd in fds:
            os.close(fd)
        send(control, {"event": "exited", "token": request["token"], **_get_end(run)})
        os._exit(0)
    except BaseException as error:
        _tell_host(error, fds)
    finally:
        os._exit(_HARNESS_FAILED)


def _get_end(run: int) -> dict[str, Any]:
    status, usage = _wait_for_all()[run]
    code = os.waitstatus_to_exitcode(status)
    return {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss_kib": usage.ru_maxrss,
    }


def _wait_for_all() -> dict[int, tuple[int, Any]]:
    ended: dict[int, tuple[int, Any]] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return ended
        ended[pid] = (status, usage)


def _tell_host(error: BaseException, fds: Sequence[int]) -> None:
    """Say at the run's gate, or else in the zygote's own output, why it could not be set up."""
    said = f"{type(error).__name__}: {error}"[:500]
    try:
        send(socket.socket(fileno=os.dup(fds[2])), {"error": said})
    except (OSError, IndexError):
        sys.stderr.write(f"{said}\n")
        sys.stderr.flush()


def _run(request: Any, fds: list[int], config: Any, preloaded: Preloaded) -> None:
    os.setsid()  # a signal to its own process group must not reach the keeper
    policy = config["policy"]
    submission, original = Path(isolate.SUBMISSION), Path(config["data"]) / ORIGINAL_MODEL
    if config["isolate"]:
        isolate.build_view(request, data=config["data"], stage=config["stage"], policy=policy)
        isolate.limit_resources(policy, own_process_count=True)
    else:
        isolate.limit_resources(policy, own_process_count=False)
        submission, original = (Path(config["stage"]) / request[name] for name in ("code", "original"))
    if request["original"]:  # before the gate: neither its time nor its memory is the run's
        preloaded = start_from(preloaded, original)
    isolate.bind_cpus(policy["cpus"])
    _pass_gate(fds[2])
    if config["isolate"]:
        isolate.hide_groups()
    frame, log, gate = fds
    nothing = os.open(os.devnull, os.O_RDONLY)
    isolate.keep_only({0: nothing, 1: log, 2: log, FRAME_FD: frame, GATE_FD: gate})
    start_afresh(config["scratch"])
    if config["isolate"]:
        isolate.forget_references()
        isolate.lock_down(base64.b64decode(config["seccomp"]))
    run_all(request, policy, preloaded, submission)


def _pass_gate(gate_fd: int) -> None:
    """Send this process's credentials to the host, and wait until the host has applied its limits."""
    with socket.socket(fileno=os.dup(gate_fd)) as gate:
        send(gate, {"ready": True})
        if gate.recv(64) != b"go":
            os._exit(0)


def start_afresh(scratch: str) -> None:
    """Give a run the interpreter's ordinary beginnings: its folder, its streams, its arguments."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.chdir(scratch)
    sys.argv = ["submission"]
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115


def run_all(request: Any, policy: Any, preloaded: Preloaded, submission: Path) -> None:
    """Run what was asked for, and end the process."""
    task = Task(
        submission=submission,
        file=request["file"],
        function=request["function"],
        style=request["style"],
        keywords=tuple(request["keywords"]),
        seed=request["seed"],
        threads=policy["threads"],
        device=policy["device"],
        program=request["program"],
        mixes_seeds=request["mixes_seeds"],
    )
    if builders.is_source(preloaded.data.network):
        try:
            preloaded = replace(preloaded, network=_original_network(preloaded.data))
        except MemoryError as error:  # without a control group, memory ends so
            report_fault(error, task, FRAME_FD)
            os._exit(1)
    has_folders = Path(isolate.KAGGLE).is_dir()
    in_folders = bool(request["checkpoints"]) or (bool(request["program"]) and has_folders)
    keeps = policy["isolation"] == "shard" and not in_folders and not request["original"]
    if not keeps:
        os.close(GATE_FD)
    map_cuda = request["map_cuda"]
    if map_cuda and not in_folders:
        kaggle_cuda.install()
    if in_folders and request["program"] and request["checkpoints"]:
        sent = compare_runs(task, preloaded, FRAME_FD, map_cuda=map_cuda)
    elif in_folders and request["program"]:
        own = bool(request["original"])
        sent = run_program(task, preloaded, FRAME_FD, map_cuda=map_cuda, has_own_original=own)
    elif request["checkpoints"]:
        sent = run_notebook(task, preloaded, FRAME_FD, checkpoints=request["checkpoints"], map_cuda=map_cuda)
    elif keeps:
        sent = _run_shard(task, preloaded)
    else:
        sent = run_task(task, preloaded, FRAME_FD)
    os._exit(0 if sent else 1)


def _run_shard(task: Task, preloaded: Preloaded) -> bool:
    """Serve one run after the other in this process, each from a copy of the original network."""
    while run_task(task, replace(preloaded, network=copy.deepcopy(preloaded.network)), FRAME_FD):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            gc.collect()  # between two runs the worker evaluates on the same device
            torch.cuda.empty_cache()
        message = os.read(GATE_FD, 4096)
        if not message:
            return True
        task = replace(task, seed=json.loads(message)["seed"])
    return False


def send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message as JSON."""
    channel.sendall(json.dumps(message).encode())


def _anonymous_kib() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0
