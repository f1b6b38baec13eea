"""What the parsing process can be asked: each task turns the bytes of a stranger into plain data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import IO, Any
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element
from markdown_it import MarkdownIt
from markupsafe import escape
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from lethe.competition.file import parse_competition
from lethe.errors import InvalidCompetitionFile, InvalidInput, InvalidSubmission
from lethe.proposal.detect import Detected, detect
from lethe.proposal.propose import preview_cut, propose
from lethe.proposal.source import Archive
from lethe.submission import notebook
from lethe.submission.archive import ArchiveLimits, Opened, checked_archive, common_folder, read_chunks, refused
from lethe.submission.notebook import Mode
from lethe.submission.package import load_package, read_zip
from lethe.text_files import decode_text

MAX_FILES = 60_000  # below what a zip without a zip64 directory can hold
TABLE_SUFFIXES = (".csv", ".txt", ".json")
MAX_TABLE_BYTES = 64 << 20  # tables are read into memory as a whole, pictures and arrays are not


def check_dataset(file: IO[bytes], *, limits: Mapping[str, int]) -> dict[str, int]:
    """Read every file of the archive once, return their number and bytes. Raises InvalidInput. limits: of both."""
    with opened(file, limits) as (archive, entries):
        for entry in entries:
            for _ in read_chunks(archive, entry):
                pass
        return {"files": len(entries), "unpacked_bytes": sum(entry.file_size for entry in entries)}


def unpack_dataset(file: IO[bytes], *, folder: str, limits: Mapping[str, int]) -> None:
    """Write every file of the archive below an empty folder of this host. Raises InvalidInput as `check_dataset`."""
    with opened(file, limits) as (archive, entries):
        top = common_folder([entry.filename for entry in entries])
        for entry in entries:
            path = Path(folder) / entry.filename.removeprefix(top)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:  # nothing is there yet, and so no link
                for chunk in read_chunks(archive, entry):
                    target.write(chunk)


@contextmanager
def opened(file: IO[bytes], limits: Mapping[str, int]) -> Iterator[Opened]:
    """Yield a dataset's archive and its files. Raises InvalidInput as `check_dataset` does."""
    try:
        with checked_archive(file, limits=ArchiveLimits(ratio_from_bytes=16 << 20, **limits)) as (archive, entries):
            if not entries:
                raise refused("file", "holds no files")
            for entry in entries:
                if entry.filename.lower().endswith(TABLE_SUFFIXES) and entry.file_size > MAX_TABLE_BYTES:
                    raise refused(entry.filename, f"a table has at most {MAX_TABLE_BYTES} bytes", str(entry.file_size))
            yield archive, entries
    except InvalidSubmission as error:
        raise InvalidInput(error.detail, violations=error.violations) from error


MAX_LENGTH = 2000
ATTRIBUTES = frozenset((
    "accent", "accentunder", "columnalign", "columnlines", "columnspacing", "depth", "display", "displaystyle",
    "fence", "form", "height", "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize",
    "movablelimits", "notation", "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy",
    "symmetric", "width",
))  # fmt: skip
MAX_CLASSES = 50  # whose counts are shown


def formula(latex: str, options: dict[str, Any]) -> str:
    """Return a formula's MathML; its text where it is none, or very long. options: `display_mode`."""
    if len(latex) > MAX_LENGTH:
        return _as_written(latex)
    try:
        tree = convert_to_element(latex, display="block" if options["display_mode"] else "inline")
        return tostring(_checked(tree), encoding="unicode")
    except Exception:
        return _as_written(latex)


def _checked(element: Element) -> Element:
    """Return a copy of MathML elements and harmless attributes, its texts as characters."""
    if not (element.tag == "math" or element.tag.startswith("m") or element.tag == "none"):
        raise ValueError(f"{element.tag!r} is not MathML")
    kept = {name: value for name, value in element.attrib.items() if name in ATTRIBUTES}
    copy = Element(element.tag, kept)
    copy.text, copy.tail = unescape(element.text or ""), unescape(element.tail or "")
    copy.extend(_checked(child) for child in element)
    return copy


def _as_written(latex: str) -> str:
    return str(escape(latex))


def propose_competition(
    file: IO[bytes],
    *,
    limits: Mapping[str, int],
    root: str,
    slug: str,
    title: str,
    at: str,
    given: Mapping[str, Any],
    read_as: Mapping[str, Any],
) -> dict[str, Any]:
    """Return facts, proposed file, cost and the cut with pictures, as plain data.

    at: now, as text. read_as: options of the dataset in place of what is guessed. given: values in place of the
    proposed ones. Raises InvalidInput, or InvalidCompetitionFile.
    """
    try:
        with opened(file, limits) as (zipped, entries):
            source = Archive(zipped, entries)
            detected = detect(source, wanted={**given.get("dataset.options", {}), **read_as})
            if detected.images is None or detected.features:
                raise InvalidInput(
                    "questions and tables cannot be uploaded: put them into a folder for datasets of the workers; "
                    "`lethe competition new` writes their file"
                )
            made = propose(
                detected, root=root, slug=slug, title=title, at=datetime.fromisoformat(at), given=_with_times(given)
            )
            sets = preview_cut(detected.images, made.file, source=source)
    except InvalidCompetitionFile as error:
        raise InvalidInput(error.detail, violations=error.violations) from error  # also those of lethe.data
    return {
        "text": made.text,
        "values": made.file.model_dump(mode="json"),
        "found": _facts(detected),
        "sets": [asdict(each) for each in sets],
        "retraining_s": made.retraining_s,
        "preparation_s": made.preparation_s,
        "submission_s": made.submission_s,
    }


def _facts(detected: Detected) -> dict[str, Any]:
    images, header = detected.images, detected.header
    assert images is not None  # noqa: S101 - questions were refused
    return {
        "images": len(images),
        "classes": list(detected.class_counts.items())[:MAX_CLASSES],
        "n_classes": images.n_classes,
        "persons": len(set(images.persons.tolist())) if images.knows_persons else 0,
        "size": f"{header.width} x {header.height}" if header else "",
        "notes": list(detected.notes),
    }


def _with_times(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with times as such: between processes they are text."""
    times = {name: datetime.fromisoformat(given[name]) for name in ("opens_at", "closes_at") if name in given}
    return {**given, **times}


def check_package(
    data: bytes, *, filename: str, modes: Sequence[Mode], libraries: str = "", task_name: str = ""
) -> dict[str, Any]:
    """Return a submission's kind, and what of it to call. Raises InvalidSubmission."""
    package = load_package(data, filename, modes=modes, libraries=libraries, task=task_name, sources_only=True)
    return {"kind": package.kind, "entry_point": package.entry_point.as_data()}


def show_sources(data: bytes, *, kind: str, filename: str, max_characters: int) -> list[tuple[str, str]]:
    """Return name and highlighted HTML of each Python file; of a notebook, of each code cell. Raises InvalidSubmission.

    max_characters: of all texts together; what goes beyond is left out.
    """
    shown, left = [], max_characters
    for name, text in _sources(data, kind=kind, filename=filename):
        if left <= 0:
            break
        shown.append((name, _highlighted(text[:left])))
        left -= len(text)
    return shown


def read_source(data: bytes, *, name: str) -> str:
    """Return one Python file of a zip, or nothing if it holds none of that name. Raises InvalidSubmission."""
    return read_zip(data, sources_only=True).get(name, b"").decode(errors="replace")


def read_competition(data: bytes, *, source: str) -> dict[str, Any]:
    """Return a competition file's checked values. Raises InvalidCompetitionFile."""
    return parse_competition(decode_text(data), source=source).model_dump(mode="json")


def render_markdown(data: bytes) -> str:
    """Return Markdown as HTML, `$...$` and `$$...$$` as MathML. Raw HTML in it is shown, not obeyed."""
    reader = MarkdownIt("js-default", {"html": False, "linkify": False})
    dollarmath_plugin(  # "$5 and $10" is money
        reader, allow_labels=False, allow_space=False, allow_digits=False, renderer=formula
    )
    return str(reader.render(data.decode()))


def _sources(data: bytes, *, kind: str, filename: str) -> list[tuple[str, str]]:
    if kind == "zip":
        files = read_zip(data, sources_only=True)
        return [(name, files[name].decode(errors="replace")) for name in sorted(files) if name.endswith(".py")]
    if kind == "ipynb":
        cells = notebook.code_cells(data, shown_as=filename)
        return [(f"cell {number}", cell) for number, cell in enumerate(cells, start=1)]
    return [("submission.py", data.decode(errors="replace"))]


def _highlighted(text: str) -> str:
    lines = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    return "\n".join(f'<span class="linenos">{number}</span>{line}' for number, line in enumerate(lines, start=1))


TASKS: Mapping[str, Callable[..., Any]] = {
    "check_package": check_package,
    "read_competition": read_competition,
    "read_source": read_source,
    "render_markdown": render_markdown,
    "show_sources": show_sources,
}
FILE_TASKS: Mapping[str, Callable[..., Any]] = {
    "check_dataset": check_dataset,
    "propose_competition": propose_competition,
    "unpack_dataset": unpack_dataset,
}
