"""Metrics that a competition file asks for: whether they exist and can be computed for one submission.

The registry is loaded when a file asks for a metric; most files do not.
"""

from collections.abc import Mapping
from typing import Any

from lethe.competition.task import IMAGES_ONLY, LEVELS, PROBED_LEVEL, Kind

STORED_LEVELS = frozenset().union(*LEVELS.values())


def check_request(metric_id: str, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError, with the nearest ids or the parameters there are, for what cannot be computed."""
    from lethe.metrics.core.metric_evaluation import checked_parameters  # noqa: PLC0415
    from lethe.metrics.core.registry import Scope, metric  # noqa: PLC0415

    entry = metric(metric_id)
    checked_parameters(entry, parameters)
    if entry.scope != Scope.SUBMISSION:
        raise ValueError(f"{metric_id} compares several submissions or cells: see `lethe compare` and benchmarks")
    if beyond := [int(level) for level in entry.levels if level not in STORED_LEVELS]:
        raise ValueError(f"{metric_id} needs arrays of level {beyond[0]}, which a competition does not store")


def require_metric_fits(metric_id: str, kind: Kind) -> None:
    """Raise ValueError unless evaluations of this kind of task store what the metric needs."""
    if what := lacking_for_metric(metric_id, kind):
        raise ValueError(f"report.metrics: {metric_id} needs {what}, which a task of kind {kind!r} does not have")


def require_metric_ranks(metric_id: str) -> None:
    """Raise ValueError for a metric without a better side, or one that needs weights, which come after the score."""
    from lethe.metrics.core.registry import Direction, metric  # noqa: PLC0415

    if metric(metric_id).direction is Direction.NONE:
        raise ValueError(f"ranking.by: no value of {metric_id} is better than another, so it cannot rank")
    if PROBED_LEVEL in levels_for_metric(metric_id):
        raise ValueError(f"ranking.by: {metric_id} needs weights of runs, which only a few keep, so it cannot rank")


def lacking_for_metric(metric_id: str, kind: Kind) -> str | None:
    """Return what the metric needs and evaluations of this kind of task do not store, or None."""
    from lethe.metrics.core.registry import metric  # noqa: PLC0415

    entry = metric(metric_id)
    beyond = [int(level) for level in entry.levels if int(level) not in LEVELS[kind]]
    if beyond:
        return f"arrays of level {beyond[0]}"
    images_only = [name for need in entry.needs.values() for name in need.array_names if name in IMAGES_ONLY]
    return f"the array `{images_only[0]}`" if images_only and kind != "image-classification" else None


def levels_for_metric(metric_id: str) -> tuple[int, ...]:
    """Return the capture levels that a metric needs."""
    from lethe.metrics.core.registry import metric  # noqa: PLC0415

    return tuple(int(level) for level in metric(metric_id).levels)
