"""Metrics of what a cell stores: of every method, of an exact retraining and of the original model.

A metric is kept under the key of its id, parameters and version, so that it is computed once for all benchmarks.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

from lethe.benchmark.benchmark_file import SCORES
from lethe.benchmark.method_runs import probed_runs, stored_outputs
from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.store import REFERENCES, Json, Unit, metrics_file, missing_metrics, request_key
from lethe.competition.file import CompetitionFile, Scoring
from lethe.competition.report_section import MetricRequest, levels_for_metric
from lethe.competition.task import PROBED_LEVEL
from lethe.errors import AppError
from lethe.evaluation.model_outputs import reference_inputs, split_inputs, with_unlearned
from lethe.evaluation.ranking import score_outputs
from lethe.metrics import Inputs, InvalidMetricInput, Side, metric
from lethe.metrics.core.metric_evaluation import checked_parameters, compute
from lethe.metrics.core.metric_text import result_as_json
from lethe.metrics.scoring.score import ModelOutputs, Score


def compute_method_metrics(plan: Plan, cell: CellPlan, unit: Unit, split_dir: Path) -> None:
    """Compute and keep what is missing of a method whose runs are all stored."""
    missing = missing_metrics(plan, unit)
    outputs = stored_outputs(unit)
    if missing and outputs is not None:
        scored_by = cell.competition.scoring
        levels = {level for each in missing if each.id not in SCORES for level in levels_for_metric(each.id)}
        is_probed = cell.competition.report.keep_weights > 0 and PROBED_LEVEL in levels
        probed = probed_runs(unit, split_dir) if is_probed else None
        references = _references(split_dir, scored_by)
        inputs = with_unlearned(references, outputs.arrays(), scored_by=scored_by, probed=probed)
        _compute(missing, cell, unit, inputs, Side.UNLEARNED)


@lru_cache(maxsize=1)
def _references(split_dir: Path, scored_by: Scoring) -> Inputs:
    """Return the arrays of a split's references; kept, so that the attacks on them are made once for all methods."""
    return split_inputs(split_dir, None, scored_by=scored_by)


def compute_reference_metrics(plan: Plan, cell: CellPlan, unit: Unit, split_dir: Path) -> None:
    """Compute and keep what is missing of the cell's references."""
    for subject in REFERENCES.values():
        if missing := missing_metrics(plan, unit, subject):
            _compute(missing, cell, unit, _references(split_dir, cell.competition.scoring), subject)


def reference_scores(split_dir: Path, competition: CompetitionFile) -> dict[str, Json]:
    """Return `accuracies`, `score` and `f` of exact retraining and of the original model, by side."""
    inputs = reference_inputs(split_dir)
    return {
        side.value: {"accuracies": accuracies(inputs, side)}
        | scores_as_json(subject_score(inputs, side, competition.scoring))
        for side in REFERENCES.values()
    }


def _compute(requests: Iterable[MetricRequest], cell: CellPlan, unit: Unit, inputs: Inputs, subject: Side) -> None:
    kept = unit.read(metrics_file(subject))
    kept["accuracies"] = accuracies(inputs, subject)
    scores: dict[str, Json] = {}
    for request in requests:
        if request.id in SCORES:
            scores = scores or _stored_scores(cell, unit, inputs, subject)
            kept[request_key(request)] = scores[request.id]
        else:
            kept[request_key(request)] = _metric(request, inputs, subject)
    unit.write(metrics_file(subject), kept)


def _metric(request: MetricRequest, inputs: Inputs, subject: Side) -> Json:
    entry = metric(request.id)
    try:
        result = compute(inputs, entry, checked_parameters(entry, request.parameters), subject=subject)
    except (InvalidMetricInput, AppError) as error:
        return {"not_computed": str(error)}
    except Exception as error:  # a fault in one metric must not hide the others
        return {"not_computed": f"could not be computed ({type(error).__name__}: {error})"}
    return result_as_json(result, examples=False) or {}


def accuracies(inputs: Inputs, subject: Side) -> dict[str, float]:
    """Return mean accuracies of the subject on the sets of which it stores them; language models: not on forget."""
    sets = [name for name in ("retain", "forget", "test") if inputs.has(subject, f"{name}_accuracy")]
    return {name: float(np.mean(inputs.array(subject, f"{name}_accuracy"))) for name in sets}


def _stored_scores(cell: CellPlan, unit: Unit, inputs: Inputs, subject: Side) -> dict[str, Json]:
    """Return score and forgetting quality; epsilon of every forget example is kept beside them."""
    try:
        found = subject_score(inputs, subject, cell.competition.scoring)
    except (InvalidMetricInput, AppError, ValueError) as error:
        return {name: {"not_computed": str(error)} for name in SCORES}
    unit.write(f"epsilon-{subject.value}", {"epsilon": [float(value) for value in found.epsilon], "cap": found.cap})
    return scores_as_json(found)


def subject_score(inputs: Inputs, subject: Side, scoring: Scoring) -> Score:
    """Return the score of unlearned models, of exact retraining or of the original model against the retrained."""
    return score_outputs(_outputs(inputs, subject), _outputs(inputs, Side.RETRAINED), scoring=scoring)


def scores_as_json(found: Score) -> dict[str, Json]:
    """Return the entries `score` and `f` as a benchmark keeps them."""
    return {"score": _score_json(found.headline, found.interval, found), "f": _score_json(
        found.forgetting_quality, found.forgetting_quality_interval, found)}  # fmt: skip


def _score_json(value: float, interval: tuple[float, float] | None, found: Score) -> Json:
    table = {"retain_ratio": found.retain_ratio, "test_ratio": found.test_ratio}
    return {"value": value, "interval": None if interval is None else list(interval), "table": table, "notes": []}


def _outputs(inputs: Inputs, subject: Side) -> ModelOutputs:
    n_models = len(inputs.array(Side.RETRAINED, "retain_accuracy"))
    names = ("confidences", "retain_accuracy", "test_accuracy")
    arrays = [np.ascontiguousarray(inputs.array(subject, name), dtype=np.float64)[:n_models] for name in names]
    return ModelOutputs(*arrays)
