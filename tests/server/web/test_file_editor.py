"""Writing a competition file: examples, the form's own fields, mistakes at their lines, an upload."""

import re
import tomllib

import pytest

from lethe.competition.file import parse_competition
from lethe.errors import InvalidCompetitionFile
from server.models.competition import Competition
from server.web.organiser.file_editor import (
    EXAMPLES,
    estimate_cost,
    field_values,
    find_line,
    mistakes,
    templates,
    with_fields,
)
from tests.support.instance import Instance, competition_toml
from tests.support.web import Visitor, plain_text

NEW = "/organise/new"
FILE = 'slug = "a"\ntitle = "A"\n\n[training]\nepochs = 0\n[splits.forget]\nby = "x"\n[[report.metrics]]\nid = "none"\n'


def test_every_example_is_offered_and_valid(visitor: Visitor, digits: Competition) -> None:
    assert {template.name for template in templates()} == {path.stem for path in EXAMPLES.glob("*.toml")}
    page = visitor.get(NEW).text
    for template in templates():
        assert f'href="/organise/new?template={template.name}#text"' in page
    chosen = visitor.get(f"{NEW}?template=mnist").text
    assert "name = &#34;mnist&#34;" in chosen
    assert visitor.get(f"{NEW}?template=../digits").status_code == 404


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("slug", 1),
        ("training.epochs", 5),
        ("training.optimizer", 4),
        ("splits.forget.by", 7),
        ("report.metrics.0.id", 9),
        ("dataset", 0),
    ],
)
def test_a_field_is_found_at_its_line(field: str, line: int) -> None:
    assert find_line(FILE, field) == line


def test_mistakes_are_named_with_their_lines() -> None:
    text = competition_toml().replace("epochs = 1", "epochs = 0")
    with pytest.raises(InvalidCompetitionFile) as raised:
        parse_competition(text)
    (mistake,) = mistakes(raised.value, text)
    assert text.splitlines()[mistake.line - 1] == mistake.text == "epochs = 0"


def test_a_mistake_of_toml_has_the_parsers_line(visitor: Visitor, digits: Competition) -> None:
    text = competition_toml("second").replace("epochs = 1", "epochs = = 1")
    answer = visitor.post(NEW, {"text": text, "act": "preview"})
    wrong = text.splitlines().index("epochs = = 1") + 1
    assert answer.status_code == 422
    assert f'data-line="{wrong}">Line {wrong}</a>' in answer.text


def test_fields_are_written_into_the_file_and_nothing_else() -> None:
    text = competition_toml("second")
    values = {"slug": "third", "title": 'A "quoted" \\ title', "closes_at": "2031-02-03T04:05", "summary": ""}
    changed = with_fields(text, values)
    before, after = tomllib.loads(text), tomllib.loads(changed)
    assert (after["slug"], after["title"]) == ("third", 'A "quoted" \\ title')
    assert after["closes_at"].isoformat() == "2031-02-03T04:05:00+00:00"
    for name in ("slug", "title", "closes_at"):
        del before[name], after[name]
    assert before == after


def test_a_field_that_the_file_lacks_is_added_at_its_top() -> None:
    changed = with_fields("[training]\nsummary = 1\n", {"summary": "short"})
    assert tomllib.loads(changed) == {"summary": "short", "training": {"summary": 1}}
    assert field_values(changed)["summary"] == "short"


def test_only_what_was_changed_in_the_form_is_written(visitor: Visitor, digits: Competition) -> None:
    text = competition_toml("second")
    shown = {f"was_{name}": value for name, value in field_values(text).items()}
    unchanged = {f"set_{name}": value for name, value in field_values(text).items()}
    sent = {**shown, **unchanged, "set_title": "Another title", "act": "preview"}
    page = plain_text(visitor.post(NEW, {**sent, "text": text.replace("n_models = 4", "n_models = 6")}).text)
    assert "Another title" in page
    assert "6 a submission" in page  # the text's own change stands


def test_an_upload_takes_the_texts_place(visitor: Visitor, digits: Competition) -> None:
    token = visitor.token(NEW)
    files = {"upload": ("mine.toml", competition_toml("uploaded").encode(), "application/toml")}
    fields = {"csrf_token": token, "text": "ignored", "act": "create"}
    answer = visitor.client.post(NEW, data=fields, files=files, follow_redirects=False)
    assert answer.headers["location"] == "/organise/uploaded"


@pytest.mark.parametrize(("data", "words"), [(b"\xff\xff", "not UTF-8 text"), (b"#" * 100_001, "bytes at most")])
def test_an_upload_that_is_no_file_is_refused(visitor: Visitor, digits: Competition, data: bytes, words: str) -> None:
    fields = {"csrf_token": visitor.token(NEW), "text": "kept", "act": "create"}
    answer = visitor.client.post(NEW, data=fields, files={"upload": ("a.toml", data, "text/plain")})
    assert answer.status_code == 422
    assert words in plain_text(answer.text)
    assert re.search(r"<textarea[^>]*>kept</textarea>", answer.text)


def test_the_preview_tells_what_a_competition_takes(server: Instance, visitor: Visitor, digits: Competition) -> None:
    file = parse_competition(competition_toml("second", limits={"wall_time_s": 7200, "final_selections": 3}))
    cost = estimate_cost(file)
    assert (cost.models, cost.runs, cost.finals_runs) == (18, 4, 12)
    sent = {"text": competition_toml("second", limits={"wall_time_s": 7200}), "act": "preview"}
    page = plain_text(visitor.post(NEW, sent).text)
    assert re.search(r"about [0-9.]+ (B|KiB) for each submission's outputs", page)
    assert "18 models trained for 1 epoch each" in page
    assert "4 runs , at most 2 h" in page or "4 runs, at most 2 h" in page
