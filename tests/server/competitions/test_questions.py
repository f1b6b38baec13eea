"""Questions to organisers, answered to one or to all, and the pages beside the description."""

from sqlalchemy import select

from server.competitions.questions import MAX_OPEN
from server.models.account import Role
from server.models.notification import QueuedEmail
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

C = "/api/v1/competitions/digits"
PAGES = '[pages]\nrules = "**No** <script>alert(1)</script> tricks"\nfaq = "None yet."'
ROLES = {"olga": Role.ORGANISER, "ada": Role.PARTICIPANT, "bob": Role.PARTICIPANT}


def mails(server: Instance) -> list[tuple[str, str]]:
    with server.database.read() as session:
        rows = session.execute(select(QueuedEmail.address, QueuedEmail.subject).order_by(QueuedEmail.address))
        return [(address, subject.partition(": ")[2]) for address, subject in rows]


def three(server: Instance) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the headers of an organiser, of ada, and of bob, who has submitted; each has a confirmed address."""
    people = [server.confirmed_account(name, role) for name, role in ROLES.items()]
    server.competition(organiser=people[0])
    owner, ada, bob = (server.headers(account) for account in people)
    server.submit(bob)
    return owner, ada, bob


def test_a_private_answer_is_read_by_whoever_asked_alone(server: Instance, mail: None) -> None:
    owner, ada, bob = three(server)
    asked = server.client.post(f"{C}/questions", headers=ada, json={"text": "Why?"}).json()
    assert mails(server) == [("olga@example.org", "a question")]
    answer = {"answer": "Because."}
    path = f"{C}/questions/{asked['id']}/answer"
    answered = server.client.put(path, headers=owner, json=answer).json()
    assert (answered["asked_by"], answered["is_public"]) == ("ada", False)
    assert [row["answer"] for row in server.client.get(f"{C}/questions", headers=ada).json()] == ["Because."]
    for other in (bob, {}):
        assert server.client.get(f"{C}/questions", headers=other).json() == []
    assert ("ada@example.org", "an answer") in mails(server)
    assert "bob@example.org" not in dict(mails(server))


def test_an_answer_to_all_hides_who_asked(server: Instance, mail: None) -> None:
    owner, ada, bob = three(server)
    server.submit(ada)
    text = "May I, ada, use my trick?"
    asked = server.client.post(f"{C}/questions", headers=ada, json={"text": text}).json()
    body = {"answer": "Yes.", "to_all": True, "question": "May one use tricks?"}
    server.client.put(f"{C}/questions/{asked['id']}/answer", headers=owner, json=body)
    (seen,) = server.client.get(f"{C}/questions", headers=bob).json()
    assert (seen["question"], seen["answer"], seen["is_mine"]) == ("May one use tricks?", "Yes.", False)
    assert "ada" not in server.client.get(f"{C}/questions").text
    (own,) = server.client.get(f"{C}/questions", headers=ada).json()
    assert (own["question"], own["is_mine"]) == (text, True)
    assert mails(server).count(("bob@example.org", "a question and its answer")) == 1
    assert mails(server).count(("ada@example.org", "an answer")) == 1
    assert ("ada@example.org", "a question and its answer") not in mails(server)


def test_questions_without_an_answer_are_limited(server: Instance) -> None:
    olga, ada = server.organised(), server.participant("ada")
    asked = [server.client.post(f"{C}/questions", headers=ada, json={"text": "?"}) for _ in range(MAX_OPEN)]
    assert {one.status_code for one in asked} == {201}
    assert server.client.post(f"{C}/questions", headers=ada, json={"text": "?"}).status_code == 409
    assert server.client.post(f"{C}/questions", headers=ada, json={"text": " "}).status_code == 422
    assert server.client.post(f"{C}/questions", json={"text": "?"}).status_code == 401
    server.competition("other")
    elsewhere = server.client.post("/api/v1/competitions/other/questions", headers=ada, json={"text": "?"}).json()
    path = f"{C}/questions/{elsewhere['id']}/answer"
    assert server.client.put(path, headers=olga, json={"answer": "x"}).status_code == 404, (
        "it is of another competition"
    )


def test_pages_are_rendered_as_the_description_is_and_their_versions_kept(server: Instance) -> None:
    olga = server.organised(extra=PAGES)
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
    versions = server.client.get(f"{C}/texts/rules/versions", headers=olga).json()
    assert [(row["version"], row["text"][:5], row["author"]) for row in versions] == [
        (2, "Other", "olga"),
        (1, "**No*", "olga"),
    ]
    assert [row["name"] for row in server.client.get(f"{C}/pages").json()] == ["rules", "faq"]
    events = server.client.get(f"{C}/audit?action=competition.settings_changed", headers=olga).json()
    assert [event["reason"] for event in events] == ["clearer"]


def test_a_question_is_asked_and_answered_on_pages(server: Instance) -> None:
    olga = server.organised()
    server.account("ada")
    visitor = Visitor(server, "ada")
    page = "/competitions/digits/questions"
    assert visitor.post(page, {"text": "How long?"}).status_code == 303
    assert "No answer yet" in plain_text(visitor.get(page).text)
    visitor = Visitor(server, "olga")
    found = server.client.get(f"{C}/all-questions?open=true", headers=olga).json()
    form = {"question": found["questions"][0]["id"], "text": "A *week*.", "to_all": "true"}
    assert visitor.post("/organise/digits/questions", form).status_code == 303
    assert "<em>week</em>" in Visitor(server).get(page).text
