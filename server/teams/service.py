"""Teams: who competes. A person is in one team of a competition; alone needs no act."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import count

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server.admin import audit
from server.errors import Conflict, InvalidInput, NotFound, Violation
from server.models.account import Account
from server.models.competition import Competition, Membership, Team
from server.teams import repository

NAME_LENGTH = 60
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def team_of(session: Session, competition: Competition, account: Account) -> Team | None:
    """Return the team that `account` is in, or None."""
    return repository.team_of(session, competition_id=competition.id, account_id=account.id)


def own_team(session: Session, competition: Competition, account: Account) -> Team:
    """Return the team that `account` is in. Raises NotFound."""
    team = team_of(session, competition, account)
    if team is None:
        raise NotFound(f"You have no team in {competition.slug} yet; the first submission makes one")
    return team


def members(session: Session, team: Team) -> list[Account]:
    """Return the people of a team, the earliest first."""
    return [membership.account for membership in repository.memberships(session, team.id)]


def teams(session: Session, competition: Competition) -> Sequence[Team]:
    """Return every team of a competition, in the order in which they were made."""
    return repository.teams(session, competition.id)


def create(
    session: Session, competition: Competition, account: Account, *, name: str, is_baseline: bool = False
) -> Team:
    """Make a team that `account` leads. Raises InvalidInput, or Conflict if the name or the person is taken."""
    name = checked_name(name)
    if team_of(session, competition, account) is not None:
        raise Conflict(f"You are in a team of {competition.slug} already; leave it first")
    taken = Violation("name", "is taken; choose another", name)
    if repository.name_is_taken(session, competition_id=competition.id, name_key=name_key(name)):
        raise Conflict(f"There is a team called {name!r} already", violations=(taken,))
    team = _add(session, competition, account, name=name, is_baseline=is_baseline)
    if team is None:
        raise Conflict(f"The name {name!r} is taken, or you are in a team already", violations=(taken,))
    return team


def ensure(session: Session, competition: Competition, account: Account) -> Team:
    """Return the team of `account`; alone in a new one, named like the person, if there is none."""
    for number in count(1):
        team = team_of(session, competition, account)
        if team is not None:
            return team
        name = account.name if number == 1 else f"{account.name}-{number}"
        if repository.name_is_taken(session, competition_id=competition.id, name_key=name_key(name)):
            continue
        team = _add(session, competition, account, name=name, is_baseline=False)
        if team is not None:
            return team
    raise AssertionError("unreachable: names do not run out")


def rename(session: Session, team: Team, *, name: str, actor: Account) -> None:
    """Give the team another name. Raises InvalidInput or Conflict."""
    old, name = team.name, checked_name(name)
    try:
        with session.begin_nested():
            team.name, team.name_key = name, name_key(name)
    except IntegrityError as error:
        taken = Violation("name", "is taken; choose another", name)
        raise Conflict(f"There is a team called {name!r} already", violations=(taken,)) from error
    audit.record(
        session,
        actor,
        "team.renamed",
        competition=team.competition_id,
        subject=team.id,
        data={"from": old, "to": name},
    )


def name_key(name: str) -> str:
    """Return what makes a name unique: capitals and Unicode's look-alike forms do not."""
    return unicodedata.normalize("NFKC", name).casefold()[:NAME_LENGTH]


def checked_name(name: str) -> str:
    """Return the name without space around it. Raises InvalidInput."""
    name = " ".join(name.split())
    if not 1 <= len(name) <= NAME_LENGTH or CONTROL.search(name):
        allowed = f"needs 1 to {NAME_LENGTH} visible characters"
        raise InvalidInput(f"The team's name {allowed}", violations=(Violation("name", allowed, name[:NAME_LENGTH]),))
    return name


def _add(session: Session, competition: Competition, account: Account, *, name: str, is_baseline: bool) -> Team | None:
    """Store the team and its leader's membership; None if somebody was quicker with the name or the person."""
    team = Team(
        competition_id=competition.id,
        name=name,
        name_key=name_key(name),
        leader_id=account.id,
        is_baseline=is_baseline,
    )
    try:
        with session.begin_nested():
            session.add(team)
            session.flush()
            session.add(Membership(team_id=team.id, account_id=account.id, competition_id=competition.id))
    except IntegrityError:
        return None
    audit.record(session, account, "team.created", competition=competition, subject=team.id, data={"name": name})
    return team
