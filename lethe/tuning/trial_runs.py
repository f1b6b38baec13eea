"""The runs of a trial: made once, kept beside the study, so that more runs are added to those that are there."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lethe.errors import InvalidInput
from lethe.evaluation.model_outputs import read_stored_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.methods.rendering import set_constants
from lethe.tuning.local_run import SplitRuns
from lethe.tuning.objective import score_of
from lethe.tuning.study import Study, TrialScore

FRESH_SEEDS = 1_000_000  # runs that the search never saw begin here, above the seed of its own
KEY_LENGTH = 16


@dataclass(frozen=True)
class TrialRuns:
    """study_file: the runs are stored in the folder beside it. run_limit_s: of one run, None without a limit."""

    study: Study
    source: str
    split_dir: Path
    process: SplitRuns
    study_file: Path
    run_limit_s: float | None = None

    def search_score(self, number: int, *, runs: int) -> None:
        """Give trial `number` its next score, of its first `runs` runs, or its failure."""
        self._scored(number, first=0, runs=runs, into=self.study.trials[number].scores.append)

    def fresh_score(self, number: int, *, runs: int) -> None:
        """Give trial `number` its score of `runs` fresh runs, or its failure."""

        def keep(score: TrialScore) -> None:
            self.study.trials[number].fresh = score

        self._scored(number, first=FRESH_SEEDS, runs=runs, into=keep)

    def _scored(self, number: int, *, first: int, runs: int, into: Callable[[TrialScore], None]) -> None:
        trial = self.study.trials[number]
        text = set_constants(self.source, trial.settings, owner=self.study.question.method)
        name = sha256(text.encode()).hexdigest()[:KEY_LENGTH]
        try:
            self._complete(text, name, first=first, runs=runs)
            parts = [read_stored_outputs(path)[0] for path in self._parts(name, first)]
            into(score_of(self.study.question.objective, self.split_dir, StoredOutputs.joined(parts)))
        except InvalidInput as error:
            trial.failure = error.detail
        cost = [read_stored_outputs(path)[1] for path in self._parts(name)]
        trial.work_epochs = sum(float(part["work_epochs"]) for part in cost)
        trial.cpu_time_s = sum(float(part["cpu_time_s"]) for part in cost)

    def _complete(self, text: str, name: str, *, first: int, runs: int) -> None:
        """Make the runs that are missing of those from `first` on."""
        question = self.study.question
        there = sum(int(path.stem.rsplit("-", 1)[1]) for path in self._parts(name, first))
        missing = runs - there
        if missing <= 0:
            return
        path = self._folder / f"{name}-{first}-{there:05d}-{missing}.safetensors"
        beside = path.with_suffix(".new")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.process.run(
            {f"{question.method}.py": text},
            runs=missing,
            seed=question.seed + first + there,
            outputs_file=beside,
            run_limit_s=self.run_limit_s,
        )
        beside.replace(path)

    def _parts(self, name: str, first: int | str = "*") -> list[Path]:
        return sorted(self._folder.glob(f"{name}-{first}-*.safetensors"))

    @property
    def _folder(self) -> Path:
        return runs_folder(self.study_file)


def runs_folder(study_file: Path) -> Path:
    """Return the folder with the runs of a study: files by the hash of the text that was run."""
    return study_file.with_suffix(".runs")
