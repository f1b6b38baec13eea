"""Which metrics a command computes, and how it prints a value."""

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lethe.metrics import MetricResult
    from lethe.metrics.core.metric_evaluation import Request

Ids = Annotated[
    list[str] | None,
    typer.Option("--metric", "-m", help="A metric's id, with parameters as ID:NAME=VALUE,...; may be repeated."),
]
All = Annotated[bool, typer.Option("--all", help="Every metric; what cannot be computed is listed with the reason.")]
Seed = Annotated[int, typer.Option(help="Fixes the halves of the models that intervals are made from.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def metric_requests(given: list[str] | None, inputs: Any, *, every: bool) -> "list[Request]":
    """Return the metrics asked for, by default those whose arrays are there."""
    from lethe.metrics import Scope
    from lethe.metrics import metrics as known

    if given:
        return [_request(text) for text in given]
    single = [entry for entry in known().values() if entry.scope == Scope.SUBMISSION]
    return [entry.id for entry in single if every or not inputs.missing(entry)]


def _request(text: str) -> "Request":
    """Return the id and the parameters of `ID` or `ID:NAME=VALUE,...`; a value is JSON or else a word."""
    from lethe.metrics import InvalidMetricInput

    metric_id, _, settings = text.partition(":")
    parameters: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        name, equals, value = setting.partition("=")
        if not equals:
            raise InvalidMetricInput(f"{setting!r} in {text!r} is no parameter; write NAME=VALUE")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return metric_id, parameters


def value_text(result: "MetricResult | None") -> str:
    return "—" if result is None or math.isnan(result.value) else f"{result.value:.4g}"


def fail(error: Exception) -> NoReturn:
    Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code=1) from error
