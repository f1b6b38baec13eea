"""The tasks of `lethe evaluate --hf`: where their data come from, which files each needs, and the fields of a row.

Imports no torch: `lethe data` shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
