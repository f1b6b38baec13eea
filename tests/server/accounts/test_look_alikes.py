"""Names that look the same are the same name."""

import pytest

from server.accounts.look_alikes import look_alike_key


@pytest.mark.parametrize(
    "name",
    ["ada", "ADA", "аdа", "αdα", "𝐚𝐝𝐚", "𝒶𝒹𝒶", "ＡＤＡ", "ⓐⓓⓐ", "АDА", "a\u200bda", "a\u00adda", "𝔸𝔻𝔸", "ᵃᵈᵃ"],
)
def test_name_that_looks_like_ada_is_ada(name: str) -> None:
    assert look_alike_key(name) == "ada"


@pytest.mark.parametrize(("name", "same"), [("ΝΑЅА", "nasa"), ("СОРУ", "copy"), ("Ноst", "host"), ("ѕсоре", "scope")])
def test_mixed_scripts_are_folded(name: str, same: str) -> None:
    assert look_alike_key(name) == same


@pytest.mark.parametrize(("one", "other"), [("jose", "josé"), ("team 1", "team l"), ("किताब", "कताब"), ("дом", "дым")])
def test_names_that_read_otherwise_differ(one: str, other: str) -> None:
    assert look_alike_key(one) != look_alike_key(other)


@pytest.mark.parametrize("name", ["Команда Дом", "Ευρώπη", "Straße"])
def test_case_never_tells_names_apart(name: str) -> None:
    assert look_alike_key(name.lower()) == look_alike_key(name.title())
