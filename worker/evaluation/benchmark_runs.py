"""Runs of a benchmark's method in the sandbox."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lethe.benchmark.method_runs import MethodRuns, OpenRuns, RunEnd, RunPlace
from lethe.competition.run_limits import RetrainingCost
from lethe.competition.sections import Limits
from lethe.errors import HostFault
from lethe.evaluation.local_check import Failure, stage_files
from lethe.runtime.error_classes import Blame
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from worker.evaluation.run_policy import entry_point, run_policy


@dataclass
class SandboxMethodRuns:
    """One started sandbox, one method."""

    sandbox: Sandbox
    place: RunPlace
    code_dir: Path
    backend: str
    stage: Path

    def run(self, index: int, *, seed: int, original: Path | None) -> RunEnd:
        """Run once. Raises HostFault where the sandbox itself failed."""
        request = RunRequest(
            code_dir=self.code_dir,
            entry_point=entry_point(self.place.package.entry_point.as_data()),
            run=index,
            seed=seed,
            kind="sample",  # the organiser runs it for themselves: nothing that it says has to be kept from them
            original=original,
            mixes_seeds=True,
        )
        result = self.sandbox.run(request)
        verdict = result.verdict
        if verdict.outcome == "weights" and result.weights is not None:
            return RunEnd(result.weights, None, result.wall_time_s)
        if verdict.fault is Blame.HOST:
            raise HostFault(f"the sandbox failed: {result.facts.host_error or verdict.message}")
        failure = Failure(verdict.error_class, verdict.message, verdict.exception_type, verdict.file, verdict.line)
        return RunEnd(None, failure, result.wall_time_s)


class SharedSandbox:
    """Opens a method's runs in a sandbox that the next method on the same split finds started."""

    def __init__(self, backend: str, folder: Path) -> None:
        self._backend, self._folder = backend, folder
        self._sandbox: Sandbox | None = None
        self._started_for: tuple[Path, Limits] | None = None

    @contextmanager
    def __call__(self, place: RunPlace) -> Iterator[MethodRuns]:
        sandbox = self._started(place)
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            stage = Path(name)
            stage.chmod(0o755)  # root drops to a user of its own, who must find its code
            code_dir = stage_files(place.package, stage)
            try:
                yield SandboxMethodRuns(sandbox, place, code_dir, self._backend, stage)
            except HostFault:
                self.close()  # the next method gets a new one
                raise

    def _started(self, place: RunPlace) -> Sandbox:
        wanted = (place.split_dir, place.competition.limits)
        if self._sandbox is None or self._started_for != wanted:
            self.close()
            spec = SandboxSpec(
                data_dir=place.split_dir / "visible",
                stage_dir=self._folder,
                policy=run_policy(place.competition.limits, retraining=RetrainingCost(), threads=1),
                backend=self._backend,
                production=False,
            )
            self._sandbox, self._started_for = Launcher(spec).start(), wanted
        return self._sandbox

    def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()


@contextmanager
def sandbox_runs(backend: str) -> Iterator[OpenRuns]:
    """Yield what opens runs in a sandbox of this back-end."""
    with tempfile.TemporaryDirectory(prefix="lethe-benchmark-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        stage = folder / "stage"
        stage.mkdir()
        shared = SharedSandbox(backend, stage)
        try:
            yield shared
        finally:
            shared.close()
