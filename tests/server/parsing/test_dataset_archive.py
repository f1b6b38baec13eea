"""An uploaded dataset holds plain files within limits, and formulas no HTML, or they are refused."""

import io
import stat
import threading
import time
import zipfile
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from lethe.errors import InvalidInput
from server.parsing.client import run, run_on_file
from server.parsing.tasks import render_markdown
from tests.support.instance import make_zip

LIMITS = {"files": 100, "unpacked_bytes": 64 << 20}


def opened(tmp_path: Path, data: bytes) -> io.BufferedReader:
    path = tmp_path / "archive"
    path.write_bytes(data)
    return path.open("rb")


def entry(name: str, content: bytes = b"x", *, mode: int = stat.S_IFREG) -> bytes:
    """Return a zip of one entry of any kind."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (mode | 0o644) << 16
        archive.writestr(info, content)
    return buffer.getvalue()


def test_plain_files_are_counted_and_unpacked(tmp_path: Path) -> None:
    data = make_zip({"faces/images.csv": b"path,label\n", "faces/a/1.png": bytes(3 << 20), "faces/.DS_Store": b"x"})
    with opened(tmp_path, data) as file:
        assert run_on_file("check_dataset", file, limits=LIMITS) == {"files": 2, "unpacked_bytes": 11 + (3 << 20)}
        folder = tmp_path / "out"
        folder.mkdir()
        run_on_file("unpack_dataset", file, folder=str(folder), limits=LIMITS)
    assert (folder / "images.csv").read_bytes() == b"path,label\n"
    assert (folder / "a" / "1.png").stat().st_size == 3 << 20
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (entry("../out.png"), "leads out"),
        (entry("/etc/passwd"), "absolute path"),
        (entry("link", b"/etc/passwd", mode=stat.S_IFLNK), "is a link"),
        (entry("pipe", mode=stat.S_IFIFO), "device, pipe or socket"),
        (make_zip({"a.csv": bytes(65 << 20)}), "more than"),
        (make_zip({f"{n}.png": b"x" for n in range(101)}), "at most 100 files"),
        (make_zip({}), "holds no files"),
        (b"PK", "not a zip archive"),
        (make_zip({"a.png": b"abc" * 50})[:-30], "zip archive"),
    ],
    ids=["dots", "absolute", "link", "pipe", "bomb", "many", "empty", "short", "cut"],
)
def test_archive_that_is_not_plain_files_is_refused(tmp_path: Path, data: bytes, sentence: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with opened(tmp_path, data) as file:
        for task, options in (("check_dataset", {}), ("unpack_dataset", {"folder": str(folder)})):
            with pytest.raises(InvalidInput, match=sentence):
                run_on_file(task, file, limits=LIMITS, **options)
    assert list(folder.rglob("*")) == []


def test_table_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("images.csv", bytes(65 << 20))
    with opened(tmp_path, buffer.getvalue()) as file, pytest.raises(InvalidInput, match="a table has at most"):
        run_on_file("check_dataset", file, limits={"files": 100, "unpacked_bytes": 1 << 30})


def test_damaged_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(entry("a.png", b"abcdefgh" * 10))
    data[data.index(b"abcdefgh") + 3] ^= 1
    with opened(tmp_path, bytes(data)) as file, pytest.raises(InvalidInput, match="CRC"):
        run_on_file("check_dataset", file, limits=LIMITS)


def test_texts_are_read_while_a_dataset_is(tmp_path: Path) -> None:
    data = make_zip({f"{n}.bin": bytes(15 << 20) for n in range(40)})
    ended: list[float] = []

    def check() -> None:
        with opened(tmp_path, data) as file:
            run_on_file("check_dataset", file, limits={"files": 100, "unpacked_bytes": 4 << 30})
        ended.append(time.monotonic())

    thread = threading.Thread(target=check)
    thread.start()
    assert run("render_markdown", b"*a*") == "<p><em>a</em></p>\n"
    answered = time.monotonic()
    thread.join()
    assert answered < ended[0]


def rendered(text: str) -> str:
    return render_markdown(text.encode())


def test_a_formula_is_mathml() -> None:
    html = rendered(r"The gap is $\epsilon = \log\frac{p}{q}$.")
    assert "<mfrac>" in html
    assert "<mi>ϵ</mi>" in html
    assert "$" not in html


def test_a_formula_of_its_own_is_a_block() -> None:
    html = rendered("$$\n\\sum_i x_i\n$$\n")
    assert 'display="block"' in html
    assert "<munderover" in html or "<munder" in html or "<msub" in html


def test_prices_are_no_formula() -> None:
    assert rendered("From $5 to $10.") == "<p>From $5 to $10.</p>\n"


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<img src=x onerror=alert(1)>}",
        r"\text{&lt;script&gt;alert(1)&lt;/script&gt;}",
        r"\href{javascript:alert(1)}{x}",
        r"\style{position:fixed}{x}",
        r"\class{button}{x}",
        r"\color{red;background:url(//example.org)}{x}",
        "</span><script>alert(1)</script>",
    ],
)
def test_a_formula_holds_no_html_link_or_style(latex: str) -> None:
    html = rendered(f"a ${latex}$ b")
    for element in fromstring(html).iter():
        assert element.tag in ("p", "span") or element.tag.startswith("m"), element.tag
        assert not {"href", "style", "src", "id", "mathcolor"} & set(element.attrib), element.attrib
        assert element.get("class", "math inline") == "math inline"


@pytest.mark.parametrize("latex", [r"\frac", "{", "x" * 3000, r"\left(", "{" * 1500])
def test_what_is_no_formula_is_shown_as_written_or_drawn(latex: str) -> None:
    assert rendered(f"a ${latex}$ b").startswith("<p>a ")
