"""Write docs/methods/README.md, the table of all methods, and conformance.md.

First the measured times of docs/methods/cost.md go into the files' docstrings.

python -m scripts.method_pages [--check]
"""

import sys
from pathlib import Path

from lethe.methods.catalogue import IMAGES, MethodInfo, all_methods, method_info, method_source, method_tree
from scripts.method_conformance import table
from scripts.method_cost import outdated_sources
from scripts.wrapped import wrapped

FOLDER = Path(__file__).parents[1] / "docs" / "methods"
NOT_WRITTEN_HERE = ("cost.md", "stitching.md")


def pages() -> dict[str, str]:
    """Return the text of both pages by its file's name."""
    made = {"README.md": overview(all_methods(IMAGES), all_methods("causal-lm")), "conformance.md": table()}
    return {name: wrapped(text) for name, text in made.items()}


def overview(methods: tuple[MethodInfo, ...], for_text: tuple[MethodInfo, ...]) -> str:
    return "\n".join(
        [
            "# Methods",
            "",
            "For researchers who want a baseline, or to compare with one. Each method is one file that is a valid",
            "submission.",
            "`lethe methods show ID` prints its pseudo-code, constants and budget, `--code` the file;",
            "`lethe methods run ID --split DIR` runs it on a split,",
            "`lethe submit --method ID -c COMPETITION` submits it, `--set LR=0.01` takes another constant,",
            "`--set preset=NAME` those of an experiment of the authors, and `lethe methods tune ID` searches them.",
            "",
            "Methods with the phases erase and repair can be combined: [stitching](stitching.md).",
            "[Time and memory](cost.md) shows the cost of all,",
            "[conformance](conformance.md) how they compare with their authors' programs.",
            "",
            "| id | what it does | source | needs beside the retain set | phases |",
            "|---|---|---|---|---|",
            *(f"| {_row(one)} | {_phases(one)} |" for one in methods),
            "",
            "## For language models",
            "",
            "These are for competitions of kind `causal-lm`; batches are `input_ids`, `attention_mask` and `labels`.",
            "",
            "| id | what it does | source | needs |",
            "|---|---|---|---|",
            *(f"| {_row(one)} |" for one in for_text),
            "",
        ]
    )


def _row(method: MethodInfo) -> str:
    return f"`{method.id}` | {method.title} | {method.source} | {', '.join(method.needs) or '-'}"


def _phases(method: MethodInfo) -> str:
    return ", ".join(phase for phase in ("erase", "repair") if phase in method.phases) or "-"


def outdated() -> list[str]:
    """Return the names of pages that are missing, not what they should be, or of no method."""
    wanted = pages()
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md") if path.name not in NOT_WRITTEN_HERE}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        names = outdated()
        names = [*(f"lethe/methods/{path.name}" for path in outdated_sources()), *(f"docs/methods/{n}" for n in names)]
        for name in names:
            print(f"{name} is not current: run python -m scripts.method_pages", file=sys.stderr)
        return 1 if names else 0
    for path, text in outdated_sources().items():
        path.write_text(text, encoding="utf-8")
    for kept in (method_source, method_tree, method_info):
        kept.cache_clear()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
