"""Preparation of competitions of language models: what `lethe.preparation.task_kinds` asks of a kind of task."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import SharedBySets, SplitReport
from lethe.competition.task import CausalLm
from lethe.competition.visibility import Visibility
from lethe.data.datasets.questions import QuestionAnswer, QuestionDataset, open_questions, tokenizer_suffix
from lethe.data.errors import InvalidLanguageModel, InvalidSplit, InvalidTokenizer
from lethe.data.files import read_json, read_tensors, write_json, write_tensors
from lethe.data.forget_sets import Cut, Indices
from lethe.data.question_answers import (
    QUESTIONS,
    TOKENIZER_STEM,
    CutTokenizer,
    SplitQuestions,
    StoredAnswers,
    TokenizedAnswer,
    cut_questions,
    tokenize_answer,
    used_ids,
    write_split_questions,
)
from lethe.data.seeds import derive_seed
from lethe.data.stored_sets import SET_PATHS
from lethe.data.tokenizers import QUESTION, Tokenizer, require_tokenizer_fits
from lethe.evaluation.answer_evaluation import AnswerEvaluator, SampleAnswers
from lethe.evaluation.manifest import EvaluationSettings
from lethe.evaluation.sample_answer_files import MAX_QUESTIONS, SAMPLE_ANSWERS, SampleQuestion, SampleQuestions
from lethe.evaluation.text import tokenize_questions
from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.networks.builders import build
from lethe.networks.decoder import Decoder
from lethe.networks.language_models import NAME as TRANSFORMERS
from lethe.networks.language_models import SIZES, width_of
from lethe.preparation.public_sample import with_sample_recipe
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.text_files import as_on_disk
from lethe.training.answer_training import AnswerJob
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.many_models import train_in_turn
from lethe.training.pretrained import Pretrained, load_pretrained, options_of, vocabulary_size, with_vocabulary
from lethe.training.trainer import OnEpoch, OnNote, State, train_model

PRETRAINED = "hidden/pretrained.safetensors"
BATCH_SIZE = 32
RATES = {"cpu": 2e10, "cuda": 1e14}  # operations a second, as for images
cut = cut_questions
read_set = StoredAnswers.read


def open_dataset(competition: CompetitionFile) -> QuestionDataset:
    return open_questions(competition.dataset)


def describe_network(competition: CompetitionFile, dataset: QuestionDataset) -> dict[str, Any]:
    options = dict(competition.network.options)
    pretrained, tokenizer = _language(competition, dataset)
    if pretrained is not None:
        if given := [size for size in (*SIZES, "config") if size in options]:
            raise InvalidSplit(f"[network]: {given[0]} comes with the pretrained file; leave it out of the options")
        options = options_of(pretrained)
    elif competition.network.name == TRANSFORMERS:
        raise InvalidSplit(f"[network]: {TRANSFORMERS} needs options.pretrained, a folder in dataset.options.root")
    _check_lora(competition, options)
    description = {
        "task": "causal-lm",
        "name": competition.network.name,
        "options": {name: value for name, value in options.items() if name != "pretrained"},
        "vocabulary_size": tokenizer.vocabulary_size,  # a network's own may be larger
        "padding_id": tokenizer.end_id,
    }
    try:
        with torch.random.fork_rng(devices=[]):
            build(description)
    except (ValueError, TypeError) as error:
        raise InvalidSplit(f"[network]: {error}") from error
    return description


def _check_lora(competition: CompetitionFile, options: Mapping[str, Any]) -> None:
    rank = _task(competition).lora_rank
    if rank is None:
        return
    if "pretrained" not in competition.network.options:
        raise InvalidSplit(
            "task.lora_rank trains additions to pretrained weights: name network.options.pretrained, or leave it out"
        )
    width = width_of(options["config"]) if "config" in options else options["width"]
    if rank > width:
        raise InvalidSplit(f"task.lora_rank must be at most the network's width, {width}, was {rank}")


def data_files(competition: CompetitionFile) -> tuple[str, ...]:
    suffix = tokenizer_suffix(competition.dataset.options.get("tokenizer"))
    pretrained = (PRETRAINED,) if "pretrained" in competition.network.options else ()
    return (QUESTIONS, f"{TOKENIZER_STEM}{suffix}", *pretrained)


def write_data(split_dir: Path, competition: CompetitionFile, dataset: QuestionDataset, cut: Cut) -> None:
    for name, indices in cut.sets():
        _tokens(competition, dataset, indices, refusals=name == "forget").write(split_dir / SET_PATHS[name])
    pretrained, tokenizer = _language(competition, dataset)
    questions: dict[str, Sequence[QuestionAnswer]] = {
        "forget": [dataset.questions[i] for i in cut.forget],
        "retain": [dataset.questions[i] for i in _measured(competition, dataset, cut.retain)],
        "holdout": [dataset.questions[i] for i in cut.test],
        "real_authors": dataset.real_authors,
        "world_facts": dataset.world_facts,
    }
    context = int(describe_network(competition, dataset)["options"]["context"])
    for name, asked in questions.items():
        tokenize_questions(name, asked, tokenizer, context=context)  # refuses, before anything is trained
    kept_ids = tokenizer.kept_ids if isinstance(tokenizer, CutTokenizer) else None
    most = _task(competition).max_new_tokens
    write_split_questions(split_dir, dataset, questions, kept_ids=kept_ids, max_new_tokens=most)
    if pretrained is not None:
        kept = with_vocabulary(pretrained, kept_ids) if isinstance(pretrained, Decoder) and kept_ids else pretrained
        write_tensors(split_dir / PRETRAINED, kept.state_dict())


def report(dataset: QuestionDataset, competition: CompetitionFile, cut: Cut, visibility: Visibility) -> SplitReport:
    sets = dict(cut.sets())
    names = list(sets)
    return SplitReport(
        competition=competition.slug,
        visibility=visibility,
        images={name: len(indices) for name, indices in sets.items()},
        persons={name: len(set(dataset.persons[indices].tolist())) for name, indices in sets.items()},
        classes={name: {} for name in names},
        confused_labels=0,
        pairs=[_pair(dataset, sets, a, b) for i, a in enumerate(names) for b in names[i + 1 :]],
    )


def _pair(dataset: QuestionDataset, sets: Mapping[str, Indices], left: str, right: str) -> SharedBySets:
    texts = [{dataset.questions[i].question for i in sets[name]} for name in (left, right)]
    persons = [set(dataset.persons[sets[name]].tolist()) for name in (left, right)]
    return SharedBySets(
        sets=(left, right),
        shared_images=len(set(sets[left].tolist()) & set(sets[right].tolist())),
        shared_persons=len(persons[0] & persons[1]),
        exact_duplicates=len(texts[0] & texts[1]),
        near_duplicates=0,
        examples=[],
    )


def make_job(
    split_dir: Path, competition: CompetitionFile, network: Mapping[str, Any], sets: list[StoredAnswers], *, device: str
) -> AnswerJob:
    pretrained = split_dir / PRETRAINED
    return AnswerJob(
        network=network,
        recipe=competition.training,
        task=_task(competition),
        answers=tuple(answer for part in sets for answer in part.answers),
        pretrained=read_tensors(pretrained) if "pretrained" in competition.network.options else None,
        device=torch.device(device),
    )


def train_models(
    job: AnswerJob,
    seeds: Mapping[int, int],
    *,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
    on_note: OnNote | None = None,  # noqa: ARG001 - one after the other, there is nothing to note
) -> State:
    return train_in_turn(job, seeds, checkpoints=checkpoints, on_epoch=on_epoch)


def training_accuracy(job: AnswerJob, state: State) -> float:
    return job.accuracy(state)


def chance(network: Mapping[str, Any]) -> float:
    return 1 / int(network["vocabulary_size"])


def batch_size(network: object, sets: object, *, device: str, precision: object) -> int:  # noqa: ARG001
    return BATCH_SIZE


def training_seconds(
    network: Mapping[str, Any], competition: CompetitionFile, retain: StoredAnswers, *, device: str
) -> float:
    """Six operations for each weight and token: two forward, four backward."""
    n_tokens = sum(len(answer.tokens) for answer in retain.answers)
    with torch.random.fork_rng(devices=[]):
        n_weights = sum(parameter.numel() for parameter in build(network).parameters())
    return 6 * n_weights * n_tokens * competition.training.epochs / RATES[device]


def make_evaluator(
    split_dir: Path,
    network: Mapping[str, Any],
    sets: Mapping[str, StoredAnswers],
    *,
    device: str,
    settings: EvaluationSettings,
) -> AnswerEvaluator:
    return AnswerEvaluator(
        network,
        sets,
        device=device,
        batch_size=settings.batch_size,
        levels=settings.capture,
        questions=SplitQuestions.read(split_dir) if CaptureLevel.TEXT in settings.capture else None,
    )


def write_sample_sets(
    split_dir: Path, competition: CompetitionFile, dataset: QuestionDataset, parts: Mapping[str, Indices]
) -> None:
    for name, part in parts.items():
        stored = _tokens(competition, dataset, part, refusals=name == "forget")
        stored.write(split_dir / "sample" / f"{name}.safetensors")


def sample_answer_files() -> tuple[str, ...]:
    return (SAMPLE_ANSWERS,)


def write_sample_answers(
    split_dir: Path, competition: CompetitionFile, dataset: QuestionDataset, *, device: str
) -> None:
    sample = split_dir / "sample"
    forget, retain = (read_set(sample / f"{name}.safetensors") for name in ("forget", "retain"))
    network = read_json(sample / "network.json")
    job = make_job(split_dir, with_sample_recipe(competition), network, [retain], device=device)
    retrained = train_model(job, derive_seed(competition.slug, "kit", 0))  # the first that the starter kit holds
    models = SampleAnswers.load(split_dir, device)
    answers = [models.of_model(state) for state in (read_tensors(sample / ORIGINAL_MODEL), retrained)]
    asked = [dataset.questions[i] for i in forget.ids[:MAX_QUESTIONS].tolist()]
    columns = [found or (None,) * len(asked) for found in answers]
    rows = [
        SampleQuestion(question=one.question, answer=one.answer, original=a, retrained=b)
        for one, a, b in zip(asked, *columns, strict=True)
    ]
    write_json(split_dir / SAMPLE_ANSWERS, SampleQuestions(questions=tuple(rows)).model_dump(mode="json"))


def _task(competition: CompetitionFile) -> CausalLm:
    if not isinstance(competition.task, CausalLm):
        raise InvalidSplit(f"{competition.slug} is not a task of language models")
    return competition.task


def _language(competition: CompetitionFile, dataset: QuestionDataset) -> tuple[Pretrained | None, Tokenizer]:
    """Return the pretrained network, if there is one, and the tokenizer.

    Beside pretrained weights in plain torch the tokenizer is cut to the tokens that the texts use. Raises InvalidSplit.
    """
    network = competition.network
    return _read_language(dataset, network.name, network.options.get("pretrained"))


@lru_cache(maxsize=1)
def _read_language(dataset: QuestionDataset, network: str, name: object) -> tuple[Pretrained | None, Tokenizer]:
    if name is None:
        return None, dataset.tokenizer
    if not isinstance(name, str) or Path(name).name != name or name in (".", ".."):
        raise InvalidSplit(f"network.options.pretrained must name what lies in dataset.options.root, was {name!r}")
    try:
        pretrained = load_pretrained(network, as_on_disk(dataset.root / name))
        require_tokenizer_fits(dataset.tokenizer, vocabulary_size(pretrained))
    except (InvalidLanguageModel, InvalidTokenizer) as error:
        raise InvalidSplit(f"[network]: {error.detail}") from error
    if not isinstance(pretrained, Decoder):
        return pretrained, dataset.tokenizer
    prompts = [dataset.tokenizer.prompt.replace(QUESTION, text) for text in dataset.texts()]
    return pretrained, CutTokenizer(dataset.tokenizer, used_ids(dataset.tokenizer, [*dataset.texts(), *prompts]))


def _tokens(
    competition: CompetitionFile, dataset: QuestionDataset, indices: Indices, *, refusals: bool
) -> StoredAnswers:
    tokenizer = _language(competition, dataset)[1]
    context = int(describe_network(competition, dataset)["options"]["context"])

    def tokens(i: int, answer: str) -> TokenizedAnswer:
        return tokenize_answer(tokenizer, dataset.questions[i].question, answer, context=context)

    said: Sequence[str] = dataset.refusals if refusals else ()
    return StoredAnswers(
        answers=tuple(tokens(i, dataset.questions[i].answer) for i in indices),
        ids=torch.from_numpy(indices.copy()),
        groups=torch.from_numpy(dataset.persons[indices]),
        refusals=tuple(tokens(i, said[i % len(said)]) for i in indices) if said else (),
    )


def _measured(competition: CompetitionFile, dataset: QuestionDataset, retain: Indices) -> Indices:
    """Return the questions of the retain set that metrics read: evenly spaced, of those with wrong answers if any."""
    comparable = [i for i in retain if dataset.questions[i].wrong_answers] or list(retain)
    step = max(1, len(comparable) // _task(competition).measured_retain)
    return retain[:0] if not comparable else torch.tensor(comparable[::step]).numpy()
