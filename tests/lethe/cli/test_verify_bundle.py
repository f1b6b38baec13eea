"""`lethe verify` on folders that are no published results, or hold more than those."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.client import bundle
from lethe.client.bundle import FORMAT, canonical, check, unpack
from lethe.errors import HostFault, InvalidInput


def signed_bundle(folder: Path, *, entries: Any, boards: Any, **manifest: Any) -> Path:
    """Return a folder with a manifest that its own key signed."""
    files = {}
    for name, content in (("entries.json", entries), ("boards.json", boards)):
        (folder / name).write_text(json.dumps(content))
        files[name] = {"sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}
    key = Ed25519PrivateKey.generate()
    body = {"format": FORMAT, "competition": "digits", "files": files, **manifest}
    proof = {
        "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(key.sign(canonical(body))).decode(),
    }
    (folder / "manifest.json").write_text(json.dumps(body | proof))
    return folder


def test_bundle_without_entries_agrees_and_other_files_are_listed(tmp_path: Path) -> None:
    found = check(signed_bundle(tmp_path, entries=[], boards=[]))
    assert (found.files, found.differences, found.unlisted) == (2, [], [])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "more.csv").write_text("1")
    found = check(tmp_path)
    assert (found.differences, found.unlisted) == ([], ["data/more.csv"])


@pytest.mark.parametrize(
    ("entries", "boards", "manifest"),
    [
        ([], [], {"files": ["entries.json"]}),
        ([], [], {"files": {"entries.json": "abc"}}),
        ({"a": 1}, [], {}),
        ([{"id": "e1"}], [], {}),
        ([], [{"rows": None}], {}),
    ],
)
def test_malformed_bundle_is_refused(tmp_path: Path, entries: Any, boards: Any, manifest: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="no bundle of a competition"):
        check(signed_bundle(tmp_path, entries=entries, boards=boards, **manifest))


def test_entry_that_names_a_file_outside_does_not_agree(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    folder = tmp_path / "bundle"
    folder.mkdir()
    score = {"receipt": "../secret.json", "final_score": 0.1, "runs": 4}
    entry = {"id": "e1", "code": None, "sha256": "", "phase": "", "parts": [{"task": "", "scores": {"public": score}}]}
    assert "../secret.json" in check(signed_bundle(folder, entries=[entry], boards=[])).differences[0]


def test_bundle_beyond_the_size_limit_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    with ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("zeros", bytes(1001))
    with pytest.raises(HostFault, match="1,001 bytes"):
        unpack(tmp_path / "b.zip", tmp_path / "into")
    assert not (tmp_path / "into").exists()
