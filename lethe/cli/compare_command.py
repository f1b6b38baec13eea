"""`lethe compare`: submissions on the same split side by side, from arrays or from stored metrics."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from lethe.text_files import read_text

if TYPE_CHECKING:
    from lethe.metrics import MetricResult
    from lethe.metrics.comparison import Comparison
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


def compare(  # noqa: PLR0917  typer makes its options from these parameters
    files: Annotated[list[Path], typer.Argument(help="What `lethe evaluate --json` printed, or .npz of arrays.")],
    retrained: Annotated[Path | None, typer.Option(help="With .npz: the retrained models' arrays.")] = None,
    oracle: Annotated[Path | None, typer.Option(help="With .npz: a second set of retrained models.")] = None,
    original: Annotated[Path | None, typer.Option(help="With .npz: the original model or models.")] = None,
    metric: Ids = None,
    every: All = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Put submissions on the same split side by side."""
    from lethe.metrics import Inputs, InvalidMetricInput
    from lethe.metrics.comparison import compare as compare_metrics
    from lethe.metrics.metric_json import comparison_as_json

    if all(path.suffix == ".json" for path in files):
        _compare_stored(files, metric, as_json=as_json)
        return
    try:
        references = {"retrained": _required(retrained), "oracle": oracle, "original": original}
        submissions = {name: Inputs.from_files(unlearned=path, **references) for name, path in _names(files).items()}
        requests = metric_requests(metric, next(iter(submissions.values())), every=every)
        found = compare_metrics(submissions, requests, seed=seed)
    except InvalidMetricInput as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(comparison_as_json(found), indent=2, allow_nan=False))
    else:
        _print_comparison(found)


def _required(retrained: Path | None) -> Path:
    from lethe.metrics import InvalidMetricInput

    if retrained is None:
        raise InvalidMetricInput("arrays are compared against retrained models: give --retrained")
    return retrained


def _names(files: list[Path]) -> dict[str, Path]:
    """Return the files by their stem, or by their path where two stems are equal."""
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else str(path): path for path in files}


def _compare_stored(files: list[Path], wanted: list[str] | None, *, as_json: bool) -> None:
    from lethe.metrics import InvalidMetricInput
    from lethe.metrics.comparison import require_one_size

    try:
        read = {name: _stored_metrics(path) for name, path in _names(files).items()}
        require_one_size({name: found.get("n_models") for name, found in read.items()})
        stored = {name: found["metrics"] for name, found in read.items()}
        known = list(dict.fromkeys(metric_id for results in stored.values() for metric_id in results))
        _require_known(wanted or [], known)
    except InvalidMetricInput as error:
        fail(error)
    chosen = wanted or known
    if as_json:
        kept = {name: {m: results[m] for m in chosen if m in results} for name, results in stored.items()}
        typer.echo(json.dumps({"submissions": kept}, indent=2, allow_nan=False))
        return
    table = Table("metric", *stored)
    for metric_id in chosen:
        entries = [results.get(metric_id) for results in stored.values()]
        table.add_row(metric_id, *(_number((entry or {}).get("result")) for entry in entries))
    console = Console()
    console.print(table)
    for metric_id in chosen:
        reasons = {(results.get(metric_id) or {}).get("not_computed") for results in stored.values()}
        for reason in sorted(reason for reason in reasons if reason):
            console.print(f"{metric_id}: not computed: {reason}", markup=False, highlight=False, soft_wrap=True)


def _require_known(wanted: list[str], known: list[str]) -> None:
    from lethe.metrics import InvalidMetricInput

    unknown = [metric_id for metric_id in wanted if metric_id not in known]
    if unknown:
        raise InvalidMetricInput(f"no file holds {', '.join(unknown)}; they hold {', '.join(known)}")


def _stored_metrics(path: Path) -> dict[str, Any]:
    from lethe.metrics import InvalidMetricInput
    from lethe.metrics.metric_json import FORMAT

    try:
        stored = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise InvalidMetricInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or not isinstance(stored.get("metrics"), dict):
        raise InvalidMetricInput(f"{path} is not what `lethe evaluate --json` prints")
    return stored


def _print_comparison(found: "Comparison") -> None:
    table = Table("metric", *found.evaluations)
    for metric_id in next(iter(found.evaluations.values())):
        table.add_row(metric_id, *(value_text(results[metric_id].result) for results in found.evaluations.values()))
    console = Console()
    console.print(table)
    for metric_id, result in found.together.items():
        console.print(f"{metric_id}: {value_text(result)}", markup=False, highlight=False)
    for metric_id, result in found.tests.items():
        console.print(f"{metric_id}: least paired p (Holm) {result.value:.3g}", markup=False, highlight=False)
    for metric_id, reason in found.not_computed.items():
        console.print(f"{metric_id}: not computed: {reason}", markup=False, highlight=False, soft_wrap=True)


def _number(stored: Any) -> str:
    value = stored.get("value") if isinstance(stored, dict) else None
    return f"{value:.4g}" if isinstance(value, int | float) else "—"
