"""Two people change one team or take one name at the same moment: one is told so, and nothing is half done."""

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.orm import Session

from server.accounts import accounts
from server.competitions import competitions
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition
from server.teams import joining, teams
from tests.support.instance import PASSWORD, Instance
from tests.support.team_requests import BASE, call, lead, link

Act = Callable[[Session], object]
WITHIN_S = 60.0  # in which the request comes to where the other holds it up
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


def wait_until_held_up(server: Instance, writes: threading.Event) -> None:
    """Wait until a request has come to where an open transaction holds it up."""
    if server.database.engine.dialect.name == "sqlite":  # where writers hold each other up as they begin
        assert writes.wait(WITHIN_S), "nothing held it up"
        return
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        with server.database.read() as session:
            if session.scalar(WAITING):
                return
        time.sleep(0.02)
    raise AssertionError("nothing held it up")


def answer_behind(server: Instance, act: Act, request: Callable[[], Any]) -> Any:
    """Return the answer to a request that comes while `act` is done and not yet committed."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(request()))
    writes, ours = threading.Event(), threading.get_ident()

    def note(*execution: Any) -> None:
        if execution[2] == "BEGIN IMMEDIATE" and threading.get_ident() != ours:
            writes.set()

    event.listen(server.database.engine, "before_cursor_execute", note)
    with server.database.write() as session:
        act(session)
        session.flush()
        thread.start()
        wait_until_held_up(server, writes)
        assert not answers, "nothing held it up"
    thread.join()
    return answers[0]


def digits(session: Session) -> Competition:
    return competitions.get(session, "digits", account=None)


def test_leaving_twice_at_once(both: Instance) -> None:
    both.competition()
    ada = lead(both, "ada", "Us")
    answer = answer_behind(
        both,
        lambda session: joining.leave(session, digits(session), accounts.find(session, "ada")),
        lambda: call(both, ada, "POST", "/team/leave"),
    )
    assert answer.status_code == 404


def test_joining_two_teams_at_once(both: Instance) -> None:
    both.competition()
    here, there = link(both, lead(both, "ada", "Here")), link(both, lead(both, "eve", "There"))
    bob = both.participant("bob")
    answer = answer_behind(
        both,
        lambda session: joining.accept_link(session, digits(session), here, account=accounts.find(session, "bob")),
        lambda: call(both, bob, "POST", "/team/join", token=there),
    )
    assert answer.status_code == 409
    assert call(both, bob, "GET", "/team").json()["members"] == ["ada", "bob"]


def test_two_accounts_of_one_mailbox_at_once(both: Instance) -> None:
    both.competition(extra="[participation]\nconfirmed_email = true")
    people = {name: both.account(name) for name in ("ada", "twin")}
    twin = both.headers(people["twin"])
    with both.database.write() as session:
        for name, address in (("ada", "ada@example.org"), ("twin", "Ada+2@example.org")):
            account = session.get_one(Account, people[name].id)
            account.email, account.email_confirmed_at = address, now()
    answer = answer_behind(
        both,
        lambda session: teams.create(session, digits(session), accounts.find(session, "ada"), name="First"),
        lambda: call(both, twin, "POST", "/teams", name="Second"),
    )
    assert answer.status_code == 403
    assert "one account" in answer.json()["detail"]


def test_two_teams_that_merge_into_each_other_at_once(both: Instance) -> None:
    both.competition()
    ada, eve = lead(both, "ada", "Here"), lead(both, "eve", "There")
    to_there = call(both, ada, "POST", "/team/merges", team="There").json()["id"]
    to_here = call(both, eve, "POST", "/team/merges", team="Here").json()["id"]
    answer = answer_behind(
        both,
        lambda session: joining.agree(session, digits(session), to_there, actor=accounts.find(session, "eve")),
        lambda: call(both, ada, "POST", f"/team/merges/{to_here}/agree"),
    )
    assert answer.status_code == 404
    assert call(both, ada, "GET", "/team").json()["name"] == "There"
    assert call(both, eve, "GET", "/team").json()["members"] == ["ada", "eve"]


def test_invitations_at_once_keep_to_their_number(both: Instance) -> None:
    both.competition()
    ada = lead(both, "ada", "Us")

    def invite_all(session: Session) -> None:
        actor = accounts.find(session, "ada")
        team = joining.teams.own_team(session, digits(session), actor)
        for _ in range(joining.MAX_OPEN):
            joining.invite(session, team, actor=actor)

    answer = answer_behind(both, invite_all, lambda: call(both, ada, "POST", "/team/invitations"))
    assert answer.status_code == 409
    assert len(both.client.get(f"{BASE}/team/invitations", headers=ada).json()) == joining.MAX_OPEN


def met(server: Instance, first: Act, second: Act) -> Exception | None:
    """Let two take names at once. Return what the second met."""

    def take() -> Exception | None:
        try:
            with server.database.write() as session:
                second(session)
        except Exception as error:
            return error
        return None

    found: Exception | None = answer_behind(server, first, take)
    return found


def test_names_taken_at_once_are_one_teams_or_persons(both: Instance) -> None:
    both.competition()
    for name in ("ada", "boris"):
        both.account(name)

    def account(name: str) -> Act:
        return lambda session: accounts.register(session, name=name, password=PASSWORD)

    def team(leader: str, name: str) -> Act:
        return lambda session: teams.create(session, digits(session), accounts.find(session, leader), name=name)

    def renamed(session: Session) -> None:
        ada = accounts.find(session, "ada")
        teams.rename(session, teams.own_team(session, digits(session), ada), name="The Ha11", actor=ada)

    taken = (account("rnodern"), account("modern")), (team("ada", "Orbit"), team("boris", "0rbit"))
    for first, second in (*taken, (account("clara"), team("boris", "c1ara")), (renamed, team("boris", "The Hall"))):
        assert isinstance(met(both, first, second), Conflict)
