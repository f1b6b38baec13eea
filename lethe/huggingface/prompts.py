"""Questions, answers and passages as token ids, with the labels that say which tokens are scored.

Source: open-unlearning, src/data/utils.py (preprocess_chat_instance, preprocess_pretraining_instance) and its
configs/model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lethe.data.tokenizers import DATE
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.results import InvalidModelFolder, InvalidTaskData

SYSTEM_PROMPT = "You are a helpful assistant."  # of every chat configuration there but Gemma's, which has none
MAX_TOKENS = 512  # without a chat template


@dataclass(frozen=True)
class Encoded:
    """One sequence. start: the first scored position; positions from there to the end are scored.

    ids: prompt and answer. prompt: what generation continues.
    """

    ids: list[int]
    start: int
    prompt: list[int]

    @property
    def n_scored(self) -> int:
        return len(self.ids) - self.start


@dataclass(frozen=True)
class PromptFormat:
    """How a question is put to a model. chat: by the tokenizer's own template, else as `Question: ... Answer: `.

    system_prompt: only with `chat`; empty for none.
    """

    chat: bool
    system_prompt: str = ""

    @classmethod
    def of(cls, model: LanguageModel, *, plain: bool = False, system_prompt: str | None = None) -> "PromptFormat":
        """Return the format of open-unlearning's configuration for this kind of model.

        plain: without the chat template, even where there is one. system_prompt: in place of the usual one.
        """
        if plain or not model.tokenizer.chat_template:
            return cls(chat=False)
        if system_prompt is None:
            system_prompt = "" if str(model.network.config.model_type).startswith("gemma") else SYSTEM_PROMPT
        return cls(chat=True, system_prompt=system_prompt)


def encode_answer(
    model: LanguageModel, prompts: PromptFormat, question: str, answer: str, *, examples: Sequence[tuple[str, str]] = ()
) -> Encoded:
    """Return a question with its answer; `examples` are answered questions that stand before it.

    The end token follows unless it is the last token already. Tokens are those of the whole text, so that the answer's
    first token may belong to the prompt (a prompt that ends in a blank).
    """
    encode = _encode_chat if prompts.chat else _encode_plain
    whole, prompt = encode(model, prompts, [*examples, (question, answer)])
    if whole[-1] != model.end_id:
        whole = [*whole, model.end_id]
    if model.n_positions is not None and len(whole) > model.n_positions:
        raise InvalidTaskData(
            f"the question {question[:60]!r} with its answer has {len(whole)} tokens; {model.name} takes at most "
            f"{model.n_positions}: shorten it, or leave it out"
        )
    return Encoded(whole, start=len(prompt), prompt=prompt)


def encode_passage(model: LanguageModel, text: str, *, prefix: str = "", longest: int = 2048) -> Encoded:
    """Return a passage, of which what follows `prefix` is scored; the first token never is.

    longest: tokens after the prefix, cut to what the model takes. No end token is added.
    """
    before = model.tokenizer(prefix, add_special_tokens=True)["input_ids"]
    joined = f"{prefix} {text}" if prefix else text
    whole = model.tokenizer(joined, add_special_tokens=True)["input_ids"]
    whole = whole[: min(len(before) + longest, model.n_positions or len(whole))]
    return Encoded(list(whole), start=max(len(before), 1), prompt=list(before))


def _encode_chat(
    model: LanguageModel, prompts: PromptFormat, turns: Sequence[tuple[str, str]]
) -> tuple[list[int], list[int]]:
    chat = [{"role": "system", "content": prompts.system_prompt}] if prompts.system_prompt else []
    for question, answer in turns:
        chat += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    whole, prompt = _templated(model, chat), _templated(model, chat[:-1], add_generation_prompt=True)
    _require_answer_after_prompt(model, whole, prompt, answer=turns[-1][1])
    tokenized: Any = model.tokenizer
    whole_ids, prompt_ids = (list(tokenized(text, add_special_tokens=False)["input_ids"]) for text in (whole, prompt))
    return whole_ids, prompt_ids


def _require_answer_after_prompt(model: LanguageModel, whole: str, prompt: str, *, answer: str) -> None:
    """Raise InvalidModelFolder unless prompt and answer are the prompt, and then the answer."""
    if whole.startswith(prompt) and answer.strip() in whole[len(prompt) :]:
        return
    if not whole.startswith(prompt):
        same = next((i for i, (a, b) in enumerate(zip(whole, prompt, strict=False)) if a != b), len(whole))
        why = f"it asks with {prompt[same:][:40]!r} where an answered question has {whole[same:][:40]!r}"
    else:
        why = f"the answer {answer[:40]!r} does not stand after the prompt, but {whole[len(prompt) :][:40]!r}"
    raise InvalidModelFolder(
        f"the chat template of {model.name} does not write an answer after its own prompt: {why}. Allowed are "
        "templates whose text with the answer begins with their prompt (add_generation_prompt); without a "
        "template, questions are asked as `Question: ... Answer: `"
    )


def _templated(model: LanguageModel, chat: list[dict[str, str]], **settings: Any) -> str:
    try:
        found = model.tokenizer.apply_chat_template(chat, tokenize=False, date_string=DATE, **settings)
    except Exception as error:  # the template is a program of the folder's author
        system = "; if it takes no system text, give --system-prompt ''" if chat[0]["role"] == "system" else ""
        raise InvalidModelFolder(f"the chat template of {model.name} cannot be filled in: {error}{system}") from error
    return str(found)


def _encode_plain(
    model: LanguageModel, _: PromptFormat, turns: Sequence[tuple[str, str]]
) -> tuple[list[int], list[int]]:
    *examples, (question, answer) = turns
    before = "".join(f"Question: {asked}\nAnswer: {answered}\n\n" for asked, answered in examples)
    prompt = f"{before}Question: {question}\nAnswer: "
    whole, start = (
        model.tokenizer(text, add_special_tokens=True, max_length=MAX_TOKENS, truncation=True)["input_ids"]
        for text in (prompt + answer, prompt)
    )
    return list(whole), list(start)
