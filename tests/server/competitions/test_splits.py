"""A competition's stored file, and its splits: the report, the share of the preparation, another version."""

import ast
import json
import pickle
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from server.competitions import split_leases
from server.competitions import stored_file as module
from server.competitions.split_leases import PreparedSplit
from server.competitions.split_share import opening_of, share_done, time_left_s
from server.competitions.stored_file import stored_file
from server.models.account import AuditEvent
from server.models.competition import Competition, CompetitionState, ModelShard, ModelShardState, Split, SplitState
from server.models.evaluation import Evaluation, Shard
from server.models.submission import Fault
from tests.lethe.conftest import competition
from tests.server.evaluations.conftest import competition_file
from tests.support.instance import Instance
from tests.support.scores import BASE
from tests.support.scores import board as whole_board
from tests.support.scores import finish_rejudged as finish
from tests.support.web import Visitor

ROOT = Path(__file__).parents[3]
RULE = "server/competitions/stored_file.py"
STRANGERS = ("server/archives/reader.py", "worker/evaluation/bundle_replay.py")  # check what a stranger calls a row


def stored(**changes: object) -> Competition:
    file = competition_file(network={"name": "mlp", "options": {"widths": [8, 16]}}, **changes)
    return Competition(config=file.model_dump(mode="json"))


def read_again(competition: Competition) -> Competition:
    """Return the competition as another request reads it from the database."""
    return Competition(config=json.loads(json.dumps(competition.config)))


def test_same_content_is_checked_once() -> None:
    competition = stored()
    assert stored_file(read_again(competition)) is stored_file(competition)
    assert stored_file(competition) == CompetitionFile.model_validate(competition.config)


def test_other_content_gives_the_other_file() -> None:
    competition = stored()
    before = stored_file(competition)
    competition.config = {**competition.config, "title": "Another title"}
    assert stored_file(competition).title == "Another title"
    assert before.title != "Another title"


@pytest.mark.parametrize(
    "change",
    [
        lambda options: options.update(widths=[1]),
        lambda options: options.__setitem__("widths", [1]),
        lambda options: options["widths"].append(1),
        lambda options: options["widths"].sort(),
        lambda options: options.pop("widths"),
        lambda options: options.clear(),
    ],
)
def test_shared_file_cannot_be_changed(change: Any) -> None:
    options = stored_file(stored()).network.options
    with pytest.raises(TypeError, match="change a copy"):
        change(options)
    assert options == {"widths": [8, 16]}


def test_shared_file_can_be_copied_and_sent() -> None:
    file = stored_file(stored())
    assert pickle.loads(pickle.dumps(file)) == deepcopy(file) == file
    assert json.loads(file.model_dump_json()) == file.model_dump(mode="json")


def test_requests_check_a_file_once(server: Instance) -> None:
    visitor = Visitor(server)
    server.organised()
    visitor.log_in("olga")
    pages = [f"/competitions/digits{part}" for part in ("", "/leaderboard", "/submit", "/submissions", "/team")]
    pages += [f"/organise/digits{part}" for part in ("", "/limits", "/words", "/teams", "/exports")]
    pages += [f"/api/v1/competitions{part}" for part in ("", "/digits", "/digits/leaderboard")]
    module._checked.cache_clear()
    statuses = {path: visitor.get(path).status_code for _ in range(3) for path in pages}
    assert set(statuses.values()) == {200}, statuses
    assert module._checked.cache_info().misses == 1
    assert module._checked.cache_info().hits > len(pages)


@pytest.mark.parametrize("package", ["server", "worker"])
def test_stored_files_are_read_by_one_rule(package: str) -> None:
    """No other code validates what a competition's row holds, but for changing it."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) == "CompetitionFile.model_validate"
            if is_check and name not in (RULE, *STRANGERS) and not isinstance(node.args[0], ast.Dict | ast.Call):
                found.append(f"{name}:{node.lineno}")
    assert found == []


REPORT = {
    "competition": "digits",
    "visibility": "private",
    "images": {"retain": 3, "forget": 1},
    "persons": {"retain": 2, "forget": 1},
    "classes": {"retain": {"0": 2, "1": 1}, "forget": {"0": 1, "1": 0}},
    "class_names": ["0", "1"],
    "confused_labels": 0,
    "pairs": [
        {
            "sets": ["retain", "forget"],
            "shared_images": 0,
            "shared_persons": 0,
            "exact_duplicates": 0,
            "near_duplicates": 1,
            "examples": [[4, 7, 0.997]],
        }
    ],
}
URL = "/api/v1/competitions/digits/splits/{}/report"


def test_organisers_read_what_the_preparation_wrote(server: Instance) -> None:
    olga = server.organised()
    missing = server.client.get(URL.format("public"), headers=olga)
    assert (missing.status_code, "public split of digits has no report yet" in missing.json()["detail"]) == (404, True)
    for visibility, place in (("private", "report.json"), ("public", "work/shared/report.json")):
        server.storage.write(f"splits/digits/{visibility}/{place}", json.dumps(REPORT).encode())
        assert server.client.get(URL.format(visibility), headers=olga).json() == REPORT
    server.storage.write("splits/digits/private/report.json", b"{")
    damaged = server.client.get(URL.format("private"), headers=olga)
    assert (damaged.status_code, damaged.json()["title"]) == (503, "Platform failure")


AT = datetime(2026, 1, 1, tzinfo=UTC)


def shard(done: float, *, begun_s: float | None = None, state: ModelShardState = ModelShardState.LEASED) -> ModelShard:
    """Return a shard of ten models, begun so many seconds ago."""
    claimed_at = None if begun_s is None else AT - timedelta(seconds=begun_s)
    return ModelShard(kind="retrained", n_models=10, models_done=done, claimed_at=claimed_at, state=state.value)


def test_split_that_waits_has_nothing_done() -> None:
    file: CompetitionFile = competition()
    waits = Split(state=SplitState.PENDING.value, stage="waits: 1 of 1 processes for preparations are taken")
    assert share_done(waits, file, shards=[]) == 0.0
    begun = Split(state=SplitState.PREPARING.value, stage="drawing the sets", progress=0.0)
    assert 0.0 < share_done(begun, file, shards=[]) < 0.1


def test_time_left_is_of_the_rate_since_the_first_shard_began() -> None:
    shards = [shard(10, begun_s=20, state=ModelShardState.DONE), shard(5, begun_s=5), shard(0)]
    assert time_left_s(shards, AT) == pytest.approx(20.0)
    assert time_left_s([shard(0, begun_s=5), shard(0)], AT) is None, "nothing is made yet"
    assert time_left_s([], AT) is None


@pytest.mark.parametrize(("opens_with", "expected"), [("public", 1.0), ("both", 0.5)])
def test_opening_waits_for_the_splits_it_needs(server: Instance, opens_with: str, expected: float) -> None:
    made = server.competition(state=CompetitionState.PREPARING)
    with server.database.write() as session:
        held = session.merge(made)
        held.config = {**held.config, "splits": {**held.config["splits"], "opens_with": opens_with}}
        private = session.scalars(select(Split).where(Split.visibility == "private")).one()
        private.state = SplitState.PENDING.value
        session.flush()
        assert opening_of(session, held, AT).share == expected


CORRECTED = {"name": "digits", "options": {"exclude_people": [1]}}


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers, and two scored submissions by their team's name."""
    olga = server.organised()
    sent = {name: server.submit(server.participant(name)).json()["id"] for name in ("ada", "bob")}
    for name, score in (("ada", 0.5), ("bob", 0.4)):
        server.score(sent[name], score)
    return olga, sent


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
    host = replace(server, olga, dataset={"name": "folder", "options": {"root": "/etc"}})
    assert host.status_code == 403, "only an administrator names files of the host"
    assert replace(server, olga).status_code == 202
    assert "wait for its end" in replace(server, olga).json()["detail"]
    wrong = replace(server, olga, "private", dataset={"name": 3})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "dataset.name")
    for state in (CompetitionState.DRAFT, CompetitionState.FINAL):
        with server.database.write() as session:
            session.query(Competition).one().state = state.value
        assert replace(server, olga, "private").status_code == 409
