"""Pages that change a competition: its file, its limits, who runs it; and what is taken away from it."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import select

from lethe.competition.file import parse_competition
from lethe.competition.sections import Limits
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, ModelShard, SplitState
from server.models.evaluation import PublicScore
from server.web.cookies import SESSION_COOKIE
from server.web.organiser.edit_pages import FIELDS, LABELS
from tests.support.instance import Instance, competition_toml
from tests.support.scores import actions, add_scored, add_submission, add_team
from tests.support.towns import towns_toml
from tests.support.web import Visitor, plain_text

EDIT = "/organise/second/edit"


@pytest.fixture
def draft(visitor: Visitor, digits: Competition) -> str:
    """A draft of the organiser's. Return its file."""
    text = competition_toml("second")
    visitor.post("/organise/new", {"text": text, "act": "create"})
    return text


def get_config(server: Instance, slug: str) -> dict[str, object]:
    with server.database.read() as session:
        return dict(session.scalars(select(Competition).where(Competition.slug == slug)).one().config)


def test_a_draft_s_file_is_previewed_and_replaced(server: Instance, visitor: Visitor, draft: str) -> None:
    for old, new, words in (
        ('slug = "second"', 'slug = "third"', "slug must stay second (was third)"),
        ("n_models = 4", "n_models = 1", "n_models"),
        ('name = "mlp"', 'name = "module"', "only an administrator may bring a network"),
    ):
        assert old in draft
        answer = visitor.post(EDIT, {"text": draft.replace(old, new), "act": "save"})
        assert (answer.status_code in (403, 422), words in plain_text(answer.text)) == (True, True), answer.text
    text = draft.replace("n_models = 4", "n_models = 6")
    assert "6 a submission" in plain_text(visitor.post(EDIT, {"text": text, "act": "preview"}).text)
    assert get_config(server, "second")["n_models"] == 4
    assert visitor.post(EDIT, {"text": text, "act": "save"}).headers["location"] == "/organise/second"
    assert get_config(server, "second")["n_models"] == 6
    assert "n_models = 6" in visitor.get(EDIT).text
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        competition.state, competition.opens_at = CompetitionState.READY.value, now() + timedelta(hours=1)
    for n_models, says in ((6, "keeps all trained models"), (4, "trains every model again")):
        again = draft.replace("n_models = 4", f"n_models = {n_models}")
        again = again.replace("[limits]", "[limits]\nmemory_mib = 999")
        assert says in visitor.post(EDIT, {"text": again, "act": "preview"}).text
    visitor.post(EDIT, {"text": again, "act": "save"})
    assert get_config(server, "second")["limits"]["memory_mib"] == 999
    assert visitor.get("/organise/digits/edit").status_code == 409, "it runs"
    fields = {"text": competition_toml("digits"), "act": "save"}
    answer = visitor.post("/organise/digits/edit", fields, page="/organise/digits")
    assert (answer.status_code, "can no longer be replaced" in plain_text(answer.text)) == (409, True)


def test_file_is_replaced_after_a_failed_preparation(server: Instance, visitor: Visitor, draft: str) -> None:
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    assert visitor.get(EDIT).status_code == 409
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        for split in competitions.splits(session, competition):
            split.state, split.error = SplitState.FAILED.value, "it learnt nothing"
    assert f'href="{EDIT}"' in visitor.get("/organise/second").text
    visitor.post(EDIT, {"text": draft.replace("n_models = 4", "n_models = 6"), "act": "save"})
    with server.database.read() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        assert competition.state == CompetitionState.DRAFT
        assert {split.state for split in competitions.splits(session, competition)} == {SplitState.PENDING.value}
        assert {split.error for split in competitions.splits(session, competition)} == {""}
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    assert "being prepared" in visitor.get("/organise/second").text


def test_a_description_is_previewed_and_published_with_a_reason(server, visitor, digits):
    path = "/organise/digits/words"
    words = {"title": "Forgetting numbers", "summary": "Short", "description": "Be **quick** <i>x</i>"}
    preview = visitor.post(path, {**words, "act": "preview"}).text
    assert "<strong>quick</strong>" in preview
    assert "<i>x</i>" not in preview
    assert "Forgetting numbers" not in visitor.get("/competitions/digits").text
    assert visitor.post(path, {**words, "act": "save"}).status_code == 422
    assert visitor.post(path, {**words, "act": "save", "reason": "a misprint"}).status_code == 303
    assert "Forgetting numbers" in visitor.get("/competitions/digits").text
    assert ("competition.described", "a misprint") in actions(server, digits)
    wrong = visitor.post(path, {**words, "title": " ", "act": "save", "reason": "x"})
    assert wrong.status_code == 422
    assert "title" in plain_text(wrong.text)


def test_the_control_page_says_what_each_split_waits_for(server: Instance, visitor: Visitor, draft: str) -> None:
    def shown(*splits: tuple[SplitState, str]) -> str:
        with server.database.write() as session:
            competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
            for split, (state, stage) in zip(competitions.splits(session, competition), splits, strict=bool(splits)):
                split.state, split.stage, split.progress = state.value, stage, 0.5
        return plain_text(visitor.get("/organise/second").text)

    text = shown()
    assert (text.count("pending not begun"), "failed" in text) == (2, False)
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    assert "not begun" not in shown()
    text = shown((SplitState.PENDING, ""), (SplitState.PENDING, "another one is prepared"))
    assert text.count("pending waits until a worker has time for it") == 1
    assert text.count("pending another one is prepared") == 1
    text = shown((SplitState.PREPARING, ""), (SplitState.PREPARING, "training"))
    assert text.count("split is not prepared waiting for a worker") == 1
    assert text.count("split is not prepared training, 50%") == 1
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        one = {"split_id": split.id, "kind": "retrained", "n_models": 2}
        session.add(ModelShard(**one, position=0, first_model=0, state="done"))
        leased = {"state": "leased", "worker": "worker-7", "models_done": 0.5, "lease_expires_at": now()}
        session.add(ModelShard(**one, position=1, first_model=2, attempt=2, **leased))
    text = plain_text(visitor.get("/organise/second").text)
    assert "1 of 2 shards of models done" in text
    assert "worker-7 retrained 3–4 attempt 2 0.5 of 2" in text


def test_draft_that_would_open_at_once_says_so(visitor: Visitor, digits: Competition) -> None:
    for slug, hours in (("second", -2), ("third", 2)):
        text = competition_toml(slug, opens_at=now() + timedelta(hours=hours))
        visitor.post("/organise/new", {"text": text, "act": "create"})
        words = plain_text(visitor.get(f"/organise/{slug}").text)
        assert ("Its opening time is past" in words) is (hours < 0)
        assert ("it opens as soon as it is prepared" in words) is (hours < 0)
        visitor.post(f"/organise/{slug}/move", {"act": "prepare"}, page=f"/organise/{slug}")
        assert "it opens at once" not in visitor.get(f"/organise/{slug}").text


def limits(**changed: str) -> dict[str, str]:
    """Return the fields of the form of limits as a browser sends them."""
    plain = {name: "" if value is None else str(value) for name, value in Limits().model_dump().items()}
    return {**plain, "submissions_per_day": "5", **changed}


def test_limits_say_whom_they_affect_before_they_change(server, visitor, digits):
    path = "/organise/digits/limits"
    assert {field.name for field in FIELDS} == set(Limits.model_fields) == set(LABELS)
    page = visitor.get(path).text
    assert "Submissions of a team per day submissions_per_day" in plain_text(page)
    assert "Memory of a run (MiB)" in plain_text(page)
    assert '<select class="input" id="isolation"' in page
    assert "<option selected>process</option>" in page
    with server.database.write() as session:
        team = add_team(session, digits, "ada")
        for _ in range(3):
            add_submission(session, team, received_at=now())
    fewer = limits(submissions_per_day="2")
    text = plain_text(visitor.post(path, {**fewer, "act": "preview"}).text)
    assert "1 team sent more today than they then may ada (3)" in text
    before = get_config(server, "digits")["limits"]
    wrong = visitor.post(path, {**limits(memory_mib="much"), "act": "preview"})
    assert wrong.status_code == visitor.post(path, {**fewer, "act": "change"}).status_code == 422
    assert 'id="memory_mib-error"' in wrong.text
    assert 'value="much"' in wrong.text
    assert get_config(server, "digits")["limits"] == before
    assert visitor.post(path, {**fewer, "act": "change", "reason": "too many"}).status_code == 303
    assert ("competition.limits_changed", "too many") in actions(server, digits)
    assert 'value="2"' in visitor.get(path).text


def test_organisers_are_added_and_removed_with_a_reason(server, visitor, digits):
    server.account("otto", Role.ORGANISER)
    server.account("pia")
    path, page = "/organise/digits/organisers", "/organise/digits/teams"
    participant = visitor.post(path, {"act": "add", "name": "pia", "reason": "x"}, page=page)
    assert participant.status_code == 422
    assert "an administrator makes organisers" in plain_text(participant.text)
    assert visitor.post(path, {"act": "add", "name": "otto"}, page=page).status_code == 422
    assert visitor.post(path, {"act": "add", "name": "otto", "reason": "helps"}, page=page).status_code == 303
    again = visitor.post(path, {"act": "add", "name": "otto", "reason": "helps"}, page=page)
    assert "otto organises digits already" in plain_text(again.text)
    assert ("competition.organiser_added", "helps") in actions(server, digits)
    left = visitor.post(path, {"act": "remove", "name": "olga", "reason": "leaves"}, page=page)
    assert left.headers["location"] == "/organise"
    assert visitor.get(page).status_code == 403
    visitor.log_in("otto")
    last = visitor.post(path, {"act": "remove", "name": "otto", "reason": "x"}, page=page)
    assert (last.status_code, "the last organiser" in plain_text(last.text)) == (409, True)


def test_people_are_found_banned_and_given_roles(server: Instance, visitor: Visitor) -> None:
    def shown(**asked: str) -> str:
        return plain_text(visitor.get("/people", params=asked).text)

    def act(name: str, verb: str, **reason: str) -> int:
        return visitor.post(f"/people/{name}", {"act": verb, **reason}, page="/people").status_code

    server.account("ada-min", Role.ADMINISTRATOR)
    visitor.log_in("ada-min")
    server.account("pia")
    visitor.log_in("pia")
    cookie = visitor.client.cookies[SESSION_COOKIE]
    visitor.log_in("ada-min")
    server.account("otto", Role.ORGANISER)
    assert ("pia" in shown(q="PI"), "otto" in shown(q="PI")) == (True, False)
    assert "otto" in shown(role="organiser")
    assert act("pia", "ban") == 422
    act("pia", "ban", reason="two accounts")
    assert "pia banned" in shown(only="banned")
    assert Visitor(server).log_in("pia").status_code != 303
    visitor.log_in("ada-min")
    act("pia", "unban", reason="a mistake")
    assert "No account matches" in shown(only="banned")
    act("pia", "make-organiser", reason="runs one")
    assert "pia" in shown(role="organiser")
    assert act("ada-min", "make-participant", reason="x") == 409, "nobody changes the own role"
    assert act("pia", "make-king", reason="x") == 422
    visitor.client.cookies.clear()
    visitor.client.cookies.set(SESSION_COOKIE, cookie)
    assert visitor.get("/account").headers["location"].startswith("/login"), "sessions of before do not come back"


def test_tables_are_exported_as_links_and_streams(server: Instance, visitor: Visitor, digits: Competition) -> None:
    submission = add_scored(server, digits)
    page = visitor.get("/organise/digits/exports").text
    assert "/organise/digits/exports/submissions.csv" in page
    assert "private-leaderboard.csv" not in page
    csv = visitor.get("/organise/digits/exports/submissions.csv")
    assert csv.headers["content-disposition"] == 'attachment; filename="digits-submissions.csv"'
    assert submission.id in csv.text
    assert csv.content.startswith(b"\xef\xbb\xbf")  # by which Excel reads it as UTF-8
    lines = visitor.get("/organise/digits/exports/public-leaderboard.jsonl").text.splitlines()
    assert json.loads(lines[0])["team"] == "ada"
    assert visitor.get("/organise/digits/exports/secrets.csv").status_code == 404
    assert visitor.get("/organise/digits/exports/submissions.xlsx").status_code == 404


REPORT = {
    "competition": "digits",
    "visibility": "public",
    "images": {"retain": 1200, "forget": 36},
    "persons": {"retain": 40, "forget": 2},
    "classes": {"retain": {"zero": 700, "one": 500}, "forget": {"zero": 20, "one": 16}},
    "confused_labels": 0,
    "pairs": [
        {
            "sets": ["retain", "forget"],
            "shared_images": 0,
            "shared_persons": 0,
            "exact_duplicates": 0,
            "near_duplicates": 3,
            "examples": [[4, 9, 0.997]],
        }
    ],
}


def test_the_report_of_a_split_names_what_sets_share(server: Instance, visitor: Visitor, digits: Competition) -> None:
    path = "/organise/digits/splits/public"
    assert "There is no report yet" in visitor.get(path).text
    server.storage.write("splits/digits/public/report.json", json.dumps(REPORT).encode())
    text = plain_text(visitor.get(path).text)
    assert "Some sets share images, persons or near-duplicates." in text
    assert "retain and forget 0 0 0 3 4 and 9" in text
    assert "zero 700" in text
    assert visitor.get("/organise/digits/splits/secret").status_code == 422
    assert path in visitor.get("/organise/digits").text


def test_report_of_a_language_task_speaks_of_questions(server, visitor, digits, tmp_path):
    with server.database.write() as session:
        task = parse_competition(towns_toml(tmp_path)).model_dump(mode="json")
        competitions.of_id(session, digits.id).config = task
    report = REPORT | {"classes": {"retain": {}, "forget": {}}, "pairs": []}
    server.storage.write("splits/digits/public/report.json", json.dumps(report).encode())
    text = plain_text(visitor.get("/organise/digits/splits/public").text)
    assert "No two sets share a question, a person or a duplicate." in text
    assert "Set Questions Persons retain 1,200 40 forget 36 2" in text
    assert "Sets The same question The same person Exact duplicates Most similar (ids)" in text
    assert "image" not in text
    assert "of each class" not in text


def test_control_page_offers_what_the_state_allows(server, visitor, digits):
    control = "/organise/digits"
    always, running = "/organise/digits/words", ("/organise/digits/limits", "Announce", "Change the end")

    def shown(state: CompetitionState) -> str:
        with server.database.write() as session:
            competitions.of_id(session, digits.id).state = state.value
        return visitor.get(control).text

    page = shown(CompetitionState.OPEN)
    assert all(each in page for each in (always, *running))
    page = shown(CompetitionState.PREPARING)
    assert [each in page for each in (always, *running)] == [True, False, True, False]
    shown(CompetitionState.FINAL)
    visitor.post(f"{control}/move", {"act": "archive", "reason": "done"}, page=control)
    page = visitor.get(control).text
    assert "Archived" in plain_text(page)
    assert ("competition.archived", "done") in actions(server, digits)
    assert not any(each in page for each in (always, *running))
    answer = visitor.post(f"{control}/announce", {"title": "News", "text": "It goes on"}, page=control)
    assert (answer.status_code, "digits is archived" in plain_text(answer.text)) == (409, True)


def test_submissions_are_found_by_what_they_are(server: Instance, visitor: Visitor, digits: Competition) -> None:
    first, second = add_scored(server, digits, "ada"), add_scored(server, digits, "bob")
    with server.database.write() as session:
        for submission, note in ((first, "cosine schedule"), (second, "noise")):
            session.merge(submission).message = note
        score = session.scalars(select(PublicScore).where(PublicScore.submission_id == first.id)).one()
        score.details = {"flags": {"disagreement": 0.31, "reasons": ["It shrugs."], "suspect": True, "held": False}}

    def page(**wanted: str) -> str:
        return visitor.get("/organise/digits/submissions", params=wanted).text

    def names(**wanted: str) -> set[str]:
        return {name for name in ("cosine schedule", "noise") if name in page(**wanted).split("<tbody>")[-1]}

    everything = {"cosine schedule", "noise"}
    assert names() == names(stage="scored") == names(only="repeated") == everything
    assert names(text=first.content_sha256[:10]) == names(received_from="2020-01-01T00:00") == everything
    assert names(text="COSINE") == names(team="AD") == names(only="flagged") == {"cosine schedule"}
    assert names(text=second.id) == names(text="bob") == {"noise"}
    assert names(received_before="2020-01-01T00:00") == names(stage="failed") == set()
    assert "No submission matches" in page(only="disqualified")
    for words in ("It shrugs.", "31 %"):
        assert words in page(only="flagged")
    assert visitor.get("/organise/digits/submissions", params={"received_from": "soon"}).status_code == 422
