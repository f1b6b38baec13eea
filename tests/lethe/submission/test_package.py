"""Reading an upload: every way in which an archive can be bad is refused with its name, before anything runs."""

import io
import stat
import struct
import time
import zipfile

import pytest

from lethe.errors import InvalidSubmission
from lethe.submission.archive import SOURCE_MIB
from lethe.submission.package import PackageLimits, accepted_files, load_package, read_zip
from tests.support.instance import GOOD_CODE, make_zip


def entry(name: str, *, mode: int = 0, content: bytes = b"x", **values: int) -> bytes:
    """Return a zip with a good submission and one more entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("unlearning.py", GOOD_CODE)
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = values.get("compress_type", zipfile.ZIP_DEFLATED)
        archive.writestr(info, content)
    return buffer.getvalue()


def refusal(data: bytes, filename: str = "code.zip") -> str:
    with pytest.raises(InvalidSubmission) as caught:
        load_package(data, filename)
    assert caught.value.violations, "a refusal names what is wrong"
    return caught.value.detail


def test_py_is_one_file() -> None:
    package = load_package(GOOD_CODE, "my method.PY")
    assert package.kind == "py"
    assert package.files == {"submission.py": GOOD_CODE}


def test_zip_keeps_its_files() -> None:
    files = {"unlearning.py": GOOD_CODE, "lib/tools.py": b"A = 1\n", "data/table.npy": b"\x00\x01"}
    package = load_package(make_zip(files), "code.zip")
    assert package.kind == "zip"
    assert package.files == files


def test_zip_of_a_folder_stands_at_the_top() -> None:
    package = load_package(make_zip({"mine/unlearning.py": GOOD_CODE, "mine/lib/a.py": b""}), "mine.zip")
    assert set(package.files) == {"unlearning.py", "lib/a.py"}


@pytest.mark.parametrize(
    "files",
    [
        {"p/__init__.py": b"", "p/unlearning.py": GOOD_CODE},
        {"p/unlearning.py": b"from .util import x\n" + GOOD_CODE, "p/util.py": b"x = 1\n"},
        {"p/unlearning.py": b"from p.util import x\n" + GOOD_CODE, "p/util.py": b"x = 1\n"},
        {"p/unlearning.py": b"import lib.b\n" + GOOD_CODE, "p/lib/b.py": b"    from p import util\n", "p/util.py": b""},
        {"p/unlearning.py": GOOD_CODE, "p/lib/b.py": b"from ..util import x\n", "p/util.py": b"x = 1\n"},
    ],
)
def test_zip_of_a_package_keeps_its_folder(files: dict[str, bytes]) -> None:
    package = load_package(make_zip(files), "code.zip")
    assert set(package.files) == set(files)
    assert package.entry_point.file == "p/unlearning.py"
    # what was accepted before this was so is unpacked as it was then
    stored = {**package.entry_point.as_data(), "file": "unlearning.py"}
    assert "unlearning.py" in accepted_files(make_zip(files), "code.zip", stored)


def test_zip_of_a_package_is_described_in_it() -> None:
    files = {
        "p/__init__.py": b"",
        "p/main.py": GOOD_CODE,
        "p/other.py": b"",
        "p/submission.toml": b'file = "main.py"\n',
        "p/requirements.txt": b"nonesuch-library==1.0\n",
    }
    package = load_package(make_zip(files), "code.zip")
    assert package.entry_point.file == "p/main.py"
    assert package.entry_point.notes


def test_import_with_more_dots_than_folders_is_refused_with_its_line() -> None:
    flat = {"__init__.py": b"", "unlearning.py": b"from .util import x\n" + GOOD_CODE, "util.py": b"x = 1\n"}
    assert "unlearning.py, line 1: `from .util import …` leads out of the package" in refusal(make_zip(flat))
    either = b"try:\n    from .util import x\nexcept ImportError:\n    from util import x\n"
    load_package(make_zip({**flat, "unlearning.py": either + GOOD_CODE}), "code.zip")


def test_zip_litter_of_archivers_is_left_out() -> None:
    files = {
        "unlearning.py": GOOD_CODE,
        "__MACOSX/._unlearning.py": b"\x00",
        ".DS_Store": b"",
        "__pycache__/a.pyc": b"",
    }
    assert set(load_package(make_zip(files), "code.zip").files) == {"unlearning.py"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../evil.py", "leads out of the archive"),
        ("a/../../evil.py", "leads out of the archive"),
        ("/etc/passwd", "absolute path"),
        ("C:/evil.py", "absolute path"),
        ("a\\..\\evil.py", "backslash"),
        ("a//b.py", "empty path component"),
        ("./a.py", "empty path component"),
        ("a\nb.py", "cannot be seen"),
        ("a\u202eyp.py", "cannot be seen"),
        ("/".join("abcdefghijklmnop"), "deeper than 12 folders"),
        ("a" * 256, "longer than 255 bytes"),
        ("unlearning.py/x", "is both a file and a folder"),
    ],
)
def test_zip_unsafe_name_is_refused(name: str, says: str) -> None:
    assert says in refusal(entry(name))


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (stat.S_IFLNK | 0o777, "is a link"),
        (stat.S_IFIFO | 0o644, "device, pipe or socket"),
        (stat.S_IFCHR | 0o644, "device, pipe or socket"),
        (stat.S_IFBLK | 0o644, "device, pipe or socket"),
        (stat.S_IFSOCK | 0o644, "device, pipe or socket"),
    ],
)
def test_zip_link_or_device_is_refused(mode: int, says: str) -> None:
    assert says in refusal(entry("thing", mode=mode, content=b"/etc/passwd"))


def test_zip_bomb_is_refused_by_ratio_without_unpacking() -> None:
    bomb = entry("zeros", content=bytes(64 << 20))
    assert len(bomb) < 1 << 20
    started = time.process_time()
    assert "100 times its packed size" in refusal(bomb)
    assert time.process_time() - started < 1


def test_zip_bomb_of_many_is_refused_by_its_sum() -> None:
    with pytest.raises(InvalidSubmission, match="unpacks to more than 1000 bytes"):
        read_zip(make_zip({str(i): bytes(600) for i in range(3)}), limits=PackageLimits(unpacked_bytes=1000))


def test_zip_that_lies_about_a_size_is_refused() -> None:
    data = bytearray(entry("zeros", content=bytes(100_000)))
    honest = struct.pack("<I", 100_000)
    assert data.count(honest) == 2  # in the entry's own header, and in the directory
    for _ in range(2):
        at = data.find(honest)
        data[at : at + 4] = struct.pack("<I", 10)
    refusal(bytes(data))


def test_zip_of_100_000_files_is_refused_before_they_are_listed() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(100_000):
            archive.writestr(str(number), b"")
    started = time.process_time()
    assert "at most 1000 files" in refusal(buffer.getvalue())
    assert time.process_time() - started < 1


def test_zip_of_1001_files_is_refused() -> None:
    assert "at most 1000 files" in refusal(make_zip({f"{i}.txt": b"" for i in range(1001)}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_with_a_name_twice_is_refused() -> None:
    assert "twice" in refusal(entry("unlearning.py"))


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_with_other_compression_is_refused(how: int) -> None:
    assert "stored or deflate" in refusal(entry("a", compress_type=how))


def test_zip_encrypted_is_refused() -> None:
    data = bytearray(make_zip({"unlearning.py": GOOD_CODE}))
    at = data.find(b"PK\x01\x02")
    data[at + 8] |= 1
    assert "encrypted" in refusal(bytes(data))


def test_zip_damaged_is_refused() -> None:
    data = bytearray(make_zip({"unlearning.py": GOOD_CODE * 50}))
    data[60] ^= 0xFF
    assert "not a whole zip archive" in refusal(bytes(data))


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_zip_cut_off_is_refused(cut: int) -> None:
    whole = make_zip({"unlearning.py": GOOD_CODE * 50, "b": b"x" * 100})
    assert "zip archive" in refusal(whole[:-cut])


@pytest.mark.parametrize(("data", "filename"), [(b"", "a.py"), (b"x", "a.tar.gz"), (b"x", "noname"), (b"x", "a.ipynb")])
def test_other_files_are_refused(data: bytes, filename: str) -> None:
    refusal(data, filename)


def test_python_file_beyond_its_size_is_refused() -> None:
    assert f"at most {SOURCE_MIB << 20} bytes" in refusal(b"#" * (SOURCE_MIB << 20) + b"\n", "a.py")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(range(256)), "it holds null bytes, as pictures"),
        ("import torch\n".encode("utf-16"), "it holds null bytes"),
        (b"%PDF-1.4 ...\xff", "it is no text in UTF-8"),
    ],
    ids=["jpeg", "utf-16", "pdf"],
)
def test_file_that_is_no_source_is_named_so(content: bytes, says: str) -> None:
    with pytest.raises(InvalidSubmission, match=f"cat.py: is not Python source: {says}"):
        load_package(content, "cat.py")
