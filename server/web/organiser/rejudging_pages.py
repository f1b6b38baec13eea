"""Re-judging: choosing a set, watching it, what it would change, applying or discarding it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from fastapi import Form, Response
from pydantic import BaseModel, StringConstraints
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import AppError, InvalidInput, NotFound, Violation
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.runtime.error_classes import ErrorClass
from server import audit
from server.accounts import accounts
from server.audit import EventFilter
from server.competitions import competitions
from server.db import Database
from server.deps import DatabaseDep
from server.models.account import AuditEvent
from server.models.evaluation import Rejudging, RejudgingState
from server.rejudging import rejudgings
from server.rejudging.progress import get_progress, list_progress
from server.rejudging.rejudgings import Changed, Preview, TeamChange
from server.rejudging.sets import Chosen, Outcome
from server.teams import teams
from server.web import sse
from server.web.cookies import Flash
from server.web.deps import OrganiserDep, OrganiserRequest, Place, needed, timestamp
from server.web.page_router import page_router
from server.web.rendering import part, redirect, render

router = page_router()

Text = Annotated[str, Form(max_length=500)]
Word = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
WHICH = ("all", "team", "failure", "time")
MAX_LINES = 100
REASONS = {"scorer": "the scorer", "limits": "the limits", "split": "a repaired split", "host": "the host"}


class RejudgingForm(BaseModel):
    """What the form says, unchecked."""

    act: Word = "count"
    split: Word = "public"
    which: Word = "all"
    team: Word = ""
    error_class: Word = ""
    received_from: Word = ""
    received_before: Word = ""
    changed: Word = "scorer"
    attacks: Word = ""
    delta: Word = ""
    reason: Word = ""


@dataclass(frozen=True)
class Line:
    """One submission of a re-judging, old and new."""

    outcome: Outcome
    team: str

    @property
    def difference(self) -> float | None:
        old, new = self.outcome.old_score, self.outcome.new_score
        return None if old is None or new is None else new - old


@router.get("/organise/{slug}/rejudgings")
def rejudgings_page(asked: OrganiserDep) -> Response:
    return _list(asked, RejudgingForm())


@router.post("/organise/{slug}/rejudgings")
def start(asked: OrganiserDep, choice: Annotated[RejudgingForm, Form()]) -> Response:
    """Say how many submissions the form chooses, or score them again."""
    try:
        visibility, chosen = _checked(asked.session, asked.place, choice)
        if choice.act != "start":
            count = rejudgings.how_many(asked.session, asked.competition, visibility=visibility, chosen=chosen)
            return _list(asked, choice, count=count)
        with asked.session.begin_nested():
            made = rejudgings.start(
                asked.session,
                asked.competition,
                visibility=visibility,
                chosen=chosen,
                changed=_changed(choice.changed),
                actor=asked.viewer,
                reason=needed(choice.reason),
                scoring=_scoring(choice),
            )
    except AppError as error:
        return _list(asked, choice, error=error)
    flash = Flash("good", "The submissions are queued. Nothing that participants see changes before you apply it.")
    return redirect(asked.request, f"/organise/{asked.competition.slug}/rejudgings/{made.id}", flash=flash)


@router.get("/organise/{slug}/rejudgings/{rejudging_id}")
def rejudging_page(rejudging_id: str, database: DatabaseDep, asked: OrganiserDep) -> Response:
    row = rejudgings.get(asked.session, asked.competition, rejudging_id)
    progress = get_progress(asked.session, row)
    running = row.state == RejudgingState.RUNNING
    preview = _preview(database, asked.place, row) if running and progress.is_complete else None
    ended = None if running else _get_end(asked.session, row)
    changed = preview.teams if preview else ()
    changes = sorted(changed, key=lambda team: (team.new_rank or math.inf, team.old_rank or math.inf))
    return asked.page(
        "rejudging.html",
        tab="rejudgings",
        row=row,
        progress=progress,
        author=accounts.names(asked.session, [row.created_by]).get(row.created_by, ""),
        team=teams.names(asked.session, [row.chosen.get("team_id", "")]),
        changes=changes or (ended.data.get("teams", []) if ended else []),
        moves=_moves(changes),
        lines=_lines(asked.session, preview.outcomes) if preview else [],
        outcomes=len(preview.outcomes) if preview else 0,
        most=MAX_LINES,
        ended=ended,
        what_changed=REASONS,
    )


@router.get("/organise/{slug}/rejudgings/{rejudging_id}/live")
def rejudging_part(rejudging_id: str, asked: OrganiserDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    row = rejudgings.get(asked.session, asked.competition, rejudging_id)
    progress = get_progress(asked.session, row)
    is_last = progress.is_complete or row.state != RejudgingState.RUNNING
    return part(
        asked.request, "organise/_rejudging_live.html", is_last=is_last, place=asked.place, row=row, progress=progress
    )


@router.get("/organise/{slug}/rejudgings/{rejudging_id}/events")
def rejudging_events(rejudging_id: str, database: DatabaseDep, asked: OrganiserDep) -> Response:
    """Stream the part that changes."""
    rejudgings.get(asked.session, asked.competition, rejudging_id)

    def look() -> sse.Frame:
        with database.read() as own:
            row = rejudgings.get(own, asked.competition, rejudging_id)
            progress = get_progress(own, row)
            html = render(asked.request, "organise/_rejudging_live.html", place=asked.place, row=row, progress=progress)
            return sse.Frame(html, is_last=progress.is_complete or row.state != RejudgingState.RUNNING)

    return sse.stream(asked.request, look)


@router.post("/organise/{slug}/rejudgings/{rejudging_id}")
def end(rejudging_id: str, asked: OrganiserDep, *, act: Text = "", reason: Text = "", sure: Text = "") -> Response:
    """Apply or discard. Applying needs the box that says so."""
    row = rejudgings.get(asked.session, asked.competition, rejudging_id)
    if act == "apply":
        if not sure:
            raise InvalidInput("Confirm that the new scores apply", violations=(Violation("sure", "is missing"),))
        rejudgings.apply(asked.session, asked.competition, row, actor=asked.viewer)
        done = "Applied: the new scores count."
    elif act == "discard":
        rejudgings.discard(asked.session, row, actor=asked.viewer, reason=needed(reason))
        done = "Discarded: everything is as it was."
    else:
        raise InvalidInput(f"{act!r} is not an act; allowed are apply, discard")
    return asked.done(done, to=f"/rejudgings/{rejudging_id}")


def _list(
    asked: OrganiserRequest, choice: RejudgingForm, *, count: int | None = None, error: AppError | None = None
) -> Response:
    rows = rejudgings.of_competition(asked.session, asked.competition)
    context: dict[str, Any] = {
        "rows": rows,
        "progress": list_progress(asked.session, rows),
        "authors": accounts.names(asked.session, [row.created_by for row in rows]),
        "choice": choice,
        "count": count,
        "error": error,
        "error_classes": sorted(ErrorClass),
        "what_changed": REASONS,
        "attack_families": [(family.value, family.value) for family in AttackFamily],
    }
    return asked.page("rejudgings.html", tab="rejudgings", **context)


def _checked(session: Session, place: Place, choice: RejudgingForm) -> tuple[Visibility, Chosen]:
    """Return the split and the set that the form chooses. Raises InvalidInput naming the field."""
    if choice.split not in list(Visibility):
        raise _wrong("split", "needs public or private", choice.split)
    visibility = Visibility(choice.split)
    if choice.which == "all":
        return visibility, Chosen()
    if choice.which == "team":
        try:
            team = teams.get_by_name(session, place.competition, choice.team)
        except NotFound as error:
            raise _wrong("team", "no team of the competition has this name", choice.team) from error
        return visibility, Chosen(team_id=team.id)
    if choice.which == "failure":
        if not choice.error_class:
            raise _wrong("error_class", "needs a class of failure", "")
        return visibility, Chosen(error_class=choice.error_class)
    if choice.which == "time":
        return visibility, _within(choice)
    raise _wrong("which", f"needs one of {', '.join(WHICH)}", choice.which)


def _scoring(choice: RejudgingForm) -> dict[str, Any]:
    given = {"attacks": choice.attacks, "delta": choice.delta}
    return {name: value for name, value in given.items() if value}


def _within(choice: RejudgingForm) -> Chosen:
    if not choice.received_from and not choice.received_before:
        raise _wrong("received_from", "needs a beginning, an end or both", "")
    return Chosen(
        received_from=timestamp(choice.received_from, field="received_from") if choice.received_from else None,
        received_before=timestamp(choice.received_before, field="received_before") if choice.received_before else None,
    )


def _changed(text: str) -> Changed:
    for allowed in get_args(Changed):
        if text == allowed:
            return allowed  # type: ignore[no-any-return]  # one of the literals
    raise _wrong("changed", f"needs one of {', '.join(get_args(Changed))}", text)


def _wrong(field: str, allowed: str, value: str) -> InvalidInput:
    return InvalidInput("The set cannot be made", violations=(Violation(field, allowed, value[:60]),))


def _preview(database: Database, place: Place, row: Rejudging) -> Preview:
    """Return what applying would change. It is tried and taken back, in a transaction that may write."""
    with database.write() as session:
        competition = competitions.of_id(session, place.competition.id)
        return rejudgings.preview(session, competition, rejudgings.get(session, competition, row.id))


def _lines(session: Session, outcomes: Sequence[Outcome]) -> list[Line]:
    """Return the submissions that change most; changed outcomes come first."""
    names = teams.names(session, sorted({outcome.team_id for outcome in outcomes}))
    lines = [Line(outcome, names.get(outcome.team_id, "")) for outcome in outcomes]
    lines.sort(key=lambda line: (line.outcome.old_state == line.outcome.new_state, -abs(line.difference or 0.0)))
    return lines[:MAX_LINES]


def _moves(changes: Sequence[TeamChange]) -> dict[str, int]:
    """Return how many teams rise, fall and stay; one that is on no board counts as the last of it."""
    ranks = [(change.old_rank or math.inf, change.new_rank or math.inf) for change in changes]
    return {
        "rise": sum(new < old for old, new in ranks),
        "fall": sum(new > old for old, new in ranks),
        "stay": sum(new == old for old, new in ranks),
    }


def _get_end(session: Session, row: Rejudging) -> AuditEvent | None:
    """Return the event of applying or discarding, which keeps what that changed."""
    wanted = EventFilter(competition_id=row.competition_id, action=f"rejudging.{row.state}", subject=row.id)
    return next(iter(audit.events(session, wanted, limit=1)), None)
