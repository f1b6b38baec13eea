"""A study: ranges of a method's constants and trials of one split, in a JSON file that a later call goes on with."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Constant, Range, Value, constants_in
from lethe.methods.inlining import parse

Settings = dict[str, Value]


def search_ranges(source: str, *, fixed: Collection[str] = ()) -> dict[str, Range]:
    """Return the ranges that a method's file declares, but for the constants in `fixed`; empty where it has none.

    Raises InvalidInput if the source is not Python, or a range is on another constant's line.
    """
    found = {each.name: each.range for each in source_constants(source) if each.range is not None}
    return {name: each for name, each in found.items() if name not in fixed}


def own_settings(source: str, ranges: Mapping[str, Range]) -> Settings:
    """Return the values that the file has for the constants that are searched."""
    return {constant.name: constant.value for constant in source_constants(source) if constant.name in ranges}


def source_constants(source: str) -> list[Constant]:
    """Return the constants of a method's source. Raises InvalidInput if it is not Python."""
    try:
        return constants_in(parse(source), source)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"the method is not Python: {error}") from error


def random_settings(ranges: Mapping[str, Range], *, seed: int, trial: int) -> Settings:
    """Draw the settings of one trial; each trial has a stream of its own, so a study can be taken up anywhere."""
    random = Random(f"{seed} {trial}")  # noqa: S311  a search, not a secret
    return {name: _drawn(found, random) for name, found in ranges.items()}


def grid_settings(ranges: Mapping[str, Range], *, points: int) -> Iterator[Settings]:
    """Yield the product of `points` values of every range, ends included; of a choice, all values."""
    columns = [_points(found, points) for found in ranges.values()]
    for values in product(*columns):
        yield dict(zip(ranges, values, strict=True))


def _drawn(found: Range, random: Random) -> Value:
    if found.kind == "choice":
        return random.choice(found.values)
    low, high = _ends(found)
    if found.kind == "int":
        return random.randint(int(low), int(high))
    return _log(random.random(), low, high) if found.kind == "log" else random.uniform(low, high)


def _points(found: Range, points: int) -> list[Value]:
    if found.kind == "choice":
        return list(found.values)
    low, high = _ends(found)
    shares = [number / (points - 1) for number in range(points)] if points > 1 else [0.5]
    if found.kind == "log":
        return [_log(share, low, high) for share in shares]
    values = [low + share * (high - low) for share in shares]
    return list(dict.fromkeys(round(value) for value in values)) if found.kind == "int" else list(values)


def _ends(found: Range) -> tuple[float, float]:
    low, high = (float(value) for value in found.values)
    return low, high


def _log(share: float, low: float, high: float) -> float:
    """Return the point at `share` of the way, in logarithms; exactly an end at 0 or 1."""
    return {0.0: low, 1.0: high}.get(share, math.exp(math.log(low) + share * math.log(high / low)))


Search = Literal["random", "grid", "tpe"]
FINALISTS = 3  # scored again on fresh runs, beside the file's own constants


@dataclass(frozen=True)
class SearchPlan:
    """What every method of a comparison gets alike.

    trials: at most, the file's own constants included. budget_epochs: no trial begins once the runs of the trials cost
    as much as so many epochs of training; None: trials alone are counted. points: of a grid, on each range.
    """

    trials: int = 30
    budget_epochs: float | None = None
    search: Search = "random"
    objective: str = "score"
    runs: int = 16
    halvings: int = 2
    points: int = 3
    seed: int = 0

    def runs_at(self, rung: int) -> int:
        """Return how many runs a trial has after so many halvings."""
        return runs_at(rung, runs=self.runs, halvings=self.halvings)

    def planned_runs(self, n_trials: int) -> int:
        """Return how many runs a search of so many trials makes at most."""
        left, runs = n_trials, n_trials * self.runs_at(0)
        for rung in range(1, self.halvings + 1):
            left = -(-left // 2)
            runs += left * (self.runs_at(rung) - self.runs_at(rung - 1))
        return runs + (FINALISTS + 1) * self.runs


def runs_at(rung: int, *, runs: int, halvings: int) -> int:
    """Return how many of `runs` a trial has after so many halvings, at least 4: what the default score divides."""
    return min(runs, max(4, -(-runs >> (halvings - rung))))


class _Part(BaseModel):
    """Of a file that programs write, of other versions too."""


class Question(_Part):
    """What a study asks. Trials of different questions are never mixed.

    source_sha256: of the method's file. split_sha256: of the split's manifest. fixed: constants that are not searched.
    runs: of a trial that stays to the end. halvings: how often the better half of the trials gets twice as many runs.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    source_sha256: str
    split_sha256: str
    fixed: tuple[str, ...] = ()
    objective: str
    higher_is_better: bool
    search: Search
    points: int
    runs: int
    halvings: int
    seed: int

    def runs_at(self, rung: int) -> int:
        """Return how many runs a trial has after so many halvings."""
        return runs_at(rung, runs=self.runs, halvings=self.halvings)


class TrialScore(_Part):
    """losses: where the objective has several, those that `value` is the norm of."""

    runs: int
    value: float
    losses: list[float] = []


class Trial(_Part):
    """One try; the first of a study has the file's own constants.

    scores: after each halving that it reached. fresh: of runs that the search never saw. failure: why it has no score.
    work_epochs: epochs of training that cost as much as all its runs. cpu_time_s: of these runs.
    """

    settings: dict[str, Value]
    scores: list[TrialScore] = []
    fresh: TrialScore | None = None
    work_epochs: float = 0.0
    cpu_time_s: float = 0.0
    failure: str = ""


class Study(_Part):
    """The file. chosen: the trial whose fresh runs are the best; None until the search has ended, or where all failed.

    reference_tuned: the objective compares with retrained models, which unlearning is to spare.
    """

    question: Question
    reference_tuned: Literal[True] = True
    trials: list[Trial] = []
    ended: bool = False
    chosen: int | None = None

    @classmethod
    def open(cls, path: Path, question: Question) -> Self:
        """Return the study at `path`, or a new one. Raises InvalidInput for a file of another question."""
        if not path.exists():
            return cls(question=question)
        study = cls.read(path)
        asked, found = question.model_dump(), study.question.model_dump()
        if differing := [name for name in asked if asked[name] != found[name]]:
            name = differing[0]
            raise InvalidInput(f"{path} is a study of {name} {found[name]!r}, not {asked[name]!r}; name another file")
        return study

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the study at `path`. Raises InvalidInput if it is none."""
        try:
            return cls.model_validate_json(path.read_text("utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} is not a study; remove it, or name another file") from error

    def save(self, path: Path) -> None:
        """Replace the file at once, so that an interrupted search leaves it whole."""
        beside = path.with_name(path.name + ".new")
        beside.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        beside.replace(path)

    @property
    def work_epochs(self) -> float:
        return sum(trial.work_epochs for trial in self.trials)

    @property
    def cpu_time_s(self) -> float:
        return sum(trial.cpu_time_s for trial in self.trials)

    @property
    def best(self) -> Trial | None:
        """The chosen trial."""
        return None if self.chosen is None else self.trials[self.chosen]

    def share_done(self, plan: SearchPlan) -> float:
        """Return the share of the search's runs that are done, 0 to 1; a trial that failed needs no more."""
        if self.ended:
            return 1.0
        used = plan.budget_epochs is not None and self.work_epochs >= plan.budget_epochs
        planned = plan.planned_runs(len(self.trials) if used else plan.trials)
        done = sum(max((score.runs for score in trial.scores), default=plan.runs_at(0)) for trial in self.trials)
        done += sum(trial.fresh.runs for trial in self.trials if trial.fresh)
        return min(done / planned, 1.0)

    def in_order(self, numbers: list[int], *, rung: int) -> list[int]:
        """Return those trials that have a score after so many halvings, best first, the first of equals first."""
        sign = -1.0 if self.question.higher_is_better else 1.0
        scored = [number for number in numbers if len(self.trials[number].scores) > rung]
        return sorted(scored, key=lambda number: sign * self.trials[number].scores[rung].value)


class Sampler(Protocol):
    """Gives the settings of the next trial, or None when all were tried."""

    def __call__(self, study: Study) -> Settings | None: ...
