"""What code reads, or leaves behind, beyond the names that stand in it: files, and values found by their name."""

import ast
import re
from collections.abc import Iterable

from lethe.submission.own_loop import dotted

WRITES = re.compile(
    r"(^|\.)(copyfile|copytree|copy_tree|dump|imwrite|makedirs|mkdir|save|savetxt|savez|savez_compressed|save_file"
    r"|symlink_to|to_csv|to_json|to_npy|to_pickle|to_parquet|touch|write|write_text|write_bytes|writelines)$"
    r"|^shutil\.(copy|copy2|move)$|^os\.(rename|replace|symlink|link)$"
)
READS = re.compile(
    r"(^|\.)(open|load|safe_load|load_file|loadtxt|genfromtxt|imread|read_\w+|read|fromfile|load_from_disk)$"
)
LOOKS = re.compile(r"(^|\.)(exists|isfile|is_file|isdir|is_dir|listdir|glob|rglob|iglob|iterdir|scandir|walk)$")
INPUT = re.compile(r"\binput\b")  # the competition's own folder, which nothing writes to
NAMESPACES = frozenset({"eval", "exec", "globals"})
MAIN = "__main__"


def reads_files(nodes: Iterable[ast.AST]) -> bool:
    """Return whether these nodes read files, or look whether there are any, but the competition's own."""
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return any(
        (READS.search(dotted(call.func)) and not _is_written(call)) or LOOKS.search(dotted(call.func))
        for call in calls
        if not any(INPUT.search(text) for text in _texts(call))
    )


def writes_files(nodes: Iterable[ast.AST]) -> bool:
    """Return whether these nodes write files."""
    return any(WRITES.search(dotted(node.func)) or _is_written(node) for node in nodes if isinstance(node, ast.Call))


def finds_by_name(nodes: Iterable[ast.AST]) -> bool:
    """Return whether these nodes read the notebook's values by names that cannot be told."""
    return any(
        (isinstance(node, ast.Name) and node.id in NAMESPACES)
        or (isinstance(node, ast.Constant) and node.value == MAIN)
        or (isinstance(node, ast.Import) and any(alias.name == MAIN for alias in node.names))
        for node in nodes
    )


def _is_written(call: ast.Call) -> bool:
    """Return whether it opens a file to write it."""
    return dotted(call.func).rpartition(".")[2] == "open" and any(
        re.fullmatch(r"[rbt+]*[wax][rbt+]*", text) for text in _texts(call)
    )


def _texts(call: ast.Call) -> list[str]:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    found = (node for value in values for node in ast.walk(value) if isinstance(node, ast.Constant))
    return [node.value for node in found if isinstance(node.value, str)]
