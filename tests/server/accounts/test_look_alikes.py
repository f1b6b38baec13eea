"""Names that look the same are the same name; secrets that people type."""

import pytest

from server.accounts import account_repository
from server.accounts.look_alikes import get_shape, look_alike_key
from server.accounts.passwords import new_token
from tests.support.instance import PASSWORD, Instance


@pytest.mark.parametrize(
    "name", ["ada", "ADA", "аdа", "αdα", "𝐚𝐝𝐚", "𝒶𝒹𝒶", "ＡＤＡ", "ⓐⓓⓐ", "АDА", "a\u200bda", "a\u00adda", "𝔸𝔻𝔸", "ᵃᵈᵃ"]
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("modern", "rnodern"),
        ("ROBOT-1", "robot-l"),
        ("ILLIA", "lllla"),
        ("w0rk", "vvork"),
        ("O0o", "000"),
        ("а1", "аI"),
    ],
)
def test_ascii_look_alikes_have_one_shape(one: str, other: str) -> None:
    assert get_shape(look_alike_key(one)) == get_shape(look_alike_key(other))
    assert look_alike_key(one) != look_alike_key(other), "they are different names to log in with"


@pytest.mark.parametrize(
    ("one", "other"), [("team 1", "team 2"), ("ada-10", "ada-11"), ("clan", "dan"), ("ann", "anm")]
)
def test_names_of_other_shapes_differ(one: str, other: str) -> None:
    assert get_shape(look_alike_key(one)) != get_shape(look_alike_key(other))


def test_shape_of_a_column_is_that_of_its_values(both: Instance) -> None:
    both.account("Rnodern-1")
    with both.database.read() as session:
        assert account_repository.account_that_looks_like(session, "modem-l") is not None, "rn twice"
        assert account_repository.account_that_looks_like(session, "modern-2") is None


@pytest.mark.parametrize("name", ["b0ris", "BORlS", "boris"])
def test_account_cannot_look_like_another(server: Instance, name: str) -> None:
    server.account("boris")
    body = {"name": name, "password": PASSWORD}
    assert server.client.post("/api/v1/accounts", json=body).status_code == 409
    token = {"name": "b0ris", "password": PASSWORD, "label": "x"}
    assert server.client.post("/api/v1/tokens", json=token).status_code == 401, "it is no other way to log in"


@pytest.mark.parametrize("name", ["adm1n", "r00t", "1ethe", "systern"])
def test_name_that_looks_reserved_is_refused(server: Instance, name: str) -> None:
    assert server.client.post("/api/v1/accounts", json={"name": name, "password": PASSWORD}).status_code == 422


def test_a_secret_is_never_taken_for_an_option() -> None:
    assert all(new_token().isalnum() for _ in range(50))


def test_a_prefix_stays_in_front() -> None:
    assert new_token("lethe_").startswith("lethe_")
