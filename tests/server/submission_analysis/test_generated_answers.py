"""Answers of language models to the forget questions, over HTTP and on their page, for organisers alone."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import select

from lethe.competition.file import parse_competition
from lethe.evaluation.sample_answer_files import FORGET_ANSWERS, texts_as_array
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, Shard, ShardState
from tests.support.instance import Instance
from tests.support.towns import towns_toml
from tests.support.web import Visitor, plain_text

API = "/api/v1/competitions/digits/submissions"
PAGES = "/organise/digits/submissions"
SPLIT = "splits/digits/public/hidden"
PERSONS = (("Ada", "Rome"), ("Bo", "Oslo"))
ROWS = [
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
def ada(server: Instance) -> dict[str, str]:
    return server.participant("ada")


@pytest.fixture
def submission(server: Instance, of_digits: dict[str, str], ada: dict[str, str]) -> str:
    """A scored submission of two shards with two runs each; each retrained model and run answers in its own words."""
    made = str(server.submit(ada).json()["id"])
    server.score(made, 0.25)
    store(
        server,
        {
            "questions.json": json.dumps({"sets": {"forget": ROWS, "retain": []}}).encode(),
            "original/outputs.safetensors": outputs(("In Rome", "In Oslo")),
            "retrained/outputs.safetensors": outputs(*((f"r{run} Łódź", f"r{run}") for run in range(4))),
        },
    )
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == made)).one()
        for first_run in (0, 2):
            key = f"results/{made}/{first_run}"
            sha256 = server.storage.write(key, outputs(*((f"u{run}", "") for run in (first_run, first_run + 1))))
            session.add(
                Shard(
                    evaluation_id=evaluation.id,
                    team_id=session.scalars(select(Team.id)).one(),
                    split_id=evaluation.split_id,
                    competition_id=session.scalars(select(Competition.id)).one(),
                    first_run=first_run,
                    n_runs=2,
                    runs_done=2,
                    state=ShardState.DONE.value,
                    result_key=key,
                    result_sha256=sha256,
                )
            )
    return made


def test_answers_of_three_models_stand_beside_each_question(server, of_digits, submission):
    found = server.client.get(f"{API}/{submission}/answers", params={"run": 3}, headers=of_digits).json()
    assert (found["run"], found["n_runs"]) == (3, 4)
    assert found["questions"] == [
        {**ROWS[0], "original": "In Rome", "retrained": "r3 Łódź", "unlearned": "u3"},
        {**ROWS[1], "original": "In Oslo", "retrained": "r3", "unlearned": ""},
    ]


def test_run_starts_from_its_own_original_where_runs_have_one(server, of_digits, submission):
    server.storage.remove(f"{SPLIT}/original/outputs.safetensors")
    url = f"{API}/{submission}/answers?run=1"
    assert server.client.get(url, headers=of_digits).json()["questions"][0]["original"] is None
    store(server, {"originals/outputs.safetensors": outputs(*((f"o{run}", "") for run in range(4)))})
    assert server.client.get(url, headers=of_digits).json()["questions"][0]["original"] == "o1"


def test_run_that_is_not_there_is_refused(server: Instance, of_digits: dict[str, str], submission: str) -> None:
    refused = server.client.get(f"{API}/{submission}/answers?run=4", headers=of_digits)
    assert (refused.status_code, refused.json()["detail"]) == (404, "This submission has no run 4: its runs are 0 to 3")


@pytest.mark.parametrize("missing", ["questions.json", "retrained/outputs.safetensors"])
def test_answers_that_are_not_stored_are_not_found(server, of_digits, submission, missing):
    server.storage.remove(f"{SPLIT}/{missing}")
    refused = server.client.get(f"{API}/{submission}/answers", headers=of_digits)
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        f"No generated answers are stored of submission {submission}",
    )


def test_hidden_questions_are_shown_to_organisers_alone(server, of_digits, ada, submission):
    eve = server.participant("eve")
    for headers, status in ((ada, 403), (eve, 403), ({}, 401), (of_digits, 200)):
        answer = server.client.get(f"{API}/{submission}/answers", headers=headers)
        assert answer.status_code == status
        assert ("Where does Ada live?" in answer.text) == (headers == of_digits)
    own = server.client.get(f"/api/v1/submissions/{submission}", headers=ada)
    assert own.status_code == 200
    assert "Where does Ada live?" not in own.text


def test_private_questions_stay_hidden_until_the_close(server, of_digits, submission):
    url = f"{API}/{submission}/answers?split=private"
    before = server.client.get(url, headers=of_digits)
    assert before.json()["detail"] == "digits has no private scores before it closes"
    with server.database.write() as session:
        session.scalars(select(Competition)).one().state = CompetitionState.PROVISIONAL.value
    after = server.client.get(url, headers=of_digits)
    assert after.json()["detail"] == f"No generated answers are stored of submission {submission}"


def test_page_shows_a_run_by_its_number_from_one(server: Instance, submission: str) -> None:
    visitor = Visitor(server)
    visitor.log_in("olga")
    page = visitor.get(f"{PAGES}/{submission}/answers?run=3")
    assert page.status_code == 200
    assert "Where does Ada live? In Rome In Rome r2 Łódź u2" in plain_text(page.text)
    assert "Where does Bo live? In Oslo In Oslo r2 empty" in plain_text(page.text)
    assert visitor.get(f"{PAGES}/{submission}/answers?run=5").status_code == 404
    server.storage.remove(f"{SPLIT}/questions.json")
    assert "No generated answers are stored." in plain_text(visitor.get(f"{PAGES}/{submission}/answers").text)


def test_analysis_of_a_language_model_leads_to_the_answers(server: Instance, submission: str, tmp_path: Path) -> None:
    visitor = Visitor(server)
    visitor.log_in("olga")
    link = f'href="{PAGES}/{submission}/answers"'
    assert link not in visitor.get(f"{PAGES}/{submission}").text
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = parse_competition(towns_toml(tmp_path, n_models=4)).model_dump(mode="json")
    assert link in visitor.get(f"{PAGES}/{submission}").text
