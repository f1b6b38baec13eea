"""Random legal and illegal acts of organisers, teams and workers: what must always hold, holds after each of them."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import func, make_url, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import AppError
from server import queue
from server.admin import competition_edits, moderation
from server.competitions import competitions, lifecycle
from server.config import get_settings
from server.db import Database, new_id, now
from server.evaluations import evaluations
from server.finals import finals
from server.leaderboard import boards
from server.models.account import Account, AuditEvent, Role
from server.models.competition import Competition, CompetitionState, Membership, Split, SplitState, Team
from server.models.evaluation import Evaluation, EvaluationState, PrivateScore, PublicScore
from server.models.submission import Fault, Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from server.submissions import submissions
from server.submissions.upload_check import CheckedUpload, Upload
from server.teams import joining, teams
from tests.support.instance import GOOD_CODE, competition_toml
from tests.support.postgres import PostgresServer

S = CompetitionState
Act = Callable[..., object]
PEOPLE = ("ada", "bob", "eve")
PER_DAY, FINALS = 3, 2
PLACED = frozenset({S.PROVISIONAL, S.FINAL, S.ARCHIVED})
person = st.sampled_from(PEOPLE)
which = st.integers(0, 7)
fault = st.sampled_from(list(Fault))
visibility = st.sampled_from(list(Visibility))


class Life(RuleBasedStateMachine):
    """A competition and three people. An act may be refused with an AppError; nothing else may come of it."""

    def __init__(self, worlds: "Worlds") -> None:
        super().__init__()
        self.worlds = worlds
        self.url = worlds.make()
        self.database = Database(self.url)
        self.events = 0
        self.accepted: set[str] = set()

    def teardown(self) -> None:
        self.database.dispose()
        self.worlds.remove(self.url)

    @initialize()
    def begin(self) -> None:
        with self.database.write() as session:
            for name, role in (("olga", Role.ORGANISER), *((name, Role.PARTICIPANT) for name in PEOPLE)):
                session.add(Account(name=name, name_key=name, password_hash="-", role=role.value))
            session.flush()
            text = competition_toml(limits={"submissions_per_day": PER_DAY, "final_selections": FINALS, "team_size": 2})
            competition = competitions.create(session, text, organiser=self.who(session, "olga"))
            competitions.prepare(session, competition, actor=None)
            for split in competitions.splits(session, competition):
                split.state = SplitState.READY.value
            session.flush()
            finals.tick(session, now())
        for name in ("ada", "ada", "bob", "eve"):
            self.send(name, now())

    @rule()
    def tick(self) -> None:
        self.act(lambda session: finals.tick(session, now()))

    @rule()
    def open(self) -> None:
        self.on_competition(competitions.open_now)

    @rule(workers_are_quick=st.booleans())
    def close(self, workers_are_quick: bool) -> None:
        self.on_competition(competitions.close_now)
        if workers_are_quick:
            self.score_some([Visibility.PUBLIC] * 9, 0.5)
            self.tick()
            self.score_some([Visibility.PRIVATE] * 9, 0.25)
            self.tick()

    @rule()
    def extend(self) -> None:
        self.on_competition(competition_edits.change, {"closes_at": now() + timedelta(days=1)}, reason="why")

    @rule()
    def reveal(self) -> None:
        self.on_competition(finals.reveal)

    @rule(name=person, early=st.sampled_from([0, 0, 0, 0, 1, 30, -1]))
    def submit(self, name: str, early: int) -> None:
        self.send(name, now() - timedelta(hours=early))

    @rule(splits=st.lists(visibility, min_size=1, max_size=6), value=st.floats(0, 1))
    def score_some(self, splits: list[Visibility], value: float) -> None:
        for split in splits:
            self.score(0, split, value)

    def score(self, number: int, split: Visibility, value: float) -> None:
        def finish(session: Session) -> None:
            evaluation = self.running(session, number, split)
            if evaluation is not None:
                evaluation.state = EvaluationState.SCORING.value
                session.flush()
                found = ScoreRecord(
                    final_score=value, forgetting_quality=value, retain_ratio=1, test_ratio=1, details={}
                )
                scores.record(session, evaluation.id, found)

        self.act(finish)

    @rule(number=which, split=visibility, fault=fault)
    def fail(self, number: int, split: Visibility, fault: Fault) -> None:
        def finish(session: Session) -> None:
            evaluation = self.running(session, number, split)
            if evaluation is not None:
                evaluations.fail(session, evaluation, fault=fault, error_class="exception", error={})

        self.act(finish)

    @rule(number=which, selected=st.booleans())
    def choose(self, number: int, selected: bool) -> None:
        self.on_submission(number, finals.choose, "ada", selected=selected)

    @rule(number=which)
    def cancel(self, number: int) -> None:
        self.on_submission(number, submissions.cancel, "ada")

    @rule(number=which, split=visibility)
    def run_again(self, number: int, split: Visibility) -> None:
        self.on_submission(number, moderation.run_again, "olga", visibility=split, reason="why")

    @rule(number=which, act=st.sampled_from([moderation.disqualify, moderation.restore]))
    def judge(self, number: int, act: Act) -> None:
        self.on_submission(number, act, "olga", reason="why")

    @rule(
        number=which,
        act=st.sampled_from([moderation.exclude_final, moderation.run_final_again, moderation.use_next_choice]),
    )
    def decide(self, number: int, act: Act) -> None:
        self.on_submission(number, act, "olga", reason="why")

    @rule(asking=person, staying=person)
    def merge(self, asking: str, staying: str) -> None:
        def both(session: Session) -> None:
            competition, leader = self.competition(session), self.who(session, staying)
            into = teams.own_team(session, competition, leader)
            request = joining.ask(session, competition, into=into.name, actor=self.who(session, asking))
            joining.agree(session, competition, request.id, actor=leader)

        self.act(both)

    @rule(name=person)
    def leave(self, name: str) -> None:
        self.act(lambda s: joining.leave(s, self.competition(s), self.who(s, name)))

    @invariant()
    def nothing_accepted_is_lost(self) -> None:
        with self.database.read() as session:
            assert set(session.scalars(select(Submission.id))) == self.accepted

    @invariant()
    def quota_is_kept(self) -> None:
        with self.database.read() as session:
            counted = session.execute(
                select(Submission.team_id, Submission.received_at).where(Submission.refunded.is_(False))
            )
            per_day = Counter((team, received.date()) for team, received in counted)
            merged = session.scalar(select(func.count()).where(Team.merged_into_id.is_not(None)))
        # Two teams that merge may each have used a day; together they keep what one could have sent by then.
        assert max(per_day.values(), default=0) <= PER_DAY * (1 + bool(merged))

    @invariant()
    def a_person_is_in_one_team(self) -> None:
        with self.database.read() as session:
            per_person = session.scalars(
                select(func.count()).select_from(Membership).group_by(Membership.account_id)
            ).all()
            sizes = session.scalars(select(func.count()).select_from(Membership).group_by(Membership.team_id)).all()
        assert max(per_person, default=1) == 1
        assert max(sizes, default=1) <= 2

    @invariant()
    def finals_are_few(self) -> None:
        with self.database.read() as session:
            chosen = select(func.count()).where(Submission.selected.is_(True), Submission.excluded_at.is_(None))
            assert max(session.scalars(chosen.group_by(Submission.team_id)), default=0) <= FINALS

    @invariant()
    def private_scores_wait_for_the_freeze_and_the_board_for_them(self) -> None:
        with self.database.read() as session:
            if (competition := session.scalars(select(Competition)).one_or_none()) is None:
                return
            if competition.frozen_at is None:
                assert session.scalar(select(func.count()).select_from(PrivateScore)) == 0
            if competition.state in PLACED:
                assert competition.frozen_at is not None
            if competition.state == S.PROVISIONAL:
                assert finals.is_complete(session, competition)

    @invariant()
    def only_what_is_scored_and_counts_is_ranked(self) -> None:
        with self.database.read() as session:
            if (competition := session.scalars(select(Competition)).one_or_none()) is None:
                return
            rows = [r for r in boards.whole_board(session, competition, Visibility.PUBLIC).rows if r.rank is not None]
            counted = set(
                session.scalars(
                    select(PublicScore.submission_id)
                    .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
                    .where(Evaluation.is_current.is_(True))
                )
            )
        assert {row.entry.submission_id for row in rows} <= counted
        ranked = [row.entry.score or 0.0 for row in rows]
        assert ranked == sorted(ranked, reverse=True)
        assert [row.rank for row in rows] == [1 + sum(s > score for s in ranked) for score in ranked]

    @invariant()
    def every_move_is_in_the_audit_log(self) -> None:
        with self.database.read() as session:
            if (competition := session.scalars(select(Competition)).one_or_none()) is None:
                return
            moves = [
                event.data
                for event in session.scalars(select(AuditEvent).order_by(AuditEvent.id))
                if event.action in lifecycle.ACTIONS.values()
            ]
            count = session.scalar(select(func.count()).select_from(AuditEvent)) or 0
        states = [S.DRAFT.value, *(move["to"] for move in moves)]
        assert [move["from"] for move in moves] == states[:-1]
        assert states[-1] == competition.state
        assert all(S(b) in lifecycle.TRANSITIONS[S(a)] for a, b in pairwise(states))
        assert count >= self.events
        self.events = count

    def act(self, do: Act) -> None:
        before = set(self.accepted)
        try:
            with self.database.write() as session:
                do(session)
        except AppError:
            self.accepted = before

    def send(self, name: str, at: datetime) -> None:
        checked = CheckedUpload(Upload("a.py", GOOD_CODE, "", at), "py", "0" * 64, {"file": "submission.py"})

        def accept(session: Session) -> None:
            view = submissions.accept(session, self.competition(session), self.who(session, name), checked)
            self.accepted.add(view.submission.id)

        self.act(accept)

    def on_competition(self, do: Act, *given: object, **values: object) -> None:
        self.act(lambda s: do(s, self.competition(s), *given, actor=self.who(s, "olga"), **values))

    def on_submission(self, number: int, do: Act, by: str, **values: object) -> None:
        def found(session: Session) -> None:
            rows = session.scalars(select(Submission.id).order_by(Submission.received_at, Submission.id)).all()
            if rows:
                submission = submissions.of_competition(session, self.competition(session), rows[number % len(rows)])
                do(session, submission, actor=self.who(session, by), **values)

        self.act(found)

    def running(self, session: Session, number: int, split: Visibility) -> Evaluation | None:
        waiting = (
            select(Evaluation)
            .join(Split, Split.id == Evaluation.split_id)
            .where(Split.visibility == split.value, Evaluation.state.in_(["queued", "running"]))
        )
        rows = session.scalars(waiting.order_by(Evaluation.created_at, Evaluation.id)).all()
        return rows[number % len(rows)] if rows else None

    def competition(self, session: Session) -> Competition:
        return session.scalars(select(Competition)).one()

    def who(self, session: Session, name: str) -> Account:
        return session.scalars(select(Account).where(Account.name == name)).one()


@dataclass
class Worlds:
    """Empty databases, one for each example. On PostgreSQL locks are real: what waits for itself would be found."""

    make: Callable[[], str]
    remove: Callable[[str], None]
    examples: int


@pytest.fixture(params=["sqlite", "postgres"])
def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        template = request.getfixturevalue("_migrated_postgres")
        return Worlds(
            make=lambda: server.url(server.create_database(template=template)),
            remove=lambda url: server.drop_database(str(make_url(url).database)),
            examples=4,
        )
    migrated = request.getfixturevalue("_migrated_sqlite")

    def remove(url: str) -> None:
        for path in tmp_path.glob(f"{Path(url).name}*"):
            path.unlink()

    return Worlds(lambda: f"sqlite:///{shutil.copyfile(migrated, tmp_path / f'{new_id()}.db')}", remove, examples=10)


@pytest.mark.slow
def test_what_must_hold_holds_whatever_is_done(worlds: Worlds, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REDIS_URL", redis_url)
    for cache in (get_settings, queue.client):
        cache.cache_clear()
    try:
        run_state_machine_as_test(
            lambda: Life(worlds),
            settings=settings(
                max_examples=worlds.examples * (1 if settings.default.derandomize else 10),
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
            ),
        )
    finally:
        queue.client().close()
        for cache in (get_settings, queue.client):
            cache.cache_clear()
