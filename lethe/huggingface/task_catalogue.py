"""The tasks of `lethe evaluate --hf`: where their data come from, which files each needs, and how they are read.

Imports no torch: `lethe data` shows it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.huggingface.results import InvalidTaskData
from lethe.text_files import read_text


@dataclass(frozen=True)
class TaskFile:
    """One file of JSON lines (`.jsonl`) or a JSON list (`.json`).

    path: as the original data set names it, without suffix; may be a glob pattern. fields: their types (list: texts, or
    one text). needed_for: what is left out without the file; empty where the task cannot do without it.
    """

    path: str
    fields: Mapping[str, type]
    needed_for: str = ""


@dataclass(frozen=True)
class LanguageTask:
    """A task. source: its paper. data: where its makers publish it."""

    name: str
    title: str
    source: str
    data: str
    files: tuple[TaskFile, ...]

    def file(self, path: str) -> TaskFile:
        return next(each for each in self.files if each.path == path)

    def patterns(self, file: TaskFile) -> tuple[str, ...]:
        """Return the names under which a file is looked for, best first."""
        flat = file.path.replace("/", "_")
        return tuple(dict.fromkeys((f"{self.name}_{flat}", file.path, flat)))


QUESTION = {"question": str, "answer": str}
WRONG = {**QUESTION, "perturbed_answer": list}
PARAPHRASED = {**WRONG, "paraphrased_answer": list}
CHOICES = {"question": str, "choices": list, "answer": int}
PROBE = {"query": str, "answer": str}
LUME = {"id": str, "task": str, "input": str, "output": str}
REQUESTS = "forget_*"

TOFU = LanguageTask(
    "tofu",
    "questions about made-up authors",
    "Maini et al. 2024, arXiv 2401.06121",
    "locuslab/TOFU (MIT)",
    (
        TaskFile("forget*_perturbed", PARAPHRASED),
        TaskFile("retain_perturbed", PARAPHRASED),
        TaskFile("real_authors_perturbed", WRONG),
        TaskFile("world_facts_perturbed", WRONG),
        TaskFile("holdout*", QUESTION, "membership attacks"),
    ),
)
MUSE = LanguageTask(
    "muse",
    "news or books: verbatim memorisation, knowledge, privacy leakage",
    "Shi et al. 2025, arXiv 2407.06460",
    "muse-bench/MUSE-News, muse-bench/MUSE-Books",
    (
        TaskFile("verbmem/forget", {"prompt": str, "gt": str}),
        TaskFile("knowmem/forget_qa", QUESTION),
        TaskFile("knowmem/forget_qa_icl", QUESTION),
        TaskFile("knowmem/retain_qa", QUESTION),
        TaskFile("knowmem/retain_qa_icl", QUESTION),
        TaskFile("privleak/forget", {"text": str}),
        TaskFile("privleak/holdout", {"text": str}),
    ),
)
MUSE_RETAIN = (TaskFile("knowmem/retain_qa", QUESTION), TaskFile("knowmem/retain_qa_icl", QUESTION))
MUSE_SCALING = LanguageTask(
    "muse-scaling",
    "the n-th folder was unlearned with the n-th, larger forget set",
    "Shi et al. 2025, section 2.2, C5",
    "muse-bench/MUSE-News, its configuration scal",
    (*MUSE_RETAIN, TaskFile(f"scal/{REQUESTS}", {"text": str})),
)
MUSE_SUCCESSIVE = LanguageTask(
    "muse-successive",
    "the n-th folder was unlearned with the n-th request, from the folder before it",
    "Shi et al. 2025, section 2.2, C6",
    "muse-bench/MUSE-News, its configuration sust",
    (*MUSE_RETAIN, TaskFile(f"sust/{REQUESTS}", {"text": str})),
)
WMDP = LanguageTask(
    "wmdp",
    "multiple choice about biology, chemistry and cybersecurity, or any other subject",
    "Li et al. 2024, arXiv 2403.03218",
    "cais/wmdp (MIT)",
    (TaskFile("wmdp*", CHOICES),),
)
SEMEVAL = LanguageTask(
    "semeval",
    "SemEval-2025 task 4 (LUME): creative documents, biographies, real documents",
    "Ramakrishna et al. 2025, arXiv 2504.02883",
    "the organisers of llmunlearningsemeval2025; MMLU: cais/mmlu",
    (
        TaskFile("forget", LUME),
        TaskFile("retain", LUME),
        TaskFile("mia_data/member", {"document": str}, "membership and the aggregate"),
        TaskFile("mia_data/nonmember", {"document": str}, "membership and the aggregate"),
        TaskFile("mmlu", {**CHOICES, "subject": str}, "the aggregate"),
        TaskFile("mmlu_dev", {**CHOICES, "subject": str}, "the five examples before each question of MMLU"),
    ),
)
RWKU = LanguageTask(
    "rwku",
    "well-known persons: blanks to fill in, questions, adversarial prompts",
    "Jin et al. 2024, arXiv 2406.10890",
    "jinzhuoran/RWKU (CC-BY-4.0)",
    (
        TaskFile("forget_level1", PROBE),
        TaskFile("forget_level2", PROBE),
        TaskFile("forget_level3", {**PROBE, "type": str}),
        TaskFile("neighbor_level1", PROBE),
        TaskFile("neighbor_level2", PROBE),
        TaskFile("mia_forget", {"text": str}, "membership scores of passages"),
        TaskFile("mia_retain", {"text": str}, "membership scores of passages"),
        TaskFile("utility_fluency", {"instruction": str}, "fluency"),
    ),
)
TASKS = {task.name: task for task in (TOFU, MUSE, MUSE_SCALING, MUSE_SUCCESSIVE, WMDP, SEMEVAL, RWKU)}


Row = dict[str, Any]
SURROGATE = re.compile("[\ud800-\udfff]")
ENDINGS = ("[jJ][sS][oO][nN][lL]", "[jJ][sS][oO][nN]")  # in upper case, too
SCORED = ("answer", "paraphrased_answer", "perturbed_answer", "gt", "text", "document")  # not without a word
FIELD_TYPES: Mapping[type, str] = {str: "a text", int: "a whole number", list: "a list of texts"}


def task_rows(task: LanguageTask, folder: Path, path: str) -> list[Row]:
    """Return the rows of a task's file; none where the task can do without it and the folder holds none.

    Raises InvalidTaskData naming what is missing or wrong.
    """
    file = task.file(path)
    names = task.patterns(file)
    if file.needed_for and not any(_matching(folder, name) for name in names):
        return []
    return read_rows(find_file(folder, names), file.fields)


def all_rows(task: LanguageTask, folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each of a task's files, by its path. Raises InvalidTaskData as `task_rows` does."""
    return {file.path: task_rows(task, folder, file.path) for file in task.files}


def holds_task(task: LanguageTask, folder: Path) -> bool:
    """Return whether a folder holds every file that the task cannot do without; their content is not read."""
    needed = (file for file in task.files if not file.needed_for)
    return all(any(_matching(folder, name) for name in task.patterns(file)) for file in needed)


def read_files(task: LanguageTask, folder: Path, file: TaskFile) -> list[tuple[Path, int]]:
    """Return what lies in a folder as a task's file, with the number of rows; nothing where the task needs it not.

    Raises InvalidTaskData naming what is missing or wrong.
    """
    names = task.patterns(file)
    if file.needed_for and not any(_matching(folder, name) for name in names):
        return []
    return [(path, len(read_rows(path, file.fields))) for path in find_files(folder, names)]


def find_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return all files that match the first pattern that any matches. Raises InvalidTaskData if none does."""
    for name in names:
        if found := _matching(folder, name):
            return found
    raise InvalidTaskData(f"{folder} holds none of {', '.join(f'{name}.jsonl' for name in names)} (or .json)")


def find_file(folder: Path, names: Sequence[str]) -> Path:
    """Return the only file of the folder that matches the first pattern that any file matches.

    names: glob patterns without suffix, best first; `.jsonl` and `.json` are read. Raises InvalidTaskData if none or
    several match.
    """
    found = find_files(folder, names)
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise InvalidTaskData(f"{folder} holds several files that match one of {', '.join(names)}: {listed}; keep one")
    return found[0]


def read_rows(path: Path, fields: Mapping[str, type]) -> list[Row]:
    """Return the rows of a file, each with these fields of these types.

    A `list` holds texts, or is one text. Raises InvalidTaskData naming the row and the field.
    """
    rows = _parsed(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InvalidTaskData(f"{path}, row {number}: an object was expected, not {type(row).__name__}")
        for field, kind in fields.items():
            if not _fits(row.get(field), kind):
                raise InvalidTaskData(
                    f"{path}, row {number}: `{field}` must be {FIELD_TYPES[kind]}, and is {_shown(row.get(field))}"
                )
            for text in _texts(row[field]):
                if wrong := _wrong(text, is_scored=field in SCORED):
                    raise InvalidTaskData(f"{path}, row {number}: `{field}` {wrong}")
    if not rows:
        raise InvalidTaskData(f"{path} has no row")
    return rows


def question_pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["question"], row["answer"]) for row in rows]


def _matching(folder: Path, name: str) -> list[Path]:
    return sorted(path for ending in ENDINGS for path in folder.glob(f"{name}.{ending}"))


def _parsed(path: Path) -> list[Any]:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidTaskData(f"{path} cannot be read: {error}") from error
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        return list(_json(text, str(path)))
    lines = [line for line in text.split("\n") if line.strip()]
    return [_json(line, f"{path}, row {number}") for number, line in enumerate(lines, start=1)]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidTaskData(f"{where} is not JSON: {error}") from error


def _fits(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, str) or (
            isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)
        )
    return isinstance(value, kind) and not isinstance(value, bool)


def _texts(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _wrong(text: str, *, is_scored: bool) -> str:
    """Return what is wrong with a text; empty where nothing is."""
    if is_scored and not text.strip():
        return "is empty, so that nothing of it could be scored: leave the row out"
    if half := SURROGATE.search(text):
        return f"holds {half[0]!r}, half of a character: write the whole one (UTF-16 has two halves), or leave it out"
    return ""


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:80]
