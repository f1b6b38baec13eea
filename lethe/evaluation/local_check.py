"""A local check of a file: checked as at upload, then run and scored on a starter kit's public sample."""

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from lethe.competition.estimates import MIN_FOR_A_SHARE
from lethe.competition.file import Scoring
from lethe.competition.section import read_stored
from lethe.competition.sections import Limits, Submissions
from lethe.errors import InvalidInput, InvalidSubmission
from lethe.evaluation.child_process import ChildResult, ChildRuns
from lethe.evaluation.evaluators import sample_evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.ranking import score_outputs
from lethe.evaluation.shard_outputs import RunOutputs, model_outputs
from lethe.metrics.scoring.calibration import calibrate
from lethe.metrics.scoring.explanation import Explanation, ScoreParts, explain, score_parts
from lethe.metrics.scoring.resampling import Interval
from lethe.metrics.scoring.score import ModelOutputs, Score
from lethe.runtime.error_classes import ErrorClass, log_as_sent, name_as_sent, warnings_in
from lethe.submission.package import Package, load_package

MIN_FOR_A_SCORE = 4
RESAMPLES = 100
RETRAINED, FINETUNED = "retrained_outputs.safetensors", "finetuned_outputs.safetensors"
LAST_CHECK = "last_check.json"  # the entry before, beside the sample
STORED_PARTS = TypeAdapter(ScoreParts)


@dataclass(frozen=True)
class SampleScores:
    """The estimate, exact retraining's from as many models (None where the kit has too few), and what it is made of.

    interval: 95 %, None with fewer than 8 models. share, share_interval: of the oracle; None with fewer than
    MIN_FOR_A_SHARE models, which do not put entries into the order that the server finds.
    """

    n_models: int
    estimate: float
    interval: Interval | None
    oracle: float | None
    share: float | None
    share_interval: Interval | None
    explanation: Explanation | None


def score_on_sample(outputs: Sequence[RunOutputs], data: Path, *, scoring: Scoring) -> SampleScores | None:
    """Return the score of these runs against as many retrained models; None where they are too few.

    What it is made of is kept in `data`, and the next score is compared with it.
    """
    retrained = model_outputs(data / RETRAINED)
    n = min(len(outputs), len(retrained.confidences))
    if n < MIN_FOR_A_SCORE or retrained.retain_accuracy is None or retrained.test_accuracy is None:
        return None
    unlearned = ModelOutputs(
        np.stack([output.confidences for output in outputs[:n]]),
        np.array([output.retain_accuracy for output in outputs[:n]]),
        np.array([output.test_accuracy for output in outputs[:n]]),
    )
    scoring = scoring.model_copy(update={"bootstrap_resamples": RESAMPLES})
    first = _part(retrained, 0, n)
    found, own = _scored(unlearned, first, scoring)
    has_oracle = len(retrained.confidences) >= 2 * n
    oracle, oracle_parts = _scored(_part(retrained, n, 2 * n), first, scoring) if has_oracle else (None, None)
    placed = None
    if oracle is not None and oracle.headline > 0 and n >= MIN_FOR_A_SHARE:
        placed = calibrate(found, oracle)
    others = {"the check before": _take_last(data / LAST_CHECK, n)}
    if (data / FINETUNED).is_file():
        others["fine-tuning"] = _scored(_part(model_outputs(data / FINETUNED), 0, n), first, scoring)[1]
    if own is not None:
        _keep(data / LAST_CHECK, n, own)
    return SampleScores(
        n_models=n,
        estimate=found.headline,
        interval=found.interval,
        oracle=None if oracle is None else oracle.headline,
        share=None if placed is None else placed.fraction,
        share_interval=None if placed is None else placed.interval,
        explanation=None if own is None else explain(own, oracle=oracle_parts, others=others),
    )


def _part(outputs: ModelOutputs, begin: int, end: int) -> ModelOutputs:
    retain, test = outputs.retain_accuracy, outputs.test_accuracy
    return ModelOutputs(
        outputs.confidences[begin:end],
        None if retain is None else retain[begin:end],
        None if test is None else test[begin:end],
    )


def _scored(unlearned: ModelOutputs, retrained: ModelOutputs, scoring: Scoring) -> tuple[Score, ScoreParts | None]:
    found = score_outputs(unlearned, retrained, scoring=scoring)
    return found, score_parts(found, unlearned, retrained)


def _take_last(path: Path, n_models: int) -> ScoreParts | None:
    """Return what was kept of the score before; None where there is none of as many models."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return STORED_PARTS.validate_python(kept["parts"]) if kept["n_models"] == n_models else None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # none, or a damaged one: there is nothing to compare with
        return None


def _keep(path: Path, n_models: int, parts: ScoreParts) -> None:
    kept = json.dumps({"n_models": n_models, "parts": asdict(parts)})
    with suppress(OSError):  # a kit in a folder that cannot be written to
        path.unlink(missing_ok=True)  # a link in a kit of somebody else: what it names is not written to
        with path.open("x", encoding="utf-8") as file:
            file.write(kept)


MESSAGES: dict[str, str] = {
    ErrorClass.TIMEOUT: "The run took longer than one run may take.",
    ErrorClass.NO_ENTRY_POINT: "The file has no such function at its top level.",
    ErrorClass.WRONG_SIGNATURE: "The function cannot be called with (net, retain, forget, validation).",
    ErrorClass.WRONG_WEIGHTS: ErrorClass.WRONG_WEIGHTS.message,
    ErrorClass.CUDA_REQUIRED: "The code requires a GPU, and there is none here.",
    ErrorClass.NO_WEIGHTS: "The run ended before its weights were complete.",
}
OnRun = Callable[[int], None]


@dataclass(frozen=True)
class Kit:
    """A starter kit on this machine."""

    data: Path
    about: dict[str, Any]

    @classmethod
    def at(cls, folder: Path) -> "Kit":
        """Return the kit in `folder`. Raises InvalidInput if there is none."""
        path = folder / "data" / "kit.json"
        if not path.is_file():
            raise InvalidInput(f"{folder} is not a starter kit: it has no data/kit.json; `lethe init` makes one")
        return cls(data=folder / "data", about=json.loads(path.read_text(encoding="utf-8")))

    @property
    def default_runs(self) -> int:
        """As many runs as a share of the oracle needs, or as the kit's retrained models allow."""
        return min(MIN_FOR_A_SHARE, len(model_outputs(self.data / RETRAINED).confidences) // 2)

    @property
    def limits(self) -> Limits:
        return read_stored(Limits, self.about["limits"])

    @property
    def submissions(self) -> Submissions:
        return read_stored(Submissions, self.about["submissions"])


@dataclass(frozen=True)
class Failure:
    """Why a run failed. file, line: the innermost line of the participant's own code; empty where none is known."""

    error_class: str
    message: str
    exception_type: str = ""
    file: str = ""
    line: int = 0


@dataclass
class Checked:
    """What was found. `failure` is the first; `log` what the runs printed. seconds: of each run but for set-up."""

    package: Package
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)  # of the processor; none of a notebook's models
    setup_s: float = 0.0  # what a notebook takes once, before its first model
    peak_memory_mib: float = 0.0
    outputs: list[RunOutputs] = field(default_factory=list)
    failure: Failure | None = None
    log: str = ""
    scores: SampleScores | None = None
    filename: str = ""  # the participant's own
    sandbox: str = "none"

    def name_files_as_sent(self) -> None:
        """Name the file at fault as its author knows it, in tracebacks too."""
        if self.failure is not None and self.failure.file:
            self.failure = replace(self.failure, file=name_as_sent(self.failure.file, self.filename))
        self.log = log_as_sent(self.log, self.filename)

    def as_json(self, kit: Kit) -> dict[str, Any]:
        """Return everything as plain values."""
        failed = self.failure
        run_s = statistics.median(self.seconds) if self.seconds else None
        limit_cpu_s = kit.about.get("run_cpu_time_s") if self.cpu_seconds or not self.seconds else None
        limited_s = statistics.median(self.cpu_seconds) if limit_cpu_s and self.cpu_seconds else run_s
        return {
            "kind": self.package.kind,
            "entry_point": self.package.entry_point.as_data(),
            "runs": len(self.outputs),
            "run_s": limited_s,
            "run_limit_s": limit_cpu_s or kit.about["run_wall_time_s"],
            "run_time_of": "processor" if limit_cpu_s else "clock",
            "all_runs_s": self.setup_s + run_s * kit.about["n_models"] if run_s is not None else None,
            "all_runs_limit_s": kit.limits.wall_time_s,
            "n_models": kit.about["n_models"],
            "peak_memory_mib": self.peak_memory_mib,
            "retain_accuracy": float(np.mean([o.retain_accuracy for o in self.outputs])) if self.outputs else None,
            "validation_accuracy": float(np.mean([o.test_accuracy for o in self.outputs])) if self.outputs else None,
            "score_estimate": self.scores and self.scores.estimate,
            "score_interval": self.scores and self.scores.interval,
            "oracle_estimate": self.scores and self.scores.oracle,
            "share_of_oracle": self.scores and self.scores.share,
            "share_interval": self.scores and self.scores.share_interval,
            "estimated_from": self.scores and self.scores.n_models,
            "explanation": self.scores.explanation.as_json() if self.scores and self.scores.explanation else None,
            "warnings": warnings_in(self.log),
            "sandbox": self.sandbox,
            "failure": None if failed is None else {name: value or None for name, value in asdict(failed).items()},
        }


def check_in_child(path: Path, kit: Kit, *, runs: int, on_run: OnRun) -> Checked:
    """Check a file as the server would at upload, and run it in a child process, without a sandbox.

    Raises InvalidSubmission for what would be refused at upload, and for a notebook that writes its own models: only
    the server's sandbox has the folders that it reads and writes.
    """
    rules = kit.submissions
    package = load_package(path.read_bytes(), path.name, modes=rules.modes, libraries=rules.libraries)
    if package.entry_point.mode == "notebook" or package.entry_point.program == "saves":
        raise InvalidSubmission(
            f"{path.name} writes its models itself, which only the server's sandbox can run: check it from a checkout "
            "of Lethe, or submit it; its run on the public sample shows its complete log"
        )
    checked = Checked(package, filename=path.name)
    evaluator = sample_evaluator(kit.data)
    with tempfile.TemporaryDirectory(prefix="lethe-check-") as name:
        code_dir = stage_files(package, Path(name))
        limit_s = float(kit.about["run_wall_time_s"])
        with ChildRuns(kit.data, code_dir, package.entry_point, wall_time_s=limit_s) as child:
            for run in range(runs):
                result = child.run(run, seed=run)
                checked.peak_memory_mib = max(checked.peak_memory_mib, result.peak_memory_mib)
                if result.weights is None:
                    checked.failure = explain_failure(result)
                    break
                try:
                    checked.outputs.append(evaluator.evaluate(result.weights))
                except NonFiniteOutputs as error:
                    checked.failure = Failure(error.slug, error.detail)
                    break
                checked.seconds.append(result.wall_time_s)
                checked.cpu_seconds.append(result.cpu_time_s)
                on_run(run + 1)
            checked.log = child.log()
    checked.name_files_as_sent()
    return with_estimate(checked, kit)


def with_estimate(checked: Checked, kit: Kit) -> Checked:
    """Return what was found with the estimated score, that of exact retraining, and what the score is made of."""
    if checked.failure is None:
        checked.scores = score_on_sample(checked.outputs, kit.data, scoring=_scoring(kit))
    return checked


def explain_failure(result: ChildResult) -> Failure:
    """Return why a run in a child process failed."""
    fault = dict(result.fault or {})
    error_class, kind = str(fault.get("class", ErrorClass.EXCEPTION)), next(iter(fault.get("mro", ())), "")
    message = MESSAGES.get(error_class, f"The code raised {kind or 'an exception'}; the log has the traceback.")
    if module := fault.get("module"):
        message += f" The module {module!r} is not installed here."
    if tensor := fault.get("detail", {}).get("tensor"):
        message += f" The first is {tensor!r}: {fault['detail'].get('kind')}."
    return Failure(error_class, message, kind, str(fault.get("file", "")), int(fault.get("line", 0)))


def stage_files(package: Package, stage: Path) -> Path:
    code_dir = stage / "code"
    for name, content in package.files.items():
        path = code_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return code_dir


def _scoring(kit: Kit) -> Scoring:
    return read_stored(Scoring, kit.about.get("scoring") or kit.about["metric"])  # the name in kits of version 0.2
