"""Language models' answers on the public sample, over HTTP and on a submission's page: for its team and organisers."""

from pathlib import Path

import pytest

from lethe.evaluation.sample_answer_files import MAX_CHARACTERS, SampleQuestions
from server.submissions import sample_answers
from tests.support.instance import Instance
from tests.support.sample_answers import QUESTIONS, ROWS, STORED, end_smoke_run, make_text_competition
from tests.support.web import Visitor, plain_text


@pytest.fixture
def ada(server: Instance, tmp_path: Path) -> dict[str, str]:
    """A participant of a competition of language models, whose organiser is olga."""
    make_text_competition(server, tmp_path)
    return server.participant("ada")


def submitted(server: Instance, headers: dict[str, str]) -> str:
    return str(server.submit(headers).json()["id"])


def found(server: Instance, headers: dict[str, str], submission: str) -> dict[str, object]:
    answer = server.client.get(f"/api/v1/submissions/{submission}/sample-answers", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_team_reads_the_answers_of_three_models(server: Instance, ada: dict[str, str]) -> None:
    submission = submitted(server, ada)
    end_smoke_run(server, submission, ["In Bern", ""])
    questions = [ROWS[0] | {"unlearned": "In Bern"}, ROWS[1] | {"unlearned": ""}]
    assert found(server, ada, submission) == {"id": submission, "questions": questions, "note": ""}


def test_answers_are_for_the_team_and_organisers_alone(server: Instance, ada: dict[str, str]) -> None:
    submission = submitted(server, ada)
    end_smoke_run(server, submission, ["In Bern", ""])
    assert "In Bern" not in server.client.get(f"/submissions/{submission}").text
    server.participant("eve")
    for name, status in (("eve", 404), ("olga", 200), ("ada", 200)):
        visitor = Visitor(server)
        visitor.log_in(name)
        page = visitor.get(f"/submissions/{submission}")
        assert (page.status_code, "In Bern" in page.text) == (status, status == 200)


def test_page_shows_what_a_model_says_as_text(server: Instance, ada: dict[str, str]) -> None:
    submission = submitted(server, ada)
    end_smoke_run(server, submission, ["<script>alert(1)</script>\u202e\x1b[2J", "x" * 5000])
    visitor = Visitor(server)
    visitor.log_in("ada")
    page = visitor.get(f"/submissions/{submission}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\ufffd\ufffd[2J" in page
    assert "<script>alert(1)" not in page
    assert "Where does &lt;b&gt;Bo&lt;/b&gt; live?" in page
    assert page.count("x" * (MAX_CHARACTERS - 1)) == 1
    assert "x" * MAX_CHARACTERS not in page
    assert "Where does Ada live? In Rome In Rome In Łódź" in plain_text(page)


@pytest.mark.parametrize(
    ("answers", "note"),
    [(None, sample_answers.NOT_FINITE), (["", ""], sample_answers.NO_ANSWERS), (["one"], sample_answers.NOT_STORED)],
)
def test_a_model_without_answers_has_a_sentence(server, ada, answers, note):
    submission = submitted(server, ada)
    end_smoke_run(server, submission, answers)
    assert found(server, ada, submission)["note"] == note
    visitor = Visitor(server)
    visitor.log_in("ada")
    page = plain_text(visitor.get(f"/submissions/{submission}").text)
    assert note in page.replace("’", "'").replace("&#39;", "'")


def test_answers_to_other_questions_are_not_shown(server: Instance, ada: dict[str, str]) -> None:
    submission = submitted(server, ada)
    assert found(server, ada, submission)["note"] == sample_answers.NOT_YET
    end_smoke_run(server, submission, ["In Bern", ""], asked=b"of an earlier preparation")
    answer = found(server, ada, submission)
    assert answer["note"] == sample_answers.NOT_STORED
    assert answer["questions"] == [row | {"unlearned": None} for row in ROWS]


def test_split_without_answers_has_a_sentence_that_says_how_to_get_them(server: Instance, ada: dict[str, str]) -> None:
    submission = submitted(server, ada)
    server.storage.remove(STORED)
    answer = found(server, ada, submission)
    assert answer["questions"] == []
    assert "`lethe competition prepare digits`" in str(answer["note"])
    visitor = Visitor(server)
    visitor.log_in("ada")
    assert str(answer["note"]) in plain_text(visitor.get(f"/submissions/{submission}").text).replace("&#39;", "'")


def test_models_of_images_answer_nothing(server: Instance) -> None:
    server.competition()
    ada = server.participant("ada")
    submission = submitted(server, ada)
    refused = server.client.get(f"/api/v1/submissions/{submission}/sample-answers", headers=ada)
    assert (refused.status_code, refused.json()["detail"]) == (404, "The models of digits answer no questions")
    visitor = Visitor(server)
    visitor.log_in("ada")
    assert "public sample</h2>" not in visitor.get(f"/submissions/{submission}").text


def test_stored_rows_are_what_preparation_writes() -> None:
    assert SampleQuestions.model_validate_json(QUESTIONS).model_dump(mode="json") == {"questions": ROWS}
