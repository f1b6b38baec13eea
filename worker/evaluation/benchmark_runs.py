"""Runs of a benchmark's method in the sandbox."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lethe.benchmark.method_runs import MethodRuns, OpenRuns, RunEnd, RunPlace
from lethe.errors import HostFault
from lethe.evaluation.local_check import Failure, stage_files
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.verdict import Fault
from worker.evaluation.entry_point import entry_point
from worker.evaluation.run_policy import run_policy


@dataclass
class SandboxMethodRuns:
    """One started sandbox, one method."""

    sandbox: Sandbox
    place: RunPlace
    code_dir: Path
    backend: str

    def run(self, index: int, *, seed: int, original: Path | None) -> RunEnd:
        """Run once. Raises HostFault where the sandbox itself failed."""
        request = RunRequest(
            code_dir=self.code_dir,
            entry_point=entry_point(self.place.package.entry_point.as_data()),
            run=index,
            seed=seed,
            kind="sample",  # the organiser runs it for themselves: nothing that it says has to be kept from them
            original=original,
        )
        result = self.sandbox.run(request)
        found = result.verdict
        if found.outcome == "weights" and result.weights is not None:
            return RunEnd(result.weights, None, result.wall_time_s)
        if found.fault is Fault.HOST:
            raise HostFault(f"the sandbox failed: {found.message}")
        failure = Failure(found.error_class, found.message, found.exception_type, found.file, found.line)
        return RunEnd(None, failure, result.wall_time_s)


def sandbox_runs(backend: str) -> OpenRuns:
    """Return what opens runs in a sandbox of this back-end."""

    @contextmanager
    def open_runs(place: RunPlace) -> Iterator[MethodRuns]:
        code_dir = stage_files(place.package, place.stage)
        spec = SandboxSpec(
            data_dir=place.split_dir / "visible",
            stage_dir=place.stage,
            policy=run_policy(place.competition.limits, retraining_time_s=0.0, threads=1),
            backend=backend,
            production=False,
        )
        with Launcher(spec).start() as sandbox:
            yield SandboxMethodRuns(sandbox, place, code_dir, backend)

    return open_runs
