"""`lethe metrics`, `lethe evaluate` and `lethe compare`: on arrays, without a server."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from lethe.cli.context import value_of
from lethe.cli.output import write_json
from lethe.errors import InvalidInput
from lethe.text_files import read_text

if TYPE_CHECKING:
    from lethe.metrics import Inputs, MetricResult
    from lethe.metrics.comparison import Comparison
    from lethe.metrics.core.metric_evaluation import MetricEvaluation, Request

Ids = Annotated[
    list[str] | None,
    typer.Option("--metric", "-m", help="A metric's id, with parameters as ID:NAME=VALUE,...; may be repeated."),
]
All = Annotated[bool, typer.Option("--all", help="Every metric; what cannot be computed is listed with the reason.")]
Seed = Annotated[int, typer.Option(help="Fixes the halves of the models that intervals are made from.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Examples = Annotated[bool, typer.Option("--examples", help="With --json: values per example and histograms too.")]
ARROWS = {"higher": "↑", "lower": "↓", "towards retrained": "→", "none": ""}


def register_commands(app: typer.Typer) -> None:
    """Add the three commands to `app`."""
    app.command("metrics")(metrics)
    app.command("evaluate")(evaluate)
    app.command("compare")(compare)


def metrics(
    metric_id: Annotated[str | None, typer.Argument(metavar="ID", help="One metric in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the metrics, or show one with formula, source, direction and inputs."""
    from lethe.metrics import metric
    from lethe.metrics import metrics as known
    from lethe.metrics.core.metric_text import metric_facts, metric_page

    chosen = list(known().values()) if metric_id is None else [metric(metric_id)]
    if as_json:
        typer.echo(json.dumps([metric_facts(entry) for entry in chosen], indent=2))
    elif metric_id is not None:
        typer.echo(metric_page(chosen[0]))
    else:
        table = Table(Column("id", no_wrap=True), "metric", "unit", "better", Column("level", justify="right"))
        for entry in chosen:
            table.add_row(entry.id, entry.title, entry.unit, entry.direction.value, str(int(entry.level)))
        Console().print(table)


def evaluate(  # noqa: PLR0917  typer makes its options from these parameters
    file: Annotated[
        Path | None, typer.Argument(help="With --json: the file to write, in place of standard output.")
    ] = None,
    unlearned: Annotated[
        Path | None, typer.Option(help=".npz with the unlearned models' arrays.", dir_okay=False)
    ] = None,
    retrained: Annotated[
        Path | None, typer.Option(help=".npz with the retrained models' arrays.", dir_okay=False)
    ] = None,
    oracle: Annotated[Path | None, typer.Option(help=".npz of a second set of retrained models.")] = None,
    original: Annotated[
        Path | None, typer.Option(help=".npz of the original model or models; with --hf: a folder.")
    ] = None,
    split: Annotated[Path | None, typer.Option(help="A prepared split, in place of the files above.")] = None,
    models: Annotated[Path | None, typer.Option(help="With --split: the folder of unlearned checkpoints.")] = None,
    probes: Annotated[
        int, typer.Option(help="With --split: probe so many models of each side (level 4); takes minutes.", min=0)
    ] = 0,
    metric: Ids = None,
    every: All = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    examples: Examples = False,
    plot: Annotated[Path | None, typer.Option(help="Write an image of the metrics.", dir_okay=False)] = None,
    hf: Annotated[
        list[Path] | None,
        typer.Option(help="A language model in a Hugging Face folder (also a LoRA folder); may be repeated."),
    ] = None,
    task: Annotated[str, typer.Option(help="With --hf: tofu, muse, wmdp …; `lethe data list` names them.")] = "tofu",
    data: Annotated[Path | None, typer.Option(help="With --hf: the folder of the task's files.")] = None,
    retain: Annotated[Path | None, typer.Option(help="With --hf: the folder of a retain model.")] = None,
    retain_logs: Annotated[Path | None, typer.Option(help="With --hf: its EVAL.json, in place of --retain.")] = None,
    logs: Annotated[Path | None, typer.Option(help="With --hf: write open-unlearning's EVAL.json and summary.")] = None,
    dtype: Annotated[str | None, typer.Option(help="With --hf: auto, float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="With --hf: cpu, cuda, cuda:1 ...")] = None,
    system_prompt: Annotated[str | None, typer.Option(help="With --hf: in place of the usual one.")] = None,
    gibberish: Annotated[Path | None, typer.Option(help="With --hf: a folder of open-unlearning's classifier.")] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="With --hf: relearn, finetune, quantize-8, quantize-4 or prefix; may be repeated."),
    ] = None,
    attack_lr: Annotated[float | None, typer.Option(help="Learning rate of relearn and finetune.", min=0)] = None,
) -> None:
    """Compute metrics of unlearned models, each beside the oracle's and the original's.

    The files hold arrays by name, such as `confidences` [N, S] or `forget_logits` [N, S, C]; labels may be in any of
    them. With --split, checkpoints are evaluated on a prepared split, which holds the references' arrays. Without
    --metric or --all, every metric whose arrays are there is computed. With --hf, language models are evaluated as
    open-unlearning does it.
    """
    if file is not None and not as_json:
        raise typer.BadParameter(f"{file} would be written by --json, which is missing")
    if hf:
        from lethe.cli.language_model_commands import evaluate_language_models

        not_taken = {
            "--unlearned": unlearned, "--retrained": retrained, "--oracle": oracle, "--split": split,
            "--models": models, "--probes": probes, "--all": every, "--seed": seed, "--examples": examples,
            "--plot": plot,
        }  # fmt: skip
        if wrong := [name for name, value in not_taken.items() if value]:
            raise typer.BadParameter(f"{', '.join(wrong)}: not with --hf, which evaluates folders on a task's files")
        if data is None:
            raise InvalidInput("--hf evaluates on local files: give their folder with --data")
        evaluate_language_models(
            hf,
            task=task,
            data=data,
            retain=retain,
            retain_logs=retain_logs,
            original=original,
            settings={"dtype": dtype, "device": device, "system_prompt": system_prompt, "gibberish": gibberish},
            as_json=as_json,
            file=file,
            logs=logs,
            attacks=attack or (),
            attack_lr=attack_lr,
            metrics=metric,
        )
        return
    of_models = {
        "--data": data, "--retain": retain, "--retain-logs": retain_logs, "--logs": logs, "--dtype": dtype,
        "--device": device, "--system-prompt": system_prompt, "--gibberish": gibberish, "--attack": attack,
        "--attack-lr": attack_lr,
    }  # fmt: skip
    if wrong := [name for name, value in of_models.items() if value is not None and value != []]:
        raise typer.BadParameter(f"{', '.join(wrong)}: with --hf alone")
    from lethe.metrics import evaluate as evaluate_metrics
    from lethe.metrics.core.array_catalogue import Side
    from lethe.metrics.core.input_warnings import input_warnings, require_consistent
    from lethe.metrics.core.metric_text import evaluations_as_json

    if split is not None:
        inputs = _split_inputs(split, models, n_probed=probes)
    else:
        inputs = _file_inputs(unlearned=unlearned, retrained=retrained, oracle=oracle, original=original)
    require_consistent(inputs)
    found = evaluate_metrics(inputs, metric_requests(metric, inputs, every=every), seed=seed)
    warned = input_warnings(inputs, names_are_given=split is None)
    for text in [] if as_json else warned:
        Console(stderr=True).print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if plot is not None:
        from lethe.reports.benchmark_figures import draw_metrics

        draw_metrics(found).savefig(plot)
    if as_json:
        n_models = inputs.n_models(Side.UNLEARNED)
        document = evaluations_as_json(found, n_models=n_models, examples=examples) | {"warnings": warned}
        write_json(document, file)
    if not as_json or file is not None:
        _print_evaluations(found, tables=bool(metric))
    if metric and any(evaluation.result is None for evaluation in found.values()):
        raise typer.Exit(code=1)


def _file_inputs(**files: Path | None) -> "Inputs":
    from lethe.metrics import Inputs

    for side in ("unlearned", "retrained"):
        if files[side] is None:
            raise InvalidInput(f"give --{side} with the {side} models' arrays, or --split and --models")
    return Inputs.from_files(**files)


def _split_inputs(split: Path, models: Path | None, *, n_probed: int) -> "Inputs":
    from lethe.competition.file import Scoring
    from lethe.evaluation.evaluators import checkpoint_files, evaluate_folder, load_evaluator, read_state
    from lethe.evaluation.model_outputs import split_inputs
    from lethe.evaluation.shard_outputs import StoredOutputs

    if models is None:
        raise InvalidInput("--split evaluates checkpoints: give their folder with --models")
    outputs = StoredOutputs.of_runs(evaluate_folder(load_evaluator(split), models))
    probed = None
    if n_probed:
        from lethe.evaluation.probes.split_probes import probed_split

        probed = probed_split(split, [read_state(path) for path in checkpoint_files(models)[:n_probed]])
    return split_inputs(split, outputs.arrays(), scored_by=Scoring(), probed=probed)


def _print_evaluations(found: "Mapping[str, MetricEvaluation]", *, tables: bool) -> None:
    """Print every metric. tables: what belongs to each, too."""
    from lethe.metrics.core.metric_text import table_lines

    table = Table("metric", "", "value", "95 %", "the oracle", "original", "unit")
    notes: list[str] = []
    for name, evaluation in found.items():
        entry, result = evaluation.metric, evaluation.result
        if result is None:
            notes.append(f"{name}: not computed: {evaluation.not_computed}")
            continue
        references = (value_text(evaluation.oracle), value_text(evaluation.original))
        ends = "" if result.interval is None else f"{result.interval[0]:.4g} to {result.interval[1]:.4g}"
        table.add_row(name, ARROWS[entry.direction], value_text(result), ends, *references, entry.unit)
        notes += [f"{name}: {note}" for note in (*result.notes, *evaluation.reference_notes)]
        notes += [f"{name}: {line}" for line in table_lines(result.table)] if tables else []
    console = Console()
    if table.row_count:
        console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


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
    metric_id, _, settings = text.partition(":")
    parameters: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        name, equals, value = setting.partition("=")
        if not equals:
            raise InvalidInput(f"{setting!r} in {text!r} is no parameter; write NAME=VALUE")
        parameters[name] = value_of(value)
    return metric_id, parameters


def value_text(result: "MetricResult | None") -> str:
    return "—" if result is None or math.isnan(result.value) else f"{result.value:.4g}"


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
    from lethe.metrics import Inputs
    from lethe.metrics.comparison import compare as compare_metrics
    from lethe.metrics.comparison import comparison_as_json

    if all(path.suffix == ".json" for path in files):
        _compare_stored(files, metric, as_json=as_json)
        return
    if retrained is None:
        raise InvalidInput("arrays are compared against retrained models: give --retrained")
    references = {"retrained": retrained, "oracle": oracle, "original": original}
    submissions = {name: Inputs.from_files(unlearned=path, **references) for name, path in _names(files).items()}
    requests = metric_requests(metric, next(iter(submissions.values())), every=every)
    found = compare_metrics(submissions, requests, seed=seed)
    if as_json:
        typer.echo(json.dumps(comparison_as_json(found), indent=2, allow_nan=False))
    else:
        _print_comparison(found)


def _names(files: list[Path]) -> dict[str, Path]:
    """Return the files by their stem, or by their path where two stems are equal."""
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else str(path): path for path in files}


def _compare_stored(files: list[Path], wanted: list[str] | None, *, as_json: bool) -> None:
    from lethe.metrics.comparison import require_one_size

    read = {name: _stored_metrics(path) for name, path in _names(files).items()}
    require_one_size({name: found.get("n_models") for name, found in read.items()})
    stored = {name: found["metrics"] for name, found in read.items()}
    known = list(dict.fromkeys(metric_id for results in stored.values() for metric_id in results))
    if unknown := [metric_id for metric_id in wanted or [] if metric_id not in known]:
        raise InvalidInput(f"no file holds {', '.join(unknown)}; they hold {', '.join(known)}")
    chosen = wanted or known
    if as_json:
        kept = {name: {m: results[m] for m in chosen if m in results} for name, results in stored.items()}
        typer.echo(json.dumps({"submissions": kept}, indent=2, allow_nan=False))
        return
    table = Table("metric", *stored)
    for metric_id in chosen:
        entries = [results.get(metric_id) for results in stored.values()]
        values = [((entry or {}).get("result") or {}).get("value") for entry in entries]
        table.add_row(metric_id, *(f"{each:.4g}" if isinstance(each, int | float) else "—" for each in values))
    console = Console()
    console.print(table)
    for metric_id in chosen:
        reasons = {(results.get(metric_id) or {}).get("not_computed") for results in stored.values()}
        for reason in sorted(reason for reason in reasons if reason):
            console.print(f"{metric_id}: not computed: {reason}", markup=False, highlight=False, soft_wrap=True)


def _stored_metrics(path: Path) -> dict[str, Any]:
    from lethe.metrics.core.metric_text import FORMAT

    try:
        stored = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or not isinstance(stored.get("metrics"), dict):
        raise InvalidInput(f"{path} is not what `lethe evaluate --json` prints")
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
