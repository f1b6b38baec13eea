"""Language models' answers: on the public sample for its team, to the hidden questions for organisers alone."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import select

from lethe.competition.file import parse_competition
from lethe.evaluation.sample_answer_files import FORGET_ANSWERS, MAX_CHARACTERS, texts_as_array
from server.models.competition import Competition, Team
from server.models.evaluation import Evaluation, Shard
from server.submissions import sample_answers
from tests.support.instance import Instance
from tests.support.sample_answers import ROWS, STORED, end_smoke_run, make_text_competition
from tests.support.towns import towns_toml
from tests.support.web import Visitor, plain_text


@pytest.fixture
def ada(server: Instance, tmp_path: Path) -> dict[str, str]:
    """A participant of a competition of language models, whose organiser is olga."""
    make_text_competition(server, tmp_path)
    return server.participant("ada")


def sent(server: Instance, headers: dict[str, str]) -> str:
    return str(server.submit(headers).json()["id"])


def answers_of(server: Instance, headers: dict[str, str], submission: str) -> dict[str, object]:
    answer = server.client.get(f"/api/v1/submissions/{submission}/sample-answers", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_team_reads_the_answers_of_three_models(server: Instance, ada: dict[str, str]) -> None:
    submission = sent(server, ada)
    end_smoke_run(server, submission, ["In Bern", ""])
    questions = [ROWS[0] | {"unlearned": "In Bern"}, ROWS[1] | {"unlearned": ""}]
    assert answers_of(server, ada, submission) == {"id": submission, "questions": questions, "note": ""}


def test_answers_are_for_the_team_and_organisers_alone(server: Instance, ada: dict[str, str]) -> None:
    submission = sent(server, ada)
    said = "<script>alert(1)</script>\u202e\x1b[2J"
    end_smoke_run(server, submission, [said, "x" * 5000])
    server.participant("eve")
    visitors = {"": 303, "eve": 404, "olga": 200, "ada": 200}
    for name, status in visitors.items():
        page = Visitor(server, name).get(f"/submissions/{submission}")
        assert (page.status_code, "alert(1)" in page.text) == (status, status == 200)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\ufffd\ufffd[2J" in page.text
    assert "<script>alert(1)" not in page.text
    assert "Where does &lt;b&gt;Bo&lt;/b&gt; live?" in page.text
    assert page.text.count("x" * (MAX_CHARACTERS - 1)) == 1
    assert "x" * MAX_CHARACTERS not in page.text
    assert "Where does Ada live? In Rome In Rome In Łódź" in plain_text(page.text)


@pytest.mark.parametrize(
    ("answers", "note"),
    [(None, sample_answers.NOT_FINITE), (["", ""], sample_answers.NO_ANSWERS), (["one"], sample_answers.NOT_STORED)],
)
def test_a_model_without_answers_has_a_sentence(server, ada, answers, note):
    submission = sent(server, ada)
    end_smoke_run(server, submission, answers)
    assert answers_of(server, ada, submission)["note"] == note
    visitor = Visitor(server, "ada")
    page = plain_text(visitor.get(f"/submissions/{submission}").text)
    assert note in page.replace("’", "'").replace("&#39;", "'")


def test_answers_to_other_questions_are_not_shown(server: Instance, ada: dict[str, str]) -> None:
    submission = sent(server, ada)
    assert answers_of(server, ada, submission)["note"] == sample_answers.NOT_YET
    end_smoke_run(server, submission, ["In Bern", ""], asked=b"of an earlier preparation")
    answer = answers_of(server, ada, submission)
    assert answer["note"] == sample_answers.NOT_STORED
    assert answer["questions"] == [row | {"unlearned": None} for row in ROWS]
    server.storage.remove(STORED)
    answer = answers_of(server, ada, submission)
    assert answer["questions"] == []
    assert "`lethe competition prepare digits`" in str(answer["note"])
    page = plain_text(Visitor(server, "ada").get(f"/submissions/{submission}").text)
    assert str(answer["note"]) in page.replace("&#39;", "'")


def test_models_of_images_answer_nothing(server: Instance) -> None:
    server.competition()
    ada = server.participant("ada")
    submission = sent(server, ada)
    refused = server.client.get(f"/api/v1/submissions/{submission}/sample-answers", headers=ada)
    assert (refused.status_code, refused.json()["detail"]) == (404, "The models of digits answer no questions")
    visitor = Visitor(server, "ada")
    assert "public sample</h2>" not in visitor.get(f"/submissions/{submission}").text


API = "/api/v1/competitions/digits/submissions"
PAGES = "/organise/digits/submissions"
SPLIT = "splits/digits/public/hidden"
FORGET_ROWS = [
    {"question": f"Where does {name} live?", "answer": f"In {town}"} for name, town in (("Ada", "Rome"), ("Bo", "Oslo"))
]


def outputs(*models: tuple[str, str]) -> bytes:
    """Return the stored answers of some models."""
    n = len(models)
    own = {"confidences": np.zeros((n, 2)), "retain_accuracy": np.ones(n), "test_accuracy": np.ones(n)}
    return save({**own, FORGET_ANSWERS: np.stack([texts_as_array(answers, width=16) for answers in models])})


def store(server: Instance, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        server.storage.write(f"{SPLIT}/{name}", data)


@pytest.fixture
def team(server: Instance) -> dict[str, str]:
    return server.participant("ada")


@pytest.fixture
def submission(server: Instance, of_digits: dict[str, str], team: dict[str, str]) -> str:
    """A scored submission of two shards with two runs each; each retrained model and run answers in its own words."""
    made = str(server.submit(team).json()["id"])
    server.score(made, 0.25)
    store(
        server,
        {
            "questions.json": json.dumps({"sets": {"forget": FORGET_ROWS, "retain": []}}).encode(),
            "original/outputs.safetensors": outputs(("In Rome", "In Oslo")),
            "retrained/outputs.safetensors": outputs(*((f"r{run} Łódź", f"r{run}") for run in range(4))),
        },
    )
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == made)).one()
        for first_run in (0, 2):
            key = f"results/{made}/{first_run}"
            sha256 = server.storage.write(key, outputs(*((f"u{run}", "") for run in (first_run, first_run + 1))))
            ids = {"evaluation_id": evaluation.id, "split_id": evaluation.split_id}
            ids["team_id"], ids["competition_id"] = session.execute(select(Team.id, Team.competition_id)).one()
            state = {"runs_done": 2, "state": "done", "result_key": key, "result_sha256": sha256}
            session.add(Shard(**ids, first_run=first_run, n_runs=2, **state))
    return made


def test_answers_of_three_models_stand_beside_each_question(server, of_digits, submission):
    url = f"{API}/{submission}/answers"
    found = server.client.get(url, params={"run": 3}, headers=of_digits).json()
    assert (found["run"], found["n_runs"]) == (3, 4)
    assert found["questions"] == [
        {**FORGET_ROWS[0], "original": "In Rome", "retrained": "r3 Łódź", "unlearned": "u3"},
        {**FORGET_ROWS[1], "original": "In Oslo", "retrained": "r3", "unlearned": ""},
    ]
    refused = server.client.get(url, params={"run": 4}, headers=of_digits)
    assert (refused.status_code, refused.json()["detail"]) == (404, "This submission has no run 4: its runs are 0 to 3")
    server.storage.remove(f"{SPLIT}/original/outputs.safetensors")
    for original in (None, "o1"):
        found = server.client.get(url, params={"run": 1}, headers=of_digits).json()
        assert found["questions"][0]["original"] == original, "a run starts from its own where runs have one"
        store(server, {"originals/outputs.safetensors": outputs(*((f"o{run}", "") for run in range(4)))})
    not_stored = f"No generated answers are stored of submission {submission}"
    server.storage.remove(f"{SPLIT}/retrained/outputs.safetensors")
    refused = server.client.get(url, headers=of_digits)
    assert (refused.status_code, refused.json()["detail"]) == (404, not_stored)
    for state, told in (("open", "digits has no private scores before it closes"), ("provisional", not_stored)):
        with server.database.write() as session:
            session.scalars(select(Competition)).one().state = state
        assert server.client.get(f"{url}?split=private", headers=of_digits).json()["detail"] == told


def test_hidden_questions_are_shown_to_organisers_alone(server, of_digits, team, submission):
    eve = server.participant("eve")
    for headers, status in ((team, 403), (eve, 403), ({}, 401), (of_digits, 200)):
        answer = server.client.get(f"{API}/{submission}/answers", headers=headers)
        assert answer.status_code == status
        assert ("Where does Ada live?" in answer.text) == (headers == of_digits)
    own = server.client.get(f"/api/v1/submissions/{submission}", headers=team)
    assert own.status_code == 200
    assert "Where does Ada live?" not in own.text


def test_page_shows_a_run_by_its_number_from_one(server: Instance, submission: str, tmp_path: Path) -> None:
    visitor = Visitor(server, "olga")
    path = f"{PAGES}/{submission}"
    page = visitor.get(f"{path}/answers?run=3")
    assert page.status_code == 200
    assert "Where does Ada live? In Rome In Rome r2 Łódź u2" in plain_text(page.text)
    assert "Where does Bo live? In Oslo In Oslo r2 empty" in plain_text(page.text)
    assert visitor.get(f"{path}/answers?run=5").status_code == 404
    server.storage.remove(f"{SPLIT}/questions.json")
    assert "No generated answers are stored." in plain_text(visitor.get(f"{path}/answers").text)
    link = f'href="{path}/answers"'
    assert link not in visitor.get(path).text
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = parse_competition(towns_toml(tmp_path, n_models=4)).model_dump(mode="json")
    assert link in visitor.get(path).text, "the analysis of a language model leads to them"
