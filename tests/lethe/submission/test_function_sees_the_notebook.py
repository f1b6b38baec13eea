"""Of made-up notebooks, the function sees the same values whether the whole notebook ran or only what is kept of it."""

import builtins
import contextlib
import copy
import types
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lethe.submission.loop_work import LoopIsNeeded
from lethe.submission.notebook_slicing import without_own_loop

NAMES = ("a", "b", "c")
START = """
import torch
numbers = iter(range(100))
registry, box = [], types.SimpleNamespace(v=[0], net=[0])
a, b, c = [1, 2], [3], [4, 5, 6]
def fill(x, value):
    for i in range(len(x)):
        x[i] = value
def loaders():
    global c
    c = c + [7]
    return DataLoader(a), DataLoader(b)
def register(function):
    registry.append(function.__name__)
    return function
def main():
    unlearning(None, None, None, None)
def give_a():
    return a
def give_b():
    held = b
    return held
def give_c():
    return give_a()
class Keeper:
    def __init__(self, kept):
        self.kept = kept
    def put(self, value):
        self.kept.append(value)
    def put_loader(self, value):
        global a
        self.put(value)
        a = a + [value]
def make_reader(extra):
    return lambda: {'a': a, 'b': b, 'c': c, 'extra': extra, 'factor': getattr(torch, 'factor', 0)}
"""
FINDS_BY_NAME = """
read = None
def unlearning(net, retain, forget, validation):
    SEEN.append(copy.deepcopy(([globals().get(name) for name in 'a b c registry counted'.split()], vars(box))))
"""
FUNCTION = """
read = make_reader(0)
def unlearning(net, retain, forget, validation):
    SEEN.append(copy.deepcopy((read(), registry, vars(box), counted)))
"""
STATEMENTS = (
    "{x} = {y}",
    "{x} = list({y})",
    "{x} = {x} + [{n}]",
    "{x}[0] = {n}",
    "{x}.append({n})",
    "{x} += [{n}]",
    "for i in range({n}):\n    {x}.append(i)",
    "for item in ({x}, {y}):\n    item.append({n})",
    "i = 0\nwhile i < {n}:\n    {x}.append(i)\n    i += 1",
    "if len({x}) > 2:\n    {y} = [{n}]\nelse:\n    {x} = [{n}, {n}]",
    "try:\n    {x}.append({y}[7])\nexcept IndexError as error:\n    {x} = [str(error), {n}]",
    "with contextlib.suppress(IndexError):\n    {x}.append({y}[{n}])",
    "del {x}[1:]",
    "del {x}",
    "fill({x}, {n})",
    "setattr(box, 'v', {x})",
    "box.v.append({n})",
    "box.__dict__.update(v={x})",
    "part = box.v\npart.append({n})",
    "@register\ndef method_{n}():\n    pass",
    "{x} = [i for i in {y} if i != {n}]",
    "{x}, {y} = {y}, {x}",
    "table = pd.read_csv('retain.csv')",
    "table = pd.read_csv('forget.csv')\n{x}.append(len(table))",
    "first, second = loaders()",
    "retain_loader = DataLoader({x})\n{y}.append(len(retain_loader))",
    "for item in DataLoader({x}):\n    {y}.append({n})",
    "state = torch.load('original_model.pth')",
    "state = torch.load('weights.pth')\n{x} = state['x']",
    "state = torch.load('weights.pth')\nother = state\nother['x'].append({n})\n{y} = state['x']",
    "counted = len({x}); print(counted)",
    "def change_{x}():\n    global {x}\n    {x} = [{n}]\nchange_{x}()",
    "class Holder{n}:\n    values = {x}\n    values.append({n})",
    "(lambda values: values.append({n}))({x})",
    "torch.factor = {n}\n{x}.append(torch.factor)",
    "counts = pd.read_csv('retain.csv')",
    "{x}[0] = len(counts)",
    "fill({x}, len(counts))",
    "globals()['{x}'] = [len(counts)]",
    "exec('{x} = ' + str([len(counts)]))",
    "part = {x}\npart.append(len(counts))",
    "box.v = {x}\nbox.v.append(len(counts))",
    "held = [{x}, {y}]\nheld[1].append(len(counts))",
    "held = types.SimpleNamespace(w={x})\nheld.w.append(len(counts))",
    "for item in ({x}, {y}):\n    item.append(len(counts))",
    "[item.append(len(counts)) for item in [{x}]]",
    "list(map({x}.append, counts))",
    "add = {x}.append\nadd(len(counts))",
    "late = lambda value: {x}.append(value)\nlate(len(counts))",
    "with contextlib.nullcontext({x}) as inner:\n    inner.append(len(counts))",
    "next(iter([{x}, {y}])).append(len(counts))",
    "give_{x}().append(len(counts))",
    "keeper = Keeper({x})\nkeeper.put(len(counts))",
    "Keeper({x}).put_loader(len(counts))",
    "list(map(lambda value: {x}.append(value), counts))",
    "{x}.append(next(numbers))",
    "first = [next(numbers) for _ in counts]",
    "torch.fill({x}, counts)",
    "with contextlib.ExitStack() as stack:\n    stack.callback({x}.append, len(counts))",
    "try:\n    import counting as made\nexcept ImportError:\n    made = None\n{x}.append(bool(made) + len(counts))",
    "torch.factor = len(counts)",
    "read = make_reader(len(counts))",
)
LOOPS = (
    "for run in range(2):\n    unlearning(None, None, None, None)",
    "main()",
    "for run in range(2):\n    {x}.append(run)\n    main()",
    "results = [unlearning(*loaders(), 1, 2) for run in range(2)]",
    "net = torch.load('original_model.pth')\nunlearning(net, 1, 2, 3)\ntorch.save(net, 'unlearned.pth')",
    "if True:\n    {x} = {y}\n    unlearning(1, 2, 3, 4)",
    "for run in range(2):\n    unlearning(1, 2, 3, 4)\n    torch.save(None, f'unlearned_{{run}}.pth')",
)
ENDINGS = ("print(a)", "a = None", "subprocess.run('zip submission.zip *.pth', shell=True)", "b = 3\nprint(a)")

names = st.sampled_from(NAMES)
filled = st.builds(
    lambda text, x, y, n: text.format(x=x, y=y, n=n), st.sampled_from(STATEMENTS), names, names, st.integers(1, 4)
)
loops = st.builds(lambda text, x, y: text.format(x=x, y=y), st.sampled_from(LOOPS), names, names)


def namespace(seen: list[Any]) -> dict[str, Any]:
    torch = types.SimpleNamespace(
        load=lambda _name: {"x": [9, 9]}, save=lambda *_a: None, fill=lambda values, more: values.extend(more)
    )
    return {
        "SEEN": seen,
        "DataLoader": lambda data: list(data) * 2,
        "pd": types.SimpleNamespace(read_csv=lambda name: [name, name]),
        "__builtins__": {**vars(builtins), "__import__": lambda *_a: torch},
        "subprocess": types.SimpleNamespace(run=lambda *_a, **_k: None),
        "print": lambda *_a: None,
        "counted": 0,
        "copy": copy,
        "types": types,
        "contextlib": contextlib,
    }


def seen_by_the_function(cells: list[str], *, at_the_end: bool) -> Any:
    seen: list[Any] = []
    held = namespace(seen)
    for cell in cells:
        exec(compile(cell, "cell", "exec"), held)
    if at_the_end:
        held["unlearning"](None, None, None, None)
        return seen[-1]
    return seen[0]


@settings(max_examples=600, deadline=None)
@given(
    st.lists(filled, max_size=8),
    st.sampled_from((FUNCTION, FINDS_BY_NAME)),
    st.lists(filled, max_size=3),
    loops,
    st.lists(st.sampled_from(ENDINGS), max_size=2),
)
def test_the_function_sees_what_the_notebook_shows_it(
    before: list[str], function: str, after: list[str], loop: str, ending: list[str]
) -> None:
    cells = [f"{cell}\n" for cell in (START, *before, function, *after, loop, *ending)]
    seen: Any = None
    try:
        seen = seen_by_the_function(cells, at_the_end="unlearned_{" not in loop)
    except (NameError, IndexError, AttributeError, TypeError, ValueError):
        assume(False)
    try:
        sliced = without_own_loop(cells, "unlearning")
    except LoopIsNeeded:
        assert any(sets in loop for sets in ("append(run)", "loaders()", *(f"    {name} = " for name in NAMES)))
        return
    assert seen_by_the_function(sliced.cells, at_the_end=True) == seen, sliced
    assert "unlearning(None" not in sliced.cells[len(before) + len(after) + 2]
