"""What anyone may know of a competition. Seeds, options of the dataset and private splits never pass through here."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from lethe.competition.file import CompetitionFile
from lethe.competition.run_limits import limit_warnings
from lethe.competition.section import Timestamp
from lethe.competition.sections import Late, Limits, Phase, Ranking
from lethe.competition.task import task_name
from server.admin.competition_edits import Change
from server.api.schema import In, Out
from server.competitions.split_share import share_done, time_left_s
from server.competitions.stored_file import stored_file
from server.db import now
from server.finals.finals import Failed, Rescoring
from server.models.competition import Competition, ModelShard, Split
from server.submissions.quota import Quota


class FailedFinal(BaseModel):
    """A final that failed on the private split, and waits for a decision."""

    submission: str = Field(examples=["9c1e6f0a2b3d4e5f"])
    team: str
    fault: str | None
    error_class: str | None
    message: str | None

    @classmethod
    def all(cls, failed: Sequence[Failed]) -> "list[FailedFinal]":
        return [
            cls(
                submission=each.submission.id,
                team=each.submission.team.name,
                fault=each.evaluation.fault,
                error_class=each.evaluation.error_class,
                message=(each.evaluation.error or {}).get("message"),
            )
            for each in failed
        ]


class RescoringOut(Out):
    """How far the re-scoring on the private split is, for organisers."""

    frozen: bool = Field(description="the choice of finals is fixed; before that, public scores are waited for")
    waiting_public: int = Field(description="submissions received in time that are still being scored publicly")
    finals: int
    scored: int
    unconfirmed: int = Field(description="private scores that take no rank until an organiser confirms them")
    runs_done: int
    runs_total: int
    failed: list[FailedFinal]

    @classmethod
    def of(cls, rescoring: Rescoring) -> "RescoringOut":
        return cls.read(rescoring, frozen=rescoring.is_frozen, failed=FailedFinal.all(rescoring.failed))


class Decision(In):
    """What becomes of a final that failed on the private split."""

    decision: Literal["exclude", "run-again", "use-next-choice"]
    reason: str = Field(min_length=1, max_length=1000, examples=["It divides by the size of a set that is empty here"])


class TaskOut(Out):
    """A task of a competition: it has the addresses of a competition, and a board of its own."""

    name: str = Field(examples=["faces"])
    slug: str = Field(examples=["three--faces"])
    title: str = Field(examples=["Faces"])
    kind: str = Field(description="image-classification or causal-lm", examples=["image-classification"])
    dataset: str = Field(examples=["digits"])
    runs: int = Field(description="runs of a submission, N", examples=[512])
    weight: float = Field(description="in the combined score", examples=[1.0])


class CompetitionOut(Out):
    """A competition in a list."""

    slug: str = Field(examples=["digits"])
    title: str = Field(examples=["Forgetting digits"])
    summary: str
    state: str = Field(examples=["open"])
    opens_at: datetime
    closes_at: datetime
    metric: str = Field(examples=["forgetting quality x retain ratio x test ratio (crossfit attacks)"])
    scale: str = Field(description="how scores are to be read", examples=["Exact retraining scores about 1"])
    dataset: str = Field(examples=["digits"])
    runs: int = Field(description="runs of a submission, N", examples=[512])
    scores_verified: bool = Field(
        default=True, description="false: they came with an archive whose key nobody vouched for"
    )
    tasks: list[TaskOut] = Field(default=[], description="none: the competition is one task")
    task_name: str | None = Field(default=None, description="of a task of another competition, its name there")

    @classmethod
    def of(cls, competition: Competition) -> "CompetitionOut":
        return cls.read(competition, **_of_file(stored_file(competition)))


class CompetitionChange(In):
    """What is to change of a competition, by the names of its file; what is not named stays, also within a section."""

    title: str | None = None
    summary: str | None = None
    description: str | None = Field(default=None, description="Markdown")
    closes_at: Timestamp | None = None
    limits: dict[str, Any] | None = Field(default=None, examples=[{"submissions_per_day": 3}])
    participation: dict[str, Any] | None = Field(
        default=None, description="other terms are a new version, to be accepted again", examples=[{"private": True}]
    )
    phases: list[dict[str, Any]] | None = Field(
        default=None, max_length=10, description="all of them, in their order", examples=[[{"name": "development"}]]
    )
    late: dict[str, Any] | None = Field(default=None, examples=[{"accepted": True}])
    pages: dict[str, Any] | None = Field(default=None, description="Markdown, by name", examples=[{"faq": "None yet."}])
    file: str | None = Field(default=None, description="in place of all others: the whole file, TOML")
    reason: str = Field(
        default="", max_length=1000, description="needed, but for file and preview", examples=["Agreed with sponsors"]
    )
    preview: bool = Field(default=False, description="only say what would differ and whom it affects")

    @property
    def values(self) -> dict[str, Any]:
        return self.model_dump(exclude={"reason", "preview"}, exclude_none=True)


class CompetitionPage(CompetitionOut):
    """A competition, with its rules and, for a caller who is known, their quota."""

    description: str = Field(description="Markdown")
    merge_deadline: datetime | None
    limits: Limits
    modes: list[str] = Field(description="function, notebook: what is done with code", examples=[["function"]])
    libraries: str = Field(description="the set of older libraries that code runs with; empty: the workers' own")
    phases: list[Phase]
    late: Late
    admission: str = Field(description="open, invited, approved: who may take part", examples=["open"])
    private: bool = Field(description="only those who may take part see the competition")
    quota: Quota | None = Field(description="null for a caller without a token")

    @classmethod
    def whole(cls, competition: Competition, quota: Quota | None) -> "CompetitionPage":
        file = stored_file(competition)
        return cls.read(
            competition,
            **_of_file(file),
            description=file.description,
            merge_deadline=file.merge_deadline,
            limits=file.limits,
            modes=list(file.submissions.modes),
            libraries=file.submissions.libraries,
            phases=list(file.phases),
            late=file.late,
            admission=file.participation.admission,
            private=file.participation.private,
            quota=quota,
        )


class ModelShardOut(Out):
    """A part of a split's models, made by whichever worker asks for it."""

    kind: str = Field(description="retrained, oracle, originals", examples=["retrained"])
    first_model: int = Field(examples=[64])
    n_models: int = Field(examples=[64])
    models_done: float = Field(description="a model half trained counts as a half", examples=[12.5])
    state: str = Field(description="queued, leased, done, failed, cancelled", examples=["leased"])
    attempt: int = Field(examples=[1])
    worker: str | None
    claimed_at: datetime | None
    finished_at: datetime | None
    error: str = Field(description="of the last attempt that failed")


class SplitOut(Out):
    """How far a split is, for organisers."""

    competition: str = Field(description="of a task, where there are tasks", examples=["digits"])
    visibility: str = Field(examples=["public"])
    version: int = Field(description="above 1: it replaced another", examples=[1])
    is_current: bool = Field(description="false: it replaces the current one once a re-judging on it is applied")
    state: str = Field(examples=["preparing"])
    stage: str = Field(examples=["training 512 retrained models"])
    progress: float = Field(description="share done of that stage", examples=[0.4])
    share_done: float = Field(description="of all work on this split, about", examples=[0.3])
    left_s: float | None = Field(
        description="until its models are made, if they go on as before; null while nothing is known", examples=[40.0]
    )
    error: str
    n_forget: int | None
    retraining_time_s: float | None = Field(description="by the clock, in the plain loop")
    retraining_cpu_s: float | None = Field(
        description="of the processor, of the fastest retraining that is known, without starting; null on a GPU",
        examples=[1.9],
    )
    start_cpu_s: float | None = Field(description="of the processor, of a run that does nothing", examples=[0.02])
    warnings: list[str] = Field(description="where a run has the time to retrain from scratch")
    shards: list[ModelShardOut] = Field(description="empty where one worker makes the whole split")


class SplitReplacement(In):
    """Why a split is replaced, and by which data."""

    reason: str = Field(min_length=1, max_length=1000, examples=["A third of the labels was wrong"])
    dataset: dict[str, Any] | None = Field(
        default=None, description="[dataset] that names the corrected data; null: where the split has it from"
    )


class WaitingDecisions(BaseModel):
    """How many of each kind wait for the organisers, beside `failed_finals`."""

    unconfirmed_scores: int = Field(default=0, description="they take no rank until they are confirmed")
    requests_to_take_part: int = 0
    open_questions: int = 0


class OrganisedCompetition(CompetitionOut):
    """A competition, as its organisers see it."""

    splits: list[SplitOut]
    replacements: list[SplitOut] = Field(description="versions of splits that are to replace the current ones")
    baselines: list[str] = Field(
        description="reference lines of the file; each is submitted with this message", examples=[["scrub LR=0.001"]]
    )
    failed_finals: list[FailedFinal] = Field(description="finals that wait for a decision of the organisers")
    waiting: WaitingDecisions = Field(description="what else waits for the organisers")
    same_files: list[list[str]] = Field(
        description="teams that sent the same file, for each such file", examples=[[["ada", "bob"]]]
    )

    @classmethod
    def with_splits(
        cls,
        competition: Competition,
        splits: Sequence[Split],
        shards: Sequence[ModelShard],
        *,
        tasks: Sequence[Competition] = (),
        failed: Sequence[Failed] = (),
        waiting: WaitingDecisions | None = None,
        same_files: Sequence[Sequence[str]] = (),
    ) -> "OrganisedCompetition":
        file = stored_file(competition)
        of_splits = {each.id: each for each in (competition, *tasks)}
        own = {split.id: [shard for shard in shards if shard.split_id == split.id] for split in splits}
        shown = [
            SplitOut.read(
                split,
                share_done=share_done(split, file, shards=own[split.id]),
                left_s=time_left_s(own[split.id], now()),
                competition=of_splits[split.competition_id].slug,
                shards=own[split.id],
                warnings=_warnings(of_splits[split.competition_id], split),
            )
            for split in splits
        ]
        return cls.read(
            competition,
            **_of_file(file),
            splits=[each for each in shown if each.is_current],
            replacements=[each for each in shown if not each.is_current],
            failed_finals=FailedFinal.all(failed),
            waiting=waiting or WaitingDecisions(),
            same_files=[list(each) for each in same_files],
            baselines=list(dict.fromkeys(line.label for each in file.evaluated for line in each.report.baselines)),
        )


class ChangeOut(OrganisedCompetition):
    """A competition as its organisers see it, and what a change of it means."""

    applied: bool = Field(description="false: it was only previewed")
    changed: dict[str, list[Any]] = Field(
        description="old and new value of whatever differs", examples=[{"limits.submissions_per_day": [5, 3]}]
    )
    over_daily_quota: dict[str, int] = Field(description="teams that have sent more today than they then may")
    over_total_quota: dict[str, int]
    too_large: dict[str, int] = Field(description="teams with more people than then allowed")
    too_many_finals: dict[str, int]
    unfinished: int = Field(description="submissions whose remaining runs get the new limits")
    trains_again: bool = Field(description="whether a preparation then trains every model again, and keeps none")

    @classmethod
    def after(cls, competition: OrganisedCompetition, change: Change, *, applied: bool) -> "ChangeOut":
        changed = {name: list(values) for name, values in change.changed.items()}
        return cls.read(change, **vars(competition), applied=applied, changed=changed)


class Reason(In):
    """Why an organiser does this; it is recorded in the audit log."""

    reason: str = Field(default="", max_length=1000, examples=["The lab's network was down for an hour"])


def metric_name(file: CompetitionFile) -> str:
    """Return what ranks, as text."""
    if file.tasks:
        return f"{file.combine.by.replace('-', ' ')} of the scores in {len(file.tasks)} tasks"
    score = f"forgetting quality x retain ratio x test ratio ({file.scoring.attacks} attacks)"
    return score if file.ranking == Ranking() else f"{file.ranking.in_words}; the score is {score}"


def _of_file(file: CompetitionFile) -> dict[str, object]:
    return {
        "metric": metric_name(file),
        "scale": file.scale_in_words,
        "dataset": ", ".join(dict.fromkeys(each.dataset.name for each in file.evaluated)),
        "runs": min(each.n_models for each in file.evaluated),
        "tasks": [_task(task, file) for task in file.tasks],
    }


def _task(task: CompetitionFile, file: CompetitionFile) -> TaskOut:
    name = task_name(task.slug)
    return TaskOut(
        name=name,
        slug=task.slug,
        title=task.title,
        kind=task.task.kind,
        dataset=task.dataset.name,
        runs=task.n_models,
        weight=file.combine.weights.get(name, 1.0),
    )


def _warnings(competition: Competition, split: Split) -> list[str]:
    file = stored_file(competition)
    if split.retraining_time_s is None:
        return []
    return limit_warnings(file.limits, split.retraining, n_models=file.n_models)
