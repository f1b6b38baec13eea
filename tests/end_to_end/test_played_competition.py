"""A complete competition, played over HTTP on PostgreSQL and Redis with two workers: twelve teams, sixty submissions.

Each act says first what must come of it. What is expected of boards and finals is computed here, from the scores alone
and by the rules on paper, never by the server's own code.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.client.bundle import verify_receipt
from server.cli.serve import organiser_credentials
from server.competitions.lifecycle import ACTIONS
from server.db import now
from server.evaluations.claimed_shard import run_seed
from server.models.account import Account
from server.models.evaluation import PublicScore
from server.models.submission import ENDED, Submission
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import LONG, Cluster, running_cluster
from tests.faults.cluster import wait_until as wait_between_looks
from tests.support.smtp import MailServer, mail_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # of use where a machine is crowded

wait_until = partial(wait_between_looks, every_s=0.5)  # most looks are requests, which cost the server time
SLUG, N, SPLIT_SEED = "tiny", 3, 2**64 + 1
MOVES = frozenset(ACTIONS.values())
TEAMS = [f"team{i:02}" for i in range(12)]
PER_DAY, FINALS = 5, 2
PASSWORD = "a password for the play"

TUNED = """
import time, torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    {first}
    optimizer = torch.optim.SGD(net.parameters(), lr={rate})
    for batch in retain_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["age_group"]).backward()
        optimizer.step()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_({noise} * torch.randn_like(parameter))
# {note}
"""
RAISES = "def unlearning(net, retain, forget, val):\n    raise ValueError('{note}')\n"
WRONG_SHAPE = (
    "import torch\ndef unlearning(net, retain, forget, val):\n    last = list(net.modules())[-1]\n"
    "    last.weight = torch.nn.Parameter(torch.zeros(11, last.weight.shape[1]))\n# {note}\n"
)
ENDS_IN_S = 4.0
SLOW = "time.sleep(1.5)"  # in each of four runs: together they last longer than until the end
PRIVATE_SEEDS = tuple(run_seed(SLUG, "private", split_seed=SPLIT_SEED, run=run) for run in range(N))
FAILS_PRIVATELY = f"assert torch.initial_seed() not in {PRIVATE_SEEDS}, 'only on hidden data'"


def good(level: int, *, note: str = "", first: str = "pass") -> str:
    """Fine-tunes a little: keeps its accuracy. Equal levels are equal but for the note."""
    return TUNED.format(rate=0.01 + 0.01 * level, noise=0.02, note=note, first=first)


def weaker(note: str) -> str:
    """Drowns the weights in noise: no better than guessing."""
    return TUNED.format(rate=0.01, noise=5.0, note=note, first="pass")


@dataclass
class Sent:
    """A submission that was accepted."""

    id: str
    team: str
    kind: str
    at: datetime


@dataclass
class Play:
    """The people, and what they have sent."""

    cluster: Cluster
    olga: LetheClient
    anybody: LetheClient
    mail: MailServer
    people: dict[str, LetheClient]
    sent: list[Sent] = field(default_factory=list)
    get_team: dict[str, str] = field(default_factory=lambda: {name: name for name in TEAMS})

    def submit(self, name: str, kind: str, code: str) -> Sent:
        path = self.cluster.folder / f"{name}.py"
        path.write_text(code)
        taken = self.people[name].submit(SLUG, path)
        self.sent.append(Sent(taken["id"], self.get_team[name], kind, datetime.fromisoformat(taken["received_at"])))
        return self.sent[-1]

    def of(self, team: str) -> list[Sent]:
        return [one for one in self.sent if one.team == team]

    def answers(self) -> dict[str, JsonObject]:
        """Return every submission as the organiser sees it, by id."""
        return {row["id"]: row for row in self.olga.get(f"/competitions/{SLUG}/all-submissions")}

    def all_ended(self) -> bool:
        """Return whether every submission has come to an end, which no request is made for."""
        with self.cluster.database.read() as session:
            return session.query(Submission).filter(Submission.stage.not_in(ENDED)).count() == 0

    def state(self) -> str:
        return str(self.olga.competition(SLUG)["state"])

    def board(self, which: str, client: LetheClient | None = None) -> list[tuple[int | None, str, float]]:
        rows = (client or self.olga).leaderboard(SLUG, board=which)["rows"]
        return [(row["rank"], row["team"], row["score"]) for row in rows if row["kind"] == "team"]

    def shows(self, which: str, expected: list[Any], client: LetheClient | None = None) -> None:
        """Wait until a board is the expected one: answers may be some seconds old."""
        seen: list[Any] = []

        def is_there() -> bool:
            seen[:] = self.board(which, client)
            return seen == expected

        wait_until(is_there, within_s=120, about=lambda: f"{seen}\nis not\n{expected}")

    def private_scores(self) -> dict[str, float]:
        rows = self.export("evaluations")
        return {
            row["submission_id"]: row["private_final_score"]
            for row in rows
            if row["is_current"] and row["private_final_score"] is not None
        }

    def export(self, table: str) -> list[JsonObject]:
        into = self.cluster.folder / f"{table}.jsonl"
        self.olga.download(f"/competitions/{SLUG}/exports/{table}", into, format="jsonl")
        return [json.loads(line) for line in into.read_text().splitlines()]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    limits = f"submissions_per_day = {PER_DAY}\nfinal_selections = {FINALS}\nteam_size = 2\nleak_bits_per_day = 1000.0"
    # It opens today: two teams that merge may have sent what one could have sent since, of which each day counts.
    toml = competition_toml(n=N, shard=N, floor=60.0, opened_ago=timedelta())
    toml = toml.replace("submissions_per_day = 100", limits)
    with mail_server() as mail:
        variables = {
            "LETHE_SMTP_HOST": "127.0.0.1",
            "LETHE_SMTP_PORT": str(mail.port),
            "LETHE_SMTP_TLS": "none",
            "LETHE_MAIL_FROM": "lethe@example.org",
            "LETHE_LEASE_S": LONG,
        }
        folder = tmp_path_factory.mktemp("played")
        with running_cluster(folder, toml=toml, **variables) as cluster, people(cluster) as everybody:
            teams = {name: everybody[name] for name in TEAMS}
            yield Play(cluster, everybody["olga"], everybody["anybody"], mail, teams)


@contextmanager
def people(cluster: Cluster) -> Iterator[dict[str, LetheClient]]:
    clients = {name: LetheClient(cluster.url) for name in (*TEAMS, "olga", "anybody")}
    try:
        clients["olga"].log_in(*organiser_credentials(cluster.settings))

        def join(name: str) -> None:
            clients[name].register(name, PASSWORD, email=f"{name}@example.org")
            clients[name].log_in(name, PASSWORD)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(join, TEAMS))
        with cluster.database.write() as session:  # as if each had followed the link that was sent there
            session.execute(update(Account).where(Account.email.is_not(None)).values(email_confirmed_at=now()))
        yield clients
    finally:
        for client in clients.values():
            client.close()


def refused(status: int, act: Any, *arguments: Any, **options: Any) -> str:
    """Return why the server refused an act that must be refused with this status."""
    with pytest.raises(ApiError) as caught:
        act(*arguments, **options)
    assert caught.value.http_status == status, caught.value.detail
    return str(caught.value.detail)


def ranked(best: dict[str, tuple[float, datetime]]) -> list[tuple[int, str, float]]:
    """Return rank, team, score: the better first, equal scores share a rank and the earlier is listed first."""
    order = sorted(best, key=lambda team: (-best[team][0], best[team][1]))
    return [(1 + sum(score > best[team][0] for score, _at in best.values()), team, best[team][0]) for team in order]


def best_time(sent: list[Sent], scores: dict[str, float]) -> dict[str, tuple[float, datetime]]:
    best: dict[str, tuple[float, datetime]] = {}
    for one in sorted(sent, key=lambda one: one.at):
        if one.id in scores and (one.team not in best or scores[one.id] > best[one.team][0]):
            best[one.team] = scores[one.id], one.at
    return best


def public_scores(play: Play) -> dict[str, float]:
    return {one_id: row["score"]["final_score"] for one_id, row in play.answers().items() if row["score"] is not None}


def test_competition_is_played_to_its_end(play: Play) -> None:
    before_the_workers(play)
    teams_merge(play)
    everything_received_ends(play)
    organiser_changes_what_may_be_changed(play)
    finals = finals_are_chosen_and_the_deadline_passes(play)
    private_rescoring(play, finals)
    a_rejudging_mends_a_wrong_score(play)
    reveal(play)


def before_the_workers(play: Play) -> None:
    """Nothing runs yet: what is accepted is only queued, and every quota is kept."""
    for i, name in enumerate(TEAMS[:10]):
        # Two teams each send the same code: expected to share a rank.
        play.submit(name, "good", good(i // 2, note=name))
        play.submit(name, "weaker", weaker(name))
        play.submit(name, "exception", RAISES.format(note=name))
        play.submit(name, "shape", WRONG_SHAPE.format(note=name))
    cancelled = play.submit("team00", "cancelled", good(0, note="taken back"))
    assert play.people["team00"].quota(SLUG)["remaining"] == 0
    play.people["team00"].cancel(cancelled.id)
    assert play.people["team00"].quota(SLUG)["remaining"] == 1, "cancelled before its first run: refunded"
    for name in TEAMS[:2]:  # One submission is left, and eight arrive at once: one is taken, seven are told 429.
        [taken] = fight(play, name)
        play.sent.append(Sent(taken["id"], name, "weaker", datetime.fromisoformat(taken["received_at"])))
        assert play.people[name].quota(SLUG)["remaining"] == 0
    for name in TEAMS[2:10]:
        play.submit(name, "weaker", weaker(f"{name} again"))
        assert "today are used" in refused(429, play.submit, name, "weaker", weaker("one too many"))


def fight(play: Play, name: str) -> list[JsonObject]:
    """Send eight submissions at once. Return those that were taken; the others must have been over the quota."""
    token = play.people[name].log_in(name, PASSWORD)

    def send(number: int) -> JsonObject | int:
        file = play.cluster.folder / f"fight{number}.py"
        file.write_text(weaker(f"fight {number}"))
        with LetheClient(play.cluster.url, token=token) as client:
            try:
                return client.submit(SLUG, file)
            except ApiError as error:
                return error.http_status

    with ThreadPoolExecutor(8) as pool:
        came_of_it = list(pool.map(send, range(8)))
    assert {one for one in came_of_it if isinstance(one, int)} == {429}
    return [one for one in came_of_it if isinstance(one, dict)]


def teams_merge(play: Play) -> None:
    """Two that sent two each fit into one quota of five; two full ones do not."""
    for name in TEAMS[10:]:
        play.submit(name, "good", good(9, note=name))
        play.submit(name, "weaker", weaker(name))
    staying, leaving = (play.people[name] for name in TEAMS[10:])
    asked = leaving.post(f"/competitions/{SLUG}/team/merges", {"team": "team10"})
    staying.post(f"/competitions/{SLUG}/team/merges/{asked['id']}/agree")
    play.get_team["team11"] = "team10"
    for one in play.sent:
        one.team = play.get_team[one.team]
    assert leaving.quota(SLUG)["remaining"] == 1, "four of five are sent together"
    play.submit("team11", "good", good(10, note="merged"))
    refused(429, play.submit, "team10", "weaker", weaker("one too many"))
    full = refused(409, play.people["team00"].post, f"/competitions/{SLUG}/team/merges", {"team": "team01"})
    assert "10 submissions" in full


def everything_received_ends(play: Play) -> None:
    """Each kind ends as it must, and the public board is the one that the rules on paper give."""
    assert len(play.sent) == 56
    for name in ("first", "second"):
        play.cluster.start_worker(name)
    wait_until(play.all_ended, within_s=1800)
    ends = {"good": "scored", "weaker": "scored", "exception": "failed", "shape": "failed", "cancelled": "cancelled"}
    rows = play.answers()
    assert {one.id: rows[one.id]["stage"] for one in play.sent} == {one.id: ends[one.kind] for one in play.sent}
    for kind, error_class in (("exception", "exception"), ("shape", "wrong-weights")):
        classes = {rows[one.id]["failure"]["error_class"] for one in play.sent if one.kind == kind}
        assert classes == {error_class}
    raised = rows[next(one.id for one in play.sent if one.kind == "exception")]["failure"]
    assert (raised["fault"], raised["file"], raised["line"]) == ("participant", "team00.py", 2)
    scores = public_scores(play)
    by_kind = {kind: [scores[one.id] for one in play.sent if one.kind == kind] for kind in ("good", "weaker")}
    assert min(by_kind["good"]) > max(by_kind["weaker"])
    for i in range(0, 10, 2):
        twins = [scores[play.of(TEAMS[i + k])[0].id] for k in (0, 1)]
        assert twins[0] == twins[1], "the same code has the same score, to the bit"
    expected = ranked(best_time(play.sent, scores))
    assert [rank for rank, _team, _score in expected] != list(range(1, 12)), "some share a rank"
    play.shows("public", expected, play.people["team05"])


def organiser_changes_what_may_be_changed(play: Play) -> None:
    """One more submission a day: shown first, then set; four teams use it."""
    change = {"limits": {"submissions_per_day": PER_DAY + 1}, "reason": "the hall was dark for an hour"}
    preview = play.olga.patch(f"/competitions/{SLUG}", {**change, "preview": True})
    assert (preview["applied"], preview["changed"]) == (False, {"limits.submissions_per_day": [PER_DAY, PER_DAY + 1]})
    before = play.people["team02"].quota(SLUG)["remaining"]
    assert before == 2, "its two failures in the smoke run do not count, and a preview changes nothing"
    play.olga.patch(f"/competitions/{SLUG}", change)
    assert play.people["team02"].quota(SLUG)["remaining"] == before + 1
    for name in TEAMS[2:5]:
        play.submit(name, "good", good(20, note=name, first=FAILS_PRIVATELY if name == "team04" else "pass"))
    wait_until(play.all_ended)


def finals_are_chosen_and_the_deadline_passes(play: Play) -> dict[str, list[str]]:
    """A team chooses its weaker ones, another nothing; what came in time counts although it runs later."""
    mine = {kind: [one for one in play.of("team03") if one.kind == kind] for kind in ("good", "weaker")}
    for one in mine["weaker"]:
        play.people["team03"].select(one.id)
    refused(409, play.people["team03"].select, mine["good"][0].id)
    refused(404, play.people["team05"].select, mine["good"][0].id)
    last = play.submit("team06", "good", good(3, note="late", first=SLOW))
    end = datetime.now(UTC) + timedelta(seconds=ENDS_IN_S)
    body = {"closes_at": end.isoformat(), "reason": "the end of the play"}
    play.olga.patch(f"/competitions/{SLUG}", body)
    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))
    # Whether or not anything has moved the state yet, nobody sends or chooses any more.
    refused(409, play.submit, "team07", "good", good(0, note="too late"))
    refused(409, play.people["team03"].select, mine["weaker"][0].id, selected=False)
    assert len(play.sent) == 60
    wait_until(play.all_ended)
    [ended] = [row for row in play.export("submissions") if row["id"] == last.id]
    assert ended["stage"] == "scored", play.answers()[last.id]["failure"]
    assert datetime.fromisoformat(ended["finished_at"]) > end, "it ran on after the end, and counts"
    scores = public_scores(play)
    play.shows("public", ranked(best_time(play.sent, scores)))
    finals = {}
    for team in {one.team for one in play.sent}:
        scored = [one for one in play.of(team) if one.id in scores]
        finals[team] = [one.id for one in sorted(scored, key=lambda one: (-scores[one.id], one.at))[:FINALS]]
    finals["team03"] = [one.id for one in mine["weaker"]]
    return finals


def private_rescoring(play: Play, finals: dict[str, list[str]]) -> None:
    """Exactly the finals go to the private split; one fails there, and the team's next choice takes its place."""
    wait_until(lambda: play.olga.get(f"/competitions/{SLUG}/rescoring")["frozen"], within_s=180)
    selected = {row["id"] for row in play.export("submissions") if row["selected"]}
    assert selected == {one for chosen in finals.values() for one in chosen}

    def waits_for_a_decision() -> bool:
        progress = play.olga.get(f"/competitions/{SLUG}/rescoring")
        return bool(progress["scored"] + len(progress["failed"]) == progress["finals"] and progress["failed"])

    wait_until(waits_for_a_decision, within_s=180)
    [failed] = play.olga.get(f"/competitions/{SLUG}/rescoring")["failed"]
    assert (failed["team"], failed["fault"], failed["error_class"]) == ("team04", "participant", "exception")
    assert play.state() == "closed", "it waits for the organiser"
    shown = play.people["team04"].submission(failed["submission"])
    assert shown["stage"] == "scored"
    assert shown["failure"] is None, "the team learns nothing of it"
    scores = public_scores(play)
    others = [one for one in play.of("team04") if one.id in scores and one.id not in finals["team04"]]
    following = min(others, key=lambda one: (-scores[one.id], one.at))
    decision = {"decision": "use-next-choice", "reason": "it fails on the hidden data"}
    play.olga.post(f"/competitions/{SLUG}/finals/{failed['submission']}/decision", decision)
    finals["team04"] = [one for one in finals["team04"] if one != failed["submission"]] + [following.id]
    wait_until(lambda: play.state() == "provisional", within_s=180)
    private = play.private_scores()
    assert set(private) == {one for chosen in finals.values() for one in chosen}
    counting = [one for one in play.sent if one.id in private]
    play.shows("private", ranked(best_time(counting, private)))
    for client in (play.people["team00"], play.anybody):
        assert "sealed" in refused(404, client.leaderboard, SLUG, board="private")


def a_rejudging_mends_a_wrong_score(play: Play) -> None:
    """One public score is made wrong as a faulty scorer would have; scored again it is right, and only once applied."""
    scores = public_scores(play)
    right = ranked(best_time(play.sent, scores))
    victim = max(play.of("team10"), key=lambda one: scores[one.id])
    with play.cluster.database.write() as session:
        faulty = update(PublicScore).where(PublicScore.submission_id == victim.id)
        session.execute(faulty.values(final_score=scores[victim.id] * 100))
    wrong = ranked(best_time(play.sent, {**scores, victim.id: scores[victim.id] * 100}))
    assert wrong[0][1] == "team10"
    play.shows("public", wrong)
    body = {"submissions": [victim.id, play.of("team05")[0].id], "changed": "scorer", "reason": "a fault of the scorer"}
    made = play.olga.post(f"/competitions/{SLUG}/rejudgings", body)
    at = f"/competitions/{SLUG}/rejudgings/{made['id']}"
    wait_until(lambda: play.olga.post(f"{at}/preview")["complete"], within_s=180)
    assert play.board("public") == wrong, "nothing changes before it is applied"
    ranks = {team: (rank, score) for rank, team, score in right}
    expected = {team: (rank, score, *ranks[team]) for rank, team, score in wrong if (rank, score) != ranks[team]}
    teams = play.olga.post(f"{at}/preview")["teams"]
    found = {row["team"]: (row["old_rank"], row["old_score"], row["new_rank"], row["new_score"]) for row in teams}
    assert found == expected
    play.olga.post(f"{at}/apply")
    play.shows("public", right)
    assert [row["action"] for row in play.export("audit")].count("rejudging.applied") == 1


def reveal(play: Play) -> None:
    """Everybody sees the private board, receipts hold, and everybody was told what concerns them."""
    private = play.board("private")
    play.olga.act(SLUG, "reveal", {"reason": "the ceremony"})
    assert play.state() == "final"
    play.shows("private", private, play.anybody)
    key = play.anybody.get("/receipt-key")["public_key"]
    scores = play.private_scores()
    for one in play.sent:
        if one.id in scores:
            receipt = play.people[one.team].get(f"/submissions/{one.id}/receipt", split="private")
            verify_receipt(receipt, public_key=key)
            assert receipt["score"]["final_score"] == scores[one.id]
    moves = [row["data"]["to"] for row in play.export("audit") if row["action"] in MOVES]
    assert moves == ["preparing", "ready", "open", "closed", "provisional", "final"]
    last_news = "Tiny digits: the final leaderboard"
    wait_until(lambda: all(last_news in subjects(play, name) for name in TEAMS), within_s=180)
    for name in TEAMS:
        told = Counter(subjects(play, name))
        assert told["Tiny digits has closed"] == told[last_news] == 1
    assert Counter(subjects(play, "team05")) == {
        "Confirm your address": 1,
        "Tiny digits: a score": 3,
        "Tiny digits: a failure": 2,
        "Tiny digits has closed": 1,
        last_news: 1,
    }


def subjects(play: Play, name: str) -> list[str]:
    return [str(message["Subject"]) for message in play.mail.to(f"{name}@example.org")]
