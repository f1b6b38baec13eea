"""Search of a method's constants on a prepared split, in a budget of trials and of counted work.

Every method gets the same budget: work is counted in examples, not in seconds, so that it is the same at every load.
The first trial has the file's own constants. The better half of the trials gets twice as many runs, and again
(successive halving: Jamieson & Talwalkar 2016, arXiv:1502.07943). The best of those that stay, and the file's own
constants, are scored again on runs that the search never saw; the best of these scores decides. The objective compares
with the split's retrained models, so what is found is reference-tuned.

Optuna comes with the extra `tune`. An objective of several losses is searched by NSGA-III, which minimises them
together, as Cadet et al. 2024 do; any other by the tree-structured Parzen estimator.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

from lethe.data.files import sha256_of
from lethe.errors import InvalidInput
from lethe.methods.catalogue import Range
from lethe.tuning.local_run import SplitRuns
from lethe.tuning.study import (
    FINALISTS,
    Question,
    Sampler,
    SearchPlan,
    Settings,
    Study,
    Trial,
    grid_settings,
    own_settings,
    random_settings,
    search_ranges,
)
from lethe.tuning.trial_runs import TrialRuns, higher_is_better, runs_folder

POPULATION = 10  # trials of one generation: 100 trials are ten generations
GENERATION = "NSGAIIISampler:generation"  # under which Optuna keeps a trial's generation


def optuna_sampler(ranges: Mapping[str, Range], *, seed: int) -> Sampler:
    """Return a sampler that learns from the study's trials. Raises InvalidInput if Optuna is not installed.

    Optuna is given every trial of the study's file before each new one, so that a later call continues in the same way.
    """
    try:
        import optuna  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InvalidInput(
            "--search tpe needs the package optuna: pip install 'lethe-unlearning[tune]'; random and grid need none"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {name: _distribution(optuna.distributions, found) for name, found in ranges.items()}

    def next_settings(study: Study) -> Settings:
        first = [(trial, trial.scores[0]) for trial in study.trials if trial.scores]
        done = [(trial, score.losses or [score.value]) for trial, score in first if _is_inside(trial.settings, ranges)]
        n_losses = max((len(score.losses) for _, score in first), default=0)
        if n_losses:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                genetic = optuna.samplers.NSGAIIISampler(seed=seed + len(study.trials), population_size=POPULATION)
            asked = optuna.create_study(directions=["minimize"] * n_losses, sampler=genetic)
        else:
            asked = optuna.create_study(
                direction="maximize" if study.question.higher_is_better else "minimize",
                sampler=optuna.samplers.TPESampler(seed=seed + len(study.trials)),
            )
        for number, (trial, values) in enumerate(done):
            asked.add_trial(
                optuna.trial.create_trial(
                    params=trial.settings,
                    distributions=distributions,
                    values=values,
                    system_attrs={GENERATION: number // POPULATION} if n_losses else {},
                )
            )
        return dict(asked.ask(distributions).params)

    return next_settings


def _is_inside(settings: Settings, ranges: Mapping[str, Range]) -> bool:
    """Return whether Optuna can learn from a trial; the file's own constants may lie outside their ranges."""
    return all(
        value in found.values if found.kind == "choice" else found.values[0] <= value <= found.values[1]  # type: ignore[operator]
        for name, found in ranges.items()
        for value in [settings[name]]
    )


def _distribution(kinds: Any, found: Range) -> Any:
    if found.kind == "choice":
        return kinds.CategoricalDistribution(found.values)
    low, high = found.values
    if found.kind == "int":
        return kinds.IntDistribution(low, high)
    return kinds.FloatDistribution(float(low), float(high), log=found.kind == "log")


def make_question(
    method: str, source: str, split_dir: Path, plan: SearchPlan, *, fixed: tuple[str, ...] = ()
) -> Question:
    """Return what a study asks. fixed: constants of the source that are not searched.

    Raises InvalidInput for the objective or the split, or if there is nothing to search.
    """
    if not search_ranges(source, fixed=fixed):
        raise InvalidInput(f"method {method} has no constant with a search range: there is nothing to tune")
    manifest = split_dir / "manifest.json"
    if not manifest.is_file():
        raise InvalidInput(f"{split_dir} is not a prepared split: it has no manifest.json")
    return Question(
        method=method,
        source_sha256=sha256(source.encode()).hexdigest(),
        split_sha256=sha256_of(manifest),
        fixed=fixed,
        objective=plan.objective,
        higher_is_better=higher_is_better(plan.objective),
        search=plan.search,
        points=plan.points,
        runs=plan.runs,
        halvings=plan.halvings,
        seed=plan.seed,
    )


def tune(
    question: Question,
    source: str,
    plan: SearchPlan,
    *,
    split_dir: Path,
    study_file: Path,
    run_limit_s: float | None = None,
    process: SplitRuns | None = None,
    on_trial: Callable[[Study, Trial], None] = lambda *_: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Study:
    """Go on with the study to its end, or until `is_over`; whatever a trial gained is stored before the next step.

    A call with more trials or a larger budget goes on from the trials that are there. process: of this split, started;
    None: one of its own. Raises InvalidInput for a file of another study.
    """
    if process is None:
        with SplitRuns(split_dir) as own:
            given = {"split_dir": split_dir, "study_file": study_file, "run_limit_s": run_limit_s}
            return tune(question, source, plan, process=own, on_trial=on_trial, is_over=is_over, **given)  # type: ignore[arg-type]
    if not study_file.exists():
        rmtree(runs_folder(study_file), ignore_errors=True)  # of a study that was removed
    study = Study.open(study_file, question)
    runs = TrialRuns(study, source, split_dir, process, study_file, run_limit_s)
    for number, step in _steps(study, plan, source, runs):
        if is_over():
            return study
        step()
        study.save(study_file)
        on_trial(study, study.trials[number])
    study.chosen, study.ended = _chosen(study), True
    study.save(study_file)
    return study


def _steps(study: Study, plan: SearchPlan, source: str, runs: TrialRuns) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yield what is to be done, one trial's runs at a time, as the trials that are there ask for it."""
    question = study.question
    ranges = search_ranges(source, fixed=question.fixed)
    search = _search(question, ranges)
    while len(study.trials) < plan.trials and (plan.budget_epochs is None or study.work_epochs < plan.budget_epochs):
        if (settings := search(study) if study.trials else own_settings(source, ranges)) is None:
            break
        study.ended = False
        trial, number = Trial(settings=settings), len(study.trials)

        def begin(trial: Trial = trial, number: int = number) -> None:
            study.trials.append(trial)
            runs.search_score(number, runs=question.runs_at(0))

        yield number, begin
    for rung, keep in _rungs(study):
        for number in keep:
            if len(study.trials[number].scores) == rung and not study.trials[number].failure:
                yield number, lambda number=number, rung=rung: runs.search_score(number, runs=question.runs_at(rung))  # type: ignore[misc]
    for number in _finalists(study):
        if study.trials[number].fresh is None and not study.trials[number].failure:
            yield number, lambda number=number: runs.fresh_score(number, runs=question.runs)  # type: ignore[misc]


def _rungs(study: Study) -> Iterator[tuple[int, list[int]]]:
    """Yield each halving with the trials that it keeps; asked for the next one, the trials have their scores."""
    keep = list(range(len(study.trials)))
    for rung in range(1, study.question.halvings + 1):
        keep = study.in_order(keep, rung=rung - 1)
        keep = keep[: -(-len(keep) // 2)]
        yield rung, keep


def _finalists(study: Study) -> list[int]:
    """Return the trials that are scored again, the file's own constants among them."""
    keep = list(range(len(study.trials)))
    for _, kept in _rungs(study):
        keep = kept
    best = study.in_order(keep, rung=study.question.halvings)[:FINALISTS]
    return sorted({0, *best}) if study.trials else []


def _chosen(study: Study) -> int | None:
    """Return the finalist with the best fresh score, the first of equals; None where none has one."""
    sign = 1.0 if study.question.higher_is_better else -1.0
    fresh = [(number, study.trials[number].fresh) for number in _finalists(study)]
    scored = [(sign * score.value, -number) for number, score in fresh if score is not None]
    return -max(scored)[1] if scored else None


def _search(question: Question, ranges: Mapping[str, Range]) -> Sampler:
    if question.search == "tpe":
        return optuna_sampler(ranges, seed=question.seed)
    if question.search == "random":
        return lambda study: random_settings(ranges, seed=question.seed, trial=len(study.trials))

    def next_on_grid(study: Study) -> Settings | None:
        untried = grid_settings(ranges, points=question.points)
        return next((settings for number, settings in enumerate(untried, start=1) if number == len(study.trials)), None)

    return next_on_grid
