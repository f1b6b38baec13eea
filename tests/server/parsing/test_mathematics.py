"""Formulas in an organiser's Markdown: drawn as MathML, and never a way to write HTML."""

from xml.etree.ElementTree import fromstring

import pytest

from server.parsing.tasks import render_markdown


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
