"""Trials proposed by Optuna's tree-structured Parzen estimator. Optuna comes with the extra `tune`."""

from collections.abc import Mapping
from typing import Any

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Range
from lethe.methods.search_space import Settings
from lethe.methods.study import Study
from lethe.methods.tuning import Sampler


def optuna_sampler(ranges: Mapping[str, Range], *, seed: int) -> Sampler:
    """Return a sampler that learns from the study's trials. Raises InvalidInput if Optuna is not installed.

    Everything that Optuna knows is told from the study's file before each trial, so that a later call goes on alike.
    """
    try:
        import optuna  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InvalidInput(
            "--search optuna needs the package optuna: pip install 'lethe-unlearning[tune]'; random and grid need none"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {name: _distribution(optuna.distributions, found) for name, found in ranges.items()}

    def next_settings(study: Study) -> Settings:
        direction = "maximize" if study.question.higher_is_better else "minimize"
        sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
        asked = optuna.create_study(direction=direction, sampler=sampler)
        for trial in study.trials:
            if trial.value is not None:
                asked.add_trial(
                    optuna.trial.create_trial(params=trial.settings, distributions=distributions, value=trial.value)
                )
        return dict(asked.ask(distributions).params)

    return next_settings


def _distribution(kinds: Any, found: Range) -> Any:
    if found.kind == "choice":
        return kinds.CategoricalDistribution(found.values)
    low, high = found.values
    if found.kind == "int":
        return kinds.IntDistribution(low, high)
    return kinds.FloatDistribution(float(low), float(high), log=found.kind == "log")
