"""Recognises what of a notebook is the competition's own: its loop over runs, its data and its archive.

Only what is recognised here may be left out of a notebook whose function is called by itself; everything else is kept.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import or_ as _or


class Reason(StrEnum):
    """Why a statement is left out."""

    RUNS = "calls {function}, which each run does by itself"
    SAVES = "writes models, which each run does by itself"
    ARCHIVES = "makes the archive of models"
    DOWNLOADS = "needs a network, which a run does not have"
    READS = "reads the competition's data or makes loaders, which each run is given"
    LOADS = "loads the original model, which each run is given"
    KIT = "uses the starter kit, which a run does not have"
    GUARDS = "gives up where there is no GPU"
    UNUSED = "imports what nothing else that is kept uses"
    FOLLOWS = "uses {names}, which is left out"
    AFTER = "comes after the loop, whose models it cannot change"


@dataclass(frozen=True)
class Calls:
    """What some code calls, by dotted name, and what it says to a shell."""

    names: frozenset[str]
    commands: tuple[str, ...]


SAVE = "torch.save"
NETWORK_CALLS = frozenset(
    """
    gdown.download requests.get requests.post urllib.request.urlopen urllib.request.urlretrieve urlopen
    urlretrieve wget.download
    """.split()  # noqa: SIM905
)
DATA_CALL = re.compile(r"^(DataLoader|ImageFolder|read_csv|\w+_(data)?(loaders?|datasets?))$")
SHELLS = re.compile(r"^(os\.(system|popen)|subprocess\.\w+|get_ipython\.(system|getoutput|run_line_magic))$")
NETWORK_COMMAND = re.compile(r"(^|[;&|]\s*)(sudo\s+)?(pip3?|conda|mamba|apt(-get)?|wget|curl|gdown|kaggle|git)\b")
PIP_MODULE = re.compile(r"-m\s+pip\b")
ARCHIVE_COMMAND = re.compile(r"(^|[;&|]\s*)(zip\b|7z\s+a\b|tar\s+(--create\b|-?\w*c))|submission\.zip")
EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
QUESTION = re.compile(
    r"^(torch|os\.environ|os\.getenv|shutil\.which|len|str|bool|int|any|all)\b|\.(get|lower|startswith)$"
)
GPU = re.compile(r"cuda|gpu|device", re.IGNORECASE)
# Imports that change nothing outside themselves: those that only what is left out uses need not be loaded in each run.
QUIET_LIBRARIES = frozenset(
    """
    IPython PIL kit argparse collections copy csv datetime gc glob itertools json logging math matplotlib numpy os
    pandas pathlib pickle random re requests scipy seaborn shutil sklearn subprocess sys tabulate time torch
    torchvision tqdm typing urllib warnings zipfile
    """.split()  # noqa: SIM905
)


def find_calls(nodes: Iterable[ast.AST]) -> Calls:
    """Return what these nodes call."""
    names, commands = set(), []
    for node in nodes:
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            names.add(name)
            if SHELLS.match(name):
                commands.append(_words(node, name))
    return Calls(frozenset(names), tuple(commands))


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression; calls and indices within it count as nothing: `get_ipython.system`."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def reason_of_calls(calls: Calls) -> Reason | None:
    """Return why code with these calls is the competition's own, if it is."""
    if any(ARCHIVE_COMMAND.search(command) for command in calls.commands) or "shutil.make_archive" in calls.names:
        return Reason.ARCHIVES
    if calls.names & NETWORK_CALLS or any(_needs_network(command) for command in calls.commands):
        return Reason.DOWNLOADS
    if any(_reads_data(name) for name in calls.names):
        return Reason.READS
    if any(name == "torch.load" or name.endswith(".load_state_dict") for name in calls.names):
        return Reason.LOADS
    return None


def saves_in_a_loop(nodes: Iterable[ast.AST]) -> bool:
    """Return whether code with a loop writes models."""
    found = list(nodes)
    if not any(isinstance(node, ast.For | ast.While) for node in found):
        return False
    return any(isinstance(node, ast.Call) and dotted(node.func) == SAVE for node in found)


def is_gpu_guard(node: ast.stmt) -> bool:
    """Return whether the statement does nothing but give up where there is no GPU."""
    if not isinstance(node, ast.Assert | ast.If) or not GPU.search(ast.unparse(node.test)) or not _only_asks(node.test):
        return False
    if isinstance(node, ast.Assert):
        return True
    gives_up = [_gives_up(item) for item in node.body]
    return not node.orelse and any(gives_up) and all(map(_or, gives_up, map(_only_prints, node.body)))


def imported_libraries(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the top names of what is imported; a relative import's is empty."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    else:
        yield "" if node.level else (node.module or "").partition(".")[0]


def flagged_definitions(later: Mapping[str, frozenset[str]], marked: Mapping[str, Reason]) -> dict[str, Reason]:
    """Return, by name, what does by itself or through others what is marked.

    later: the names that the body of each function and class reads. marked: those that do it themselves.
    """
    readers: dict[str, list[str]] = {}
    for name, reads in later.items():
        for read in reads:
            readers.setdefault(read, []).append(name)
    found = dict(marked)
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        for reader in readers.get(name, ()):
            if reader not in found:
                found[reader] = found[name]
                waiting.append(reader)
    return found


def _needs_network(command: str) -> bool:
    return bool(NETWORK_COMMAND.search(command.strip()) or PIP_MODULE.search(command))


def _reads_data(name: str) -> bool:
    last = name.rpartition(".")[2]
    return bool(DATA_CALL.match(last)) or "torchvision.datasets" in name or name.startswith("datasets.")


def _only_asks(test: ast.expr) -> bool:
    """Return whether evaluating a condition changes nothing."""
    nodes = list(ast.walk(test))
    calls = (dotted(node.func) for node in nodes if isinstance(node, ast.Call))
    return not any(isinstance(node, ast.NamedExpr) for node in nodes) and all(map(QUESTION.search, calls))


def _gives_up(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return dotted(node.value.func) in EXITS
    return isinstance(node, ast.Raise)


def _only_prints(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "print"


def _words(node: ast.Call, name: str) -> str:
    """Return the constant texts of a shell call's arguments: of a list, joined as a line."""
    texts = [
        found.value
        for argument in node.args
        for found in ast.walk(argument)
        if isinstance(found, ast.Constant) and isinstance(found.value, str)
    ]
    return " ".join(texts) if name != "get_ipython.run_line_magic" else " ".join(texts[:2])
