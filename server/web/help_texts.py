"""The documentation that participants read, as pages of the site: rendered once, searched by section; the glossary."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

import server
from lethe.errors import NotFound

DOCS = Path(server.__file__).parents[1] / "docs"
FOLDER = DOCS / "participants"
OTHERS = {
    "scoring": DOCS / "organisers" / "scoring.md",
    "what-wins-without-unlearning": DOCS / "organisers" / "what-wins-without-unlearning.md",
    "metrics": DOCS / "metrics" / "index.md",
}
ORDER = ("first-score", "submissions", "low-score", "scoring", "kaggle", "libraries", "commands", "metrics", "accounts")
EXCERPT = 180  # characters of a section that a search shows
MAX_RESULTS = 20
TERM = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*: (?P<meaning>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class HelpSection:
    """A section of a page. text: plain, without markup."""

    page: str
    anchor: str
    title: str
    heading: str
    text: str

    @property
    def address(self) -> str:
        return f"/help/{self.page}#{self.anchor}" if self.anchor else f"/help/{self.page}"


@dataclass(frozen=True)
class HelpPage:
    """One file of the documentation."""

    name: str
    title: str
    html: Markup
    sections: tuple[HelpSection, ...]


@dataclass(frozen=True)
class Found:
    """A section that holds every word that was looked for."""

    section: HelpSection
    excerpt: Markup


@lru_cache
def help_pages() -> dict[str, HelpPage]:
    """Return every page by name, in the order of the list. Empty where the documentation is not installed."""
    files = {path.stem: path for path in FOLDER.glob("*.md")} | OTHERS
    files = {name: path for name, path in files.items() if path.is_file()}
    names = {path: name for name, path in files.items()}
    known = [name for name in ORDER if name in files]
    return {name: _read(name, files[name], names) for name in [*known, *sorted(files.keys() - set(known))]}


def help_page(name: str) -> HelpPage:
    """Return a page. Raises NotFound."""
    try:
        return help_pages()[name]
    except KeyError:
        raise NotFound(f"The help has no page {name!r}; it has {', '.join(help_pages())}") from None


@lru_cache
def glossary() -> dict[str, str]:
    """Return the meaning of each word of the glossary."""
    return {match["term"]: match["meaning"] for match in TERM.finditer((FOLDER / "glossary.md").read_text("utf-8"))}


def search(query: str) -> list[Found]:
    """Return the sections that hold every word of the query, those with the words in their headings first."""
    words = query.casefold().split()
    if not words:
        return []
    ranked = []
    for place, section in enumerate(each for page in help_pages().values() for each in page.sections):
        heading, text = f"{section.title} {section.heading}".casefold(), section.text.casefold()
        if all(word in heading or word in text for word in words):
            in_heading = sum(word in heading for word in words)
            ranked.append((-in_heading, -sum(text.count(word) for word in words), place, section))
    return [Found(section, _excerpt(section.text, words)) for *_, section in sorted(ranked, key=lambda r: r[:3])][
        :MAX_RESULTS
    ]


def _excerpt(text: str, words: Sequence[str]) -> Markup:
    """Return the part of a text where the first of the words stands, with the words marked."""
    places = [place for word in words if (place := text.casefold().find(word)) >= 0]
    start = text.rfind(" ", 0, max(0, min(places, default=0) - EXCERPT // 3)) + 1
    part = ("… " if start else "") + text[start : start + EXCERPT] + (" …" if start + EXCERPT < len(text) else "")
    pieces = re.split("(" + "|".join(map(re.escape, words)) + ")", part, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(piece) if number % 2 else escape(piece) for number, piece in enumerate(pieces)
    )


def _read(name: str, path: Path, names: Mapping[Path, str]) -> HelpPage:
    reader = MarkdownIt("js-default", {"html": False, "linkify": False})
    tokens = reader.parse(path.read_text("utf-8"))
    title, sections = _sections(name, tokens)
    for token in tokens:
        if token.children:
            token.children = [child for child in token.children if child.type != "image"]
            _link_within(token.children, path.parent, names)
    html = reader.renderer.render(tokens, reader.options, {})
    html = html.replace("<table>", '<div class="table-wrap"><table>').replace("</table>", "</table></div>")
    if name == "glossary":
        html = re.sub(
            r"<li>\s*<strong>([^<]+)</strong>", lambda m: f'<li id="{_anchor(m[1])}"><strong>{m[1]}</strong>', html
        )
    return HelpPage(name, title, Markup(html), sections)  # noqa: S704 (our own text; html is off)


def _sections(name: str, tokens: Sequence[Token]) -> tuple[str, tuple[HelpSection, ...]]:
    """Return the title and the sections, and give every heading its anchor."""
    parts: list[tuple[str, str, list[str]]] = []
    text: list[str] = []
    title, anchor, heading = name, "", ""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            words = _plain(tokens[place + 1])
            if token.tag == "h1":
                title = words
                continue
            parts.append((anchor, heading, text))
            anchor, heading, text = _anchor(words), words, []
            token.attrSet("id", anchor)
        elif token.type in {"fence", "code_block"}:
            text.append(token.content)
        elif token.type == "inline" and tokens[place - 1].type != "heading_open":
            text.append(_plain(token))
    parts.append((anchor, heading, text))
    made = (
        HelpSection(name, anchor, title, heading, " ".join(" ".join(text).split())) for anchor, heading, text in parts
    )
    return title, tuple(section for section in made if section.text)


def _plain(inline: Token) -> str:
    return "".join(" " if child.type == "softbreak" else child.content for child in inline.children or ())


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _link_within(children: Sequence[Token], folder: Path, names: Mapping[Path, str]) -> None:
    """Rewrite links to other help pages; links to pages that the site lacks become text."""
    is_link: list[bool] = []
    for token in children:
        if token.type == "link_open":
            href = str(token.attrGet("href"))
            file, _, anchor = href.partition("#")
            page = names.get(Path(os.path.normpath(folder / file)))
            if page is not None:
                token.attrSet("href", f"/help/{page}" + (f"#{anchor}" if anchor else ""))
            is_link.append(page is not None or not file or "://" in file)
            if not is_link[-1]:
                token.tag, token.attrs = "span", {}
        elif token.type == "link_close" and not is_link.pop():
            token.tag = "span"
