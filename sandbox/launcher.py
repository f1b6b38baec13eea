"""The launcher: starts a sandbox on a split, runs submissions in it, and says how each run ended.

    with Launcher(SandboxSpec(data_dir=..., stage_dir=..., policy=RunPolicy())).start() as sandbox:
        result = sandbox.run(RunRequest(code_dir=..., entry_point=EntryPoint(), run=0, seed=1))

Everything here is trusted and nothing here imports torch. One sandbox serves one thread, any number
of runs and of submissions; several stand side by side in one process or in many.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lethe.runtime.error_classes import WARNING
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.anonymous_view import NeutralView, remove_left_views
from sandbox.backends.base import StartRequest
from sandbox.backends.zygote_link import ZygoteLink
from sandbox.cgroups import GroupRoots, RunGroup, find_roots, keep_record, remove_leftovers, remove_recorded_leftovers
from sandbox.controls import Controls, MissingControls, missing_controls
from sandbox.environments import find_environment, installed_libraries
from sandbox.errors import BackendUnavailable, InvalidRequest, NoFreeSlot, RunWillNotDie, ZygoteFailed
from sandbox.frame_reader import CheckpointReader, FrameReader, FrameState, find_problem, half_precision_overflows
from sandbox.host_controls import BACKENDS, controls_for, expected_slot_uid
from sandbox.host_files import layout_for, lines_of_files, open_to_others, staged_original
from sandbox.policy import Isolation, RunPolicy
from sandbox.run_process import NOT_EXITED, RunProcess, start_process
from sandbox.run_request import EntryPoint, RunRequest, RunResult, SandboxSpec
from sandbox.supervisor import Observed
from sandbox.verdict import UNCHANGED, Context, ExitFacts, KillReason, judge

__all__ = ["EntryPoint", "Launcher", "RunPolicy", "RunRequest", "RunResult", "Sandbox", "SandboxSpec"]

STARVED = (
    "the machine was too busy: a run waited for a processor more than twice the {limit_s:g} s of wall time that it may "
    "take"
)


class Launcher:
    """Starts sandboxes for one specification."""

    def __init__(self, spec: SandboxSpec) -> None:
        if spec.backend not in BACKENDS:
            raise InvalidRequest(f"unknown back-end {spec.backend!r}; there are {', '.join(BACKENDS)}")
        if spec.production and spec.backend == "plain":
            raise BackendUnavailable("the back-end 'plain' has no boundary and is for tests: set backend='bubblewrap'")
        self._spec = replace(
            spec,
            data_dir=spec.data_dir.resolve(),
            stage_dir=spec.stage_dir.resolve(),
            neutral_dirs=tuple(folder.resolve() for folder in spec.neutral_dirs),
        )

    def start(self) -> "Sandbox":
        """Start a sandbox: a zygote with the split's data in memory, waiting for runs."""
        return Sandbox(self._spec)


class Sandbox:
    """A started sandbox. `achieved` says which protections this host gave it."""

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec
        self._layout = layout_for(spec)
        self._environment = find_environment(spec.policy.libraries, spec.library_sets)
        self._lock = threading.Lock()
        self._roots = find_roots(spec.delegated_group) if spec.backend != "plain" else GroupRoots()
        remove_leftovers(self._roots)
        remove_recorded_leftovers()
        keep_record(self._roots)
        self._backend = BACKENDS[spec.backend]()
        self._link: ZygoteLink | None = None
        self._kept: tuple[tuple[object, ...], RunProcess] | None = None
        self._runs = 0
        self._view: NeutralView | None = None
        try:
            if spec.neutral_dirs:
                remove_left_views(spec.neutral_dirs)
                self._view = NeutralView(spec.data_dir, spec.neutral_dirs)
            if os.geteuid() == 0:
                data_dir = self._data_dir
                open_to_others((spec.stage_dir, data_dir, *data_dir.rglob("*")))
            self.achieved = self._controls_as(expected_slot_uid(spec.backend))
            self._require_controls()
            self._living_link()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def controls(self) -> dict[str, Any]:
        """The protections and the policy as plain JSON values, for the receipt of every result."""
        policy = self._spec.policy.to_dict()
        versions = dict(self._environment.versions)
        return {
            **self.achieved.to_dict(),
            "policy": policy,
            "frame_bytes": self._layout.frame_bytes,
            **({"libraries": versions} if versions else {}),
        }

    @property
    def _data_dir(self) -> Path:
        return self._view.folder if self._view is not None else self._spec.data_dir

    def close(self) -> None:
        """End the zygote and all that it started; its template may serve this thread's next sandbox."""
        if self._kept is not None:
            self._kept[1].close()
        self._give_up_link(keeps_template=True)
        if self._view is not None:
            self._view.close()

    def run(self, request: RunRequest, *, should_stop: Callable[[], bool] | None = None) -> RunResult:
        """Run a submission once, in a process, namespaces, scratch and pipe of its own.

        should_stop: asked about ten times a second; True ends the run with the class "stopped".
        Never raises for what the participant's code does. A failure of the host is a result too
        (`verdict.fault` is HOST), and the next run begins with a new zygote.
        """
        code = self._code_name(request)
        original = staged_original(request, self._spec, self._layout)
        with self._lock:
            try:
                return self._run(request, code, original, should_stop)
            except (ZygoteFailed, RunWillNotDie, NoFreeSlot, OSError) as error:
                self._give_up_link()
                return self._host_fault(request, error)

    def _run(self, request: RunRequest, code: str, original: str, should_stop: Callable[[], bool] | None) -> RunResult:
        process = self._process_for(request, code, original)
        reader = self._reader(request)
        alone = request.notebook is not None or bool(request.entry_point.program) or bool(original)
        keeps = self._spec.policy.isolation is Isolation.SHARD and not alone
        try:
            observed = process.run(reader, seed=request.seed, keeps=keeps, should_stop=should_stop)
            exited = NOT_EXITED if observed.is_kept else process.end()
        except BaseException:
            self._give_up_link()
            raise
        self._kept = (self._key(request, code), process) if observed.is_kept else None
        return self._result(request, reader, observed, exited)

    def _process_for(self, request: RunRequest, code: str, original: str) -> RunProcess:
        """Return a fresh process, or in shard mode the one that served this submission's last run."""
        if self._kept is not None:
            key, process = self._kept
            self._kept = None
            if key == self._key(request, code) and not original and process.is_alive:
                return process
            process.end()
        link = self._living_link()
        if self._view is not None:
            self._view.refresh_times()
        entry = request.entry_point
        message = {  # the run can read it: neither its number nor its kind, nor a name that tells them
            "code": code,
            "original": original,
            "file": entry.file,
            "function": entry.function,
            "style": entry.style,
            "keywords": list(entry.keywords),
            "seed": request.seed,
            "checkpoints": request.notebook.checkpoints if request.notebook else 0,
            "map_cuda": request.map_cuda,
            "program": entry.program,
            "mixes_seeds": request.mixes_seeds,
        }
        self._runs += 1
        return start_process(link, message, policy=self._policy_of(request), group=self._new_group())

    def _policy_of(self, request: RunRequest) -> RunPolicy:
        if request.wall_time_s is None:
            return self._spec.policy
        return replace(self._spec.policy, wall_time_s=request.wall_time_s, cpu_time_s=None)

    def _new_group(self) -> RunGroup | None:
        if not self._roots.version:
            return None
        return RunGroup(self._roots, self._spec.policy, name=f"{id(self):x}-{self._runs}")

    @staticmethod
    def _key(request: RunRequest, code: str) -> tuple[object, ...]:
        return (code, request.entry_point, request.map_cuda)

    def _result(
        self, request: RunRequest, reader: FrameReader, observed: Observed, exited: Mapping[str, Any]
    ) -> RunResult:
        if isinstance(reader, CheckpointReader):
            weights, problem, chosen = None, reader.problem, reader.chosen
        else:
            limit = self._spec.policy.max_abs_weight
            weights = reader.weights() if reader.state is FrameState.WEIGHTS else None
            problem = find_problem(weights, self._layout, max_abs_weight=limit) if weights else None
            chosen = ()
        ended_by_itself = observed.kill_reason is None and not reader.is_over
        cpu_time_s = max(observed.usage.cpu_time_s, exited["cpu_s"])
        is_over_time = observed.kill_reason is None and cpu_time_s > self._policy_of(request).cpu_allowance_s
        starved = STARVED.format(limit_s=self._policy_of(request).wall_time_s)
        facts = ExitFacts(
            host_error=starved if observed.kill_reason is KillReason.STARVED else "",
            frame=reader.state,
            frame_bytes=len(weights) if weights else 0,
            kill_reason=KillReason.CPU_TIME if is_over_time else observed.kill_reason,
            exit_code=exited["exit_code"] if ended_by_itself else None,
            signal=exited["signal"] if ended_by_itself else None,
            oom_kills=observed.usage.oom_kills,
            refused_forks=observed.usage.refused_forks,
            problem=problem,
            is_wrong_return=reader.is_wrong_return,
            claim=reader.fault() if reader.state is FrameState.FAULT else None,
        )
        context = self._context(request, has_claim=facts.claim is not None)
        if problem is not None and problem.kind == "half-precision":
            original = (self._spec.data_dir / ORIGINAL_MODEL).read_bytes()
            context = replace(context, overflowing=half_precision_overflows(original, self._layout))
        verdict = judge(facts, context)
        return RunResult(
            weights=weights if verdict.outcome == "weights" else None,
            facts=facts,
            verdict=verdict,
            wall_time_s=observed.wall_time_s,
            cpu_time_s=cpu_time_s,
            peak_memory_mib=observed.usage.peak_memory_mib or exited["max_rss_kib"] / 1024,
            log=observed.log,
            notes=self._notes(request, weights),
            chosen=chosen,
        )

    def _notes(self, request: RunRequest, weights: bytes | None) -> tuple[str, ...]:
        """Return what the author is told of a run on the sample whose weights are the original's."""
        if weights is None or request.kind != "sample":
            return ()
        original = request.original or self._spec.data_dir / ORIGINAL_MODEL
        return (f"{WARNING} {UNCHANGED}",) if weights == original.read_bytes() else ()

    def _reader(self, request: RunRequest) -> FrameReader:
        if request.notebook is None:
            return FrameReader(self._layout)
        return CheckpointReader(self._layout, request.notebook, max_abs_weight=self._spec.policy.max_abs_weight)

    def _living_link(self) -> ZygoteLink:
        if self._link is not None and self._link.is_alive:
            return self._link
        self._give_up_link()
        request = StartRequest(
            data_dir=self._data_dir,
            stage_dir=self._spec.stage_dir,
            policy=self._spec.policy,
            uid_slot=self._spec.uid_slot,
            environment=self._environment,
        )
        self._link = self._backend.connect(request)
        self.achieved = self._controls_as(self._link.uid)
        return self._link

    def _give_up_link(self, *, keeps_template: bool = False) -> None:
        self._kept = None
        if self._link is not None:
            self._link.close(keeps_template=keeps_template)
            self._link = None

    def _controls_as(self, slot_uid: int | None) -> Controls:
        isolation = self._spec.policy.isolation
        return controls_for(self._backend, roots=self._roots, slot_uid=slot_uid, isolation=isolation)

    def _code_name(self, request: RunRequest) -> str:
        is_notebook = request.notebook is not None or request.entry_point.program == "saves"
        if is_notebook and self._spec.backend == "plain":
            raise InvalidRequest("a notebook needs its own /kaggle, which the back-end 'plain' cannot give")
        code = request.code_dir.resolve()
        if self._spec.stage_dir not in code.parents or not code.is_dir():
            raise InvalidRequest(f"the code must be a folder below {self._spec.stage_dir}, not {request.code_dir}")
        file = Path(request.entry_point.file)
        if file.is_absolute() or ".." in file.parts:
            raise InvalidRequest(f"the entry point must lie below the submission's folder, not {file}")
        if os.geteuid() == 0:
            between = [folder for folder in code.parents if self._spec.stage_dir in folder.parents]
            open_to_others((*between, code, *code.rglob("*")))
        return code.relative_to(self._spec.stage_dir).as_posix()

    def _context(self, request: RunRequest, *, has_claim: bool = False) -> Context:
        policy = self._spec.policy
        return Context(
            limits={**policy.to_dict(), "cpu_allowance_s": policy.cpu_allowance_s},
            files=lines_of_files(request.code_dir) if has_claim else {},
            tensors=frozenset(slot.name for slot in self._layout.tensors),
            entry_file=request.entry_point.file,
            entry_function=request.entry_point.function,
            sent_as=request.entry_point.sent_as,
            open_log=request.kind == "sample",
            libraries=installed_libraries(self._environment.site),
        )

    def _host_fault(self, request: RunRequest, error: Exception) -> RunResult:
        facts = ExitFacts(host_error=f"{type(error).__name__}: {error}")
        return RunResult(
            weights=None,
            facts=facts,
            verdict=judge(facts, self._context(request)),
            wall_time_s=0.0,
            cpu_time_s=0.0,
            peak_memory_mib=0.0,
            log=b"",
        )

    def _require_controls(self) -> None:
        if self._spec.backend == "plain":
            return  # no protection at all, which `production` has already refused where it matters
        if sentences := missing_controls(self.achieved, self._spec.required_controls):
            raise MissingControls(sentences)
