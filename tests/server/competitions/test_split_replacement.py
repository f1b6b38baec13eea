"""Another version of a split: prepared beside the current one, judged on, previewed, applied."""

from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import split_leases
from server.competitions.split_leases import PreparedSplit
from server.models.account import AuditEvent, Role
from server.models.competition import CompetitionState, Split
from server.models.evaluation import Evaluation, Shard
from server.models.submission import Fault
from tests.support.instance import Instance
from tests.support.rejudging import BASE, finish
from tests.support.rejudging import board as whole_board

CORRECTED = {"name": "digits", "options": {"exclude_people": [1]}}


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers, and two scored submissions by their team's name."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    sent = {name: server.submit(server.participant(name)).json()["id"] for name in ("ada", "bob")}
    for name, score in (("ada", 0.5), ("bob", 0.4)):
        server.score(sent[name], score)
    return server.headers(organiser), sent


def replace(server: Instance, olga: dict[str, str], split: str = "public", **values: object) -> Any:
    body = {"reason": "a third of the labels was wrong", **values}
    return server.client.post(f"{BASE}/splits/{split}/replacement", headers=olga, json=body)


def make_ready(server: Instance, visibility: Visibility = Visibility.PUBLIC) -> dict[str, Any]:
    """Do what a worker does with the version that waits. Return the options of its dataset, as a worker gets them."""
    with server.database.write() as session:
        split = session.scalars(select(Split).where(~Split.is_current, Split.visibility == visibility.value)).one()
        work = split_leases.claim(session, split.id, lease_s=60.0)
        assert work is not None
        assert (work.version, work.is_current) == (2, False)
        oracle = {"final_score": 0.8}
        assert split_leases.finish(session, work, PreparedSplit("1" * 64, 12, 100.0, oracle))
        return dict(work.competition.dataset.model_dump(mode="json")["options"])


def rejudge(server: Instance, olga: dict[str, str], **values: object) -> Any:
    body = {"changed": "split", "reason": "the labels are right now", **values}
    return server.client.post(f"{BASE}/rejudgings", headers=olga, json=body)


def step(server: Instance, olga: dict[str, str], rejudging: str, verb: str) -> Any:
    answer = server.client.post(f"{BASE}/rejudgings/{rejudging}/{verb}", headers=olga)
    assert answer.status_code == 200, answer.text
    return answer.json()


def board(server: Instance) -> list[tuple[str, float]]:
    return [line for line in whole_board(server) if line[0] != "Oracle"]


def current(server: Instance, visibility: Visibility = Visibility.PUBLIC) -> tuple[int, str, int | None]:
    with server.database.read() as session:
        split = session.scalars(select(Split).where(Split.is_current, Split.visibility == visibility.value)).one()
        return split.version, split.state, split.n_forget


def events(server: Instance, action: str) -> list[AuditEvent]:
    with server.database.read() as session:
        return list(session.scalars(select(AuditEvent).where(AuditEvent.action == action)))


def test_replaced_split_counts_once_the_re_judging_is_applied(both: Instance) -> None:
    olga, sent = play(both)
    answer = replace(both, olga, dataset=CORRECTED)
    assert answer.status_code == 202, answer.text
    (waiting,) = answer.json()["replacements"]
    assert (waiting["version"], waiting["state"], waiting["is_current"]) == (2, "pending", False)
    assert [split["version"] for split in answer.json()["splits"]] == [1, 1]
    assert "not ready" in rejudge(both, olga).json()["detail"]
    assert make_ready(both) == CORRECTED["options"]
    rejudging = rejudge(both, olga).json()["id"]
    finish(both, sent["ada"], 0.1)
    finish(both, sent["bob"], 0.2)
    going = both.submit(both.participant("fay")).json()["id"]
    since = both.submit(both.participant("eve")).json()["id"]
    both.score(since, 0.9)
    preview = step(both, olga, rejudging, "preview")
    changes = {row["team"]: (row["old_score"], row["new_score"]) for row in preview["teams"]}
    assert changes == {"eve": (0.9, None), "ada": (0.5, 0.1), "bob": (0.4, 0.2)}
    assert board(both) == [("eve", 0.9), ("ada", 0.5), ("bob", 0.4)]
    assert current(both)[0] == 1
    step(both, olga, rejudging, "apply")
    assert whole_board(both) == [("Oracle", 0.8), ("bob", 0.2), ("ada", 0.1)], "what came since is run again"
    assert current(both) == (2, "pending", 12), "its files are checked, and the kit is made"
    with both.database.read() as session:
        going_on = Shard.state == "queued", Evaluation.state == "queued", Evaluation.is_current
        again = select(Shard.kind).join(Evaluation).where(*going_on)
        assert session.scalars(again).all() == ["smoke", "smoke"], "each runs on the new version's sample first"
    both.score(since, 0.05)
    both.score(going, 0.04)
    assert board(both) == [("bob", 0.2), ("ada", 0.1), ("eve", 0.05), ("fay", 0.04)]
    with both.database.read() as session:
        second = select(Split.id).where(Split.version == 2)
        assert set(session.scalars(select(Shard.state).where(Shard.split_id.not_in(second)))) <= {"done", "cancelled"}
        counting = session.scalars(select(Evaluation).where(Evaluation.is_current)).all()
        assert {evaluation.split_id for evaluation in counting} == {session.scalars(second).one()}
    (event,) = events(both, "split.replaced")
    assert (event.data["version"], event.data["run_again"], event.reason) == (2, 2, "the labels are right now")
    assert event.data["manifest_sha256"] == {"from": "0" * 64, "to": "1" * 64}
    (begun,) = events(both, "split.replacement_started")
    assert begun.data["dataset"]["options"] == CORRECTED["options"]


def test_host_fault_of_a_replacing_evaluation_leaves_nothing_on_the_old_split(server: Instance) -> None:
    olga, sent = play(server)
    replace(server, olga)
    make_ready(server)
    rejudging = rejudge(server, olga).json()["id"]
    finish(server, sent["ada"], 0.1)
    finish(server, sent["bob"], None, fault=Fault.HOST)
    step(server, olga, rejudging, "apply")
    assert board(server) == [("ada", 0.1)]
    server.score(sent["bob"], 0.3)
    assert board(server) == [("bob", 0.3), ("ada", 0.1)]


def test_re_judging_on_an_unchanged_split_is_refused(server: Instance) -> None:
    olga, sent = play(server)
    answer = rejudge(server, olga)
    assert answer.status_code == 409
    assert "lethe competition replace-split digits public" in answer.json()["detail"]
    replace(server, olga)
    make_ready(server)
    part = rejudge(server, olga, submissions=[sent["ada"]])
    assert (part.status_code, part.json()["errors"][0]["field"]) == (422, "changed")


def test_split_on_which_nothing_was_evaluated_is_replaced_when_the_other_is_ready(both: Instance) -> None:
    olga, _ = play(both)
    replace(both, olga, "private")
    assert current(both, Visibility.PRIVATE)[0] == 1
    make_ready(both, Visibility.PRIVATE)
    assert current(both, Visibility.PRIVATE) == (2, "ready", 12)
    assert len(events(both, "split.replaced")) == 1


def test_split_is_replaced_once_at_a_time_by_its_organisers(server: Instance) -> None:
    olga, _ = play(server)
    assert replace(server, server.participant("eve")).status_code == 403
    assert replace(server, olga).status_code == 202
    assert "wait for its end" in replace(server, olga).json()["detail"]
    wrong = replace(server, olga, "private", dataset={"name": 3})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "dataset.name")


@pytest.mark.parametrize("state", [CompetitionState.DRAFT, CompetitionState.FINAL])
def test_split_is_not_replaced_before_or_after(server: Instance, state: CompetitionState) -> None:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, state=state)
    assert replace(server, server.headers(organiser)).status_code == 409


def test_only_an_administrator_names_files_of_the_host(server: Instance) -> None:
    olga, _ = play(server)
    answer = replace(server, olga, dataset={"name": "folder", "options": {"root": "/etc"}})
    assert answer.status_code == 403, answer.text
