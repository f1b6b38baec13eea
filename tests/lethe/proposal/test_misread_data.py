"""Data that could mean something else than its owner thinks: used as it is meant, refused, or said."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.data.datasets.folder import open_folder
from lethe.data.errors import InvalidDataset
from lethe.proposal.detect import Detected, detect
from lethe.proposal.source import Folder

RUNNER = CliRunner()


def put(path: Path, seed: int = 0, **saved: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **saved)  # type: ignore[arg-type]


def said(found: Detected) -> str:
    return " ".join(found.notes)


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """24 images in two folders that say nothing of their classes."""
    for number in range(24):
        put(tmp_path / "images" / f"batch{number % 2}" / f"{number}.png", number)
    return tmp_path


ROWS = [(f"images/batch{i % 2}/{i}.png", "abc"[i % 3], f"p{i // 4}") for i in range(24)]
TABLE = "path,dx,site\n" + "".join(f"{path},{kind},{site}\n" for path, kind, site in ROWS)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (TABLE.replace(",", ";"), "utf-8"),
        (TABLE.replace(",", "\t"), "utf-16"),
        ("sep=;\r\n" + TABLE.replace(",", ";").replace("\n", "\r\n"), "utf-8-sig"),
        (TABLE.replace("/", "\\"), "utf-8"),
        (TABLE.replace("images/", "./images/"), "utf-8"),
        (TABLE.replace("\n", ",,\n") + ",,,,\n", "utf-8"),
    ],
)
def test_table_of_any_system_is_read_alike(batches: Path, text: str, encoding: str) -> None:
    (batches / "labels.csv").write_text(text, encoding=encoding, newline="")
    found = detect(Folder(batches))
    assert found.class_counts == {"a": 8, "b": 8, "c": 8}
    assert "labels.csv is read with the columns path 'path', label 'dx'" in said(found)
    options = {**found.options, "root": str(batches), "cache": str(batches / ".cache")}
    assert open_folder(options).class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("images/batch0/2.png", "images/batch0/99.png", "line 4: path 'images/batch0/99.png' does not exist"),
        (".png", "", "line 2: path 'images/batch0/0' does not exist; there is 'images/batch0/0.png': write its suffix"),
        (".png", ".PNG", "there is 'images/batch0/0.png': write it in the same letters"),
        ("images/batch0/", "", "there is 'images/batch0/0.png': write the folder"),
        ("images/batch0/2.png", "images/batch0/0.png", "line 4: 'images/batch0/0.png' is in line 2 already"),
        ("b,p0", "b", "line 3 has 2 cells for 3 names"),
        ("site", "dx", "'dx' is there twice"),
        (",a,", ",ä,", "cannot be read as CSV: line 2 is not UTF-8 text"),
    ],
)
def test_table_that_does_not_fit_is_refused_with_its_line(batches: Path, old: str, new: str, message: str) -> None:
    (batches / "labels.csv").write_bytes(TABLE.replace(old, new).encode("cp1252"))
    with pytest.raises(InvalidDataset, match=r"labels\.csv") as refused:
        detect(Folder(batches))
    assert message in refused.value.detail


def test_table_that_names_no_image_is_said(batches: Path) -> None:
    (batches / "prices.csv").write_text("item,price\nhat,3\n")
    (batches / "notes").mkdir()
    (batches / "notes" / "labels.csv").write_text(TABLE)
    found = detect(Folder(batches))
    assert found.options["folders"] == ["any", "label"]
    for part in ("prices.csv is not used", "notes/labels.csv lies in a folder", "read as <any>/<label>", "2 .csv"):
        assert part in said(found)


def test_two_tables_of_images_are_not_chosen_between(batches: Path) -> None:
    for name in ("train.csv", "test.csv"):
        (batches / name).write_text(TABLE)
    with pytest.raises(InvalidDataset, match=r"test\.csv and train\.csv name images: join them"):
        detect(Folder(batches))
    assert detect(Folder(batches), wanted={"table": "train.csv"}).options["table"] == "train.csv"


def test_columns_and_values_can_be_named(batches: Path) -> None:
    (batches / "labels.csv").write_text(TABLE.replace("site", "split"))
    guessed = detect(Folder(batches))
    assert "test_column" not in guessed.options
    assert "column 'split' is not used: it holds 'p0', which says neither test nor training" in said(guessed)
    assert detect(Folder(batches), wanted={"label_column": "split"}).class_counts["p5"] == 4
    command = ["competition", "new", str(batches), "--label-column", "dx", "--test-column", "split"]
    more = ["--test-value", "p5", "--models", "4", "--out", str(batches.parent / "c.toml"), "--json"]
    done = RUNNER.invoke(build_app(), [*command, *more])
    assert done.exit_code == 0, done.exception
    options = json.loads(done.stdout)["options"]
    assert (options["label_column"], options["test_column"], options["test_values"]) == ("dx", "split", ["p5"])
    data = open_folder({**options, "root": str(batches), "cache": str(batches / ".cache")})
    assert data.is_test is not None
    assert (data.is_test.sum(), data.n_classes) == (4, 3)


@pytest.mark.parametrize("halves", [("Training", "Testing"), ("TRAIN", "eval")])
def test_words_for_the_halves(tmp_path: Path, halves: tuple[str, str]) -> None:
    for half in halves:
        for number in range(8):
            put(tmp_path / half / "ab"[number % 2] / f"{half}{number}.png", number + 100 * len(half))
    assert detect(Folder(tmp_path)).options["folders"] == ["test", "label"]


def test_halves_of_other_words_can_be_named(tmp_path: Path) -> None:
    for half in ("fit", "unseen", "train"):
        for number in range(8):
            put(tmp_path / half / "ab"[number % 2] / f"{half}{number}.png", number)
    found = detect(Folder(tmp_path), wanted={"test_values": ["unseen"]})
    assert found.options["folders"] == ["test", "label"]
    assert found.images is not None
    assert found.images.is_test is not None
    assert found.images.is_test.sum() == 8
    (tmp_path / "unseen").rename(tmp_path / "test")
    with pytest.raises(InvalidDataset, match="'fit' does not: take it away, or name those for testing"):
        detect(Folder(tmp_path))


def test_what_is_hidden_counts_nowhere(tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        for number in range(6):
            put(tmp_path / kind / f"{number}.png", number + 1000 * ord(kind[0]))
    for name in (".ipynb_checkpoints/0.png", "__MACOSX/cat/._0.png", "cat/._0.png", "@eaDir/0.png", "cat/.t/0.png"):
        put(tmp_path / name)
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"1")
    assert detect(Folder(tmp_path)).class_counts == {"cat": 6, "dog": 6}
    data = open_folder({"root": str(tmp_path), "folders": ["label"], "size": 8, "cache": str(tmp_path / ".c")})
    assert (data.class_names, len(data)) == (("cat", "dog"), 12)


def test_files_that_are_not_used_and_copies_are_said(tmp_path: Path) -> None:
    for kind in ("cat", "dog", "Dog"):
        for number in range(4):
            put(tmp_path / kind / f"{number}.png", number + 1000 * ord(kind[0]))
    (tmp_path / "dog" / "copy.png").write_bytes((tmp_path / "cat" / "1.png").read_bytes())
    (tmp_path / "cat" / "5.HEIC").write_bytes(b"1")
    (tmp_path / "more.zip").write_bytes(b"1")
    found = said(detect(Folder(tmp_path)))
    for part in (
        "1 .heic, 1 .zip; convert or unpack", "1 images are copies of another, 1 of them in another class",
        "cat/1.png", "differ in capitals only", "images are called as one in another folder is",
    ):  # fmt: skip
        assert part in found
    notes = " ".join(
        open_folder({"root": str(tmp_path), "folders": ["label"], "size": 8, "cache": str(tmp_path / ".c")}).notes
    )
    assert ".heic" in notes


def test_decomposed_names_are_the_same_class(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path / ("cafe\u0301" if number % 2 else "caf\u00e9") / f"{number}.png", number)
        put(tmp_path / "tea" / f"t{number}.png", 9 + number)
    assert detect(Folder(tmp_path)).class_counts == {"caf\u00e9": 4, "tea": 4}


def test_what_pictures_lose_is_decided_and_said(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for kind in ("a", "b"):
        for number in range(4):
            put(tmp_path / kind / f"{number}.png", number + 1000 * ord(kind[0]))
    put(tmp_path / "a" / "turned.jpg", 1, exif=turned)
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[:4, :, 3] = 255  # black above; below transparent
    Image.fromarray(ink).save(tmp_path / "b" / "ink.png")
    found = said(detect(Folder(tmp_path)))
    assert "some images are transparent: they are laid on white" in found
    assert "some images are turned" in found
    data = open_folder({"root": str(tmp_path), "folders": ["label"], "size": 8, "cache": str(tmp_path / ".c")})
    drawn = data.images[9, 0]
    assert (drawn[:4].max(), drawn[4:].min()) == (0, 255)
    assert any(note.startswith("1 of 10 images are transparent") for note in data.notes)
    assert any(note.startswith("1 of 10 images are turned") for note in data.notes)


def test_colour_of_sixteen_bits_is_refused_as_grey_is(tmp_path: Path) -> None:
    for kind in ("a", "b"):
        for number in range(4):
            put(tmp_path / kind / f"{number}.png", number)
    (tmp_path / "b" / "deep.png").write_bytes(_png16())
    assert "more than 8 bits a channel, and are refused" in said(detect(Folder(tmp_path)))
    with pytest.raises(InvalidDataset, match=r"deep\.png has more than 8 bits"):
        open_folder({"root": str(tmp_path), "folders": ["label"], "size": 8, "cache": str(tmp_path / ".c")})


def _png16() -> bytes:
    made = b"\x89PNG\r\n\x1a\n"
    rows = b"".join(b"\0" + bytes(8 * 6) for _ in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        made += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return made
