"""Datasets of organisers on pages: upload, what is found, mistakes, and a competition from them."""

import re
import tomllib
from html import unescape

from sqlalchemy import select

from server.models.account import Role
from server.models.competition import Competition
from server.parsing import client
from tests.support.instance import Instance, competition_toml, make_zip
from tests.support.pictures import pets
from tests.support.web import Visitor, plain_text

NEW = "/organise/new/data"


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
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    assert "a folder for each class" in plain_text(visitor.get(NEW).text)
    files = {"file": ("pets.zip", make_zip(pets()))}
    sent = visitor.post("/datasets", {"name": "pets", "then": NEW}, files=files, page="/datasets")
    assert sent.headers["location"] == f"{NEW}?dataset=pets"
    page = visitor.get(f"{NEW}?dataset=pets").text
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
    checked = visitor.post(f"{NEW}/check", wrong, page=f"{NEW}?dataset=pets")
    assert 'data-field="closes_at"' in checked.text
    refused = visitor.post(NEW, {**wrong, "act": "create"}, page=f"{NEW}?dataset=pets")
    assert refused.status_code == 422
    assert fields(refused.text)["splits.forget.fraction"] == "0.99"
    deep = visitor.post(f"{NEW}/check", {**form, "dataset.options": "[" * 2000}, page=f"{NEW}?dataset=pets")
    assert "The form lost what was found" in deep.text
    later = {**wrong, "closes_at": form["closes_at"]}
    checked = visitor.post(f"{NEW}/check", later, page=f"{NEW}?dataset=pets")
    assert set(re.findall('data-field="([^"]*)"', checked.text)) == {"splits-forget-fraction", "training-learning_rate"}
    chosen = {**form, "n_models": "8", "splits.forget.fraction": "0.2", "slug": "our-pets"}
    preview = visitor.post(NEW, {**chosen, "act": "preview"}, page=f"{NEW}?dataset=pets")
    assert "34 models" in plain_text(preview.text)
    made = visitor.post(NEW, {**chosen, "act": "create"}, page=f"{NEW}?dataset=pets")
    assert made.headers["location"] == "/organise/our-pets"
    with server.database.read() as session:
        draft = session.scalars(select(Competition).where(Competition.slug == "our-pets")).one()
        written = tomllib.loads(draft.source)
    assert written["dataset"]["options"] == {
        "root": "upload:pets", "folders": ["label", "person"], "size": 24, "channels": 3,
    }  # fmt: skip
    assert (written["n_models"], written["splits"]["forget"]["fraction"]) == (8, 0.2)


def test_what_is_no_folder_of_images_is_explained(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    visitor.post("/datasets", {"name": "texts"}, files={"file": ("a.zip", make_zip({"a.txt": b"1"}))})
    answer = visitor.get(f"{NEW}?dataset=texts")
    assert answer.status_code == 422
    assert "no images, no questions and no table were found among 1 files (a.txt)" in plain_text(answer.text)
    assert visitor.get(f"{NEW}?dataset=nothing").status_code == 404


def test_a_dataset_of_another_organiser_is_not_looked_at(server: Instance, visitor: Visitor) -> None:
    for name in ("olga", "oskar"):
        server.account(name, Role.ORGANISER)
    visitor.log_in("olga")
    visitor.post("/datasets", {"name": "pets"}, files={"file": ("a.zip", make_zip(pets(40)))})
    visitor.client.cookies.clear()
    visitor.log_in("oskar")
    assert visitor.get(f"{NEW}?dataset=pets").status_code == 404
    assert visitor.post(NEW, {"dataset": "pets", "act": "preview"}, page=NEW).status_code == 404


def test_a_file_is_checked_while_it_is_written(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    page = "/organise/new"
    wrong = visitor.post(f"{page}/check", {"text": competition_toml().replace("epochs", "epoks")}, page=page)
    assert "did you mean epochs?" in wrong.text
    assert re.search(r'data-line="\d+"', wrong.text)
    assert "No mistakes" in visitor.post(f"{page}/check", {"text": competition_toml()}, page=page).text
    assert visitor.post(f"{page}/check", {"text": "#" * 100_001}, page=page).status_code == 422


def test_one_dataset_is_looked_at_at_a_time_and_no_other_page_waits_for_it(server, visitor, monkeypatch):
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    visitor.post("/datasets", {"name": "pets"}, files={"file": ("a.zip", make_zip(pets(40)))})
    fetched: list[str] = []
    monkeypatch.setattr(type(server.storage), "download", lambda _, key, __: fetched.append(key))
    monkeypatch.setattr(client, "PATIENCE_S", 0.01)
    with client.turn_for_file():
        busy = visitor.get(f"{NEW}?dataset=pets")
        checked = visitor.post("/organise/new/check", {"text": competition_toml()}, page="/organise/new").text
    assert "Another dataset is being read" in plain_text(busy.text)
    assert "No mistakes" in checked
    assert fetched == []


def test_a_column_that_was_not_found_can_be_named(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    files = pets()
    rows = "".join(f"{name},{name.split('/')[2]},{name.split('/')[1]},{n % 3}\n" for n, name in enumerate(files))
    files["table.csv"] = b"file,who,animal,batch\n" + rows.encode()
    visitor.post("/datasets", {"name": "pets"}, files={"file": ("a.zip", make_zip(files))})
    guessed = plain_text(visitor.get(f"{NEW}?dataset=pets").text)
    assert "'animal' has the fewest values" in guessed
    page = visitor.get(f"{NEW}?dataset=pets&label_column=batch").text
    assert "label 'batch'" in plain_text(page)
    form = fields(page)
    assert '"label_column": "batch"' in form["dataset.options"]
    preview = visitor.post(NEW, {**form, "n_models": "8", "act": "preview"}, page=f"{NEW}?dataset=pets")
    assert "label 'batch'" in plain_text(preview.text)
    nothing = visitor.get(f"{NEW}?dataset=pets&table=no.csv")
    assert "there is no table 'no.csv'" in plain_text(nothing.text)
    assert 'value="no.csv"' in nothing.text


ARCHIVE = make_zip({"images.npy": b"1", "labels.npy": b"2"})


def upload(visitor: Visitor, name: str = "faces", data: bytes = ARCHIVE, **fields: str) -> object:
    return visitor.post("/datasets", {"name": name, **fields}, files={"file": ("a.zip", data)})


def test_dataset_is_uploaded_shown_and_deleted(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    assert "No datasets" in plain_text(visitor.get("/datasets").text)
    sent = upload(visitor)
    assert (sent.status_code, sent.headers["location"]) == (303, "/datasets")  # type: ignore[attr-defined]
    shown = plain_text(visitor.get("/datasets").text)
    assert 'Competition files use it as root = "upload:faces"' in shown
    assert "faces 2" in shown
    assert visitor.post("/datasets/faces/delete", page="/datasets").status_code == 303
    assert "No datasets" in plain_text(visitor.get("/datasets").text)


def test_refused_archive_is_explained_on_the_page(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    refused = upload(visitor, data=b"no zip")
    assert refused.status_code == 422  # type: ignore[attr-defined]
    assert "is not a zip archive" in plain_text(refused.text)  # type: ignore[attr-defined]
    page = plain_text(upload(visitor, "A b").text)  # type: ignore[attr-defined]
    assert page.count("must be 1 to 64") == 1


def test_form_of_another_page_uploads_nothing(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    assert upload(visitor, csrf_token="0" * 80).status_code == 403  # type: ignore[attr-defined]
    assert visitor.post("/datasets/faces/delete", {"csrf_token": "0" * 80}, page="/datasets").status_code == 403
    assert list(server.storage.keys("datasets")) == []


def test_dataset_of_another_organiser_is_neither_shown_nor_deleted(server: Instance, visitor: Visitor) -> None:
    for name in ("olga", "oskar"):
        server.account(name, Role.ORGANISER)
    visitor.log_in("olga")
    upload(visitor)
    visitor.client.cookies.clear()
    visitor.log_in("oskar")
    assert "faces" not in plain_text(visitor.get("/datasets").text)
    assert visitor.post("/datasets/faces/delete", page="/datasets").status_code == 404
