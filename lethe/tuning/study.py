"""A study: the trials of one method's search on one split, in a JSON file that a later call goes on with."""

from pathlib import Path
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Value
from lethe.tuning.search_space import Settings

Search = Literal["random", "grid", "optuna"]


class Question(BaseModel):
    """What a study asks. Trials of different questions are never mixed. split_sha256: of the split's manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    split_sha256: str
    objective: str
    higher_is_better: bool
    search: Search
    points: int
    runs: int
    seed: int


class Trial(BaseModel):
    """One try. value: None where it failed, and `failure` says why. device_time_s: of its runs, retraining not.

    losses: where the objective has several, those that `value` is the norm of.
    """

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Value]
    value: float | None = None
    losses: list[float] = []
    device_time_s: float = 0.0
    failure: str = ""


class Study(BaseModel):
    """The file. reference_tuned: the objective compares with retrained models, which unlearning is to spare."""

    model_config = ConfigDict(extra="forbid")

    question: Question
    reference_tuned: Literal[True] = True
    trials: list[Trial] = []

    @classmethod
    def open(cls, path: Path, question: Question) -> Self:
        """Return the study at `path`, or a new one. Raises InvalidInput for a file of another question."""
        if not path.exists():
            return cls(question=question)
        try:
            study = cls.model_validate_json(path.read_text("utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} is no study") from error
        asked, found = question.model_dump(), study.question.model_dump()
        if differing := [name for name in asked if asked[name] != found[name]]:
            name = differing[0]
            raise InvalidInput(f"{path} is a study of {name} {found[name]!r}, not {asked[name]!r}; name another file")
        return study

    def save(self, path: Path) -> None:
        """Replace the file at once, so that an interrupted search leaves it whole."""
        beside = path.with_name(path.name + ".new")
        beside.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        beside.replace(path)

    @property
    def device_time_s(self) -> float:
        return sum(trial.device_time_s for trial in self.trials)

    @property
    def best(self) -> Trial | None:
        """The trial with the best value, the first of equals; None while none has one."""
        sign = 1.0 if self.question.higher_is_better else -1.0
        scored = [(sign * trial.value, trial) for trial in self.trials if trial.value is not None]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None


class Sampler(Protocol):
    """Gives the settings of the next trial, or None when all were tried."""

    def __call__(self, study: Study) -> Settings | None: ...
