"""Questions to organisers and their answers; versions of the pages and of the terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.competitions import competition_repository, lifecycle, participation, participation_repository
from server.competitions.stored_file import stored_file
from server.db import now
from server.errors import Conflict, NotAllowed
from server.models.account import Account
from server.models.competition import Competition, CompetitionState
from server.models.participation import CompetitionText, Question, TermsAcceptance
from server.notifications import dispatch, notification_repository, webhooks

QUESTION_LENGTH = 4000
ANSWER_LENGTH = 20_000
MAX_OPEN = 10  # of one person, without an answer
PAGE_SIZE = 50
count_open = participation_repository.count_open


@dataclass(frozen=True)
class ShownQuestion:
    """A question and its answer, as everybody or whoever asked reads them: nothing in it says who asked."""

    id: str
    question: str
    answer: Annotated[str, Field(description="Markdown; empty: there is none yet")]
    created_at: datetime
    answered_at: datetime | None
    is_public: Annotated[bool, Field(description="answered to all")]
    is_mine: Annotated[bool, Field(description="asked by the caller")]


def ask(session: Session, competition: Competition, *, text: str, account: Account) -> Question:
    """Ask the organisers, who are written to. Raises InvalidInput, NotAllowed for who was refused, or Conflict for an
    archived competition and for too many questions without an answer."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)  # counted by one after the other
    _check_length("text", text, QUESTION_LENGTH)
    if competition.state == CompetitionState.ARCHIVED:
        raise Conflict(f"{competition.slug} is archived; nobody answers any more")
    if participation.standing(session, competition, account).state == "refused":
        raise NotAllowed(f"The organisers of {competition.slug} have refused you")
    if count_open(session, competition, account_id=account.id) >= MAX_OPEN:
        raise Conflict(f"You have {MAX_OPEN} questions without an answer; wait for one")
    row = Question(competition_id=competition.id, account_id=account.id, text=text.strip())
    session.add(row)
    session.flush()
    _record(session, competition, "question.asked", row, actor=account)
    webhooks.notify(session, competition.id, "question.asked", {"question": row.id})
    organisers = notification_repository.addresses_of_organisers(session, competition.id)
    path, asks = f"/organise/{competition.slug}/questions", f"{account.name} asks:\n\n{row.text}"
    dispatch.write(session, competition, organisers, subject="a question", text=asks, path=path)
    return row


def answer(
    session: Session,
    competition: Competition,
    question_id: str,
    *,
    text: str,
    to_all: bool,
    shown_text: str = "",
    actor: Account,
) -> Question:
    """Answer a question, again too, to its asker or to all with `shown_text`. Raises NotFound or InvalidInput."""
    competition = competition_repository.locked(session, competition.id)
    row = participation_repository.by_id(session, question_id)
    if row is None or row.competition_id != competition.id:
        raise NotFound(f"{competition.slug} has no question {question_id!r}")
    _check_length("answer", text, ANSWER_LENGTH)
    if shown_text.strip():
        _check_length("question", shown_text, QUESTION_LENGTH)
    row.answer, row.is_public, row.shown_text = text.strip(), to_all, shown_text.strip()
    row.answered_at, row.answered_by = now(), actor.id
    session.flush()
    _record(session, competition, "question.answered", row, actor=actor)
    data = {"question": row.id, "to_all": to_all}
    webhooks.notify(session, competition.id, "question.answered", data)
    path = f"/competitions/{competition.slug}/questions"
    own = f"Your question:\n\n{row.text}\n\nThe organisers' answer:\n\n{row.answer}"
    asker = notification_repository.addresses_of_account(session, row.account.id)
    dispatch.write(session, competition, asker, subject="an answer", text=own, path=path)
    if to_all:
        said = f"A question:\n\n{row.public_text}\n\nThe organisers' answer:\n\n{row.answer}"
        everybody = notification_repository.addresses_of_competition(session, competition.id)
        others = [address for address in everybody if address != row.account.email]
        dispatch.write(session, competition, others, subject="a question and its answer", text=said, path=path)
    return row


def shown_to(session: Session, competition: Competition, account: Account | None) -> list[ShownQuestion]:
    """Return what is answered to all, and what `account` asked, the newest first."""
    rows = participation_repository.shown(session, competition.id, account_id=account.id if account else None)
    return [shown(row, account) for row in rows]


def shown(row: Question, reader: Account | None) -> ShownQuestion:
    """Return a question that the reader may see as they read it."""
    is_mine = reader is not None and row.account_id == reader.id
    return ShownQuestion(
        id=row.id,
        question=row.text if is_mine else row.public_text,
        answer=row.answer,
        created_at=row.created_at,
        answered_at=row.answered_at,
        is_public=row.is_public,
        is_mine=is_mine,
    )


def page_of_all(
    session: Session, competition: Competition, *, only_open: bool, page: int
) -> tuple[Sequence[Question], bool]:
    """Return a page (from 1) of all questions with who asked, and whether there is another. For organisers."""
    offset = (page - 1) * PAGE_SIZE
    rows = participation_repository.page(
        session, competition.id, only_open=only_open, offset=offset, limit=PAGE_SIZE + 1
    )
    return rows[:PAGE_SIZE], len(rows) > PAGE_SIZE


def _check_length(field: str, text: str, max_length: int) -> None:
    if not 1 <= len(text.strip()) <= max_length:
        allowed = f"needs 1 to {max_length} characters"
        raise InvalidInput(f"The {field} {allowed}", violations=(Violation(field, allowed, text.strip()[:40]),))


def _record(session: Session, competition: Competition, action: str, row: Question, *, actor: Account) -> None:
    data = {"to_all": row.is_public} if row.answered_at else {}
    audit.record(session, actor, action, competition=competition, subject=row.id, data=data)


versions = participation_repository.versions


def keep_versions(session: Session, competition: Competition, *, author: Account) -> list[str]:
    """Store each text of the file that differs from its last version. Return the names. After every change."""
    file, changed = stored_file(competition), []
    for name, text in {participation.TERMS: file.participation.terms, **file.pages.model_dump()}.items():
        latest = participation_repository.latest_text(session, competition.id, name)
        if text == (latest.text if latest else ""):
            continue
        version = latest.version + 1 if latest else 1
        session.add(
            CompetitionText(competition_id=competition.id, name=name, version=version, text=text, author_id=author.id)
        )
        changed.append(name)
    session.flush()
    return changed


def accept_terms(session: Session, competition: Competition, *, version: int, account: Account) -> TermsAcceptance:
    """Note that `account` accepts the terms in force. Raises InvalidInput for another version."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.held(session, competition.id)
    present = participation.terms_version(session, competition)
    if version != present or not present:
        allowed = f"must be {present}, the version in force" if present else f"{competition.slug} has no terms"
        raise InvalidInput(f"The version {allowed}", violations=(Violation("version", allowed, str(version)),))
    accepted = participation_repository.acceptance(session, competition.id, account.id, version)
    if accepted is not None:
        return accepted
    row = TermsAcceptance(competition_id=competition.id, account_id=account.id, version=version)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # accepted twice at once
        return participation_repository.acceptance(session, competition.id, account.id, version) or row
    data = {"account": account.name, "version": version}
    audit.record(
        session, account, "participant.accepted_terms", competition=competition, subject=account.name, data=data
    )
    return row
