"""`lethe methods`: the unlearning methods of the literature, as submissions that run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lethe.cli.context import Commands, Output
from lethe.cli.output import OverallProgress, console, notes, print_facts, print_table
from lethe.errors import InvalidInput

if TYPE_CHECKING:
    from lethe.methods.catalogue import MethodInfo
    from lethe.tuning.study import Study, Trial

app = Commands(
    name="methods", help="Unlearning methods of the literature, as submissions that run.", no_args_is_help=True
)
Id = Annotated[str, typer.Argument(help="The method's id; `lethe methods list` shows all.", metavar="ID")]
IdOrFile = Annotated[
    str, typer.Argument(help="A method's id, or a file of your own (ending in .py).", metavar="ID|FILE")
]
Split = Annotated[Path, typer.Option("--split", help="A prepared split's folder.", exists=True, file_okay=False)]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Set a constant: NAME=value. May be repeated.")]


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.command("list")
def list_methods(output: Output) -> None:
    """List all methods: what they need, and which phases they have for stitching."""
    from lethe.methods.catalogue import FOLDERS, all_methods

    methods = [method for task in FOLDERS for method in all_methods(task)]
    output.answer([method.as_json() for method in methods])
    rows = []
    for method in methods:
        name = method.title.partition(": ")[0] + (" (deterministic)" if method.deterministic else "")
        phases = ", ".join(phase for phase in ("erase", "repair") if phase in method.phases)
        rows.append((method.id, name, ", ".join(method.needs), phases))
    print_table("", ("id", "method", "needs", "phases"), rows, empty="There is no method.")


@app.command()
def show(
    output: Output,
    method: Id,
    code: Annotated[bool, typer.Option("--code", help="Print the file, with --set applied, and nothing else.")] = False,
    settings: Settings = None,
) -> None:
    """Show what a method does, its constants and their search ranges, or its code."""
    from lethe.methods.catalogue import method_info
    from lethe.methods.rendering import parse_settings, render

    if code or settings:
        typer.echo(render(method, parse_settings(settings or [])), nl=False)
        return
    info = method_info(method)
    output.answer(info.as_json())
    _print_method(info)


@app.command()
def stitch(
    output: Output,
    erase: Annotated[str, typer.Argument(help="The method that erases; its schedule and epochs are kept.")],
    repair: Annotated[str, typer.Argument(help="The method whose objective repairs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The zip file to write.", dir_okay=False)],
    match_lr: Annotated[
        bool, typer.Option("--match-lr", help="Scale the repair's learning rate to the first method's.")
    ] = False,
) -> None:
    """Combine the erasing of one method with the repairing of another."""
    from lethe.methods.rendering import stitch as stitch_methods

    stitched = stitch_methods(erase, repair, match_lr=match_lr)
    out.write_bytes(stitched.as_zip())
    output.answer({"file": str(out), "kind": stitched.kind, "members": sorted(stitched.files)})
    how = "erase and repair phases" if stitched.kind == "phases" else "one after the other, as they declare no phases"
    console.print(f"Wrote {out}: {erase} and {repair}, {how}.", highlight=False)


@app.command()
def run(
    output: Output,
    method: IdOrFile,
    *,
    split: Split,
    settings: Settings = None,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, max=1024, help="How many models to unlearn.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the first run; the others count up.")] = 0,
    keep: Annotated[Path | None, typer.Option("--keep", help="A folder for the unlearned models.")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout-s", help="For all runs together.")] = None,
) -> None:
    """Run a method on a prepared split on this machine, in a child process, without a server or a sandbox."""
    from lethe.tuning.local_run import run_on_split

    name, source, _ = _source(method, settings)
    done = run_on_split({f"{name}.py": source}, split, runs=runs, seed=seed, weights_dir=keep, timeout_s=timeout_s)
    facts = done.as_json()
    output.answer(facts)
    print_facts(
        (
            ("method", name),
            ("runs", len(done.runs)),
            (
                "time of a run",
                f"{done.median('wall_time_s'):.3f} s, of the processor {done.median('cpu_time_s'):.3f} s",
            ),
            ("work of a run", f"{done.median('work_epochs'):.2f} epochs of training"),
            ("a retraining takes", f"{_times(facts['run_time_efficiency'])} as much processor time"),
            ("", f"{_times(facts['work_efficiency'])} as much work"),
            ("accuracy on retain", f"{done.median('retain_accuracy'):.4f}"),
            ("on forget", f"{done.median('forget_accuracy'):.4f}"),
            ("on test", f"{done.median('test_accuracy'):.4f}"),
            ("distance from the original", f"{done.median('distance'):.4f}"),
            ("memory added", f"{done.added_memory_mib:.0f} MiB"),
        )
    )


def _times(ratio: float | None) -> str:
    return "an unknown number of times" if ratio is None else f"{ratio:.1f} times"


def _source(method: str, settings: list[str] | None) -> tuple[str, str, tuple[str, ...]]:
    """Return id, source with constants set, and the names of these constants. `method`: an id, or a file (.py)."""
    from lethe.methods.rendering import parse_settings, read_method, set_constants, with_preset

    name, source = read_method(method)
    pairs: dict[str, Any] = dict(parse_settings(settings or []))
    if not method.endswith(".py"):
        pairs = with_preset(name, pairs)
    return name, set_constants(source, pairs, owner=f"method {name}"), tuple(pairs)


@app.command()
def tune(
    output: Output,
    method: IdOrFile,
    *,
    split: Split,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Fix a constant, which is then not searched: NAME=value.")
    ] = None,
    search: Annotated[str, typer.Option("--search", help="random, grid, or tpe (extra `tune`).")] = "random",
    objective: Annotated[
        str, typer.Option("--objective", help="score (the competition's), or a metric's id; see `lethe metrics`.")
    ] = "score",
    trials: Annotated[int, typer.Option("--trials", min=1, help="At most; the first has the file's constants.")] = 30,
    budget_epochs: Annotated[
        float | None,
        typer.Option("--budget-epochs", min=0.0, help="Work of all trials, in epochs of training; then none begins."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", "-n", min=4, max=1024, help="Models to unlearn in a trial that stays to the end.")
    ] = 16,
    halvings: Annotated[
        int, typer.Option("--halvings", min=0, max=6, help="How often half of the trials is left with twice the runs.")
    ] = 2,
    points: Annotated[int, typer.Option("--points", min=1, help="Of a grid, on each range.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Of the search, and of each trial's first run.")] = 0,
    study: Annotated[
        Path | None, typer.Option("--study", help="The JSON file to go on with; default: ID.study.json.")
    ] = None,
) -> None:
    """Search a method's constants on a prepared split, whose retrained models it is compared with."""
    from typing import get_args

    from lethe.tuning.study import Search, SearchPlan
    from lethe.tuning.tuning import make_question
    from lethe.tuning.tuning import tune as tune_method

    if search not in get_args(Search):
        raise InvalidInput(f"--search must be one of {', '.join(get_args(Search))}, was {search!r}")
    name, source, fixed = _source(method, settings)
    path, kind = study or Path(f"{name}.study.json"), cast(Any, search)
    plan = SearchPlan(trials, budget_epochs, kind, objective, runs, halvings, points, seed)
    question = make_question(name, source, split, plan, fixed=fixed)
    with OverallProgress({"searching": 1.0}) as progress:

        def on_trial(found: "Study", trial: "Trial") -> None:
            _print_trial(trial)
            progress.show(
                "searching", found.share_done(plan), f"{len(found.trials)} of at most {plan.trials} trials begun"
            )

        done = tune_method(question, source, plan, split_dir=split, study_file=path, on_trial=on_trial)
    output.answer({"study": str(path), "best": None if done.best is None else done.best.model_dump()})
    best, own = done.best, done.trials[0].fresh
    print_facts(
        (
            ("study", path),
            ("trials", len(done.trials)),
            ("work", f"{done.work_epochs:.1f} epochs of training, {done.cpu_time_s:.1f} s of the processor"),
            (f"{objective} on fresh runs", None if best is None or best.fresh is None else f"{best.fresh.value:.6f}"),
            ("with the file's constants", None if own is None else f"{own.value:.6f}"),
            ("chosen", None if best is None else " ".join(f"--set {k}={v}" for k, v in best.settings.items())),
            ("note", "reference-tuned: chosen by comparison with retrained models"),
        )
    )


def _print_trial(trial: "Trial") -> None:
    settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
    last = trial.fresh or (trial.scores[-1] if trial.scores else None)
    kind = "" if trial.fresh is None else "fresh "
    what = trial.failure if trial.failure or last is None else f"{last.value:.6f} of {last.runs} {kind}runs"
    notes.print(f"{what}  {trial.work_epochs:.2f} epochs  {settings}", highlight=False, markup=False)


def _preset(method: "MethodInfo", name: str) -> str:
    constants = ", ".join(f"{constant} = {value!r}" for constant, value in method.presets[name].items())
    file = method.preset_files.get(name)
    return constants + (f" ({file})" if file else "")


def _print_method(method: "MethodInfo") -> None:
    console.print(f"[bold]{method.title}[/]", highlight=False)
    for text in (method.summary, method.pseudo_code):
        console.print("\n" + text, highlight=False, markup=False, soft_wrap=True)
    console.print()
    print_facts(
        (
            ("source", method.source),
            ("budget, counted", method.budget),
            ("measured", method.measured or None),
            ("differences", method.differences),
            *((f"preset {name}", _preset(method, name)) for name in method.presets),
            ("needs", ", ".join(method.needs) or "nothing"),
            ("deterministic", "yes" if method.deterministic else "no"),
        )
    )
    print_table(
        "",
        ("constant", "value#", "search range", ""),
        ((c.name, c.value, c.range, c.note) for c in method.constants),
        empty="It has no constants.",
    )
