"""Under which names a benchmark's metrics are kept. No torch."""

from lethe.benchmark.benchmark_file import SCORES
from lethe.benchmark.plan import Plan, content_key
from lethe.benchmark.store import Unit
from lethe.competition.report_section import MetricRequest
from lethe.metrics import Side, metric
from lethe.metrics.scoring.scorer_version import SCORER_VERSION

REFERENCES = {"exact retraining": Side.ORACLE, "original model": Side.ORIGINAL}


def metrics_file(subject: Side) -> str:
    """Return the name of the file with the metrics of these models."""
    return f"metrics-{subject.value}"


def request_key(request: MetricRequest) -> str:
    """Return under which key a metric is kept: its id and a hash of its parameters and version."""
    version = SCORER_VERSION if request.id in SCORES else metric(request.id).version
    return f"{request.id}-{content_key([request.parameters, version])[:8]}"


def missing_metrics(plan: Plan, unit: Unit, subject: Side = Side.UNLEARNED) -> list[MetricRequest]:
    """Return the metrics that the plan asks for and the unit does not hold."""
    kept = unit.read(metrics_file(subject))
    return [request for request in plan.file.metrics if request_key(request) not in kept]


def is_complete(plan: Plan, unit: Unit) -> bool:
    """Return whether a method has all its runs and metrics in a cell, or failed there."""
    if unit.read("failure"):
        return True
    return unit.n_runs >= plan.file.n_models and not missing_metrics(plan, unit)
