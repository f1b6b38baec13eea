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
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, ModelShard, SplitState
from server.models.evaluation import PublicScore
from server.web.organiser.edit_pages import FIELDS, LABELS
from tests.support.instance import Instance, competition_toml
from tests.support.organised import actions, add_scored
from tests.support.scores import add_submission, add_team
from tests.support.towns import towns_toml
from tests.support.web import Visitor, counted_queries, plain_text

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
    text = draft.replace("n_models = 4", "n_models = 6")
    assert "6 a submission" in plain_text(visitor.post(EDIT, {"text": text, "act": "preview"}).text)
    assert get_config(server, "second")["n_models"] == 4
    assert visitor.post(EDIT, {"text": text, "act": "save"}).headers["location"] == "/organise/second"
    assert get_config(server, "second")["n_models"] == 6
    assert "n_models = 6" in visitor.get(EDIT).text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('slug = "second"', 'slug = "third"', "slug must stay second (was third)"),
        ("n_models = 4", "n_models = 1", "n_models"),
        ('name = "mlp"', 'name = "module"', "only an administrator may bring a network"),
    ],
)
def test_a_file_that_cannot_replace_it_says_why(server, visitor, draft, *, old, new, words):
    assert old in draft
    answer = visitor.post(EDIT, {"text": draft.replace(old, new), "act": "save"})
    assert answer.status_code in (403, 422)
    assert words in plain_text(answer.text)
    assert get_config(server, "second")["n_models"] == 4


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


@pytest.mark.parametrize(("n_models", "says"), [(4, "keeps all trained models"), (6, "trains every model again")])
def test_prepared_file_is_replaced_with_a_word_on_its_models(server, visitor, draft, n_models, says):
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        competition.state, competition.opens_at = CompetitionState.READY.value, now() + timedelta(hours=1)
    text = draft.replace("n_models = 4", f"n_models = {n_models}").replace("[limits]", "[limits]\nmemory_mib = 999")
    assert says in visitor.post(EDIT, {"text": text, "act": "preview"}).text
    visitor.post(EDIT, {"text": text, "act": "save"})
    assert get_config(server, "second")["limits"]["memory_mib"] == 999


def test_a_competition_that_runs_keeps_its_file(visitor: Visitor, digits: Competition) -> None:
    assert visitor.get("/organise/digits/edit").status_code == 409
    fields = {"text": competition_toml("digits"), "act": "save"}
    answer = visitor.post("/organise/digits/edit", fields, page="/organise/digits")
    assert answer.status_code == 409
    assert "can no longer be replaced" in plain_text(answer.text)


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


def test_the_control_page_shows_who_trains_which_models(server: Instance, visitor: Visitor, draft: str) -> None:
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.state = SplitState.PREPARING.value
        one = {"split_id": split.id, "kind": "retrained", "n_models": 2}
        session.add(ModelShard(**one, position=0, first_model=0, state="done"))
        leased = {"state": "leased", "worker": "worker-7", "models_done": 0.5, "lease_expires_at": now()}
        session.add(ModelShard(**one, position=1, first_model=2, attempt=2, **leased))
    text = plain_text(visitor.get("/organise/second").text)
    assert "1 of 2 shards of models done" in text
    assert "worker-7 retrained 3–4 attempt 2 0.5 of 2" in text


def test_pending_split_says_what_it_waits_for(server: Instance, visitor: Visitor, draft: str) -> None:
    text = plain_text(visitor.get("/organise/second").text)
    assert text.count("pending not begun") == 2
    assert "failed" not in text
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    assert "not begun" not in visitor.get("/organise/second").text
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        for split, stage in zip(
            competitions.splits(session, competition), ("", "another one is prepared"), strict=True
        ):
            split.state, split.stage = SplitState.PENDING.value, stage
    text = plain_text(visitor.get("/organise/second").text)
    assert text.count("pending waits until a worker has time for it") == 1
    assert text.count("pending another one is prepared") == 1


def test_split_that_no_worker_has_taken_says_so(server: Instance, visitor: Visitor, draft: str) -> None:
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    with server.database.write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == "second")).one()
        for split, stage in zip(competitions.splits(session, competition), ("", "training"), strict=True):
            split.state, split.stage, split.progress = SplitState.PREPARING.value, stage, 0.5
    text = plain_text(visitor.get("/organise/second").text)
    assert text.count("split is not prepared waiting for a worker") == 1
    assert text.count("split is not prepared training, 50%") == 1


@pytest.mark.parametrize(("hours", "warned"), [(-2, True), (2, False)])
def test_draft_that_would_open_at_once_says_so(server, visitor, digits, *, hours, warned):
    text = competition_toml("second", opens_at=now() + timedelta(hours=hours))
    visitor.post("/organise/new", {"text": text, "act": "create"})
    words = plain_text(visitor.get("/organise/second").text)
    assert ("Its opening time is past" in words) is warned
    assert ("it opens as soon as it is prepared" in words) is warned
    visitor.post("/organise/second/move", {"act": "prepare"}, page="/organise/second")
    assert "it opens at once" not in visitor.get("/organise/second").text


def limits(**changed: str) -> dict[str, str]:
    """Return the fields of the form of limits as a browser sends them."""
    plain = {name: "" if value is None else str(value) for name, value in Limits().model_dump().items()}
    return {**plain, "submissions_per_day": "5", **changed}


def test_the_form_of_limits_names_each_in_words_with_its_unit(visitor: Visitor, digits: Competition) -> None:
    assert {field.name for field in FIELDS} == set(Limits.model_fields) == set(LABELS)
    page = visitor.get(f"/organise/{digits.slug}/limits").text
    text = plain_text(page)
    assert "Submissions of a team per day submissions_per_day" in text
    assert "Memory of a run (MiB)" in text
    assert '<select class="input" id="isolation"' in page
    assert "<option selected>process</option>" in page


def test_limits_say_whom_they_affect_before_they_change(server, visitor, digits):
    with server.database.write() as session:
        team = add_team(session, digits, "ada")
        for _ in range(3):
            add_submission(session, team, received_at=now())
    path = "/organise/digits/limits"
    text = plain_text(visitor.post(path, {**limits(submissions_per_day="2"), "act": "preview"}).text)
    assert "1 team sent more today than they then may ada (3)" in text
    before = get_config(server, "digits")["limits"]
    answer = visitor.post(path, {**limits(submissions_per_day="2"), "act": "change"})
    assert answer.status_code == 422
    assert get_config(server, "digits")["limits"] == before
    fields = {**limits(submissions_per_day="2"), "act": "change", "reason": "too many"}
    assert visitor.post(path, fields).status_code == 303
    assert ("competition.limits_changed", "too many") in actions(server, digits)
    assert 'value="2"' in visitor.get(path).text


def test_a_wrong_limit_is_named_at_its_field(visitor: Visitor, digits: Competition) -> None:
    answer = visitor.post("/organise/digits/limits", {**limits(memory_mib="much"), "act": "preview"})
    assert answer.status_code == 422
    assert 'id="memory_mib-error"' in answer.text
    assert 'value="much"' in answer.text


def test_organisers_are_added_and_removed_with_a_reason(server, visitor, digits):
    server.account("otto", Role.ORGANISER)
    path, page = "/organise/digits/organisers", "/organise/digits/teams"
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
    assert last.status_code == 409
    assert "the last organiser" in plain_text(last.text)


def test_participant_cannot_become_an_organiser(server: Instance, visitor: Visitor, digits: Competition) -> None:
    server.account("pia")
    fields = {"act": "add", "name": "pia", "reason": "x"}
    answer = visitor.post("/organise/digits/organisers", fields, page="/organise/digits/teams")
    assert answer.status_code == 422
    assert "an administrator makes organisers" in plain_text(answer.text)


@pytest.fixture
def root(server: Instance, visitor: Visitor) -> Account:
    """An administrator who is logged in."""
    account = server.account("ada-min", Role.ADMINISTRATOR)
    visitor.log_in("ada-min")
    return account


def test_people_are_found_banned_and_let_in_again(server: Instance, visitor: Visitor, root: Account) -> None:
    server.account("pia")
    server.account("otto", Role.ORGANISER)
    text = plain_text(visitor.get("/people", params={"q": "PI"}).text)
    assert "pia" in text
    assert "otto" not in text
    assert "otto" in plain_text(visitor.get("/people", params={"role": "organiser"}).text)
    assert visitor.post("/people/pia", {"act": "ban"}, page="/people").status_code == 422
    visitor.post("/people/pia", {"act": "ban", "reason": "two accounts"}, page="/people")
    assert "pia banned" in plain_text(visitor.get("/people", params={"only": "banned"}).text)
    assert Visitor(server).log_in("pia").status_code != 303
    visitor.log_in("ada-min")
    visitor.post("/people/pia", {"act": "unban", "reason": "a mistake"}, page="/people")
    assert "No account matches" in visitor.get("/people", params={"only": "banned"}).text


def test_roles_are_given_but_never_to_oneself(server: Instance, visitor: Visitor, root: Account) -> None:
    server.account("pia")
    visitor.post("/people/pia", {"act": "make-organiser", "reason": "runs one"}, page="/people")
    with server.database.read() as session:
        assert session.scalars(select(Account.role).where(Account.name == "pia")).one() == Role.ORGANISER
    own = visitor.post("/people/ada-min", {"act": "make-participant", "reason": "x"}, page="/people")
    assert own.status_code == 409
    assert visitor.post("/people/pia", {"act": "make-king", "reason": "x"}, page="/people").status_code == 422


def test_the_people_page_asks_the_same_queries_for_any_number(server, visitor, root):
    counts = set()
    for number in range(3):
        with counted_queries(server.database.engine) as queries:
            visitor.get("/people")
        counts.add(len(queries))
        server.account(f"person-{number}")
    assert len(counts) == 1


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


def test_a_final_competition_is_archived_with_a_reason(server: Instance, visitor: Visitor, digits: Competition) -> None:
    with server.database.write() as session:
        competitions.of_id(session, digits.id).state = CompetitionState.FINAL.value
    visitor.post("/organise/digits/move", {"act": "archive", "reason": "done"}, page="/organise/digits")
    assert "Archived" in plain_text(visitor.get("/organise/digits").text)
    assert ("competition.archived", "done") in actions(server, digits)


def test_archived_competition_offers_no_change_and_takes_none(server, visitor, digits):
    offered = ("/organise/digits/limits", "/organise/digits/words", "Announce", "Change the end")
    page = visitor.get("/organise/digits").text
    assert all(each in page for each in offered)
    with server.database.write() as session:
        competitions.of_id(session, digits.id).state = CompetitionState.ARCHIVED.value
    page = visitor.get("/organise/digits").text
    assert not any(each in page for each in offered)
    fields = {"title": "News", "text": "It goes on"}
    answer = visitor.post("/organise/digits/announce", fields, page="/organise/digits")
    assert answer.status_code == 409
    assert "digits is archived" in plain_text(answer.text)


def test_end_and_limits_are_offered_only_where_they_can_change(server, visitor, digits):
    with server.database.write() as session:
        competitions.of_id(session, digits.id).state = CompetitionState.PREPARING.value
    page = visitor.get("/organise/digits").text
    assert "Change the end" not in page
    assert "/organise/digits/limits" not in page
    assert "/organise/digits/words" in page


def test_submissions_are_found_by_what_they_are(server: Instance, visitor: Visitor, digits: Competition) -> None:
    first, second = add_scored(server, digits, "ada"), add_scored(server, digits, "bob")
    with server.database.write() as session:
        for submission, note in ((first, "cosine schedule"), (second, "noise")):
            session.merge(submission).message = note

    def names(**wanted: str) -> set[str]:
        page = visitor.get("/organise/digits/submissions", params=wanted).text
        return {name for name in ("cosine schedule", "noise") if name in page.split("<tbody>")[-1]}

    assert names(text="COSINE") == {"cosine schedule"}
    assert names(text=second.id) == {"noise"}
    assert names(text="bob") == {"noise"}
    assert names(text=first.content_sha256[:10]) == {"cosine schedule", "noise"}
    assert names(only="repeated") == {"cosine schedule", "noise"}
    assert names(only="flagged") == set()
    assert names(received_before="2020-01-01T00:00") == set()
    assert names(received_from="2020-01-01T00:00") == {"cosine schedule", "noise"}
    assert visitor.get("/organise/digits/submissions", params={"received_from": "soon"}).status_code == 422


def test_flagged_submissions_are_found(server: Instance, visitor: Visitor, digits: Competition) -> None:
    for name in ("ada", "bob"):
        add_scored(server, digits, name)
    with server.database.write() as session:
        rows = session.scalars(select(PublicScore)).all()
        for row, reasons in zip(rows, (["It shrugs."], []), strict=True):
            flags = {"disagreement": 0.31, "reasons": reasons, "suspect": bool(reasons), "held": False}
            row.details = {"flags": flags}
    page = visitor.get("/organise/digits/submissions", params={"only": "flagged"}).text
    assert page.count('name="submission"') == 1
    assert "It shrugs." in page
    assert "31 %" in page
