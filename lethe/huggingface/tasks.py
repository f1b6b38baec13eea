"""The tasks by name: reading a folder gives what evaluates a model."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lethe.huggingface import harness_task
from lethe.huggingface.attacks import QuestionSets
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.multiple_choice import evaluate_multiple_choice, read_multiple_choice
from lethe.huggingface.muse import evaluate_muse, read_muse
from lethe.huggingface.muse_series import evaluate_step, read_series
from lethe.huggingface.prompts import PromptFormat
from lethe.huggingface.results import TaskResult
from lethe.huggingface.rwku import QUESTION, evaluate_rwku, read_rwku
from lethe.huggingface.semeval_task import evaluate_semeval, read_semeval
from lethe.huggingface.task import EvaluationTask, LoadSettings
from lethe.huggingface.task_catalogue import TASKS
from lethe.huggingface.task_data import Row
from lethe.huggingface.tofu import evaluate_tofu, read_tofu

OF_MEMORY = ("exact_memorization", "extraction_strength")
OF_MEMBERS = (
    "mia_gradnorm", "mia_loss", "mia_min_k", "mia_min_k_plus_plus", "mia_reference", "mia_zlib", "privleak",
)  # fmt: skip
PARAPHRASED = ("Q_A_PARA_Prob", "Q_A_PERT_Prob", "Q_A_Prob", "Q_A_ROUGE")
CHOSEN = ("Q_A_PERT_Prob", "Q_A_Prob", "Q_A_Prob_normalised", "Q_A_ROUGE", "Truth_Ratio")
TOFU_METRICS = (
    *OF_MEMORY, *OF_MEMBERS, "forget_fluency_entropy", "forget_fluency_perplexity", "forget_quality",
    "forget_truth_ratio", "forget_truth_ratio_prob_mean", "model_utility", "retain_Truth_Ratio",
    *(f"{name}_{part}" for name in ("forget", "retain") for part in PARAPHRASED),
    *(f"{name}_{part}" for name in ("ra", "wf") for part in CHOSEN),
)  # fmt: skip
MUSE_METRICS = (
    *OF_MEMORY, *OF_MEMBERS, "forget_verbmem_ROUGE", "forget_knowmem_ROUGE", "retain_knowmem_ROUGE",
)  # fmt: skip


def read_task(name: str, folder: Path, settings: LoadSettings) -> EvaluationTask:
    """Return a task with its data. Raises InvalidTaskData for an unknown name or data that are not the task's."""
    if name not in READERS:
        raise InvalidTaskData(f"task {name!r} is not known; allowed are {', '.join(READERS)}")
    return READERS[name](folder, settings)


def _tofu(folder: Path, settings: LoadSettings) -> EvaluationTask:
    data = read_tofu(folder)

    def prompts(model: LanguageModel) -> PromptFormat:
        return PromptFormat.of(model, system_prompt=settings.system_prompt)

    return EvaluationTask(
        lambda model, reference: evaluate_tofu(
            model, data, prompts(model), reference=reference, gibberish=settings.gibberish
        ),
        data.n_sequences(),
        QuestionSets(_pairs(data.forget), _pairs(data.retain), prompts),
        metrics=(
            *(name for name in TOFU_METRICS if data.holdout or name not in OF_MEMBERS),
            *(("forget_Q_A_gibberish",) if settings.gibberish else ()),
        ),
    )


def _muse(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_muse(folder)
    prompts = partial(PromptFormat.of, plain=True)
    return EvaluationTask(
        lambda model, reference: evaluate_muse(model, data, prompts(model), reference=reference),
        data.n_sequences(),
        QuestionSets(_pairs(data.forget_questions), _pairs(data.retain_questions), prompts),
        metrics=MUSE_METRICS,
    )


def _series(name: str, folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_series(TASKS[name], folder)

    def evaluate(model: LanguageModel, __: object, *, step: int) -> TaskResult:
        return evaluate_step(name, model, data, step=step)

    steps = tuple(partial(evaluate, step=step) for step in range(len(data.forget_sets) + 1))
    return EvaluationTask(steps[0], data.n_sequences(), series=steps[1:])


def _wmdp(folder: Path, _: LoadSettings) -> EvaluationTask:
    sets = read_multiple_choice(folder)
    n_choices = sum(len(row["choices"]) for each in sets for row in each.rows)
    names = ("acc", "acc_stderr", *(f"{each.name}_acc" for each in sets if len(sets) > 1))
    return EvaluationTask(lambda model, __: evaluate_multiple_choice(model, sets), n_choices, metrics=names)


def _semeval(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_semeval(folder)
    return EvaluationTask(lambda model, __: evaluate_semeval(model, data), data.n_sequences())


def _rwku(folder: Path, _: LoadSettings) -> EvaluationTask:
    data = read_rwku(folder)
    forget, retain = (
        [(QUESTION.format(row["query"]), row["answer"]) for row in data.rows[path]]
        for path in ("forget_level2", "neighbor_level2")
    )
    prompts = partial(PromptFormat.of, system_prompt="")
    return EvaluationTask(
        lambda model, __: evaluate_rwku(model, data), data.n_sequences(), QuestionSets(forget, retain, prompts)
    )


def _harness(folder: Path, _: LoadSettings) -> EvaluationTask:
    names = harness_task.read_harness_tasks(folder)
    return EvaluationTask(lambda model, __: harness_task.evaluate_harness_tasks(model, folder, names), 1)


def _pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["question"], row["answer"]) for row in rows]


READERS: dict[str, Callable[[Path, LoadSettings], EvaluationTask]] = {
    "tofu": _tofu,
    "muse": _muse,
    "muse-scaling": partial(_series, "muse-scaling"),
    "muse-successive": partial(_series, "muse-successive"),
    "wmdp": _wmdp,
    "semeval": _semeval,
    "rwku": _rwku,
    harness_task.NAME: _harness,
}
