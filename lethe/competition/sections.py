"""Small sections of the competition file: limits, pages, participation, phases, ranking, submissions, workers."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from lethe.competition.section import Section, Timestamp
from lethe.submission.libraries import OLDER_SETS


class Limits(Section):
    """What one submission may use."""

    wall_time_s: float = Field(default=8 * 3600, gt=0, description="all runs of an evaluation together, seconds")
    run_wall_time_s: float | None = Field(default=None, gt=0, description="one run, seconds")
    run_fraction_of_retraining: float | None = Field(
        default=0.2, gt=0, description="one run, as a share of one retraining; of the processor where there is no GPU"
    )
    run_start_time_s: float = Field(
        default=1.0, ge=0, description="processor seconds beyond that share and an empty run's, for imports"
    )
    run_wall_time_floor_s: float = Field(
        default=5.0, gt=0, description="a run is never given less time by the clock, seconds"
    )
    run_cpu_time_s: float | None = Field(
        default=None, gt=0, description="processor seconds of one run; default: its time, twice or on each thread"
    )
    run_idle_time_s: float = Field(
        default=20.0, ge=1, description="a run that uses no processor for so long is ended, seconds"
    )
    isolation: Literal["process", "shard"] = Field(
        default="process",
        description="on a GPU: a fresh process for each run, or one for a shard's runs, which is quicker and weaker",
    )
    memory_mib: int = Field(default=2048, ge=128)
    processes: int = Field(default=64, ge=1)
    scratch_mib: int = Field(default=256, ge=1)
    log_kib: int = Field(default=256, ge=1)
    leak_bits_per_day: float = Field(
        default=64.0,
        ge=0,
        le=100_000,
        description="bits that a team's failures on hidden data may reveal per UTC day; 0: only the error class",
    )
    upload_mib: int = Field(default=20, ge=1)
    submissions_per_day: int = Field(default=5, ge=1)
    submissions_total: int | None = Field(default=None, ge=1)
    final_selections: int = Field(default=2, ge=1)
    team_size: int = Field(default=5, ge=1)


Markdown = Annotated[str, Field(max_length=100_000)]


class Pages(Section):
    """Pages in Markdown, each shown under its own address if it has a text."""

    data: Markdown = ""
    rules: Markdown = ""
    evaluation: Markdown = ""
    prizes: Markdown = ""
    faq: Markdown = ""

    @property
    def shown(self) -> dict[str, str]:
        """The pages that have a text, by name, in their order."""
        return {name: text for name, text in self.model_dump().items() if text}


TITLES = {"data": "Data", "rules": "Rules", "evaluation": "Evaluation", "prizes": "Prizes", "faq": "FAQ"}


class Participation(Section):
    """Who may take part (docs/organisers/participation.md)."""

    admission: Literal["open", "invited", "approved"] = Field(
        default="open",
        description="open: everybody; invited: by a link or an address of the organisers; approved: who they accept",
    )
    private: bool = Field(
        default=False, description="with invited: only those who may take part see the competition and its boards"
    )
    terms: str = Field(
        default="", max_length=100_000, description="Markdown; each version must be accepted before a submission"
    )
    confirmed_email: bool = Field(
        default=False, description="one account per confirmed e-mail address; without it accounts are not compared"
    )

    @model_validator(mode="after")
    def _is_found_by_somebody(self) -> Self:
        if self.private and self.admission != "invited":
            raise ValueError(
                f'private needs admission = "invited", had {self.admission!r}: nobody could ask to take part in what '
                "they do not see"
            )
        return self

    @property
    def is_open(self) -> bool:
        """Whether everybody takes part, without an account's address or terms being asked for."""
        return self.admission == "open" and not self.terms and not self.confirmed_email


LATE = "late"
MAX_PHASES = 10


class Phase(Section):
    """A time between the opening and the close. It ends where the next one begins, the last one at the close."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$", max_length=40)]
    begins_at: Timestamp | None = Field(default=None, description="unset for the first phase: at the opening")
    counts: bool = Field(
        default=True,
        description="whether its submissions rank and may become finals; else they have a leaderboard of their own",
    )
    submissions_per_day: int | None = Field(default=None, ge=1, description="unset: that of limits")
    submissions_total: int | None = Field(default=None, ge=1, description="in this phase; unset: that of limits")


class Late(Section):
    """Submissions after the close: unofficial, on a leaderboard of their own, never among the finals."""

    accepted: bool = False
    until: Timestamp | None = Field(default=None, description="unset: until the competition is archived")
    submissions_per_day: int | None = Field(default=None, ge=1, description="unset: that of limits")


def require_phases_in_order(phases: Sequence[Phase], late: Late, *, opens_at: datetime, closes_at: datetime) -> None:
    """Raise ValueError unless phases have names of their own and follow one another between opening and close, some
    submissions count, and late ones end after the close."""
    names = [phase.name for phase in phases]
    if wrong := [name for name in names if names.count(name) > 1 or name == LATE]:
        raise ValueError(f"phases: the name {wrong[0]!r} is taken twice, or by submissions after the close")
    if phases and not any(phase.counts for phase in phases):
        raise ValueError("phases: in none of them submissions count, so nobody could be ranked")
    if phases and phases[0].begins_at not in (None, opens_at):
        raise ValueError(f"phases: {names[0]!r} is the first and begins at opens_at ({_iso(opens_at)})")
    before = opens_at
    for phase in phases[1:]:
        if phase.begins_at is None or not before < phase.begins_at < closes_at:
            raise ValueError(
                f"phases: {phase.name!r} must begin after the phase before it ({_iso(before)}) and before "
                f"closes_at ({_iso(closes_at)})"
            )
        before = phase.begins_at
    if late.until is not None and late.until <= closes_at:
        raise ValueError(f"late.until ({_iso(late.until)}) must be later than closes_at ({_iso(closes_at)})")


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


SCORE = "score"
JOINT_AUDIT = "joint_audit"
COMBINED = {"mean": "mean", "harmonic-mean": "harmonic mean", "worst": "worst"}


class PublicBoard(Section):
    """How the public score is shown (docs/ladder.md)."""

    mode: Literal["best", "ladder"] = Field(
        default="best", description="ladder: the score changes only when a submission is better by more than a step"
    )
    step: float = Field(default=0.01, gt=0, lt=1, description="of the ladder")


class Ranking(Section):
    """What ranks: the score, one metric, or several combined (docs/organisers/scoring.md)."""

    by: tuple[str, ...] = Field(
        default=(SCORE,), min_length=1, max_length=8, description='"score" and ids out of report.metrics'
    )
    combine: Literal["mean", "harmonic-mean", "worst"] = Field(
        default="mean", description="of several, each on the scale from the original model (0) to exact retraining (1)"
    )
    min_retain_ratio: float | None = Field(
        default=None, gt=0, le=1, description="a submission whose retain ratio is lower ranks as 0"
    )
    min_test_ratio: float | None = Field(
        default=None, gt=0, le=1, description="a submission whose test ratio is lower ranks as 0"
    )

    max_joint_audit: float | None = Field(
        default=None,
        gt=0.5,
        lt=1,
        description="a submission of which the metric joint_audit is higher ranks as 0: its models are told from "
        "retrained ones by the whole forget set, though each example looks retrained",
    )

    @field_validator("by", mode="before")
    @classmethod
    def _one_as_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if twice := [name for name in self.by if self.by.count(name) > 1]:
            raise ValueError(f"by names {twice[0]!r} twice")
        return self

    @property
    def is_by_score(self) -> bool:
        """Whether the score alone is the value, as it was published; gates may still make it 0."""
        return self.by == (SCORE,)

    @property
    def needs_metrics(self) -> bool:
        """Whether metrics must be computed before a submission ranks."""
        return not self.is_by_score or self.max_joint_audit is not None

    @property
    def in_words(self) -> str:
        """Return what ranks as a phrase, for pages and answers."""
        gates = {"retain ratio": self.min_retain_ratio, "test ratio": self.min_test_ratio}
        asked = [f"{name} of at least {least:g}" for name, least in gates.items() if least is not None]
        if self.max_joint_audit is not None:
            asked.append(f"joint audit of at most {self.max_joint_audit:g}")
        named = ", ".join(self.by)
        what = named if len(self.by) == 1 else f"{COMBINED[self.combine]} of {named}"
        return " with ".join([what, *([" and ".join(asked)] if asked else [])])


class Submissions(Section):
    """What kinds of code are taken.

    In function mode every run is its own process, also of a notebook that saves models: it ends with its first. In
    notebook mode a notebook may ask to run once, and all its models count; runs are then not independent, and the
    leaderboard says so.
    """

    modes: tuple[Literal["function", "notebook"], ...] = Field(default=("function",), min_length=1)
    cuda: Literal["refuse", "map-to-cpu"] = Field(
        default="refuse", description="code that requires a GPU where there is none: refused, or run on the CPU"
    )
    input_folder: str = Field(
        default="neurips-2023-machine-unlearning",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$",
        description="the folder below /kaggle/input that notebooks read",
    )
    libraries: str = Field(
        default="",
        description="a set of older libraries that code runs with; empty: the workers' own (participants/libraries.md)",
        json_schema_extra={"enum": ["", *OLDER_SETS]},
    )

    @field_validator("libraries")
    @classmethod
    def _is_a_set(cls, value: str) -> str:
        if value and value not in OLDER_SETS:
            raise ValueError(f"must be empty or one of {', '.join(map(repr, OLDER_SETS))}")
        return value


# Of logit-scaled confidences. The same runs on other processors differ by less (docs/operators/workers.md).
TOLERANCE = 0.01


class Workers(Section):
    """Machines with worker tokens are untrusted, unless an administrator vouched for their token."""

    trusted_only: bool = Field(default=False, description="no untrusted machine runs a submission")
    verified_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="of an untrusted machine's runs, the share made again by a trusted one, if the instance's is less",
    )
    tolerance: float = Field(
        default=TOLERANCE,
        ge=0,
        le=0.1,
        description="how far the repeated outputs may differ; 0: by no bit (docs/operators/workers.md)",
    )


UPLOAD = "upload:"
DATASET_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
DATASET_NAME_RULE = "must be 1 to 64 of a-z, 0-9 and -, beginning and ending with a letter or number"
# Adapters that read pictures, arrays and small tables. The others' files are known to everybody, and some unpack to any
# length or are pickles.
UPLOADED_ADAPTERS = ("folder", "kaggle", "numpy")


def uploaded_name(options: Mapping[str, Any]) -> str | None:
    """Return the name of the uploaded dataset that a dataset's options ask for, None if they ask for none."""
    root = options.get("root")
    return root.removeprefix(UPLOAD) if isinstance(root, str) and root.startswith(UPLOAD) else None
