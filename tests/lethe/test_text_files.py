"""Text and archives of Windows and Macs mean the same as those of Linux."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.competition.file import parse_competition, read_competition_file
from lethe.data.datasets.questions import read_question_answers
from lethe.submission.package import load_package, read_zip
from lethe.text_files import decode_text, without_invisible
from tests.support.instance import competition_toml

METHOD = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    return net\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_text_of_any_system_reads_alike(encoding: str, end: str) -> None:
    assert decode_text(f"ä = 1{end}b = 2{end}".encode(encoding)) == "ä = 1\nb = 2\n"


def test_line_that_is_not_utf8_is_named_and_words_lose_what_cannot_be_seen() -> None:
    with pytest.raises(ValueError, match="line 2 is not UTF-8 text: save the file as UTF-8"):
        decode_text("a\nä\n".encode("cp1252"))
    assert without_invisible("\ufeffa\u200bda\u202e@example.org") == "ada@example.org"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_competition_file_of_windows_is_read(tmp_path: Path, encoding: str) -> None:
    text = competition_toml().replace("\n", "\r\n")
    path = tmp_path / "digits.toml"
    path.write_bytes(text.encode(encoding))
    assert read_competition_file(path).slug == "digits"
    assert parse_competition("\ufeff" + text).slug == "digits"
    done = CliRunner().invoke(build_app(), ["competition", "validate", str(path), "--file-only"])
    assert done.exit_code == 0, done.exception


def test_questions_code_and_descriptions_of_windows_are_read(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"question": f"q{n}", "answer": "a"}) + "\r\n" for n in range(2))
    (tmp_path / "q.jsonl").write_bytes(rows.encode("utf-8-sig"))
    assert [one.question for one in read_question_answers(tmp_path / "q.jsonl")] == ["q0", "q1"]
    for encoding in ("utf-8", "utf-8-sig"):
        code = f"# lethe: samples = tuple\r\n{METHOD}".encode(encoding)
        assert load_package(code, "a.py").entry_point.style == "tuple"
    described = 'file = "mine.py"\r\n'.encode("utf-8-sig")
    files = {"submission.toml": described, "mine.py": METHOD.encode(), "other.py": b"x = 1\n"}
    assert load_package(zipped(files), "a.zip").entry_point.file == "mine.py"


def zipped(files: dict[str, bytes], *, system: int = 3, declared: bool = True) -> bytes:
    """Return an archive. system: 0 for Windows. declared: whether names say that they are UTF-8: Macs leave it out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = system
            archive.writestr(entry, content)
    data = buffer.getvalue()
    if declared:
        return data
    for header, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.find(header)
        while start >= 0:
            flags = int.from_bytes(data[start + at : start + at + 2], "little") & ~0x800
            data = data[: start + at] + flags.to_bytes(2, "little") + data[start + at + 2 :]
            start = data.find(header, start + 4)
    return data


def test_archives_of_any_system_hold_the_same_files() -> None:
    own = {"submission.py": METHOD.encode()}
    added = dict.fromkeys(("._submission.py", "__MACOSX/._submission.py", "Thumbs.db", "desktop.ini"), b"1")
    assert set(read_zip(zipped({**own, **added}))) == {"submission.py"}
    windows = zipped({**own, "part\\more.py": b"x = 1\n"}, system=0)
    assert set(read_zip(windows)) == {"submission.py", "part/more.py"}
    for declared in (True, False):  # names whose letters and accents are apart
        decomposed = zipped({**own, "cafe\u0301.txt": b"1"}, declared=declared)
        assert set(read_zip(decomposed)) == {"submission.py", "caf\u00e9.txt"}
