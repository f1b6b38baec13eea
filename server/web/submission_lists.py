"""One page of a team's own submissions: which of them, in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.competitions.lifecycle import is_revealed
from server.disclosure import gate
from server.evaluations.unserved import OWN_FIRST, Wait, find_wait
from server.finals import finals
from server.models.competition import CompetitionState
from server.models.submission import ENDED, Stage, Submission
from server.submissions import submissions
from server.submissions import views as submission_views
from server.submissions.list_filter import Show
from server.submissions.views import SubmissionView
from server.web.deps import Place

LINES = 100


@dataclass(frozen=True)
class ListQuery:
    """The query of a list's address. number: of the page, from 1."""

    show: Show = Show.NEWEST
    number: int = 1

    def query(self, **other: Any) -> str:
        """Return what an address ends with that asks for this, or for it with other values: `?show=best&page=2`."""
        wanted = replace(self, **other)
        given: dict[str, str] = {"show": wanted.show} if wanted.show != Show.NEWEST else {}
        given |= {"page": str(wanted.number)} if wanted.number > 1 else {}
        return f"?{urlencode(given)}" if given else ""


def _asked(show: Show = Show.NEWEST, number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1) -> ListQuery:
    return ListQuery(show, number)


AskedDep = Annotated[ListQuery, Depends(_asked)]


def can_choose(place: Place) -> bool:
    """Return whether finals may be chosen now."""
    return place.competition.state == CompetitionState.OPEN and not place.is_over


def may_be_chosen(session: Session, place: Place, submission: Submission) -> bool:
    """Return whether the reader's team may choose the submission now, or take the choice back."""
    if not can_choose(place) or place.team is None or place.team.id != submission.team_id:
        return False
    cannot = submission.stage in (Stage.FAILED, Stage.CANCELLED) or submission.disqualified_at is not None
    if submission.selected or cannot:
        return submission.selected
    return len(finals.chosen_ids(session, place.competition, place.team.id)) < place.file.limits.final_selections


def waits_of(session: Session, views: Sequence[SubmissionView]) -> dict[str, Wait]:
    """Return why each of these waits of which nothing runs, by submission id; of a team the oldest is looked up."""
    waits: dict[str, Wait] = {}
    waiting = [view.submission for view in views if view.submission.stage in (Stage.QUEUED, Stage.SMOKE)]
    oldest: dict[str, Submission] = {}
    for submission in sorted(waiting, key=lambda one: one.received_at):
        first = oldest.setdefault(submission.team_id, submission)
        if submission is not first and first.id in waits:
            waits[submission.id] = Wait(OWN_FIRST, 0, None)
        elif submission is first and (wait := find_wait(session, submission)):
            waits[submission.id] = wait
    return waits


def listed(session: Session, place: Place, asked: ListQuery) -> dict[str, Any]:
    """Return what one page of the list shows. Raises NotFound for an order that the competition hides."""
    competition, team = place.competition, place.team
    chosen = finals.chosen_ids(session, competition, team.id) if team else set()
    would_count = finals.would_count(session, competition, team.id) if team else []
    rows = submissions.page_of_team(
        session,
        competition,
        team,
        show=asked.show,
        final_ids=chosen | set(would_count),
        offset=(asked.number - 1) * LINES,
        limit=LINES + 1,
    )
    views = submission_views.view(session, rows[:LINES], ended_in_full=False)
    oracle = gate.get_oracle_score(competitions.find_split(session, competition, Visibility.PUBLIC))
    return {
        "place": place,
        "asked": asked,
        "views": views,
        "waits": waits_of(session, views),
        "has_more": len(rows) > LINES,
        "in_progress": sum(view.submission.stage not in ENDED for view in views),
        "oracle": oracle,
        "has_history": sum(view.score is not None for view in views) > 1,
        "can_choose": can_choose(place),
        "is_revealed": is_revealed(competition),
        "is_ladder": gate.shows_ladder(competition),
        "chosen": chosen,
        "would_count": would_count,
        "final_selections": place.file.limits.final_selections,
    }
