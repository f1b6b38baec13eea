"""What can be called, and how: functions, classes with `run`, extras by name, the form of samples."""

import ast

import pytest

from lethe.submission.signatures import Entry, NotCallable, find_callable, sample_style


def find(code: str) -> Entry | None:
    return find_callable([ast.parse(code)], "unlearning", signature="unlearning(...)")


def test_a_class_with_run_is_found() -> None:
    assert find("class Mine:\n    def run(self, net, r, f, v): pass\n") == Entry("Mine", ())


def test_a_class_made_with_the_four_is_found() -> None:
    code = "class Mine:\n    def __init__(self, net, r, f, v, class_weights=None): pass\n    def run(self): pass\n"
    assert find(code) == Entry("Mine", ("class_weights",))


def test_a_function_wins_over_a_class() -> None:
    code = "class Mine:\n    def run(self, n, r, f, v): pass\ndef unlearning(n, r, f, v): pass\n"
    assert find(code) == Entry("unlearning", ())


def test_two_classes_are_too_many() -> None:
    with pytest.raises(NotCallable, match="2 classes"):
        find("".join(f"class {n}:\n    def run(self, n, r, f, v): pass\n" for n in "AB"))


def test_a_class_that_wants_arguments_twice_is_refused() -> None:
    with pytest.raises(NotCallable, match="in one"):
        find("class M:\n    def __init__(self, net): pass\n    def run(self, r, f, v): pass\n")


@pytest.mark.parametrize(
    ("extras", "given"),
    [
        ("class_weights=None", ("class_weights",)),
        ("class_weights", ("class_weights",)),
        ("*, param_names, device=None", ("device", "param_names")),
        ("param_names=['fc.weight']", ()),
        ("*, seed=7", ()),
        ("epochs=3", ()),
    ],
)
def test_extras_are_given_unless_their_author_chose_a_value(extras: str, given: tuple[str, ...]) -> None:
    found = find(f"def unlearning(net, r, f, v, {extras}): pass\n")
    assert found is not None
    assert found.keywords == given


def test_an_unknown_extra_is_refused_by_name() -> None:
    with pytest.raises(NotCallable, match="teacher"):
        find("def unlearning(net, r, f, v, teacher): pass\n")


@pytest.mark.parametrize(
    ("code", "style"),
    [
        ("for sample in loader:\n    x = sample['image']\n", "dict"),
        ("for x, y in retain_loader: pass\n", "tuple"),
        ("for i, (x, y) in enumerate(tqdm(forget)): pass\n", "tuple"),
        ("[x for x, _ in loader]\n", "tuple"),
        ("for a, b in zip(retain_loader, forget_loader): pass\n", "dict"),
        ("for i, batch in enumerate(loader): pass\n", "dict"),
        ("for name, p in net.named_parameters(): pass\n", "dict"),
        ("pass\n", "dict"),
    ],
)
def test_the_form_of_samples_is_read_from_the_loops(code: str, style: str) -> None:
    assert sample_style([ast.parse(code)]) == style
