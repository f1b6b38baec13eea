"""Finding what to call, from syntax alone."""

import pytest

from lethe.errors import InvalidSubmission
from lethe.submission.entry_point import EntryPoint, find_entry_point

GOOD = b"def unlearning(net, retain, forget, validation):\n    pass\n"


def refused(files: dict[str, bytes]) -> InvalidSubmission:
    with pytest.raises(InvalidSubmission) as caught:
        find_entry_point(files)
    return caught.value


def test_nothing_is_run(tmp_path: object) -> None:
    found = find_entry_point({"submission.py": b"raise SystemExit('was run')\n" + GOOD})
    assert found == EntryPoint(file="submission.py")


DESCRIBED = b'file = "a.py"\nfunction = "forget"\nsamples = "tuple"\n'
DEFINED = b"def scrub(net, retain_loader, forget_loader, val_loader, class_weights=None, lr=0.1):\n"
DEFINED += b"    for x, y in retain_loader: pass\n"
A_AND_B = b"class A:\n    def run(self): pass\nclass B:\n    def run(self): pass\n"
MINE = b"from utils import *\nclass Mine:\n    def run(self, net, retain, forget, val): pass\n"
UNFIT = b"from utils import *\nclass Task:\n    def run(self): pass\n"
METHODS = {"unlearning.py": b"from methods import unlearning\n", "methods/scrub.py": DEFINED}
STARS = {"unlearning.py": b"from methods import *\n", "methods/__init__.py": b"from .scrub import *\n"}
DEVICE = {"keywords": ("device",)}
PLAIN = {"file": "submission.py", "function": "unlearning", "keywords": ()}
WEIGHTS = {"function": "unlearning", "keywords": ("class_weights",)}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        *(
            (dict.fromkeys(names, GOOD), {"file": chosen})
            for names, chosen in (
                (["unlearning.py"], "unlearning.py"),
                (["submission.py", "unlearning.py"], "unlearning.py"),
                (["method.py"], "method.py"),
                (["method.py", "lib/tools.py"], "method.py"),
                (["deep/method.py"], "deep/method.py"),
            )
        ),
        ({"unlearning.py": b"X = 1\n", "submission.py": GOOD, "lib/broken.py": b"def (\n"}, {"file": "submission.py"}),
        (
            {"a.py": b"def forget(net, r, f, v): pass\n", "b.py": GOOD, "submission.toml": DESCRIBED},
            {"file": "a.py", "function": "forget", "style": "tuple"},
        ),
        (b'# lethe: samples = "tuple"\n' + GOOD, {"style": "tuple"}),
        (GOOD, {"style": "dict"}),
        (
            b"try:\n    import t\nexcept ImportError:\n    pass\nelse:\n    def unlearning(n, r, f, v): pass\n",
            PLAIN,
        ),
        (DEFINED + b"unlearning = scrub\n", WEIGHTS),
        (DEFINED + b"again = scrub\nunlearning = again\n", WEIGHTS),
        (DEFINED + b"import functools\nunlearning = functools.partial(scrub, lr=0.2)\n", WEIGHTS),
        (DEFINED + b"from functools import partial\nunlearning = partial(scrub, class_weights=3)\n", {"keywords": ()}),
        (b"unlearning = lambda net, r, f, v, seed=None: scrub(net, r, f, v)\n", {"keywords": ("seed",)}),
        (
            b"class M:\n    def __call__(self, n, r, f, v, device=None): pass\nunlearning = M()\n",
            DEVICE,
        ),
        (b"class M:\n    def run(self, n, r, f, v, device=None): pass\nunlearning = M\n", DEVICE),
        (b"unlearning = make(scrub)\n", {"keywords": ()}),
        *(
            (
                b"def scrub(n, r, f, v): pass\n" + source,
                PLAIN,
            )
            for source in (
                b"unlearning, name = scrub, 'mine'\n",
                b"print(unlearning := scrub)\n",
                b"for unlearning in [scrub]:\n    pass\n",
                b"match 1:\n    case 1:\n        unlearning = scrub\n",
            )
        ),
        (
            METHODS | {"methods/__init__.py": b"from .scrub import scrub as unlearning\n"},
            WEIGHTS | {"file": "unlearning.py", "style": "tuple"},
        ),
        ({"unlearning.py": b"from o import unlearning\n", "o.py": b"from unlearning import unlearning\n"}, {}),
        (STARS | {"methods/scrub.py": b"def unlearning(net, r, f, v, seed=None): pass\n"}, {"keywords": ("seed",)}),
        ({"submission.py": MINE, "utils.py": A_AND_B}, {"function": "Mine"}),
        ({"submission.py": MINE, "utils.py": A_AND_B + b"def unlearning(a): pass\n"}, {"function": "Mine"}),
        ({"submission.py": UNFIT, "utils.py": GOOD}, {"file": "submission.py", "function": "unlearning"}),
    ],
)
def test_what_is_called_is_found(files: bytes | dict[str, bytes], expected: dict[str, object]) -> None:
    found = find_entry_point({"submission.py": files} if isinstance(files, bytes) else files)
    assert {name: getattr(found, name) for name in expected} == expected


def test_comment_with_another_style_is_refused() -> None:
    assert refused({"submission.py": b"# lethe: samples = lists\n" + GOOD}).violations[0].line == 1


@pytest.mark.parametrize("code", [b"def unlearning(:\n", b"\n\nx = = 1\n", b"def f():\npass\n", b"print 'hello'\n"])
def test_syntax_error_names_file_and_line(code: bytes) -> None:
    violation = refused({"submission.py": code}).violations[0]
    assert violation.field == "submission.py"
    assert violation.message.startswith("syntax error")
    assert violation.line == (3 if code.startswith(b"\n") else 2 if b"pass" in code else 1)


@pytest.mark.parametrize(
    ("imports", "broken"),
    [
        (b"from lib import broken\n", "lib/broken.py"),
        (b"import lib.broken as b\n", "lib/broken.py"),
        (b"import lib.deep.broken\n", "lib/deep/__init__.py"),
        (b"from lib.tools import A\n", "lib/further.py"),
        (b"def late():\n    from . import late_one\n", "late_one.py"),
    ],
)
def test_syntax_error_in_an_imported_file_is_found(imports: bytes, broken: str) -> None:
    files = {"unlearning.py": imports + GOOD, "lib/tools.py": b"from . import further\n", broken: b"def (\n"}
    assert refused(files).violations[0].field == broken


NO_FUNCTION = "submission.py: has no function"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": GOOD, "b.py": GOOD}, "submission.toml"),
        (b"def forget(): pass\n", "unlearning(net, retain_loader, forget_loader, validation_loader)"),
        (b"class A:\n    def unlearning(self, n, r, f, v): pass\n", NO_FUNCTION),
        (b"def outer():\n    def unlearning(n, r, f, v): pass\n", NO_FUNCTION),
        (b"import unlearning\n", NO_FUNCTION),
        (b"async def unlearning(n, r, f, v): pass\n", "async"),
        (A_AND_B.replace(b"self", b"self, a, b, c, d"), "2 classes with a method run (A, B)"),
        (b"class A:\n    def run(self, a, b, c, d): pass\nunlearning = A()\n", "A has no method __call__"),
        (b"class GradDiff:\n    def compute_loss(self, model, inputs): pass\n", "needs a wrapper: def unlearning"),
        ({"submission.py": b"from utils import *\n", "utils.py": A_AND_B}, NO_FUNCTION),
        (STARS | {"methods/scrub.py": b"def other(net, r, f, v): pass\n"}, "no function 'unlearning'"),
        *(
            ({"unlearning.py": GOOD, "submission.toml": description}, "submission.toml")
            for description in (
                *(b'file = "none.py"', b'samples = "lists"', b"unknown = 1", b"function = 3", b'function = "a-b"'),
                *(b"= broken", b"\xff"),
            )
        ),
        *((source, "") for source in (b"\x00", b"-" * 100_000 + b"1", b"x" + b".a" * 200_000, b"\xff\xfe")),
        (b"(" * 5000, ""),
    ],
)
def test_what_has_no_function_to_call_is_refused(files: bytes | dict[str, bytes], said: str) -> None:
    assert said in refused({"submission.py": files} if isinstance(files, bytes) else files).detail


@pytest.mark.parametrize(
    "signature",
    [
        "(net, retain, forget, validation)",
        "(*loaders)",
        "(net, *rest)",
        "(net, retain, forget, validation, epochs=3)",
        "(net, retain, forget, validation, *, epochs=3)",
        "(net, retain=1, forget=2, validation=3)",
        "(net, retain, forget, validation, **more)",
        "(net, retain, forget, validation, /)",
        "(a, b, c, d, e=1, *f, g=2, **h)",
    ],
)
def test_signature_that_takes_four_arguments(signature: str) -> None:
    code = f"def unlearning{signature}: pass\n".encode()
    assert find_entry_point({"submission.py": code}).keywords == ()


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("()", "takes 0 positional"),
        ("(net, retain, forget)", "takes 3 positional"),
        ("(net, *, retain, forget, validation)", "takes 1 positional"),
        ("(n, r, f, v, epochs)", "needs epochs"),
        ("(n, r, f, v, *, epochs)", "needs epochs"),
        ("(n, r, f, v, class_weights, /)", "needs class_weights"),
    ],
)
def test_wrong_signature_names_the_line(signature: str, says: str) -> None:
    error = refused({"submission.py": f"\n\ndef unlearning{signature}: pass\n".encode()})
    assert says in error.detail
    assert error.violations[0].line == 3


@pytest.mark.parametrize("code", [b"from utils import *\n", b"\nfrom utils import unlearning\n"])
def test_a_function_of_another_file_is_refused_in_that_file(code: bytes) -> None:
    violation = refused({"submission.py": code, "utils.py": b"\n\ndef unlearning(net): pass\n"}).violations[0]
    assert (violation.field, violation.line) == ("utils.py", 3)


def test_files_that_star_import_one_another_are_looked_into_once() -> None:
    stars = b"".join(b"from m%d import *\n" % number for number in range(12))
    files = {f"m{number}.py": stars for number in range(12)}
    assert "has no function" in refused({"submission.py": stars, **files}).detail


STEPS = b"def train(net, loader):\n    for batch in loader:\n        x, y = [part.to('cpu') for part in batch]\n"


@pytest.mark.parametrize(
    "entry",
    [
        "from steps import train\ndef unlearning(net, retain, forget, val):\n    train(net, retain)\n",
        "import steps\ndef unlearning(net, retain, forget, val):\n    steps.train(net, retain)\n",
        "from outer import fit\ndef unlearning(net, retain, forget, val):\n    fit(net, retain)\n",
    ],
)
def test_code_in_helper_modules_says_how_it_reads_batches(entry: str) -> None:
    files = {
        "submission.py": entry.encode(),
        "steps.py": STEPS,
        "outer.py": b"from steps import train\ndef fit(net, loader):\n    train(net, loader)\n",
    }
    assert find_entry_point(files).style == "tuple"
    files["steps.py"] = STEPS.replace(b"x, y = [part.to('cpu') for part in batch]", b"batch['image']")
    assert find_entry_point(files).style == "dict"
