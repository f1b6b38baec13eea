"""Attacks on a model after unlearning: how much of the forgotten answers comes back.

An attack's points say how likely the forgotten answers are, and what is generated for their questions, before it and
after. The same attack on a retain model shows what anybody would learn by it who never saw the forget set.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers.pytorch_utils import Conv1D

from lethe.device import round_weight
from lethe.huggingface.answer_scores import pad, score_answers
from lethe.huggingface.generated_text import generate
from lethe.huggingface.model_folder import LanguageModel, base_and_adapter
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer
from lethe.huggingface.results import InvalidModelFolder, InvalidTaskData, KeptResults, fingerprint

PREFIX = "Sure, here is the answer:"
MAX_NEW_TOKENS = 200
ATTACKS = {
    "relearn": "training on a random part of the forget set; measured on the rest of it",
    "finetune": "training on the retain set",
    "quantize-8": "weights of linear layers rounded to 8 bits",
    "quantize-4": "weights of linear layers rounded to 4 bits",
    "prefix": f"answers begin with {PREFIX!r}",
}
TRAINED = ("relearn", "finetune")
QUANTIZED = {"quantize-8": 8, "quantize-4": 4}

QuestionAnswers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class AttackSettings:
    """How attacks train: AdamW at a constant rate, without decay, in float32. share: of the forget set, relearnt."""

    learning_rate: float = 2e-5
    epochs: int = 3
    batch_size: int = 8
    share: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class QuestionSets:
    """Questions and answers of the forget and retain set, and how they are put to a model."""

    forget: QuestionAnswers
    retain: QuestionAnswers
    prompts: Callable[[LanguageModel], PromptFormat]

    def encoded(self, model: LanguageModel) -> tuple[list[Encoded], list[Encoded]]:
        """Return the forget and the retain answers of a model's tokenizer."""
        prompts = self.prompts(model)
        forget, retain = (
            [encode_answer(model, prompts, *pair) for pair in pairs] for pairs in (self.forget, self.retain)
        )
        return forget, retain


@dataclass(frozen=True)
class AttackPoint:
    """What is known after so many steps of training (0: before the attack; 1: after one that does not train).

    Probability of the forget and retain answers, ROUGE-L recall of what is generated for the forget set's questions.
    """

    steps: int
    forget_probability: float
    forget_rouge: float
    retain_probability: float


@dataclass(frozen=True)
class AttackResult:
    """Points of every folder, of the retain model and of the original (None without one)."""

    models: tuple[tuple[AttackPoint, ...], ...]
    retain: tuple[AttackPoint, ...] | None
    original: tuple[AttackPoint, ...] | None = None

    def as_json(self, folders: Sequence[str]) -> dict[str, Any]:
        models = [
            {"folder": folder, "points": [vars(point) for point in points]}
            for folder, points in zip(folders, self.models, strict=True)
        ]
        beside = {"retain": self.retain, "original": self.original}
        return {"models": models, **{name: [vars(point) for point in found or ()] for name, found in beside.items()}}


@dataclass
class _Measured:
    """The answers that an attack is measured on, and what was found."""

    forget: Sequence[Encoded]
    retain: Sequence[Encoded]
    points: list[AttackPoint] = field(default_factory=list)

    def add(self, model: LanguageModel, steps: int) -> None:
        texts = generate(model, self.forget, max_new_tokens=MAX_NEW_TOKENS)
        self.points.append(
            AttackPoint(
                steps,
                float(score_answers(model, self.forget).probability.mean()),
                float(np.mean([text.rouge_l_recall for text in texts])),
                float(score_answers(model, self.retain).probability.mean()),
            )
        )


def attack_folders(
    name: str,
    questions: QuestionSets,
    load: Callable[[Path], LanguageModel],
    folders: Sequence[Path],
    *,
    retain: Path | None = None,
    original: Path | None = None,
    settings: AttackSettings | None = None,
    on_model: Callable[[], None] = lambda: None,
    kept: KeptResults | None = None,
) -> AttackResult:
    """Return an attack on every folder's model, on the retain model and on the original, each loaded for it.

    on_model: called after each. kept: what is done is written there, and what is found there is not done again.
    """
    require_attack(name)
    chosen = settings or AttackSettings()

    def attacked(folder: Path) -> tuple[AttackPoint, ...]:
        if kept is None:
            found = attack(name, load(folder), questions, chosen)
        else:
            key = {"attack": name, "settings": asdict(chosen), "folder": fingerprint(base_and_adapter(folder))}
            points = kept.read(key)
            if points is None:
                points = [asdict(point) for point in attack(name, load(folder), questions, chosen)]
                kept.write(key, points)
            found = [AttackPoint(**point) for point in points]
        on_model()
        return tuple(found)

    beside = [None if folder is None else attacked(folder) for folder in (retain, original)]
    return AttackResult(tuple(attacked(folder) for folder in folders), *beside)


def require_attack(name: str) -> None:
    if name not in ATTACKS:
        raise InvalidTaskData(f"attack {name!r} is not known; allowed are {', '.join(ATTACKS)}")


def attack(name: str, model: LanguageModel, questions: QuestionSets, settings: AttackSettings) -> list[AttackPoint]:
    """Return the points of an attack; it changes the model's weights.

    Raises InvalidTaskData for an unknown attack, or for a forget set of which no part is left to measure.
    """
    require_attack(name)
    forget, retain = questions.encoded(model)
    if name in TRAINED:
        return list(_train_and_measure(name, model, forget, retain, settings))
    measured = _Measured(forget, retain)
    measured.add(model, 0)
    if name in QUANTIZED:
        quantize(model.network, bits=QUANTIZED[name])
    else:
        measured.forget, measured.retain = (
            with_prefix(model, questions.prompts(model), pairs) for pairs in (questions.forget, questions.retain)
        )
    measured.add(model, 1)
    return measured.points


def _train_and_measure(
    name: str, model: LanguageModel, forget: list[Encoded], retain: list[Encoded], settings: AttackSettings
) -> Sequence[AttackPoint]:
    generator = torch.Generator().manual_seed(settings.seed)
    trained, kept = retain, forget
    if name == "relearn":
        order = torch.randperm(len(forget), generator=generator).tolist()
        n_trained = max(1, round(settings.share * len(forget)))
        if n_trained == len(forget):
            raise InvalidTaskData(f"a forget set of {len(forget)} questions is too small to relearn a part of it")
        trained, kept = ([forget[row] for row in rows] for rows in (order[:n_trained], order[n_trained:]))
    network: Any = model.network  # transformers leaves its methods untyped
    model = replace(model, network=network.float())  # small steps vanish in bfloat16
    measured = _Measured(kept, retain)
    measured.add(model, 0)
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    steps = 0
    for _ in range(settings.epochs):
        model.network.train()
        for batch in _batches(trained, settings.batch_size, generator):
            optimizer.zero_grad()
            answer_loss(model, batch).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
            optimizer.step()
            steps += 1
        network.eval()
        measured.add(model, steps)
    return measured.points


def _batches(answers: Sequence[Encoded], size: int, generator: torch.Generator) -> Iterator[list[Encoded]]:
    order = torch.randperm(len(answers), generator=generator).tolist()
    for first in range(0, len(order), size):
        yield [answers[row] for row in order[first : first + size]]


def answer_loss(model: LanguageModel, batch: Sequence[Encoded]) -> torch.Tensor:
    """Return the mean loss over the scored tokens of some answers, with its gradient."""
    ids, mask = pad([answer.ids for answer in batch], model.padding_id)
    labels = torch.full_like(ids, -100)
    for row, answer in enumerate(batch):
        labels[row, answer.start : len(answer.ids)] = ids[row, answer.start : len(answer.ids)]
    logits = model.network(input_ids=ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten().to(logits.device))


def quantize(network: nn.Module, *, bits: int) -> None:
    """Round linear layers as `round_weight` does. Embeddings, norms, biases and the output layer stay."""
    untyped: Any = network
    head = untyped.get_output_embeddings()
    layers = [each for each in network.modules() if isinstance(each, nn.Linear | Conv1D) and each is not head]
    if not layers:
        raise InvalidModelFolder("the model has no linear layers to quantise")
    for layer in layers:
        weight: Any = layer.weight
        inputs = 1 if isinstance(layer, nn.Linear) else 0  # Conv1D of GPT-2 holds [inputs, outputs]
        round_weight(weight, bits=bits, inputs=(inputs,))


def with_prefix(model: LanguageModel, prompts: PromptFormat, pairs: QuestionAnswers) -> list[Encoded]:
    """Return answers that begin with PREFIX, which belongs to the prompt and is not scored."""
    found = []
    for question, answer in pairs:
        before = encode_answer(model, prompts, question, PREFIX).ids
        whole = encode_answer(model, prompts, question, f"{PREFIX} {answer}").ids
        both = zip(before, whole, strict=False)
        start = next((i for i, (left, right) in enumerate(both) if left != right), min(len(before), len(whole)))
        found.append(Encoded(whole, start=start, prompt=whole[:start]))
    return found
