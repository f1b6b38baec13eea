"""Greedy generation through transformers, and its ROUGE against the true text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lethe.huggingface.answer_scores import batches_of_similar_length, pad
from lethe.huggingface.decoding import decode
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded
from lethe.metrics.text.rouge import common_subsequence_length, words

MOST_ROWS = 64
PART_TOKENS = 64
CHECKED_PROMPTS = 2
CHECKED_TOKENS = 24


@dataclass(frozen=True)
class GeneratedText:
    """What a model wrote for one prompt, and the text that it should have written."""

    prompt: str
    truth: str
    text: str

    @property
    def rouge_l_recall(self) -> float:
        return self._rouge_l()[0]

    @property
    def rouge_l_f1(self) -> float:
        recall, precision = self._rouge_l()
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0

    def _rouge_l(self) -> tuple[float, float]:
        """Return recall and precision, as rouge-score with its stemmer gives them."""
        expected, found = words(self.truth), words(self.text)
        if not expected or not found:
            return 0.0, 0.0
        common = common_subsequence_length(expected, found)
        return common / len(expected), common / len(found)


def generate(
    model: LanguageModel, answers: Sequence[Encoded], *, max_new_tokens: int, stop: Sequence[str] = ()
) -> list[GeneratedText]:
    """Return greedy continuations of the prompts, cut at the first of `stop`, in their order.

    The folder's generation_config applies (a repetition penalty, further end tokens), sampling does not.
    """
    generated = _generate_tokens(model, [answer.prompt for answer in answers], max_new_tokens=max_new_tokens)
    texts = (_cut(text, stop) for text in decode(model, generated, clean_up=True))
    prompts = decode(model, [answer.prompt for answer in answers], clean_up=True)
    wholes = decode(model, [answer.ids for answer in answers], clean_up=True)
    return [
        GeneratedText(prompt, truth=whole.replace(prompt, "").strip(), text=text)
        for prompt, whole, text in zip(prompts, wholes, texts, strict=True)
    ]


def generation_notes(model: LanguageModel, answers: Sequence[Encoded]) -> list[str]:
    """Return what a reader of generated text should know: settings of the folder, and a cache that changes the text.

    The longest prompts are continued with and without a cache of keys and values; both must give the same tokens.
    """
    settings = model.network.generation_config
    notes = [
        f"generation_config.json sets {name} = {getattr(settings, name)}, which applied"
        for name, neutral in (("repetition_penalty", 1.0), ("no_repeat_ngram_size", 0), ("length_penalty", 1.0))
        if getattr(settings, name, None) not in (None, neutral)
    ]
    longest = sorted((answer.prompt for answer in answers), key=len)[-CHECKED_PROMPTS:]
    differ = sum(
        _continue(model, [prompt], max_new_tokens=CHECKED_TOKENS)
        != _continue(model, [prompt], max_new_tokens=CHECKED_TOKENS, use_cache=False)
        for prompt in longest
    )
    if differ:
        notes.append(
            f"generation with a cache differs from generation without one for {differ} of {len(longest)} prompts "
            "tried: the library may be wrong for this architecture"
        )
    return notes


def _generate_tokens(model: LanguageModel, prompts: Sequence[list[int]], *, max_new_tokens: int) -> list[list[int]]:
    """Return the continuations. After each part, what has ended leaves and the rest forms new batches.

    So a long answer keeps no short one computing. Reading a row again costs one pass, a part of it one pass a token.
    """
    generated: list[list[int]] = [[] for _ in prompts]
    ends = _end_ids(model)
    active = list(range(len(prompts)))
    for done in range(0, max_new_tokens, PART_TOKENS):
        size = min(PART_TOKENS, max_new_tokens - done)
        wholes = [prompts[row] + generated[row] for row in active]
        lengths = [len(whole) + size for whole in wholes]
        for batch in batches_of_similar_length(lengths, MOST_ROWS * max(lengths)):
            rows = [active[i] for i in batch]
            for row, tokens in zip(
                rows, _continue(model, [wholes[i] for i in batch], max_new_tokens=size), strict=True
            ):
                generated[row] += tokens
        going_on = [row for row in active if not ends.intersection(generated[row])]
        model.on_progress(len(active) - len(going_on))
        active = going_on
        if not active:
            break
    model.on_progress(len(active))
    return [_until_end(tokens, ends) for tokens in generated]


def _end_ids(model: LanguageModel) -> set[int]:
    stated = model.network.generation_config.eos_token_id
    return set(stated if isinstance(stated, list) else [stated]) - {None}


def _until_end(tokens: list[int], ends: set[int]) -> list[int]:
    return next((tokens[:i] for i, token in enumerate(tokens) if token in ends), tokens)


@torch.inference_mode()
def _continue(
    model: LanguageModel, prompts: Sequence[list[int]], *, max_new_tokens: int, use_cache: bool = True
) -> list[list[int]]:
    ids, mask = pad(prompts, model.padding_id, left=True)
    network: Any = model.network
    output = network.generate(
        ids.to(model.device),
        attention_mask=mask.to(model.device),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        use_cache=use_cache,
        pad_token_id=model.end_id,
    )
    return [row.tolist() for row in output[:, ids.shape[1] :].cpu()]


def _cut(text: str, stop: Sequence[str]) -> str:
    for word in stop:
        text = text.partition(word)[0]
    return text.strip()
