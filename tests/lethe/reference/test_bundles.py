"""A split goes out as one file and comes back as a split; what is not as it was signed is refused."""

import hashlib
import http.server
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

import lethe
from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import FileRecord
from lethe.evaluation.model_outputs import read_outputs
from lethe.preparation.prepare import prepare_split
from lethe.reference.bundle import DESCRIPTION, BundleDescription, InvalidReference, new_key, public_text, read_key
from lethe.reference.export import export_split
from lethe.reference.fetch import fetch, verify

Files = dict[str, bytes]
SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = (public_text(SIGNER.public_key()),)


@pytest.fixture(scope="module")
def bundle(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "small.zip"
    export_split(prepared, path, licence="CC0-1.0", description="Scanned digits.", key=SIGNER)
    return path


def files_of(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Files, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_signed_bundle_of_the_next_version_is_read(bundle: Path, tmp_path: Path) -> None:
    stated = json.loads(files_of(bundle)[DESCRIPTION]) | {"of_the_next": 1, "public_key": None, "signature": None}
    document = BundleDescription.model_validate(stated).signed(SIGNER).model_dump(mode="json")
    assert document["of_the_next"] == 1
    path = zipped(files_of(bundle) | {DESCRIPTION: json.dumps(document).encode()}, tmp_path / "next.zip")
    assert verify(path, keys=KEYS).n_models == 5
    path = zipped(
        files_of(bundle) | {DESCRIPTION: json.dumps(document | {"of_the_next": 2}).encode()}, tmp_path / "changed.zip"
    )
    with pytest.raises(InvalidReference, match="was changed since"):
        verify(path, keys=KEYS)


def described(files: Files, key: Ed25519PrivateKey | None = SIGNER, **changes: object) -> Files:
    """Return the files with a description that fits them, signed by `key`, and then changed."""
    stated = json.loads(files[DESCRIPTION])
    stated["files"] = {name: record(content) for name, content in files.items() if name != DESCRIPTION}
    found = BundleDescription.model_validate(stated | {"public_key": None, "signature": None})
    document = (found if key is None else found.signed(key)).model_dump(mode="json") | changes
    return files | {DESCRIPTION: json.dumps(document).encode()}


def record(content: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def with_description(files: Files, change: Callable[[dict], object]) -> Files:
    stated = json.loads(files[DESCRIPTION])
    change(stated)
    return files | {DESCRIPTION: json.dumps(stated).encode()}


def renamed(name: str) -> Callable[[Files], Files]:
    """Return a change: a file under another name, in the archive and in a description that is signed."""

    def change(files: Files) -> Files:
        content = files.pop("hidden/test.safetensors")

        def name_it(stated: dict) -> None:
            stated["files"].pop("hidden/test.safetensors")
            stated["files"][name] = record(content)

        return with_description(files | {name: content}, name_it)

    return change


def test_fetched_split_scores_as_the_prepared_one(bundle: Path, prepared: Path, tmp_path: Path) -> None:
    split = lethe.Split.fetch(bundle, tmp_path / "got", keys=KEYS)
    ours = lethe.Split.load(prepared)
    assert split.n_models == ours.n_models
    expected = lethe.score(ours.outputs("oracle"), split=ours).value
    assert lethe.score(split.outputs("oracle"), split=split).value == expected
    assert split.original_model().state_dict().keys() == ours.original_model().state_dict().keys()
    card = (tmp_path / "got" / "card.md").read_text()
    assert "CC0-1.0" in card
    assert f"| oracle | {ours.outputs('oracle').retain_accuracy.mean():.4f} |" in card
    with zipfile.ZipFile(bundle) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    stated = json.loads(files_of(bundle)[DESCRIPTION])["files"]["hidden/test.safetensors"]
    assert FileRecord(**stated) == FileRecord.of(prepared / "hidden" / "test.safetensors")
    assert not list((tmp_path / "got").rglob("models-*"))
    assert not (tmp_path / "got" / "sample").exists()


def test_checkpoints_come_along_when_asked(prepared: Path, tmp_path: Path) -> None:
    found = lethe.Split.load(prepared).export(tmp_path / "all.zip", licence="CC0-1.0", checkpoints=True)
    assert found.has_checkpoints
    assert "hidden/retrained/models-00000.safetensors" in files_of(tmp_path / "all.zip")
    assert fetch(tmp_path / "all.zip", tmp_path / "got", any_signer=True) == found


def test_levels_that_are_left_out_stay_behind(make_competition, tmp_path: Path) -> None:
    prepare_split(make_competition(n_models=4, report={"capture": 2}), "public", tmp_path / "split")
    export_split(tmp_path / "split", tmp_path / "less.zip", licence="CC0-1.0", leave_out=(2,))
    split = lethe.Split.fetch(tmp_path / "less.zip", tmp_path / "got", any_signer=True)
    assert split.manifest.evaluation.capture == (1,)
    side = read_outputs(tmp_path / "got").arrays()
    assert "forget_loss" in side
    assert "forget_logits" not in side
    assert (side["confidences"] == read_outputs(tmp_path / "split").confidences).all()
    missing = lethe.metrics.metrics()
    assert split.inputs(side).missing(missing["js_to_retrained"])
    assert not split.inputs(side).missing(missing["mia_loss"])


REFUSED: dict[str, tuple[Callable[[Files], Files], str]] = {
    "unsigned": (lambda files: described(files, None), "nobody signed"),
    "another signer": (
        lambda files: described(files, Ed25519PrivateKey.generate()),
        "which is not one of the keys to trust",
    ),
    "description changed": (lambda files: described(files, licence="none"), "was changed since it was signed"),
    "signature of nothing": (lambda files: described(files, signature="!"), "was changed since it was signed"),
    "another format": (lambda files: described(files, format="lethe-reference-2"), "'lethe-reference-2'; this program"),
    "no JSON": (lambda files: files | {DESCRIPTION: b"{"}, "is not JSON"),
    "a list": (lambda files: files | {DESCRIPTION: b"[]"}, "has the format 'None'"),
    "one byte of a file": (
        lambda files: files | {"hidden/test.safetensors": files["hidden/test.safetensors"][:-1] + b"!"},
        "hidden/test.safetensors is not what",
    ),
    "longer file": (
        lambda files: files | {"hidden/test.safetensors": files["hidden/test.safetensors"] + b"!"},
        "hidden/test.safetensors is not what",
    ),
    "file that is not named": (lambda files: files | {"visible/more.json": b"{}"}, "names: 'visible/more.json'"),
    "file that is missing": (
        lambda files: {name: content for name, content in files.items() if name != "hidden/test.safetensors"},
        "names: 'hidden/test.safetensors'",
    ),
    "parent folder": (renamed("visible/../../out.json"), "is no file of a split"),
    "absolute": (renamed("/tmp/out.json"), "is no file of a split"),
    "hidden file": (renamed("visible/.profile.json"), "is no file of a split"),
    "program": (renamed("visible/entry.py"), "is no file of a split"),
    "backslash": (renamed("visible\\out.json"), "is no file of a split"),
    "new line": (renamed("visible/out.json\n"), "is no file of a split"),
    "no manifest": (
        lambda files: with_description(files, lambda stated: stated["files"].pop("manifest.json")),
        "there is no manifest.json",
    ),
    "negative size": (
        lambda files: with_description(files, lambda stated: stated["files"]["card.md"].update(size=-1)),
        "has a size of -1",
    ),
    "split that its manifest denies": (
        lambda files: described(files | {"hidden/test.safetensors": files["visible/forget.safetensors"]}),
        "manifest.json names other files than",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_changed_bundle_is_refused_and_leaves_nothing(case: str, bundle: Path, tmp_path: Path) -> None:
    change, message = REFUSED[case]
    path = zipped(change(files_of(bundle)), tmp_path / "changed.zip")
    into = tmp_path / "inner" / "got"
    into.parent.mkdir()
    with pytest.raises(InvalidReference, match=message.replace("'", ".")):
        fetch(path, into, keys=KEYS)
    assert list(into.parent.iterdir()) == []


def test_archive_that_is_damaged_or_packed_otherwise_is_refused(bundle: Path, tmp_path: Path) -> None:
    packed = bytearray(bundle.read_bytes())
    with zipfile.ZipFile(bundle) as archive:
        start = archive.getinfo("hidden/test.safetensors").header_offset
    packed[start + 60 : start + 90] = bytes(30)
    (tmp_path / "damaged.zip").write_bytes(packed)
    with pytest.raises(InvalidReference, match=r"hidden/test\.safetensors (cannot be unpacked|is not what)"):
        verify(tmp_path / "damaged.zip", keys=KEYS)
    with zipfile.ZipFile(tmp_path / "other.zip", "w", zipfile.ZIP_LZMA) as archive:
        for name, content in files_of(bundle).items():
            archive.writestr(name, content)
    with pytest.raises(InvalidReference, match="is packed in another way"):
        verify(tmp_path / "other.zip", keys=KEYS)
    path = zipped(files_of(bundle), tmp_path / "twice.zip")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("card.md", "another card")
    with pytest.raises(InvalidReference, match=r"names: 'card\.md'"):
        verify(path, keys=KEYS)
    with pytest.raises(InvalidReference, match="cannot be read as a reference split"):
        verify(Path(__file__), keys=KEYS)


def test_unsigned_bundle_is_taken_when_any_signer_will_do(bundle: Path, tmp_path: Path) -> None:
    path = zipped(described(files_of(bundle), None), tmp_path / "unsigned.zip")
    assert fetch(path, tmp_path / "got", any_signer=True).public_key is None
    changed = zipped(described(files_of(bundle), licence="none"), tmp_path / "changed.zip")
    with pytest.raises(InvalidReference, match="was changed since"):
        verify(changed, any_signer=True)


def test_bundle_in_a_folder_is_taken_and_its_links_are_not(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "folder")
    assert fetch(tmp_path / "folder", tmp_path / "got", keys=KEYS).n_models == 5
    (tmp_path / "folder" / "card.md").unlink()
    (tmp_path / "folder" / "card.md").symlink_to("/etc/hostname")
    with pytest.raises(InvalidReference, match=r"card\.md is a link"):
        verify(tmp_path / "folder", keys=KEYS)


def test_large_bundles_and_places_that_are_taken_are_refused(bundle: Path, prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidReference, match="--max-mib allows more"):
        fetch(bundle, tmp_path / "got", keys=KEYS, max_bytes=1000)
    with pytest.raises(InvalidInput, match="exists: name a new folder"):
        fetch(bundle, tmp_path, keys=KEYS)
    with pytest.raises(InvalidInput, match="exists: name a new file"):
        export_split(prepared, bundle, licence="CC0-1.0")
    with pytest.raises(InvalidInput, match="a licence is needed"):
        export_split(prepared, tmp_path / "new.zip", licence=" ")


redirects = {"/moved.zip": "/small.zip", "/round.zip": "/round.zip", "/away.zip": "http://example.org/small.zip"}


@pytest.fixture
def address(bundle: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in redirects:
                super().do_GET()
                return
            self.send_response(302)
            self.send_header("Location", redirects[self.path])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=bundle.parent)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_bundle_comes_from_an_address(address: str, tmp_path: Path) -> None:
    assert fetch(f"{address}/small.zip", tmp_path / "got", keys=KEYS).n_models == 5
    assert verify(f"{address}/moved.zip", keys=KEYS).n_models == 5
    with pytest.raises(InvalidReference, match="redirects more than 5 times"):
        verify(f"{address}/round.zip", keys=KEYS)
    for other in (f"{address}/away.zip", "http://example.org/small.zip", "ftp://127.0.0.1/a.zip", "file:///etc/passwd"):
        with pytest.raises(InvalidReference, match="is no https:// address"):
            verify(other, keys=KEYS)
    with pytest.raises(InvalidReference, match="answered with status 404"):
        verify(f"{address}/large.zip", keys=KEYS)
    with pytest.raises(InvalidReference, match=r"is more than .* MiB; --max-mib"):
        verify(f"{address}/small.zip", keys=KEYS, max_bytes=1000)


def test_key_is_its_owners_alone(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert public_text(read_key(tmp_path / "key.pem").public_key()) == public
    with pytest.raises(InvalidInput, match="cannot be written: File exists"):
        new_key(tmp_path / "key.pem")
    (tmp_path / "other").write_text("no key")
    with pytest.raises(InvalidInput, match="cannot be read as a private key"):
        read_key(tmp_path / "other")


def invoke(*words: object) -> str:
    """Return what the command prints; its error is raised."""
    done = CliRunner().invoke(build_app(), ["reference", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_split_goes_out_signed_and_comes_back(prepared: Path, tmp_path: Path) -> None:
    key = invoke("key", tmp_path / "key.pem").strip()
    file = tmp_path / "small.zip"
    words = ("--licence", "CC0-1.0", "--sign", tmp_path / "key.pem", "--json")
    exported = json.loads(invoke("export", prepared, file, *words))
    assert exported["signed_by"] == key
    assert exported["has_checkpoints"] is False
    with pytest.raises(InvalidReference, match="no key is named"):
        invoke("verify", file)
    assert json.loads(invoke("verify", file, "--key", key, "--json")) == exported | {"path": None}
    assert f"--split {tmp_path / 'got'}" in invoke("fetch", file, tmp_path / "got", "--key", key).replace("\n", "")
    assert (tmp_path / "got" / "hidden" / "oracle" / "outputs.safetensors").is_file()
