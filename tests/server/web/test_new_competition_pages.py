"""A competition from a written file or from uploaded data: what is found, mistakes at their places, the draft."""

import re
import tomllib
from html import unescape
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.file import parse_competition
from lethe.errors import InvalidCompetitionFile
from server.models.account import Account
from server.models.competition import Competition
from server.parsing import client
from server.web.organiser.file_editor import (
    EXAMPLES,
    estimate_cost,
    field_values,
    find_line,
    mistakes,
    templates,
    with_fields,
)
from tests.support.images import pets
from tests.support.instance import Instance, competition_toml, make_zip
from tests.support.web import Visitor, plain_text

NEW = "/organise/new"
FILE = 'slug = "a"\ntitle = "A"\n\n[training]\nepochs = 0\n[splits.forget]\nby = "x"\n[[report.metrics]]\nid = "none"\n'


@pytest.fixture(autouse=True)
def _organiser_is_logged_in(olga: Account, visitor: Visitor) -> None:
    visitor.log_in("olga")


def test_every_example_is_offered_and_valid(visitor: Visitor) -> None:
    assert {template.name for template in templates()} == {path.stem for path in EXAMPLES.glob("*.toml")}
    page = visitor.get(NEW).text
    for template in templates():
        assert f'href="/organise/new?template={template.name}#text"' in page
    chosen = visitor.get(f"{NEW}?template=mnist").text
    assert "name = &#34;mnist&#34;" in chosen
    assert visitor.get(f"{NEW}?template=../digits").status_code == 404


def test_fields_are_written_into_the_file_and_nothing_else() -> None:
    text = competition_toml("second")
    values = {"slug": "third", "title": 'A "quoted" \\ title', "closes_at": "2031-02-03T04:05", "summary": ""}
    before, after = tomllib.loads(text), tomllib.loads(with_fields(text, values))
    assert (after["slug"], after["title"]) == ("third", 'A "quoted" \\ title')
    assert after["closes_at"].isoformat() == "2031-02-03T04:05:00+00:00"
    for name in ("slug", "title", "closes_at"):
        del before[name], after[name]
    assert before == after
    changed = with_fields("[training]\nsummary = 1\n", {"summary": "short"})
    assert tomllib.loads(changed) == {"summary": "short", "training": {"summary": 1}}, (
        "what it lacks is added at its top"
    )
    assert field_values(changed)["summary"] == "short"


def test_mistakes_are_named_with_their_lines(visitor: Visitor) -> None:
    lines = {"slug": 1, "training.epochs": 5, "training.optimizer": 4, "splits.forget.by": 7, "report.metrics.0.id": 9}
    for field, line in (lines | {"dataset": 0}).items():
        assert find_line(FILE, field) == line
    text = competition_toml().replace("epochs = 1", "epochs = 0")
    with pytest.raises(InvalidCompetitionFile) as raised:
        parse_competition(text)
    (mistake,) = mistakes(raised.value, text)
    assert text.splitlines()[mistake.line - 1] == mistake.text == "epochs = 0"
    text = competition_toml("second").replace("epochs = 1", "epochs = = 1")
    answer = visitor.post(NEW, {"text": text, "act": "preview"})
    wrong = text.splitlines().index("epochs = = 1") + 1
    assert answer.status_code == 422
    assert f'data-line="{wrong}">Line {wrong}</a>' in answer.text
    misspelt = visitor.post(f"{NEW}/check", {"text": competition_toml().replace("epochs", "epoks")}, page=NEW)
    assert "did you mean epochs?" in misspelt.text
    assert re.search(r'data-line="\d+"', misspelt.text)
    assert "No mistakes" in visitor.post(f"{NEW}/check", {"text": competition_toml()}, page=NEW).text
    assert visitor.post(f"{NEW}/check", {"text": "#" * 100_001}, page=NEW).status_code == 422


def test_only_what_was_changed_in_the_form_is_written(visitor: Visitor) -> None:
    text = competition_toml("second")
    shown = {f"was_{name}": value for name, value in field_values(text).items()}
    unchanged = {f"set_{name}": value for name, value in field_values(text).items()}
    sent = {**shown, **unchanged, "set_title": "Another title", "act": "preview"}
    page = plain_text(visitor.post(NEW, {**sent, "text": text.replace("n_models = 4", "n_models = 6")}).text)
    assert "Another title" in page
    assert "6 a submission" in page  # the text's own change stands


def test_an_upload_takes_the_texts_place(visitor: Visitor) -> None:
    fields = {"csrf_token": visitor.token(NEW), "text": "kept", "act": "create"}
    for data, words in ((b"\xff\xff", "not UTF-8 text"), (b"#" * 100_001, "bytes at most")):
        answer = visitor.client.post(NEW, data=fields, files={"upload": ("a.toml", data, "text/plain")})
        assert (answer.status_code, words in plain_text(answer.text)) == (422, True)
        assert re.search(r"<textarea[^>]*>kept</textarea>", answer.text)
    files = {"upload": ("mine.toml", competition_toml("uploaded").encode(), "application/toml")}
    answer = visitor.client.post(NEW, data=fields, files=files, follow_redirects=False)
    assert answer.headers["location"] == "/organise/uploaded"


def test_the_preview_tells_what_a_competition_takes(server: Instance, visitor: Visitor) -> None:
    file = parse_competition(competition_toml("second", limits={"wall_time_s": 7200, "final_selections": 3}))
    cost = estimate_cost(file)
    assert (cost.models, cost.runs, cost.finals_runs) == (18, 4, 12)
    sent = {"text": competition_toml("second", limits={"wall_time_s": 7200}), "act": "preview"}
    page = plain_text(visitor.post(NEW, sent).text)
    assert re.search(r"about [0-9.]+ (B|KiB) for each submission's outputs", page)
    assert "18 models trained for 1 epoch each" in page
    assert "4 runs , at most 2 h" in page or "4 runs, at most 2 h" in page


DATA = "/organise/new/data"


def fields(html: str) -> dict[str, str]:
    """Return what the form would send as it is."""
    form = html[html.index('action="/organise/new/data"') :]
    found = {}
    for tag in re.findall(r"<input [^>]*>", form[: form.index("</form>")]):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and value:
            found[name[1]] = unescape(value[1])
    for name, options in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form):
        chosen = re.search(r'value="([^"]*)" selected', options)
        found[name] = chosen[1] if chosen else ""
    return found


def test_uploaded_images_become_a_draft(server: Instance, visitor: Visitor) -> None:
    assert "a folder for each class" in plain_text(visitor.get(DATA).text)
    files = {"file": ("pets.zip", make_zip(pets()))}
    sent = visitor.post("/datasets", {"name": "pets", "then": DATA}, files=files, page="/datasets")
    assert sent.headers["location"] == f"{DATA}?dataset=pets"
    page = visitor.get(f"{DATA}?dataset=pets").text
    words = plain_text(page)
    assert "240, 24 x 24 pixels" in words
    assert "cat 120" in words
    assert "Persons 40" in words
    assert page.count('<img src="data:image/png;base64,') == 4 * 8
    form = fields(page)
    assert (form["splits.forget.by"], form["network.name"], form["dataset.options.size"]) == (
        "person",
        "small_cnn",
        "24",
    )
    wrong = {**form, "splits.forget.fraction": "0.99", "training.learning_rate": "1e9", "closes_at": "2020-01-01T00:00"}
    checked = visitor.post(f"{DATA}/check", wrong, page=f"{DATA}?dataset=pets")
    assert 'data-field="closes_at"' in checked.text
    refused = visitor.post(DATA, {**wrong, "act": "create"}, page=f"{DATA}?dataset=pets")
    assert refused.status_code == 422
    assert fields(refused.text)["splits.forget.fraction"] == "0.99"
    deep = visitor.post(f"{DATA}/check", {**form, "dataset.options": "[" * 2000}, page=f"{DATA}?dataset=pets")
    assert "The form lost what was found" in deep.text
    later = {**wrong, "closes_at": form["closes_at"]}
    checked = visitor.post(f"{DATA}/check", later, page=f"{DATA}?dataset=pets")
    assert set(re.findall('data-field="([^"]*)"', checked.text)) == {"splits-forget-fraction", "training-learning_rate"}
    chosen = {**form, "n_models": "8", "splits.forget.fraction": "0.2", "slug": "our-pets"}
    preview = visitor.post(DATA, {**chosen, "act": "preview"}, page=f"{DATA}?dataset=pets")
    assert "34 models" in plain_text(preview.text)
    made = visitor.post(DATA, {**chosen, "act": "create"}, page=f"{DATA}?dataset=pets")
    assert made.headers["location"] == "/organise/our-pets"
    with server.database.read() as session:
        draft = session.scalars(select(Competition).where(Competition.slug == "our-pets")).one()
        written = tomllib.loads(draft.source)
    assert written["dataset"]["options"] == {
        "root": "upload:pets", "folders": ["label", "person"], "size": 24, "channels": 3,
    }  # fmt: skip
    assert (written["n_models"], written["splits"]["forget"]["fraction"]) == (8, 0.2)


def test_one_dataset_is_looked_at_at_a_time_and_no_other_page_waits_for_it(server, visitor, monkeypatch):
    visitor.post("/datasets", {"name": "pets"}, files={"file": ("a.zip", make_zip(pets(40)))})
    fetched: list[str] = []
    monkeypatch.setattr(type(server.storage), "download", lambda _, key, __: fetched.append(key))
    monkeypatch.setattr(client, "PATIENCE_S", 0.01)
    with client.turn_for_file():
        busy = visitor.get(f"{DATA}?dataset=pets")
        checked = visitor.post("/organise/new/check", {"text": competition_toml()}, page="/organise/new").text
    assert "Another dataset is being read" in plain_text(busy.text)
    assert "No mistakes" in checked
    assert fetched == []


def test_a_column_that_was_not_found_can_be_named(server: Instance, visitor: Visitor) -> None:
    files = pets()
    rows = "".join(f"{name},{name.split('/')[2]},{name.split('/')[1]},{n % 3}\n" for n, name in enumerate(files))
    files["table.csv"] = b"file,who,animal,batch\n" + rows.encode()
    visitor.post("/datasets", {"name": "pets"}, files={"file": ("a.zip", make_zip(files))})
    guessed = plain_text(visitor.get(f"{DATA}?dataset=pets").text)
    assert "'animal' has the fewest values" in guessed
    page = visitor.get(f"{DATA}?dataset=pets&label_column=batch").text
    assert "label 'batch'" in plain_text(page)
    form = fields(page)
    assert '"label_column": "batch"' in form["dataset.options"]
    preview = visitor.post(DATA, {**form, "n_models": "8", "act": "preview"}, page=f"{DATA}?dataset=pets")
    assert "label 'batch'" in plain_text(preview.text)
    nothing = visitor.get(f"{DATA}?dataset=pets&table=no.csv")
    assert "there is no table 'no.csv'" in plain_text(nothing.text)
    assert 'value="no.csv"' in nothing.text


def test_dataset_is_uploaded_shown_and_deleted(server: Instance, visitor: Visitor) -> None:
    def upload(name: str = "texts", data: bytes = make_zip({"a.txt": b"1"}), **more: str) -> Any:
        return visitor.post("/datasets", {"name": name, **more}, files={"file": ("a.zip", data)})

    assert "No datasets" in plain_text(visitor.get("/datasets").text)
    refused = upload(data=b"no zip")
    assert (refused.status_code, "is not a zip archive" in plain_text(refused.text)) == (422, True)
    assert plain_text(upload("A b").text).count("must be 1 to 64") == 1
    assert upload(csrf_token="0" * 80).status_code == 403, "a form of another page"
    assert list(server.storage.keys("datasets")) == []
    sent = upload()
    assert (sent.status_code, sent.headers["location"]) == (303, "/datasets")
    shown = plain_text(visitor.get("/datasets").text)
    assert 'Competition files use it as root = "upload:texts"' in shown
    assert "texts 1" in shown
    answer = visitor.get(f"{DATA}?dataset=texts")
    assert answer.status_code == 422
    assert "no images, no questions and no table were found among 1 files (a.txt)" in plain_text(answer.text)
    assert visitor.get(f"{DATA}?dataset=nothing").status_code == 404
    server.organiser("oskar")
    visitor.log_in("oskar")
    assert "texts" not in plain_text(visitor.get("/datasets").text)
    for path, fields in ((DATA, {"dataset": "texts", "act": "preview"}), ("/datasets/texts/delete", {})):
        assert visitor.post(path, fields, page=DATA).status_code == 404, "it is another organiser's"
    assert visitor.get(f"{DATA}?dataset=texts").status_code == 404
    visitor.log_in("olga")
    assert visitor.post("/datasets/texts/delete", {"csrf_token": "0" * 80}, page="/datasets").status_code == 403
    assert visitor.post("/datasets/texts/delete", page="/datasets").status_code == 303
    assert "No datasets" in plain_text(visitor.get("/datasets").text)
