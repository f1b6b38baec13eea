"""The public sample's forget questions with the answers of three language models: for the team, and for organisers."""

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS, SampleQuestions, UnlearnedAnswers
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.models.submission import Stage, Submission
from server.storage import Storage, split_key
from server.submissions import submission_repository

NO_QUESTIONS = (
    "The answers of models to this competition's public sample are not stored. An organiser adds them with "
    "`lethe competition prepare {slug}`; submissions received after that have theirs."
)
NOT_YET = "The answers of this submission's model come with its run on the public sample."
NOT_STORED = "No answers of this submission's model are stored."
NOT_FINITE = "This submission's model has no answers: its losses on these questions are infinite or not numbers."
NO_ANSWERS = "This submission's model answers each of these questions with nothing."
NOT_YET_RUN = (Stage.QUEUED, Stage.SMOKE)


@dataclass(frozen=True)
class SampleAnswer:
    """A question of the public sample, its answer in the data, and what models of the sample answer."""

    question: Annotated[str, Field(examples=["Where does Ada live?"])]
    answer: Annotated[str, Field(description="in the data", examples=["Ada lives in Rome."])]
    original: Annotated[str | None, Field(description="null without an answer, here and below")]
    retrained: Annotated[str | None, Field(description="of a model trained on the sample without these questions")]
    unlearned: Annotated[str | None, Field(description="of the model that the submission made")] = None


@dataclass(frozen=True)
class SampleAnswers:
    """What three language models answer to the forget questions of the public sample."""

    id: str
    questions: tuple[SampleAnswer, ...]
    note: Annotated[str, Field(description="why something is lacking; empty where nothing is")]


def has_sample_answers(submission: Submission) -> bool:
    """Return whether the models of the submission's competition answer questions."""
    return stored_file(submission.competition).task.kind == "causal-lm"


def read_sample_answers(session: Session, storage: Storage, submission: Submission) -> SampleAnswers:
    """Return what there is. Raises NotFound for a competition whose models answer no questions."""
    slug = submission.competition.slug
    if not has_sample_answers(submission):
        raise NotFound(f"The models of {slug} answer no questions")
    try:
        split = competitions.get_split(session, submission.competition, Visibility.PUBLIC)
        data = storage.read(f"{split_key(slug, split.visibility, split.version)}/{SAMPLE_ANSWERS}")
    except NotFound:
        return SampleAnswers(submission.id, (), NO_QUESTIONS.format(slug=slug))
    asked = SampleQuestions.model_validate_json(data).questions
    rows = tuple(SampleAnswer(**question.model_dump()) for question in asked)
    stored = _stored(session, storage, submission)
    if stored is None or stored.questions_sha256 != hashlib.sha256(data).hexdigest():
        return SampleAnswers(submission.id, rows, NOT_YET if submission.stage in NOT_YET_RUN else NOT_STORED)
    if stored.answers is None:
        return SampleAnswers(submission.id, rows, NOT_FINITE)
    if len(stored.answers) != len(rows):
        return SampleAnswers(submission.id, rows, NOT_STORED)
    answered = tuple(replace(row, unlearned=own) for row, own in zip(rows, stored.answers, strict=True))
    return SampleAnswers(submission.id, answered, "" if any(stored.answers) else NO_ANSWERS)


def _stored(session: Session, storage: Storage, submission: Submission) -> UnlearnedAnswers | None:
    result = submission_repository.public_sample_result(session, submission.id)
    if result is None:
        return None
    try:
        return UnlearnedAnswers.model_validate_json(storage.read_verified(*result))
    except NotFound:
        return None
