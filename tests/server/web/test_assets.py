"""Static files: hashed, vendored with their licences."""

import base64
import hashlib
import json
import re
from pathlib import Path

from server.config import get_settings
from server.template_environment import TEMPLATES
from server.web import rendering
from server.web.assets import SHEET, SHEETS, STATIC, Assets, get_assets
from tests.support.instance import Instance

VENDOR = STATIC / "vendor"


def test_an_asset_is_served_under_its_hash_and_kept_for_ever(server: Instance) -> None:
    answer = server.client.get(get_assets().url(SHEET))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]


def test_an_address_with_an_old_hash_still_works_but_is_not_kept(server: Instance) -> None:
    answer = server.client.get("/static/0000000000000000/css/lethe.css")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"


def test_an_unchanged_asset_is_not_sent_again(server: Instance) -> None:
    url = get_assets().url("js/page.js")
    etag = server.client.get(url).headers["etag"]
    assert server.client.get(url, headers={"If-None-Match": etag}).status_code == 304


def test_nothing_outside_the_folder_is_served(server: Instance) -> None:
    for path in ("../main.py", "%2e%2e/main.py", "vendor/vendor.json", "/etc/passwd"):
        assert server.client.get(f"/static/0/{path}").status_code == 404


def test_integrity_is_the_hash_of_what_is_served(server: Instance) -> None:
    assets = get_assets()
    body = server.client.get(assets.url("js/page.js")).content
    expected = base64.b64encode(hashlib.sha384(body).digest()).decode()
    assert assets.integrity("js/page.js") == f"sha384-{expected}"


def test_a_sheet_names_other_files_by_their_hash(tmp_path: Path) -> None:
    (tmp_path / "font.woff2").write_bytes(b"glyphs")
    (tmp_path / "sheet.css").write_text('a { src: url("font.woff2"); } b { src: url("absent.woff2"); }')
    assets = Assets(tmp_path)
    sheet = assets.get("sheet.css")
    assert sheet is not None
    assert assets.url("font.woff2").encode() in sheet.body
    assert b'url("absent.woff2")' in sheet.body


def test_every_vendored_package_has_its_licence_and_version() -> None:
    record = json.loads((VENDOR / "vendor.json").read_text())
    assert all(set(facts) == {"version", "license", "integrity"} for facts in record.values())
    for folder in (path for path in VENDOR.iterdir() if path.is_dir()):
        assert any(path.name.startswith("LICENSE") for path in folder.iterdir()), folder.name


def test_no_template_holds_inline_script_style_or_foreign_address() -> None:
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path.name
        assert not re.search(r"<style|\bstyle=|\bon[a-z]+=\"", text), path.name
        assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", text), path.name


def test_every_icon_that_is_named_is_in_the_sprite() -> None:
    sprite = (VENDOR / "lucide" / "icons.svg").read_text()
    known = set(re.findall(r'<symbol id="([a-z0-9-]+)"', sprite))
    named = {
        name for path in TEMPLATES.rglob("*.html") for name in re.findall(r'icon\("([a-z0-9-]+)"', path.read_text())
    }
    assert named <= known


def test_all_sheets_are_one_file_in_their_order(server: Instance) -> None:
    assert {path.name for path in (STATIC / "css").iterdir()} == {name.split("/")[-1] for name in SHEETS[1:]}
    page = server.client.get("/").text
    assert page.count('rel="stylesheet"') == 1
    body = server.client.get(get_assets().url(SHEET)).text
    assert body.index("--accent-wash") < body.index(".task-steps") < body.index("@media print")
    assert get_assets().get("css/theme.css") is None


def test_search_engines_are_kept_from_what_is_private(server: Instance) -> None:
    robots = server.client.get("/robots.txt").text
    for path in ("/account", "/organise", "/submissions", "/api/v1/"):
        assert f"Disallow: {path}\n" in robots
    assert "Disallow: /\n" not in robots


def test_the_icon_is_at_its_usual_address(server: Instance) -> None:
    answer = server.client.get("/favicon.ico")
    assert answer.headers["content-type"] == "image/x-icon"
    assert answer.content[:4] == b"\0\0\1\0"


def test_shared_links_name_the_configured_address_never_the_requests(server, monkeypatch):
    assert 'property="og:image"' not in server.client.get("/login", headers={"Host": "evil.example"}).text
    configured = get_settings().model_copy(update={"public_url": "https://lethe.example/"})
    monkeypatch.setattr(rendering, "get_settings", lambda: configured)
    page = server.client.get("/login", headers={"Host": "evil.example"}).text
    assert 'content="https://lethe.example/login"' in page
    assert f'content="https://lethe.example{get_assets().url("img/share.png")}"' in page
    assert "evil.example" not in page
