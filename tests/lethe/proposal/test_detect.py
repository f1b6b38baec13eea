"""What is found in a folder or an archive: kind of data, classes, persons, sizes; and what is said where nothing is."""

import io
from collections.abc import Mapping

import pytest

from lethe.data.errors import InvalidDataset
from lethe.proposal.detect import detect
from lethe.proposal.source import ImageHeader, open_archive, read_header
from tests.support.instance import make_zip
from tests.support.pictures import png


class Files:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files, self.names = files, tuple(sorted(files))

    def read(self, name: str, *, at_most: int) -> bytes:
        return self.files[name][:at_most]


def pictures(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, png())


def test_folders_are_classes_and_persons() -> None:
    names = [f"{kind}/{who}/{n}.png" for kind in ("cat", "dog") for who in ("ann", "bob") for n in range(3)]
    found = detect(Files(pictures(*names)))
    assert found.dataset == "folder"
    assert found.options == {"folders": ["label", "person"], "size": 24, "channels": 3}
    assert found.class_counts == {"cat": 6, "dog": 6}
    assert found.images is not None
    assert found.images.knows_persons


def test_training_and_test_folders_are_no_classes() -> None:
    names = [f"{part}/{kind}/{n}.png" for part in ("train", "test") for kind in "ab" for n in range(4)]
    found = detect(Files(pictures(*names)))
    assert found.options["folders"] == ["test", "label"]
    assert found.images is not None
    assert found.images.is_test is not None
    assert found.images.is_test.sum() == 8
    assert any("no persons were found" in note for note in found.notes)


def test_columns_of_a_table_are_recognised() -> None:
    rows = "".join(f"p/{n}.png,{'x' if n % 2 else 'y'},w{n % 3},train\n" for n in range(8))
    files = pictures(*(f"p/{n}.png" for n in range(8))) | {"all.csv": f"file,Class,writer,split\n{rows}".encode()}
    found = detect(Files(files))
    assert found.options == {
        "table": "all.csv", "path_column": "file", "label_column": "Class", "person_column": "writer",
        "test_column": "split", "size": 24, "channels": 3,
    }  # fmt: skip


def test_a_zip_is_seen_without_the_folder_around_it() -> None:
    names = [f"pets/{kind}/{n}.png" for kind in "ab" for n in range(3)]
    found = detect(open_archive(io.BytesIO(make_zip(pictures(*names)))))
    assert found.options["folders"] == ["label"]


def test_questions_are_counted_with_their_groups() -> None:
    lines = "".join(f'{{"question": "q{n}", "answer": "a{n}", "group": {n % 3}}}\n' for n in range(9))
    found = detect(Files({"q.jsonl": lines.encode()}))
    assert (found.dataset, found.questions, found.groups) == ("questions", 9, 3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b""}, "no images, no questions and no table were found among 1 files"),
        (pictures("a.png", "b.png"), "all images lie in one folder"),
        (pictures("c/a.png", "c/b.png"), "all images lie in one folder"),
        (pictures("c/a.png", "d/b.png", "d/c.png", "d/e/f.png"), "but d/e/f.png does not"),
        (pictures(*(f"{n}/a.png" for n in range(4))), "most of one image"),
        ({"q.jsonl": b'{"question": "q"}'}, "line 1 has no question and answer"),
        (pictures("a.png") | {"t.csv": b"path\na.png\n"}, "t.csv has no column of classes: it has path"),
    ],
)
def test_what_is_not_understood_is_named(files: Mapping[str, bytes], message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        detect(Files(files))


def test_headers_tell_size_and_colour() -> None:
    assert read_header(png(9, colour=0)) == ImageHeader(9, 9, 1, "image/png")
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x07\x00\x05\x03"
    assert read_header(jpeg) == ImageHeader(5, 7, 3, "image/jpeg")
    assert read_header(b"GIF89a\x03\x00\x02\x00") == ImageHeader(3, 2, 3, "image/gif")
    for broken in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"P6 x", b"text"):
        assert read_header(broken) is None
