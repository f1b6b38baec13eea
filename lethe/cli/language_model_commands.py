"""`lethe unlearn --hf DIR` and `lethe evaluate --hf DIR`: language models in Hugging Face folders, on local data."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lethe.cli.output import OverallProgress, notes, write_json

if TYPE_CHECKING:
    from lethe.huggingface.task import FolderEvaluation

NOT_FINITE_STATUS, NOT_ALL_STATUS = 3, 4
RETAIN, ORIGINAL = "retain model", "original"


def register_commands(app: typer.Typer) -> None:
    app.command("unlearn")(unlearn)


def unlearn(  # noqa: PLR0917  typer makes its options from these parameters
    hf: Annotated[Path, typer.Option(help="The model's folder, or a LoRA folder.")],
    forget: Annotated[Path, typer.Option(help="JSON lines of question and answer, or of text.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    method: Annotated[str, typer.Option(help="A method for language models: `lethe methods list`.")] = "npo",
    retain: Annotated[Path | None, typer.Option(help="The same, to be kept.", dir_okay=False)] = None,
    refusals: Annotated[Path | None, typer.Option(help="One refusal a line: for dpo and idk.", dir_okay=False)] = None,
    constants: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the method's constants.")] = None,
    lora: Annotated[int, typer.Option(help="Train additions of this rank instead of all weights.", min=0)] = 0,
    accumulation: Annotated[int, typer.Option(help="Batches whose mean gradient makes a step.", min=1)] = 1,
    batch_size: Annotated[int, typer.Option(help="Forget examples of one batch.", min=1)] = 8,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train and write weights in bfloat16.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of the order of examples and of the method's draws.")] = 0,
    system_prompt: Annotated[str | None, typer.Option(help="In place of the usual one.")] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.", min=0)] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record.")] = False,
) -> None:
    """Unlearn a language model, and write a folder that transformers and `lethe evaluate --hf` read.

    The folder has the model, its tokenizer, and unlearning.json, which says what was done. The same command goes on
    where an interrupted one stopped.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lethe.huggingface.unlearning import UnlearningSettings
    from lethe.huggingface.unlearning import unlearn as unlearn_folder
    from lethe.methods.rendering import parse_settings

    _be_quiet()
    chosen: dict[str, Any] = dict(parse_settings(constants or []))
    chosen |= {"LORA_RANK": lora} if lora else {}
    chosen |= {"ACCUMULATION": accumulation} if accumulation > 1 else {}
    with OverallProgress({"unlearning": 1.0}) as progress:
        record = unlearn_folder(
            hf,
            out,
            method=method,
            forget=forget,
            retain=retain,
            refusals=refusals,
            constants=chosen,
            settings=UnlearningSettings(
                seed=seed,
                batch_size=batch_size,
                dtype="bfloat16" if bf16 else "float32",
                device=device,
                system_prompt=system_prompt,
            ),
            checkpoint_s=checkpoint_every,
            on_batch=lambda done, of: progress.show("unlearning", done / max(of, 1), f"{done} of {of} batches"),
        )
    if as_json:
        write_json(record, None)
    else:
        _print_record(record, out)
    if not record["is_finite"]:
        raise typer.Exit(NOT_FINITE_STATUS)


def _print_record(record: Mapping[str, Any], out: Path) -> None:
    table = Table("loss of the first answers", "before", "after")
    for name, value in record["loss_before"].items():
        table.add_row(name, _number(value), _number(record["loss_after"][name]))
    console = Console()
    console.print(table)
    if not record["is_finite"]:
        before = None in record["loss_before"].values()
        advice = "They were so before: nothing was unlearned." if before else "Try a lower LR."
        console.print(f"The model has diverged: its weights or outputs are NaN or infinite. {advice}")
    console.print(f"Wrote {out}. Next: lethe evaluate --hf {out}", markup=False, highlight=False, soft_wrap=True)


def evaluate_language_models(
    folders: list[Path],
    *,
    task: str,
    data: Path,
    retain: Path | None,
    retain_logs: Path | None,
    original: Path | None,
    settings: dict[str, str | Path | None],
    as_json: bool,
    file: Path | None,
    logs: Path | None,
    attacks: Sequence[str] = (),
    attack_lr: float | None = None,
    metrics: Sequence[str] | None = None,
) -> None:
    """Evaluate the folders, print a table or JSON, and write what was asked for.

    file: for the JSON, in place of standard output. logs: for the first folder's results in open-unlearning's form; its
    summary goes beside it. attacks: names; attack_lr: the learning rate of those that train. metrics: names of those
    that are computed and shown; the JSON also has what they are made of. Where there is a file, what is done lies
    beside it until the end, and a second call goes on from there. Exit status 4 if some folders could not be evaluated,
    3 if the outputs of a model are not finite: then nothing is attacked.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lethe.huggingface.attacks import AttackSettings, require_attack
    from lethe.huggingface.model_folder import require_settings
    from lethe.huggingface.task import (
        LoadSettings,
        attack_all,
        evaluate_folders,
        keep_results,
        read_task,
        require_questions,
    )

    for name in attacks:
        require_attack(name)
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    chosen = LoadSettings(**given)
    require_settings([*folders, *filter(None, (retain, original))], dtype=chosen.dtype, device=chosen.device)
    read = read_task(task, data, chosen)
    if attacks:
        require_questions(read)
    written = next((path for path in (file, logs) if path is not None and (path.is_file() or not path.exists())), None)
    kept = None
    if written is not None:
        kept = keep_results(
            written.with_name(f"{written.name}.parts"), task, data, chosen, retain=retain, retain_logs=retain_logs
        )
    beside: dict[str, Any] = {"retain": retain, "original": original}
    file_now = file if file == written else None

    def on_part(part: "FolderEvaluation") -> None:
        if file_now is not None:
            write_json(part.as_json(is_finished=False), file_now)

    _be_quiet()
    n_sequences = read.n_sequences * (len(folders) + sum(map(bool, beside.values())))
    with OverallProgress({"evaluating": 1.0}) as progress:
        found = evaluate_folders(
            folders,
            read,
            settings=chosen,
            retain_logs=retain_logs,
            metrics=metrics,
            on_progress=_counted(progress, "evaluating", n_sequences, "sequences", is_most=metrics is not None),
            kept=kept,
            on_part=on_part,
            **beside,
        )
    is_finite = all(result.is_finite for result in (*found.results, found.original) if result is not None)
    if attacks and is_finite:
        training = AttackSettings() if attack_lr is None else AttackSettings(learning_rate=attack_lr)
        total = len(attacks) * (len(found.evaluated) + sum(map(bool, beside.values())))
        with OverallProgress({"attacking": 1.0}) as progress:
            count = _counted(progress, "attacking", total, "attacks")
            attacked = attack_all(
                attacks,
                read,
                found.evaluated,
                settings=chosen,
                attack_settings=training,
                on_model=lambda: count(1),
                kept=kept,
                **beside,
            )
        found = replace(found, attacks=attacked)
    if as_json:
        write_json(found.as_json(), file)
    if not as_json or file is not None:
        _print_table(found, metrics)
    if logs is not None:
        _write_logs(found, logs)
    errors = {folder: each.error for folder, each in zip(found.folders, found.results, strict=True) if each.error}
    for folder, error in errors.items():
        notes.print(f"error: {folder} was not evaluated: {error}", markup=False, highlight=False, soft_wrap=True)
    if errors:
        raise typer.Exit(NOT_ALL_STATUS)
    if kept is not None:
        kept.remove()
    if not is_finite:
        raise typer.Exit(NOT_FINITE_STATUS)


def _be_quiet() -> None:
    from transformers.utils import logging

    quiet: Any = logging  # untyped there
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()


def _counted(
    progress: OverallProgress, step: str, total: int, what: str, *, is_most: bool = False
) -> Callable[[int], None]:
    """Return what counts parts of a step that are done. is_most: there may be fewer than `total`."""
    done = 0

    def count(n: int) -> None:
        nonlocal done
        done = min(done + n, total)
        progress.show(step, done / max(total, 1), f"{done} of {'at most ' if is_most else ''}{total} {what}")

    return count


def _print_attacks(found: "FolderEvaluation") -> None:
    first = next(iter(found.attacks.values()))
    beside = [name for name, points in ((RETAIN, first.retain), (ORIGINAL, first.original)) if points]
    titles = [*(folder.name for folder in found.evaluated), *beside]
    table = Table("attack", "steps", *titles, title="probability (ROUGE-L recall) of the forgotten answers")
    for name, result in found.attacks.items():
        for points in zip(*result.models, *filter(None, (result.retain, result.original)), strict=True):
            values = [f"{point.forget_probability:.4g} ({point.forget_rouge:.4g})" for point in points]
            table.add_row(name, str(points[0].steps), *values)
    Console().print(table)


def _print_table(found: "FolderEvaluation", metrics: Sequence[str] | None) -> None:
    console = Console()
    retain = found.reference
    original = found.original.values() if found.original else {}
    beside = [*([RETAIN] if retain else []), *([ORIGINAL] if original else [])]
    table = Table("metric", *(Path(folder).name for folder in found.folders), *beside)
    shown = {name: metric for name, metric in found.first.metrics.items() if name in (metrics or found.first.metrics)}
    for name in shown:
        values = [result.values().get(name) for result in found.results]
        values += [retain.value(name)] if retain else []
        table.add_row(name, *map(_number, values), *([_number(original[name])] if original else []))
    console.print(table)
    remarks = {
        f"{name}: not computed: {metric.reason}"
        for name, metric in shown.items()
        if metric.value is None and found.first.is_finite
    }
    remarks |= {
        f"{Path(folder).name}: {note}"
        for folder, result in zip(found.folders, found.results, strict=True)
        for note in result.notes
    }
    for note in sorted(remarks):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    if found.attacks:
        _print_attacks(found)


def _write_logs(found: "FolderEvaluation", path: Path) -> None:
    from lethe.huggingface.reference import as_logs, as_summary

    result = found.first
    write_json(as_logs(result), path)
    summary = path.with_name(path.name.replace("EVAL", "SUMMARY") if "EVAL" in path.name else f"SUMMARY_{path.name}")
    write_json(as_summary(result), summary)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
