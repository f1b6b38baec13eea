"""Teams: who competes. A person is in one team of a competition; alone needs no act."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import count

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.accounts import account_repository
from server.accounts.look_alikes import get_shape, look_alike_key
from server.competitions import lifecycle, participation
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Membership, Team
from server.teams import team_repository

NAME_LENGTH = 60
REFERENCES = ("oracle", "original", "originalmodel", "retrained", "retraining", "exactretraining", "baseline")
PAGE_SIZE = 100
RENAMED_BY_TEAMS = frozenset(CompetitionState) - {"closed", "provisional", "final", "archived"}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
competitions_of = team_repository.competitions_of
get_team = team_repository.get_team
names = team_repository.names
teams = team_repository.teams


def own_team(session: Session, competition: Competition, account: Account) -> Team:
    """Return the team that `account` is in. Raises NotFound."""
    team = get_team(session, competition, account)
    if team is None:
        raise NotFound(f"You have no team in {competition.slug} yet; the first submission makes one")
    return team


def members(session: Session, team: Team) -> list[Account]:
    """Return the people of a team, the earliest first."""
    return [membership.account for membership in team_repository.memberships(session, team.id)]


def search(
    session: Session, competition: Competition, *, query: str = "", page: int = 1
) -> tuple[Sequence[tuple[Team, str, int]], bool]:
    """Return a page (from 1) of teams with leader and size, by name, and whether there is another."""
    offset = (page - 1) * PAGE_SIZE
    rows = team_repository.search(session, competition.root_id, query=query.strip(), offset=offset, limit=PAGE_SIZE + 1)
    return rows[:PAGE_SIZE], len(rows) > PAGE_SIZE


def get_by_name(session: Session, competition: Competition, name: str) -> Team:
    """Return the team of the competition with this name, in capitals or not. Raises NotFound."""
    team = team_repository.team_called(session, competition_id=competition.root_id, name_keys=key_pair(name))
    if team is None:
        raise NotFound(f"{competition.slug} has no team called {name!r}")
    return team


def create(session: Session, competition: Competition, account: Account, *, name: str) -> Team:
    """Make a team that `account` leads. Raises InvalidInput, Conflict, or NotAllowed for who may not take part."""
    lifecycle.require_no_task(competition)
    name = checked_name(name)
    _check_no_references_name(name)
    participation.check_may_take_part(session, competition, account)
    if get_team(session, competition, account) is not None:
        raise Conflict(f"You are in a team of {competition.slug} already; leave it first")
    if _is_taken(session, competition, name):
        raise _taken(name)
    _check_no_persons_name(session, name, own=[account])
    team = _add(session, competition, account, name=name)
    if team is None:
        taken = Violation("name", "is taken; choose another", name)
        raise Conflict(f"The name {name!r} is taken, or you are in a team already", violations=(taken,))
    return team


def ensure(session: Session, competition: Competition, account: Account) -> Team:
    """Return the team of `account`, else make one named like the person. Raises NotAllowed."""
    participation.check_may_take_part(session, competition, account)
    for number in count(1):
        team = get_team(session, competition, account)
        if team is not None:
            return team
        name = account.name if number == 1 else f"{account.name}-{number}"
        if _is_taken(session, competition, name):
            continue
        if number > 1 and team_repository.accounts_like(session, name_keys=key_pair(name)):
            continue  # somebody else's name
        team = _add(session, competition, account, name=name)
        if team is not None:
            return team
    raise AssertionError("unreachable: names do not run out")


def rename_own(session: Session, competition: Competition, team: Team, *, name: str, actor: Account) -> None:
    """Do what `rename` does, for a member. Raises Conflict once the competition is closed: results name the team."""
    if now() >= competition.closes_at or competition.state not in RENAMED_BY_TEAMS:
        raise Conflict(f"{competition.slug} is over; ask its organisers for another name")
    rename(session, team, name=name, actor=actor)


def add_baseline(session: Session, competition: Competition, organiser: Account, *, label: str) -> Team:
    """Make a team without members for a reference line, shared by tasks. The competition's row is locked."""
    if competition.parent_id is not None:
        known = team_repository.team_called(
            session, competition_id=competition.root_id, name_keys=key_pair(_shortened(label, NAME_LENGTH))
        )
        if known is not None and known.is_baseline:
            return known
    for number in count(1):
        ending = "" if number == 1 else f" ({number})"
        name = checked_name(_shortened(label, NAME_LENGTH - len(ending)) + ending)
        if not _is_taken(session, competition, name):
            team = _add(session, competition, organiser, name=name, is_baseline=True)
            if team is not None:
                return team
    raise AssertionError("unreachable: names do not run out")


def _shortened(label: str, length: int) -> str:
    """Leave whole words out at the end, for half of a number would read as another number."""
    if len(label) <= length:
        return label
    cut = label[: length - len(" …")]
    return (cut if label[len(cut)] == " " else cut.rpartition(" ")[0] or cut) + " …"


def rename(session: Session, team: Team, *, name: str, actor: Account, reason: str = "") -> None:
    """Give the team another name. Raises InvalidInput or Conflict."""
    old, name = team.name, checked_name(name)
    if not team.is_baseline:
        _check_no_references_name(name)
    account_repository.lock_look_alikes(session, name_key(name))
    _check_no_persons_name(session, name, own=members(session, team))
    others = team_repository.teams_like(session, competition_id=team.competition_id, name_keys=key_pair(name))
    if not set(others) <= {team.id}:
        raise _taken(name)
    try:
        with session.begin_nested():
            team.name, team.name_key = name, name_key(name)
    except IntegrityError as error:
        raise _taken(name) from error
    audit.record(session, actor, "team.renamed", team, reason=reason, data={"from": old, "to": name})


def _is_taken(session: Session, competition: Competition, name: str) -> bool:
    """Return whether a team has the name, or one that looks like it. Nobody else takes it meanwhile."""
    account_repository.lock_look_alikes(session, name_key(name))
    return bool(team_repository.teams_like(session, competition_id=competition.root_id, name_keys=key_pair(name)))


def _taken(name: str) -> Conflict:
    taken = Violation("name", "is taken; choose another", name)
    return Conflict(f"There is a team called {name!r} already, or one that looks the same", violations=(taken,))


def name_key(name: str) -> str:
    """Return what makes a name unique: capitals and Unicode's look-alike forms do not."""
    return look_alike_key(name)[:NAME_LENGTH]


def key_pair(name: str) -> tuple[str, str]:
    """Return the key of a name, and the one that earlier versions stored."""
    return name_key(name), unicodedata.normalize("NFKC", name).casefold()[:NAME_LENGTH]


def checked_name(name: str) -> str:
    """Return the name without space around it. Raises InvalidInput."""
    name = " ".join(name.split())
    if not 1 <= len(name) <= NAME_LENGTH or CONTROL.search(name):
        allowed = f"needs 1 to {NAME_LENGTH} visible characters"
        raise InvalidInput(f"The team's name {allowed}", violations=(Violation("name", allowed, name[:NAME_LENGTH]),))
    return name


def _check_no_references_name(name: str) -> None:
    """Raise InvalidInput for a name that reads as one of the references that a board shows beside the teams."""
    letters = "".join(letter for letter in get_shape(name_key(name)) if letter.isalnum())
    if letters in {get_shape(reference) for reference in REFERENCES}:
        reserved = "is what a leaderboard calls a reference; choose another"
        raise InvalidInput(f"The team's name {reserved}", violations=(Violation("name", reserved, name),))


def _check_no_persons_name(session: Session, name: str, *, own: Sequence[Account]) -> None:
    """Raise Conflict for the name of somebody who is not in the team: it would compete as them."""
    if name_key(name) in {name_key(account.name) for account in own}:
        return
    alike = team_repository.accounts_like(session, name_keys=key_pair(name))
    if not set(alike) <= {account.id for account in own}:
        taken = Violation("name", "is a person's name; choose another", name)
        raise Conflict(f"{name!r} is the name of a person who is not in the team", violations=(taken,))


def add_member(session: Session, competition: Competition, team: Team, account: Account) -> None:
    """Take an account into a team. Raises NotAllowed if another account of the same person has joined one meanwhile."""
    participation.check_address_is_free(session, competition, account)
    session.add(Membership(team_id=team.id, account_id=account.id, competition_id=team.competition_id))


def _add(
    session: Session, competition: Competition, account: Account, *, name: str, is_baseline: bool = False
) -> Team | None:
    """Store the team and its leader's membership (none for a baseline); None if somebody was quicker."""
    team = Team(
        competition_id=competition.root_id,
        name=name,
        name_key=name_key(name),
        leader_id=account.id,
        is_baseline=is_baseline,
    )
    try:
        with session.begin_nested():
            session.add(team)
            session.flush()
            if not is_baseline:
                add_member(session, competition, team, account)
    except IntegrityError:
        return None
    audit.record(session, account, "team.created", competition=competition, subject=team.id, data={"name": name})
    return team
