"""Greedy generation through transformers: its ROUGE against the true text, and how fluent it is.

Fluency is three measures, each under its own name:
- entropy: bits of a text's pairs and triples of words, weighted 2/3 and 4/3, as RWKU's program has it (Jin et al. 2024,
  eval_fluency.py, after Zhang et al. 2018). A text that repeats itself has little. Words and marks are found by a
  regular expression here, by NLTK there.
- perplexity: of the texts under the retain model.
- gibberish: the probability of a classifier's first class, as open-unlearning's `classification_prob` gives it; its
  classifier is madhurjindal/autonlp-Gibberish-Detector-492513457, whose folder the user names.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DynamicCache, StoppingCriteria
from transformers.cache_utils import DynamicLayer

from lethe.huggingface.answer_scores import batches_of_similar_length, pad, score_answers
from lethe.huggingface.model_folder import LanguageModel, require_plain_weights
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidModelFolder, MetricValue, over_examples
from lethe.metrics.text.rouge import common_subsequence_length, words

WEIGHTS = {2: 2 / 3, 3: 4 / 3}
MAX_TOKENS = 512
_WORD = re.compile(r"\w+|[^\w\s]")


def n_gram_entropy(text: str) -> float:
    """Return the mean over n = 2, 3 of weight times entropy in bits; 0 for a text of fewer than three words."""
    words = _WORD.findall(text)
    return float(np.mean([weight * _entropy(words, n) for n, weight in WEIGHTS.items()]))


def clean_text(folder: Path, texts: Sequence[str], *, device: str) -> MetricValue:
    """Return the mean probability of a classifier's first class.

    Raises InvalidModelFolder if the folder holds no classifier of texts in safetensors.
    """
    require_plain_weights(folder)
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
        classifier = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True, **settings)
    except (OSError, ImportError, ValueError, KeyError, RuntimeError) as error:
        raise InvalidModelFolder(f"{folder} cannot be loaded as a classifier of texts: {error}") from error
    classifier = classifier.to(device).eval()
    scores = np.zeros(len(texts))
    for rows in batches_of_similar_length([len(text) for text in texts], MAX_TOKENS * 64):
        batch = [texts[row] for row in rows]
        given = tokenizer(batch, return_tensors="pt", padding=True, truncation=True, max_length=MAX_TOKENS).to(device)
        with torch.inference_mode():
            scores[rows] = classifier(**given).logits.float().softmax(-1)[:, 0].cpu().numpy()
    return over_examples(scores, generation=list(texts))


def perplexity(
    questions: Sequence[str], texts: Callable[[], Sequence[str]], reference: Reference | None
) -> MetricValue:
    """Return the perplexity of answers to questions under the retain model; `texts` is called where there is one."""
    if reference is None or reference.model is None:
        return MetricValue(None, reason="needs the model that reads the texts: give --retain DIR")
    model = reference.model
    prompts = PromptFormat.of(model)
    answers = [encode_answer(model, prompts, question, text) for question, text in zip(questions, texts(), strict=True)]
    losses = score_answers(model, answers).loss
    return MetricValue(float(np.exp(losses.mean())), {"avg_loss": losses})


def _entropy(words: Sequence[str], n: int) -> float:
    counts = np.array(list(Counter(zip(*(words[i:] for i in range(n)), strict=False)).values()), np.float64)
    shares = counts / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum())


MAX_ROWS = 64
FEW = 8  # a batch with fewer than this part of its rows left is joined with others
CHECKED_PROMPTS = 2
CHECKED_TOKENS = 24


# No blank before punctuation and contracted words.
CLEANED_UP = (
    *((f" {end}", end) for end in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)


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

    The folder's generation_config applies (a repetition penalty, further end tokens), sampling and beams do not.
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
        for name, neutral in (("repetition_penalty", 1.0), ("no_repeat_ngram_size", 0))
        if getattr(settings, name, None) not in (None, neutral)
    ]
    if (settings.num_beams or 1) > 1:
        notes.append(f"generation_config.json sets num_beams = {settings.num_beams}, which did not apply: it is greedy")
    longest = sorted((answer.prompt for answer in answers), key=len)[-CHECKED_PROMPTS:]
    differ = sum(
        _continue(model, prompt, use_cache=True) != _continue(model, prompt, use_cache=False) for prompt in longest
    )
    if differ:
        notes.append(
            f"generation with a cache differs from generation without one for {differ} of {len(longest)} prompts "
            "tried: the library may be wrong for this architecture"
        )
    return notes


def _generate_tokens(model: LanguageModel, prompts: Sequence[list[int]], *, max_new_tokens: int) -> list[list[int]]:
    """Return the continuations. The last of each batch form new batches, so that a long answer keeps no other waiting.

    Reading a row again costs one pass over it; computing a small batch on costs as many calls as a large one.
    """
    stated = model.network.generation_config.eos_token_id
    ends: set[int] = set(stated if isinstance(stated, list) else [stated]) - {None}
    generated: list[list[int]] = [[] for _ in prompts]
    active = list(range(len(prompts))) if max_new_tokens > 0 else []
    while active:
        lengths = [len(prompts[row]) + len(generated[row]) for row in active]
        batches = list(batches_of_similar_length(lengths, MAX_ROWS * max(lengths)))
        for batch in batches:
            rows = [active[i] for i in batch]
            found = _continue_most(
                model,
                [prompts[row] for row in rows],
                [generated[row] for row in rows],
                ends=ends,
                max_new_tokens=max_new_tokens,
                few=len(rows) // FEW if len(batches) > 1 else 0,
            )
            for row, tokens in zip(rows, found, strict=True):
                generated[row] = tokens
        going_on = [row for row in active if _goes_on(generated[row], ends, max_new_tokens)]
        model.on_progress(len(active) - len(going_on))
        active = going_on
    ended = [next((row[:i] for i, token in enumerate(row) if token in ends), row) for row in generated]
    return [row[:max_new_tokens] for row in ended]


def _continue_most(
    model: LanguageModel,
    prompts: Sequence[list[int]],
    generated: Sequence[list[int]],
    *,
    ends: set[int],
    max_new_tokens: int,
    few: int,
) -> list[list[int]]:
    """Return what follows the prompts, with what was generated before; at most `few` of the rows can go on.

    Whenever half of the rows have ended, they leave the batch and its cache.
    """
    found = list(generated)
    ids, mask = pad(
        [prompt + tokens for prompt, tokens in zip(prompts, found, strict=True)], model.padding_id, left=True
    )
    for row, tokens in enumerate(found):
        mask[row, ids.shape[1] - len(tokens) :] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    rows, cache = list(range(len(found))), None
    while len(rows) > few:
        left = [max_new_tokens - len(found[row]) for row in rows]
        output = _call_generate(
            model,
            ids,
            mask,
            max_new_tokens=max(left),
            past_key_values=cache,
            stopping_criteria=[_HalfEnded(ends, left, model.device)],
        )
        for row, tokens in zip(rows, output.sequences[:, ids.shape[1] :].tolist(), strict=True):
            found[row] = found[row] + tokens
        kept = [i for i, row in enumerate(rows) if _goes_on(found[row], ends, max_new_tokens)]
        rows = [rows[i] for i in kept]
        chosen = torch.tensor(kept, dtype=torch.int64, device=model.device)
        mask = functional.pad(mask, (0, output.sequences.shape[1] - ids.shape[1]), value=1)[chosen]
        ids = output.sequences[chosen]
        cache = _rows_of(output.past_key_values, chosen)
    return found


class _HalfEnded(StoppingCriteria):
    """Stops all rows as soon as half of them have ended. left: tokens that each row may still have."""

    def __init__(self, ends: set[int], left: Sequence[int], device: torch.device) -> None:
        self._ends = torch.tensor(sorted(ends), dtype=torch.int64, device=device)
        self._left = torch.tensor(left, device=device)
        self._ended = self._left < 1

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self._left -= 1
        self._ended |= torch.isin(input_ids[:, -1], self._ends) | (self._left < 1)
        return (2 * self._ended.sum() >= len(self._ended)).expand(len(self._ended))


def _rows_of(cache: Any, rows: Tensor) -> Any:
    """Return the cache with these rows alone; None for a kind that cannot drop any, so that all is read again."""
    if not isinstance(cache, DynamicCache) or not all(isinstance(layer, DynamicLayer) for layer in cache.layers):
        return None
    cache.batch_select_indices(rows)
    return cache


def _goes_on(tokens: list[int], ends: set[int], max_new_tokens: int) -> bool:
    return len(tokens) < max_new_tokens and not ends.intersection(tokens)


def _continue(model: LanguageModel, prompt: list[int], *, use_cache: bool) -> list[int]:
    ids, mask = (tensor.to(model.device) for tensor in pad([prompt], model.padding_id))
    output = _call_generate(model, ids, mask, max_new_tokens=CHECKED_TOKENS, use_cache=use_cache)
    found: list[int] = output.sequences[0, len(prompt) :].tolist()
    return found


@torch.inference_mode()
def _call_generate(model: LanguageModel, ids: Tensor, mask: Tensor, **settings: Any) -> Any:
    network: Any = model.network
    return network.generate(
        ids,
        attention_mask=mask,
        do_sample=False,
        num_beams=1,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=model.end_id,
        return_dict_in_generate=True,
        **settings,
    )


def _cut(text: str, stop: Sequence[str]) -> str:
    for word in stop:
        text = text.partition(word)[0]
    return text.strip()


def decode(model: LanguageModel, rows: Sequence[list[int]], *, clean_up: bool) -> list[str]:
    """Return the texts without special tokens."""
    found = model.tokenizer.batch_decode(list(rows), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [_cleaned(text) for text in found] if clean_up else list(found)


def decode_as_configured(model: LanguageModel, rows: Sequence[list[int]]) -> list[str]:
    """Return the texts, cleaned up if the tokenizer's configuration says so."""
    return decode(model, rows, clean_up=bool(getattr(model.tokenizer, "clean_up_tokenization_spaces", False)))


def _cleaned(text: str) -> str:
    for before, after in CLEANED_UP:
        text = text.replace(before, after)
    return text
