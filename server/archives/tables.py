"""Which rows make a competition, in an order in which they can be written again, and how a row is written as JSON.

Left out is what serves a moment or one instance: invitations, links and lists of addresses, requests to merge,
webhooks, mails, log-ins, tokens, the shards of a preparation.
Of an account only id, name and age go along: no address, no password, no role.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, LargeBinary, Select, Table, select, union
from sqlalchemy.orm import Session

from server.db import Base, UtcDateTime
from server.downloads import plain_row
from server.models.account import Account
from server.models.audit import AuditEvent
from server.models.competition import Competition, CompetitionOrganiser, Membership, Split, Team
from server.models.evaluation import (
    Announcement,
    Disclosure,
    Evaluation,
    MetricResult,
    PrivateScore,
    PublicScore,
    Rejudging,
    RunLog,
    Shard,
    ShardAttempt,
)
from server.models.participation import CompetitionText, Participant, Question, TermsAcceptance
from server.models.submission import Submission

Row = dict[str, Any]
Ids = Sequence[str]  # of a competition and its tasks
OF_ACCOUNTS = ("id", "name", "created_at")
CHUNK = 500
ADDED_LATER = (
    "metric_results",
    "participants",
    "competition_texts",
    "terms_acceptances",
    "questions",
)  # tables that archives written before them do not hold
RENAMED = {  # columns of archives that were written before revision 0014
    ("shards", "strikes"): "failed_attempts",
    ("disclosures", "told_at"): "disclosed_at",
}


@dataclass(frozen=True)
class Part:
    """The rows of one table that belong to a competition."""

    model: type[Base]
    belongs: Callable[[Ids], ColumnElement[bool]]

    @property
    def table(self) -> Table:
        table: Table = self.model.__table__  # type: ignore[assignment]  # every model here is a plain table
        return table

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def is_numbered(self) -> bool:
        """Whether each instance numbers these rows for itself."""
        return "id" in self.table.c and isinstance(self.table.c.id.type, Integer)


def _evaluations(ids: Ids) -> Select[str]:
    mine = select(Submission.id).where(Submission.competition_id.in_(ids))
    return select(Evaluation.id).where(Evaluation.submission_id.in_(mine))


def _by_competition(model: Any) -> Part:
    return Part(model, model.competition_id.in_)


def _by_evaluation(model: Any) -> Part:
    return Part(model, lambda ids: model.evaluation_id.in_(_evaluations(ids)))


def _attempts(ids: Ids) -> ColumnElement[bool]:
    return ShardAttempt.shard_id.in_(select(Shard.id).where(Shard.competition_id.in_(ids)))


OWN_PARTS = (
    Part(Competition, Competition.id.in_),
    _by_competition(CompetitionOrganiser),
    _by_competition(Split),
    _by_competition(Team),
    _by_competition(Membership),
    _by_competition(Submission),
    _by_competition(Rejudging),
    Part(Evaluation, lambda ids: Evaluation.id.in_(_evaluations(ids))),
    _by_competition(Shard),
    Part(ShardAttempt, _attempts),
    _by_evaluation(RunLog),
    _by_evaluation(PublicScore),
    _by_evaluation(PrivateScore),
    _by_evaluation(MetricResult),
    _by_evaluation(Disclosure),
    _by_competition(Announcement),
    _by_competition(Participant),
    _by_competition(CompetitionText),
    _by_competition(TermsAcceptance),
    _by_competition(Question),
    _by_competition(AuditEvent),
)


def _people(ids: Ids) -> ColumnElement[bool]:
    """Return the condition for every account that a row of the competition names."""
    named = [
        select(column).where(part.belongs(ids))
        for part in OWN_PARTS
        for column in part.table.c
        if any(key.column.table is Account.__table__ for key in column.foreign_keys)
    ]
    return Account.id.in_(select(union(*named).subquery().c[0]))


PEOPLE = Part(Account, _people)
PARTS = (PEOPLE, *OWN_PARTS)


def rows(session: Session, part: Part, ids: Ids) -> Iterator[Row]:
    """Yield a part's rows of a competition and its tasks as JSON holds them, a few at a time; parents first."""
    names = OF_ACCOUNTS if part is PEOPLE else tuple(column.name for column in part.table.c)
    columns = [part.table.c[name] for name in names]
    order = [*([part.table.c.parent_id.is_not(None)] if "parent_id" in part.table.c else []), *part.table.primary_key]
    statement = select(*columns).where(part.belongs(ids)).order_by(*order)
    for row in session.execute(statement.execution_options(yield_per=CHUNK)).mappings():
        yield plain_row(dict(row))


def read_row(part: Part, row: Mapping[str, Any]) -> Row:
    """Return what `rows` gave as the database takes it, without columns that are not known here."""
    present = {RENAMED.get((part.name, name), name): value for name, value in row.items()}
    return {name: _parsed(part.table.c[name].type, value) for name, value in present.items() if name in part.table.c}


def unknown_columns(part: Part, row: Mapping[str, Any]) -> set[str]:
    """Return the columns of a row that `read_row` leaves out, each with its table."""
    return {f"{part.name}.{name}" for name in row if RENAMED.get((part.name, name), name) not in part.table.c}


def _parsed(kind: object, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, UtcDateTime):
        return datetime.fromisoformat(value)
    return base64.b64decode(value) if isinstance(kind, LargeBinary) else value
