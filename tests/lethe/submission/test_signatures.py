"""What can be called, and how: functions, classes with `run`, extras by name, the form of samples."""

import ast

import pytest

from lethe.submission.parsing import sample_style
from lethe.submission.signatures import Entry, NotCallable, find_callable


def find(code: str) -> Entry | None:
    return find_callable([ast.parse(code)], "unlearning", signature="unlearning(...)")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("class Mine:\n    def run(self, net, r, f, v): pass\n", Entry("Mine", ())),
        (
            "class Mine:\n    def __init__(self, net, r, f, v, class_weights=None): pass\n    def run(self): pass\n",
            Entry("Mine", ("class_weights",)),
        ),
        (
            "class Mine:\n    def run(self, n, r, f, v): pass\ndef unlearning(n, r, f, v): pass\n",
            Entry("unlearning", ()),
        ),
    ],
)
def test_a_class_with_run_is_found_unless_there_is_a_function(code: str, found: Entry) -> None:
    assert find(code) == found


def test_a_class_that_wants_arguments_twice_is_refused() -> None:
    with pytest.raises(NotCallable, match="in one"):
        find("class M:\n    def __init__(self, net): pass\n    def run(self, r, f, v): pass\n")


@pytest.mark.parametrize(
    ("code", "given"),
    [
        *(
            (f"def unlearning(net, r, f, v, {extras}): pass\n", given)
            for extras, given in (
                ("class_weights=None", ("class_weights",)),
                ("class_weights", ("class_weights",)),
                ("*, param_names, device=None", ("device", "param_names")),
                ("param_names=['fc.weight']", ()),
                ("*, seed=7", ()),
                ("epochs=3", ()),
            )
        ),
        ("@torch.enable_grad()\ndef unlearning(n, r, f, v, device=None): pass\n", ("device",)),
        ("@on('cuda')\ndef unlearning(n, r, f, v, device=None): pass\n", ()),
        ("@timed\ndef unlearning(n, r, f, v, seed, device=None): pass\n", ("seed",)),
    ],
)
def test_extras_are_given_unless_their_author_or_a_decorator_chose(code: str, given: tuple[str, ...]) -> None:
    found = find(code)
    assert found is not None
    assert found.keywords == given


@pytest.mark.parametrize("four", ["net, forget, retain, val", "retain_loader, forget_loader, val_loader, model"])
def test_arguments_in_another_order_are_refused(four: str) -> None:
    with pytest.raises(NotCallable, match="put its arguments in this order"):
        find(f"def unlearning({four}): pass\n")


@pytest.mark.parametrize(
    "four",
    [
        "model, train_loader, forget_set, test_loader",
        "a, b, c, d",
        "net, *loaders",
        "net, train_val_loader, forget, val",
    ],
)
def test_arguments_of_other_names_are_taken_by_their_places(four: str) -> None:
    assert find(f"def unlearning({four}): pass\n") is not None


@pytest.mark.parametrize(
    ("code", "style"),
    [
        ("for sample in loader:\n    x = sample['image']\n", "dict"),
        ("for x, y in retain_loader: pass\n", "tuple"),
        ("for i, (x, y) in enumerate(tqdm(forget)): pass\n", "tuple"),
        ("[x for x, _ in loader]\n", "tuple"),
        ("for a, b in zip(retain_loader, forget_loader): pass\n", "dict"),
        ("for i, batch in enumerate(loader): pass\n", "dict"),
        ("for i, batch in enumerate(loader):\n    x, y = batch\n", "tuple"),
        ("for (x, y), (a, b) in zip(retain, cycle(forget)): pass\n", "tuple"),
        ("for a, b in zip(retain, itertools.cycle(forget)):\n    x = a[0].to(device)\n", "tuple"),
        ("bar = tqdm.tqdm(train_dl)\nfor batch in bar:\n    x, y = [part.to(device) for part in batch]\n", "tuple"),
        ("with tqdm(loader, unit='batch') as bar:\n    for data in bar:\n        x, y = data\n", "tuple"),
        ("it = iter(forget_loader)\ndata = next(it)\nx = data[0]\n", "tuple"),
        ("x, y = next(iter(forget_loader))\n", "tuple"),
        ("for x, y in self.retain_loader: pass\n", "tuple"),
        ("for batch in loader:\n    x = batch.get('image')\n    first, rest = batch\n", "dict"),
        ("for name, value in interval: pass\n", "dict"),
        ("pairs = zip(net.parameters(), old.parameters())\nfor p, q in pairs: pass\n", "dict"),
        ("for name, p in net.named_parameters(): pass\n", "dict"),
        ("for batch in retain_loader:\n    batch = [v.cuda() for v in batch.values()]\n    x = batch[0]\n", "dict"),
        ("for batch in loader:\n    batch = list(batch.values())\n    x, y = batch\n", "dict"),
        ("for batch in loader:\n    batch = make(batch)\n    x = batch[0]\n", "dict"),
        ("for batch in loader:\n    x, y = (batch[name] for name in batch.keys())\n    z = batch[0]\n", "dict"),
        ("for batch in loader:\n    x = batch['mine']\n    y = batch[0]\n", "dict"),
        ("for batch in loader:\n    batch = [t.to(device) for t in batch]\n    x = batch[0]\n", "tuple"),
        ("for batch in loader:\n    batch = tuple(t.to(device) for t in batch)\n    x = batch[0]\n", "tuple"),
        ("for batch in loader:\n    batch = {'x': batch[0]}\n    x = batch['x']\n", "tuple"),
        ("for batch in loader:\n    x = batch[0]\ndef size():\n    batch = 64\n", "tuple"),
        ("for both in zip_longest(retain_loader, forget_loader):\n    x, y = both\n", "dict"),
        ("pass\n", "dict"),
    ],
)
def test_the_form_of_samples_is_read_from_the_loops(code: str, style: str) -> None:
    assert sample_style([ast.parse(code)]) == style


@pytest.mark.parametrize(
    ("arguments", "place", "passed"),
    [
        ("net, seed, device, datasets", "seed as its second", "the retain loader"),
        ("net, retain, forget, device", "device as its fourth", "the validation loader"),
        ("net, retain, class_weights, val", "class_weights as its third", "the forget loader"),
        ("net, retain, forget, random_seed=0", "random_seed as its fourth", "the validation loader"),
        ("param_names, retain, forget, val", "param_names as its first", "the network"),
        ("net, n_epochs, lr, loaders", "n_epochs as its second", "the retain loader"),
    ],
)
def test_an_extra_among_the_four_is_refused_with_what_is_passed_there(arguments: str, place: str, passed: str) -> None:
    codes = (
        f"def unlearning({arguments}): pass\n",
        f"def f({arguments}): pass\nunlearning = f\n",
        f"class A:\n    def __call__(self, {arguments}): pass\nunlearning = A()\n",
    )
    for code in codes:
        with pytest.raises(NotCallable, match=f"{place} argument, where {passed} is passed"):
            find(code)
