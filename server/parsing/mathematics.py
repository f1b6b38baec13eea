"""Formulas between dollar signs as MathML, which browsers draw and screen readers read.

The converter writes a formula's text and its links as they come, so neither leaves this module unchecked: the tree is
copied element by element with the attributes that only say how a formula looks, and written with every text escaped.
"""

from html import unescape
from typing import Any
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element
from markupsafe import escape

MAX_LENGTH = 2000
ATTRIBUTES = frozenset(
    [
        "accent",
        "accentunder",
        "columnalign",
        "columnlines",
        "columnspacing",
        "depth",
        "display",
        "displaystyle",
        "fence",
        "form",
        "height",
        "largeop",
        "linethickness",
        "lspace",
        "mathvariant",
        "maxsize",
        "minsize",
        "movablelimits",
        "notation",
        "rowlines",
        "rowspacing",
        "rspace",
        "scriptlevel",
        "separator",
        "stretchy",
        "symmetric",
        "width",
    ]
)


def formula(latex: str, options: dict[str, Any]) -> str:
    """Return a formula's MathML; its text as it was written where it is none, or a very long one.

    options: `display_mode`, whether it stands by itself.
    """
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
