"""Questions to organisers, answered to one or to all, and the pages beside the description."""

from sqlalchemy import select

from server.competitions.questions import MAX_OPEN
from server.models.account import Role
from server.models.notification import QueuedEmail
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

C = "/api/v1/competitions/digits"
PAGES = '[pages]\nrules = "**No** <script>alert(1)</script> tricks"\nfaq = "None yet."'


def mails(server: Instance) -> list[tuple[str, str]]:
    with server.database.read() as session:
        rows = session.execute(select(QueuedEmail.address, QueuedEmail.subject).order_by(QueuedEmail.address))
        return [(address, subject.partition(": ")[2]) for address, subject in rows]


def test_a_private_answer_is_read_by_whoever_asked_alone(server: Instance, mail: None) -> None:
    owner, ada, bob = (
        server.confirmed_account("olga", Role.ORGANISER),
        server.confirmed_account("ada"),
        server.confirmed_account("bob"),
    )
    server.competition(organiser=owner)
    server.submit(server.headers(bob))
    asked = server.client.post(f"{C}/questions", headers=server.headers(ada), json={"text": "Why?"}).json()
    assert mails(server) == [("olga@example.org", "a question")]
    answer = {"answer": "Because."}
    path = f"{C}/questions/{asked['id']}/answer"
    answered = server.client.put(path, headers=server.headers(owner), json=answer).json()
    assert (answered["asked_by"], answered["is_public"]) == ("ada", False)
    assert [row["answer"] for row in server.client.get(f"{C}/questions", headers=server.headers(ada)).json()] == [
        "Because."
    ]
    for other in (server.headers(bob), {}):
        assert server.client.get(f"{C}/questions", headers=other).json() == []
    assert ("ada@example.org", "an answer") in mails(server)
    assert "bob@example.org" not in dict(mails(server))


def test_an_answer_to_all_hides_who_asked(server: Instance, mail: None) -> None:
    owner, ada, bob = (
        server.confirmed_account("olga", Role.ORGANISER),
        server.confirmed_account("ada"),
        server.confirmed_account("bob"),
    )
    server.competition(organiser=owner)
    for account in (ada, bob):
        server.submit(server.headers(account))
    text = "May I, ada, use my trick?"
    asked = server.client.post(f"{C}/questions", headers=server.headers(ada), json={"text": text}).json()
    body = {"answer": "Yes.", "to_all": True, "question": "May one use tricks?"}
    server.client.put(f"{C}/questions/{asked['id']}/answer", headers=server.headers(owner), json=body)
    (seen,) = server.client.get(f"{C}/questions", headers=server.headers(bob)).json()
    assert (seen["question"], seen["answer"], seen["is_mine"]) == ("May one use tricks?", "Yes.", False)
    assert "ada" not in server.client.get(f"{C}/questions").text
    (own,) = server.client.get(f"{C}/questions", headers=server.headers(ada)).json()
    assert (own["question"], own["is_mine"]) == (text, True)
    assert mails(server).count(("bob@example.org", "a question and its answer")) == 1
    assert mails(server).count(("ada@example.org", "an answer")) == 1
    assert ("ada@example.org", "a question and its answer") not in mails(server)


def test_questions_without_an_answer_are_limited(server: Instance) -> None:
    server.competition()
    ada = server.participant("ada")
    ask = [server.client.post(f"{C}/questions", headers=ada, json={"text": "?"}).status_code for _ in range(MAX_OPEN)]
    assert set(ask) == {201}
    assert server.client.post(f"{C}/questions", headers=ada, json={"text": "?"}).status_code == 409
    assert server.client.post(f"{C}/questions", headers=ada, json={"text": " "}).status_code == 422
    assert server.client.post(f"{C}/questions", json={"text": "?"}).status_code == 401


def test_an_organiser_answers_questions_of_the_own_competition_alone(server: Instance) -> None:
    server.competition("other")
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    elsewhere = "/api/v1/competitions/other/questions"
    asked = server.client.post(elsewhere, headers=server.participant("ada"), json={"text": "?"}).json()
    answer = server.client.put(
        f"{C}/questions/{asked['id']}/answer", headers=server.headers(owner), json={"answer": "x"}
    )
    assert answer.status_code == 404


def test_pages_are_rendered_as_the_description_is_and_their_versions_kept(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=PAGES)
    visitor = Visitor(server)
    shown = visitor.get("/competitions/digits/pages/rules").text
    assert "<strong>No</strong>" in shown
    assert "<script>alert" not in shown
    overview = visitor.get("/competitions/digits").text
    assert "/pages/faq" in overview
    assert "/pages/prizes" not in overview
    assert visitor.get("/competitions/digits/pages/prizes").status_code == 404
    visitor.log_in("olga")
    form = {"name": "rules", "text": "Other rules", "act": "save", "reason": "clearer"}
    assert visitor.post("/organise/digits/pages", form).status_code == 303
    too_long = form | {"text": "x" * 100_001}
    assert visitor.post("/organise/digits/pages", too_long).status_code == 422
    versions = server.client.get(f"{C}/texts/rules/versions", headers=server.headers(owner)).json()
    assert [(row["version"], row["text"][:5], row["author"]) for row in versions] == [
        (2, "Other", "olga"),
        (1, "**No*", "olga"),
    ]
    assert [row["name"] for row in server.client.get(f"{C}/pages").json()] == ["rules", "faq"]
    events = server.client.get(f"{C}/audit?action=competition.settings_changed", headers=server.headers(owner)).json()
    assert [event["reason"] for event in events] == ["clearer"]


def test_a_question_is_asked_and_answered_on_pages(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    page = "/competitions/digits/questions"
    assert visitor.post(page, {"text": "How long?"}).status_code == 303
    assert "No answer yet" in plain_text(visitor.get(page).text)
    visitor = Visitor(server)
    visitor.log_in("olga")
    found = server.client.get(f"{C}/all-questions?open=true", headers=server.headers(owner)).json()
    form = {"question": found["questions"][0]["id"], "text": "A *week*.", "to_all": "true"}
    assert visitor.post("/organise/digits/questions", form).status_code == 303
    assert "<em>week</em>" in Visitor(server).get(page).text
