"""`lethe score`, and `lethe confidences`, which makes its input of checkpoints."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lethe.cli.output import notes
from lethe.errors import InvalidInput
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, AttackFamily

if TYPE_CHECKING:
    from lethe.metrics.scoring.protocols import Experiments, SetupPlan
    from lethe.metrics.scoring.score import ModelOutputs


SetupName = Annotated[
    str, typer.Option("--setup", help="reuse-n-1, reuse-n-n, full or bootstrap: how the files' models are used.")
]


def register_commands(app: typer.Typer) -> None:
    app.command()(score)
    app.command()(confidences)


def score(  # noqa: PLR0917 - typer makes its options from these parameters
    unlearned: Annotated[
        Path, typer.Option(help=".npz or .safetensors with the unlearned models' outputs.", dir_okay=False)
    ],
    retrained: Annotated[
        Path | None, typer.Option(help="The same of the retrained models. Default: the split's.", dir_okay=False)
    ] = None,
    split: Annotated[
        Path | None, typer.Option(help="A prepared split: compare with its retrained models and its oracle.")
    ] = None,
    attacks: Annotated[AttackFamily, typer.Option(help="How the score's attacks are chosen.")] = DEFAULT_ATTACKS,
    bootstrap: Annotated[int, typer.Option(help="Resamples for intervals over models; 0 for none.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Fixes resamples, draws and halves.", min=0)] = 0,
    oracle: Annotated[
        Path | None, typer.Option(help="A second set of retrained models, to calibrate by.", dir_okay=False)
    ] = None,
    setup: SetupName = "reuse-n-1",
    experiments: Annotated[int, typer.Option(help="E, the number of experiments in the files.", min=1)] = 1,
    models: Annotated[
        int | None, typer.Option(help="N, the models on each side of one experiment. Default: all in the files.", min=2)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write an image of epsilons and extreme examples.", dir_okay=False)
    ] = None,
) -> None:
    """Score unlearned models against retrained ones.

    The files hold `confidences` [N, S], logits of the right class, log(p / (1 - p)), and, optionally, `retain_accuracy`
    [N] and `test_accuracy` [N]. Without accuracies the result is forgetting quality alone.
    """
    from lethe.api.split import read_outputs, split_outputs
    from lethe.metrics.core.input_warnings import scale_warnings
    from lethe.metrics.scoring.attacks.family import few_models_warnings

    u = read_outputs(unlearned)
    r, other = split_outputs(retrained, oracle, split)
    plan = _plan(setup, u, models=models, n_experiments=experiments)
    if plan is None:
        report = _report(u, r, attacks=attacks, n_resamples=bootstrap, seed=seed, oracle=other, picture=plot)
    else:
        for option, is_given in {"--bootstrap": bootstrap > 0, "--oracle": oracle, "--plot": plot}.items():
            if is_given:
                raise InvalidInput(f"{option} belongs to a single experiment; its intervals come from E here")
        report = _experiments_report(u, r, plan, attacks=attacks, seed=seed)
    warnings = scale_warnings(u.confidences, r.confidences) + few_models_warnings(report["n_models"])
    for warning in warnings:
        Console(stderr=True).print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(report | {"warnings": warnings}, indent=2, allow_nan=False))
    else:
        _print(report)


def _plan(setup: str, outputs: "ModelOutputs", *, models: int | None, n_experiments: int) -> "SetupPlan | None":
    """Return the plan of several experiments, or None for a single plain score."""
    from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan

    try:
        kind = EvaluationSetup(setup)
    except ValueError as error:
        raise InvalidInput(f"unknown setup {setup!r}; there are {', '.join(EvaluationSetup)}") from error
    n_stored = len(outputs.confidences)
    if kind is EvaluationSetup.BOOTSTRAP:
        n_models = max(2, n_stored // 8) if models is None else models
        return SetupPlan(kind, n_models=n_models, n_experiments=n_experiments, pool_size=n_stored)
    if n_experiments == 1 and models in (None, n_stored):
        return None
    if models is None and n_stored % n_experiments:
        raise InvalidInput(f"{n_stored} unlearned models do not divide into {n_experiments} experiments")
    return SetupPlan(
        kind, n_models=n_stored // n_experiments if models is None else models, n_experiments=n_experiments
    )


def _report(
    unlearned: "ModelOutputs",
    retrained: "ModelOutputs",
    *,
    attacks: AttackFamily,
    n_resamples: int,
    seed: int,
    oracle: "ModelOutputs | None",
    picture: Path | None,
) -> dict[str, Any]:
    from lethe.api.score_result import score_outputs
    from lethe.metrics.scoring.attacks.family import smallest_detectable_shift

    result = score_outputs(unlearned, retrained, oracle=oracle, attacks=attacks, n_resamples=n_resamples, seed=seed)
    if picture is not None:
        from lethe.reports.benchmark_figures import save_picture

        save_picture(picture, result.score, unlearned, retrained)
    shift = smallest_detectable_shift(result.score.n_models)
    return result.as_json() | {"smallest_detectable_shift": shift}


def _experiments_report(
    unlearned: "ModelOutputs", retrained: "ModelOutputs", plan: "SetupPlan", *, attacks: AttackFamily, seed: int
) -> dict[str, Any]:
    from lethe.metrics.scoring.protocols import score_experiments

    found: Experiments = score_experiments(unlearned, retrained, plan, attacks=attacks, seed=seed)
    f_interval = found.forgetting_quality_interval
    has_final = found.scores[0].final_score is not None
    return {
        "setup": plan.setup.value,
        "n_models": plan.n_models,
        "n_experiments": plan.n_experiments,
        "forgetting_quality": found.forgetting_quality,
        "forgetting_quality_interval": None if f_interval is None else list(f_interval),
        "final_score": found.headline if has_final else None,
        "interval": None if found.interval is None else list(found.interval),
        "attacks": found.scores[0].attacks.value,
        "scorer_version": found.scores[0].scorer_version,
        "experiments": [one.as_json() for one in found.scores],
    }


def _print(report: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in report.items():
        if name in {"epsilon", "experiments"} or value is None:
            continue
        table.add_row(name.replace("_", " "), _shown(value))
    if "epsilon" in report:
        ordered = sorted(report["epsilon"])
        table.add_row("median epsilon", _shown(ordered[len(ordered) // 2]))
    Console(highlight=False).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(_shown(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def confidences(
    checkpoints: Annotated[
        Path, typer.Argument(help="Folder of .safetensors, .pth or .pt state_dicts, one per model.")
    ],
    split: Annotated[Path, typer.Option(help="Folder of a prepared split (with manifest.json).")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.", dir_okay=False)],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Evaluate checkpoints on a prepared split: confidences on its forget set, accuracies on retain and test.

    Models are taken in the order of their names (numbers inside names count as numbers). Only tensors are read from
    .pth and .pt files, yet read only files whose origin you trust.
    """
    import numpy as np

    from lethe.api.split import save_outputs
    from lethe.evaluation.evaluators import evaluate_folder, load_evaluator
    from lethe.metrics.scoring.score import ModelOutputs

    evaluator = load_evaluator(split, device)
    bar = partial(track, description="evaluating", console=notes)
    outputs = evaluate_folder(evaluator, checkpoints, track=bar)
    save_outputs(
        out,
        ModelOutputs(
            confidences=np.stack([output.confidences for output in outputs]),
            retain_accuracy=np.array([output.retain_accuracy for output in outputs]),
            test_accuracy=np.array([output.test_accuracy for output in outputs]),
        ),
    )
    notes.print(f"{out}: {len(outputs)} models, {outputs[0].confidences.size} forget examples", highlight=False)
