"""Write docs/methods/<id>.md from the methods' files.

First the measured times of docs/methods/cost.md go into the files' docstrings.

python -m scripts.method_pages [--check]
"""

import sys
from pathlib import Path

from lethe.methods.catalogue import IMAGES, MethodInfo, all_methods, method_info, method_source, method_tree
from scripts.method_conformance import differences, table
from scripts.method_cost import outdated_sources
from scripts.wrapped import wrapped

FOLDER = Path(__file__).parents[1] / "docs" / "methods"
NOT_WRITTEN_HERE = ("cost.md", "stitching.md")


def pages() -> dict[str, str]:
    """Return the text of every page by its file's name."""
    methods, for_text = all_methods(IMAGES), all_methods("causal-lm")
    every = (*methods, *for_text)
    made = {"README.md": overview(methods, for_text), "conformance.md": table()} | {
        f"{method.id}.md": page(method) for method in every
    }
    return {name: wrapped(text) for name, text in made.items()}


def overview(methods: tuple[MethodInfo, ...], for_text: tuple[MethodInfo, ...]) -> str:
    rows = [
        f"| [{method.id}]({method.id}.md) | {method.title} | {', '.join(method.needs) or '-'} |"
        f" {', '.join(phase for phase in ('erase', 'repair') if phase in method.phases) or '-'} |"
        for method in methods
    ]
    return "\n".join(
        [
            "# Methods",
            "",
            "Each method is written as one file that is a valid submission; functions that methods share are put",
            "into it. `lethe methods show ID --code` prints it, `lethe submit --method ID -c COMPETITION`",
            "submits it, `--set LR=0.01` with another constant. `lethe methods run ID --split DIR` runs it on a split.",
            "`--set preset=NAME` takes the constants of an experiment of the authors.",
            "",
            "Methods with the phases erase and repair can be combined: [stitching](stitching.md).",
            "`lethe methods tune ID` searches a method's constants. [Time and memory](cost.md) shows the cost of all,",
            "[conformance](conformance.md) how they compare with their authors' programs.",
            "",
            "| id | what it does | needs beside the retain set | phases |",
            "|---|---|---|---|",
            *rows,
            "",
            "## For language models",
            "",
            "These are for competitions of kind `causal-lm`; batches are `input_ids`, `attention_mask` and `labels`.",
            "",
            "| id | what it does | needs |",
            "|---|---|---|",
            *(f"| [{one.id}]({one.id}.md) | {one.title} | {', '.join(one.needs) or '-'} |" for one in for_text),
            "",
        ]
    )


def page(method: MethodInfo) -> str:
    facts = [
        ("Source", method.source),
        ("Budget, counted", method.budget),
        ("Measured", _linked(method.measured) or "not yet"),
        ("Paper and program", method.differences),
        ("Needs" if method.task != IMAGES else "Needs beside the retain set", ", ".join(method.needs) or "nothing"),
        ("Two runs", "give the same weights" if method.deterministic else "differ by their seed"),
    ]
    if method.schedule is not None:
        facts.append(("Schedule", f"`{method.schedule}`"))
    return "\n".join(
        [
            f"# {method.id}",
            "",
            f"{method.title}",
            "",
            method.summary,
            "",
            "## Pseudo-code",
            "",
            "```",
            *(line.removeprefix("    ") for line in method.pseudo_code.splitlines()),
            "```",
            "",
            "## Facts",
            "",
            *(f"- **{name}**: {text}" for name, text in facts),
            "",
            *differences(method),
            *constants(method),
        ]
    )


def _linked(measured: str) -> str:
    return measured.replace("docs/methods/cost.md", "[time and memory](cost.md)")


def constants(method: MethodInfo) -> list[str]:
    if not method.constants:
        return ["## Constants", "", "It has none.", ""]
    rows = [
        f"| `{constant.name}` | `{constant.value!r}` | {'-' if constant.range is None else f'`{constant.range}`'} |"
        f" {constant.note} |"
        for constant in method.constants
    ]
    return ["## Constants", "", "| name | value | search range | |", "|---|---|---|---|", *rows, ""]


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
