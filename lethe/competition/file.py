"""The competition file: everything an organiser decides, as TOML, checked before anything is made.

The same models are the worker's recipe for preparing splits, so a competition is a function of its file.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from lethe.competition.report_section import Report, require_metric_fits, require_metric_ranks
from lethe.competition.section import Options, Section, Timestamp, read_toml, with_suggestion, wrong_types
from lethe.competition.sections import (
    JOINT_AUDIT,
    MAX_PHASES,
    SCORE,
    Late,
    Limits,
    Pages,
    Participation,
    Phase,
    PublicBoard,
    Ranking,
    Submissions,
    Workers,
    require_phases_in_order,
)
from lethe.competition.splits_section import METRIC_ID, Splits
from lethe.competition.task import (
    CausalLm,
    Combine,
    ImageClassification,
    Task,
    completed,
    require_text_settings,
    said_once,
    wrong_combination,
)
from lethe.errors import InvalidCompetitionFile, Violation, list_violations
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, DELTA, EPSILON_CAP, MIN_MODELS_DIVIDED, AttackFamily
from lethe.text_files import plain_text, read_text

Setup = Literal["reuse-n-1", "reuse-n-n"]
FORMERLY_METRIC = AliasChoices("scoring", "metric")  # how the section was called until version 0.2
SLUG = r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$"


def _check_slug(slug: str) -> str:
    if not re.fullmatch(SLUG, slug):
        raise ValueError("must be 1 to 64 lower-case letters, digits and hyphens, without a hyphen at an end")
    return slug


Slug = Annotated[str, AfterValidator(_check_slug), Field(json_schema_extra={"pattern": SLUG, "maxLength": 64})]


class Scoring(Section):
    """How outputs become a score (docs/organisers/scoring.md)."""

    attacks: AttackFamily = Field(
        default=DEFAULT_ATTACKS,
        description="crossfit, which nothing but unlearning wins; reference, exact and disentangled as in 2023",
    )
    delta: float = Field(default=DELTA, gt=0, lt=1)
    epsilon_cap: float = Field(default=EPSILON_CAP, gt=0)
    setup: Setup = Field(
        default="reuse-n-1",
        description="reuse-n-n: each run starts from its own original model, of N (docs/organisers/scoring.md)",
    )
    bootstrap_resamples: int = Field(default=100, ge=0, le=10_000, description="for intervals and ties; 0 or >= 20")
    show_intervals: bool = False
    show_breakdown: bool = Field(
        default=False,
        description="a team sees what its public scores are made of: factors, epsilons, advice (120 bits each)",
    )

    @field_validator("bootstrap_resamples")
    @classmethod
    def _says_something(cls, value: int) -> int:
        if 0 < value < 20:
            raise ValueError("must be 0, or at least 20: fewer say nothing about a spread")
        return value


class Dataset(Section):
    """Where the images come from. `options` go to the adapter called `name`, which checks them."""

    name: str
    options: Options = Field(default={}, validate_default=True)


class Network(Section):
    """The architecture. `options` go to the builder called `name`."""

    name: str
    options: Options = Field(default={}, validate_default=True)


class Training(Section):
    """The recipe of the original and of every retrained model."""

    epochs: int = Field(ge=1, le=10_000)
    batch_size: int = Field(default=64, ge=1)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    schedule: Literal["constant", "cosine", "step"] = "constant"
    milestones: tuple[int, ...] = Field(default=(), description="step: epochs after which the rate falls")
    gamma: float = Field(default=0.1, gt=0, le=1, description="step: the rate is multiplied by this")
    warmup_epochs: int = Field(default=0, ge=0, description="the rate rises from near 0 over these epochs")
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    class_weights: Literal["none", "inverse-frequency"] = "none"
    augmentation: Literal["none", "flip", "crop-flip"] = "none"
    mixing: Literal["none", "cutmix", "mixup"] = Field(
        default="none", description="half of the batches: pictures and labels of two examples are mixed, alpha 1"
    )
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    min_train_accuracy: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="below it preparation stops; default: twice the rate of guessing, of two classes .75",
    )

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.schedule == "step" and not self.milestones:
            raise ValueError('schedule "step" needs milestones, the epochs after which the rate falls')
        wrong = [epoch for epoch in self.milestones if not 1 <= epoch < self.epochs]
        if wrong:
            raise ValueError(f"milestones must lie in 1..{self.epochs - 1}, had {wrong[0]}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs ({self.warmup_epochs}) must be below epochs ({self.epochs})")
        return self


class CompetitionFile(Section):
    """One competition."""

    slug: Slug
    title: str = Field(min_length=1, max_length=200)
    summary: str = Field(default="", max_length=500)
    description: str = Field(default="", max_length=100_000, description="Markdown, shown on the overview page")
    opens_at: Timestamp
    closes_at: Timestamp
    merge_deadline: Timestamp | None = None
    weak_seed: bool = Field(
        default=False, description="whether splits.seed may be so short that it can be guessed: for trying Lethe out"
    )
    n_models: int = Field(
        default=512, ge=2, le=65_536, description="N: runs of a submission, and retrained models of a split"
    )
    shard_runs: int = Field(default=64, ge=1, description="runs in one shard")
    scoring: Scoring = Field(default=Scoring(), validation_alias=FORMERLY_METRIC)
    task: Task = ImageClassification()
    dataset: Dataset
    network: Network
    training: Training
    splits: Splits = Field(default_factory=Splits)
    limits: Limits = Limits()
    board: PublicBoard = PublicBoard()
    submissions: Submissions = Submissions()
    workers: Workers = Workers()
    report: Report = Report()
    ranking: Ranking = Ranking()
    participation: Participation = Participation()
    phases: tuple[Phase, ...] = Field(default=(), max_length=MAX_PHASES)
    late: Late = Late()
    pages: Pages = Pages()
    tasks: tuple["CompetitionFile", ...] = Field(default=(), description="several tasks in place of one")
    combine: Combine = Combine()

    @property
    def divides_too_few(self) -> bool:
        """Whether its attacks fit on one half of the models and judge on the other, and there are too few for it."""
        return self.scoring.attacks.divides_models and self.n_models < MIN_MODELS_DIVIDED

    @property
    def evaluated(self) -> tuple["CompetitionFile", ...]:
        """The files that submissions are evaluated by: those of its tasks, or itself."""
        return self.tasks or (self,)

    @property
    def published_attacks(self) -> AttackFamily | None:
        """The family of 2023 whose score ranks, or helps to, here or in one of the tasks: an entry can win it without
        unlearning."""
        families = (each.scoring.attacks for each in self.evaluated if SCORE in each.ranking.by)
        return next((family for family in families if family.is_published), None)

    @property
    def scale_in_words(self) -> str:
        """How its scores are to be read, in one sentence."""
        if family := self.published_attacks:
            return f"Scored as in 2023 by the {family} attacks, which an entry can win without unlearning"
        return "Exact retraining scores about 1" + (" in each task" if self.tasks else "")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Complete tasks. `strangers = false` of files before version 0.3 is read as what it did: it kept nobody out,
        but allowed a weak seed."""
        if isinstance(data, dict) and isinstance(data.get("strangers"), bool):
            kept = {name: value for name, value in data.items() if name != "strangers"}
            data = {"weak_seed": not data["strangers"], **kept}
        return completed(data)

    @model_validator(mode="after")
    def _tasks_can_be_combined(self) -> Self:
        if nested := [task.slug for task in self.tasks if task.tasks]:
            raise ValueError(f"tasks: {nested[0]} has tasks of its own; a task cannot")
        if wrong := wrong_combination(self.slug, [task.slug for task in self.tasks], self.combine):
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _ranks_by_what_is_computed(self) -> Self:
        asked = [request.id for request in self.report.metrics]
        if self.ranking.max_joint_audit is not None and asked.count(JOINT_AUDIT) != 1:
            raise ValueError(f'ranking.max_joint_audit needs "{JOINT_AUDIT}" once in report.metrics')
        for name in self.ranking.by:
            if name != SCORE and asked.count(name) != 1:
                found = "is not among report.metrics" if name not in asked else "is asked for with several parameters"
                allowed = ", ".join(['"score"', *dict.fromkeys(asked)])
                raise ValueError(f"ranking.by: {name!r} {found}; allowed are {allowed}, each named there once")
            if name != SCORE:
                require_metric_ranks(name)
        return self

    @model_validator(mode="after")
    def _dates_in_order(self) -> Self:
        if self.closes_at <= self.opens_at:
            raise ValueError(f"closes_at: must be later than opens_at ({self.opens_at.isoformat(timespec='seconds')})")
        if self.merge_deadline and not self.opens_at <= self.merge_deadline <= self.closes_at:
            raise ValueError("merge_deadline: must lie between opens_at and closes_at")
        return self

    @model_validator(mode="after")
    def _phases_in_order(self) -> Self:
        require_phases_in_order(self.phases, self.late, opens_at=self.opens_at, closes_at=self.closes_at)
        return self

    @model_validator(mode="after")
    def _runs_can_have_originals(self) -> Self:
        if self.scoring.setup == "reuse-n-n" and "notebook" in self.submissions.modes:
            raise ValueError(
                'scoring.setup "reuse-n-n" gives each run its own original model, but a notebook makes all its '
                'models in one run, from one: take "notebook" out of submissions.modes, or use setup "reuse-n-1"'
            )
        return self

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        for request in self.report.metrics:
            require_metric_fits(request.id, self.task.kind)
        for baseline in self.report.baselines:
            baseline.require_fits(self.task.kind)
        recipes = self.splits.recipes
        varied = [variation.applied(self.training) for variation in recipes.variations] if recipes else []
        for training in (self.training, *varied) if isinstance(self.task, CausalLm) else ():
            require_text_settings(
                training,
                forget_by=self.splits.forget.by,
                class_skew=self.splits.forget.class_skew,
                modes=self.submissions.modes,
            )
        return self

    @model_validator(mode="after")
    def _recipes_are_read(self) -> Self:
        asked = any(request.id == METRIC_ID for request in self.report.metrics)
        if asked and self.splits.recipes is None:
            raise ValueError(f"report.metrics: {METRIC_ID} needs the models of [splits.recipes], which is not there")
        if self.splits.recipes and not asked:
            raise ValueError(f'splits.recipes: nothing reads its models: add "{METRIC_ID}" to report.metrics')
        return self

    @model_validator(mode="after")
    def _baselines_can_be_taken(self) -> Self:
        if self.report.baselines and "function" not in self.submissions.modes:
            raise ValueError(
                'report.baselines are functions, but submissions.modes takes notebooks alone: add "function" to it'
            )
        return self


class RunRules(BaseModel):
    """What a worker knows of a competition's file: enough to run a submission, and nothing of how data was cut."""

    model_config = ConfigDict(frozen=True)

    slug: str
    n_models: int
    scoring: Scoring = Field(validation_alias=FORMERLY_METRIC)
    limits: Limits
    submissions: Submissions
    keep_weights: int = 0

    @classmethod
    def of(cls, file: CompetitionFile) -> Self:
        parts = {name: getattr(file, name) for name in cls.model_fields if name != "keep_weights"}
        return cls(**parts, keep_weights=file.report.keep_weights)


def read_competition_file(path: Path) -> CompetitionFile:
    """Return the checked competition at `path`. Raises InvalidCompetitionFile naming each wrong value."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidCompetitionFile(f"{path}: cannot be read as UTF-8 text: {error}") from error
    return parse_competition(text, source=str(path))


def parse_competition(text: str, *, source: str = "competition file") -> CompetitionFile:
    """Return the checked competition in TOML `text`. Raises InvalidCompetitionFile naming each wrong value."""
    data = read_toml(plain_text(text), source=source)
    wrong = wrong_types(CompetitionFile, data)
    try:
        file = CompetitionFile.model_validate(data)
    except ValidationError as error:
        named = {violation.field for violation in wrong}
        wrong += tuple(each for each in list_violations(error) if each.field not in named)
    else:
        for each in file.evaluated:
            why = f"since {each.scoring.attacks} attacks fit on one half of the models and judge on the other"
            least = Violation("n_models", f"must be at least {MIN_MODELS_DIVIDED}, {why}", str(each.n_models))
            wrong += (least,) if each.divides_too_few else ()
    if wrong:
        mistakes = tuple(with_suggestion(violation, CompetitionFile) for violation in said_once(wrong, data))
        raise InvalidCompetitionFile.from_violations(mistakes, source=source)
    return file
