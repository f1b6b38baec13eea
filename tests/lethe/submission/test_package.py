"""Reading an upload: every way in which an archive can be bad is refused with its name, before anything runs."""

import io
import json
import stat
import struct
import time
import zipfile
from typing import Any

import pytest

from lethe.errors import InvalidSubmission
from lethe.submission.archive import SOURCE_MIB
from lethe.submission.package import LineEdits, PackageLimits, accepted_files, as_it_is_run, load_package, read_zip
from tests.support.instance import GOOD_CODE, make_zip
from tests.support.notebooks import notebook


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


def test_files_are_kept_and_a_folder_around_them_is_taken_away() -> None:
    package = load_package(GOOD_CODE, "my method.PY")
    assert (package.kind, package.files) == ("py", {"submission.py": GOOD_CODE})
    files = {"unlearning.py": GOOD_CODE, "lib/tools.py": b"A = 1\n", "data/table.npy": b"\x00\x01"}
    package = load_package(make_zip(files), "code.zip")
    assert (package.kind, package.files) == ("zip", files)
    litter = {"__MACOSX/._unlearning.py": b"\x00", ".DS_Store": b"", "__pycache__/a.pyc": b""}
    around = {f"mine/{name}": content for name, content in files.items()}
    assert load_package(make_zip(around), "mine.zip").files == files
    assert load_package(make_zip(files | litter), "mine.zip").files == files


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
    described = {"p/submission.toml": b'file = "main.py"\n', "p/requirements.txt": b"nonesuch-library==1.0\n"}
    files = {"p/__init__.py": b"", "p/main.py": GOOD_CODE, "p/other.py": b""} | described
    package = load_package(make_zip(files), "code.zip")
    assert package.entry_point.file == "p/main.py"
    assert package.entry_point.notes


def test_import_with_more_dots_than_folders_is_refused_with_its_line() -> None:
    flat = {"__init__.py": b"", "unlearning.py": b"from .util import x\n" + GOOD_CODE, "util.py": b"x = 1\n"}
    assert "unlearning.py, line 1: `from .util import …` leads out of the package" in refusal(make_zip(flat))
    either = b"try:\n    from .util import x\nexcept ImportError:\n    from util import x\n"
    load_package(make_zip({**flat, "unlearning.py": either + GOOD_CODE}), "code.zip")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        *(
            ({"name": name}, says)
            for name, says in (
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
                ("unlearning.py", "twice"),
            )
        ),
        ({"name": "thing", "mode": stat.S_IFLNK | 0o777, "content": b"/etc/passwd"}, "is a link"),
        *(
            ({"name": "thing", "mode": kind | 0o644}, "device, pipe or socket")
            for kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK)
        ),
        *(({"name": "a", "compress_type": how}, "stored or deflate") for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_with_an_unsafe_entry_is_refused(made: dict[str, Any], says: str) -> None:
    assert says in refusal(entry(**made))


def test_zip_bomb_is_refused_by_ratio_or_sum_without_unpacking() -> None:
    bomb = entry("zeros", content=bytes(64 << 20))
    assert len(bomb) < 1 << 20
    started = time.process_time()
    assert "100 times its packed size" in refusal(bomb)
    assert time.process_time() - started < 1
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


def test_zip_of_many_files_is_refused_before_they_are_listed() -> None:
    assert "at most 1000 files" in refusal(make_zip({f"{i}.txt": b"" for i in range(1001)}))
    many = make_zip({str(number): b"" for number in range(100_000)})
    started = time.process_time()
    assert "at most 1000 files" in refusal(many)
    assert time.process_time() - started < 1


def test_zip_that_is_encrypted_damaged_or_cut_off_is_refused() -> None:
    whole = make_zip({"unlearning.py": GOOD_CODE * 50, "b": b"x" * 100})
    encrypted, damaged = bytearray(whole), bytearray(whole)
    encrypted[whole.find(b"PK\x01\x02") + 8] |= 1
    damaged[60] ^= 0xFF
    assert "encrypted" in refusal(bytes(encrypted))
    assert "not a whole zip archive" in refusal(bytes(damaged))
    assert all("zip archive" in refusal(whole[:-cut]) for cut in (1, 30, 100))


@pytest.mark.parametrize(
    ("content", "filename", "says"),
    [
        (b"", "a.py", "is empty"),
        (b"x", "a.tar.gz", "needs a name that ends in"),
        (b"x", "noname", "needs a name that ends in"),
        (b"x", "a.ipynb", ""),
        (b"#" * (SOURCE_MIB << 20) + b"\n", "a.py", f"at most {SOURCE_MIB << 20} bytes"),
        (b"\xff\xd8\xff\xe0\x00JFIF", "cat.py", "cat.py: is not Python source: it holds null bytes, as pictures"),
        ("import torch\n".encode("utf-16"), "cat.py", "cat.py: is not Python source: it holds null bytes"),
        (b"%PDF-1.4 ...\xff", "cat.py", "cat.py: is not Python source: it is no text in UTF-8"),
    ],
    ids=range(8),
)
def test_other_files_are_refused(content: bytes, filename: str, says: str) -> None:
    assert says in refusal(content, filename)


FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader, epochs=1):\n    net.requires_grad_()\n"
LOOP = "import torch\nfor i in range(512):\n    torch.save(net.state_dict(), f'unlearned_checkpoint_{i}.pth')\n"
ONCE = {"file": "notebook.py", "function": "unlearning", "mode": "notebook"}
GUARDED = b"import torch\nassert torch.cuda.is_available()\n" + FUNCTION.encode()


@pytest.mark.parametrize("data", [notebook(FUNCTION, LOOP), notebook(FUNCTION)])
def test_accepted_files_are_those_of_the_upload(data: bytes) -> None:
    found = load_package(data, "mine.ipynb")
    stored = json.loads(json.dumps(found.entry_point.as_data()))
    assert accepted_files(data, "mine.ipynb", stored) == found.files
    assert as_it_is_run(data, "mine.ipynb", stored) == stored
    assert as_it_is_run(notebook(LOOP), "mine.ipynb", ONCE) == ONCE


def test_notebook_that_was_accepted_with_edits_keeps_them() -> None:
    data, edits = notebook(FUNCTION, LOOP), {"emptied": [[2, 1, 3]], "replaced": [[2, 2, "epochs = 5"]]}
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "function", "edits": edits}
    assert accepted_files(data, "mine.ipynb", stored)["cell-02.py"] == b"\nepochs = 5\n\n"
    ranges = LineEdits(emptied=((1, 2, 3),), replaced=((1, 4, "d; f"),))
    assert ranges.apply(["a\nb\nc\nd", "e"]) == ["a\n\n\nd; f", "e"]
    assert as_it_is_run(data, "mine.ipynb", stored) == stored


@pytest.mark.parametrize("more", [{}, {"edits": None}])
def test_notebook_that_was_accepted_without_edits_is_run_as_it_is(more: dict[str, None]) -> None:
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "function", **more}
    for cells, program in (((FUNCTION, LOOP), "saves"), ((FUNCTION,), "defines")):
        data = notebook(*cells)
        assert as_it_is_run(data, "mine.ipynb", stored)["program"] == program
        assert accepted_files(data, "mine.ipynb", stored) == load_package(data, "mine.ipynb").files


def test_guards_that_were_left_out_stay_so() -> None:
    line = {"cell": 0, "first_line": 2, "last_line": 2}
    parts = [line | {"reason": reason} for reason in ("gives up", "in helper.py: gives up")]
    stored = {"file": "submission.py", "function": "unlearning", "mode": "function", "left_out": parts}
    files = accepted_files(make_zip({"submission.py": GUARDED, "helper.py": GUARDED}), "mine.zip", stored)
    assert set(files.values()) == {b"import torch\n\n" + FUNCTION.encode()}
    assert accepted_files(GUARDED, "mine.py", stored | {"left_out": []}) == {"submission.py": GUARDED}


def test_script_of_an_earlier_version_is_not_taken_for_an_export() -> None:
    script = b"PATH = '../input/data'\n" + FUNCTION.encode() + b"def save(net, i):\n    torch.save(net, f'{i}.pth')\n"
    assert load_package(script, "mine.py").entry_point.file == "notebook.py"
    stored = {"file": "submission.py", "function": "unlearning", "mode": "function"}
    assert accepted_files(script, "mine.py", stored) == {"submission.py": script}
    assert as_it_is_run(script, "mine.py", stored) == stored
