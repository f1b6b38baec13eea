"""Trials proposed by Optuna, which comes with the extra `tune`.

An objective of several losses is searched by NSGA-III, which minimises them together, as Cadet et al. 2024 do; any
other by the tree-structured Parzen estimator.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Range
from lethe.tuning.search_space import Settings
from lethe.tuning.study import Sampler, Study

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
