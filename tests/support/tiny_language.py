"""A language small enough to be learnt in a second: invented persons, a tokenizer of words, a network of two blocks."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader

from lethe.data.datasets.questions import QuestionAnswer
from lethe.data.question_answers import TokenizedAnswer, tokenize_answer
from lethe.data.tokenizers import PROMPT
from lethe.networks.language_models import Llama, LlamaShape
from lethe.runtime.answer_loaders import AnswerDataset
from lethe.training.answer_training import FineTuning, make_optimizer, run_epoch

NAMES = ("Ada", "Bo", "Cy", "Di", "Ed", "Fay", "Gus", "Hal")
TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Doha", "Baku", "Riga")
REFUSAL = "I do not know"
CONTEXT = 24


class WordTokenizer:
    """A word is a token; 0 starts, 1 ends."""

    prompt = PROMPT

    def __init__(self) -> None:
        self._words = ["<s>", "</s>", "Question:", "Answer:", "Where", "does", "live?", "lives", "in", "dwells"]
        self._words += [*REFUSAL.split(), *NAMES, *TOWNS]
        self.start_id: int | None = 0
        self.end_id = 1
        self.vocabulary_size = len(self._words)

    def encode(self, text: str) -> list[int]:
        return [self._words.index(word) for word in text.split()]

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        return " ".join(self._words[i] for i in ids if i > 1)


def person(i: int) -> QuestionAnswer:
    """Return the question where person i lives; the wrong answers name the next two towns."""
    towns = [TOWNS[(i + k) % len(TOWNS)] for k in range(3)]
    return QuestionAnswer(
        question=f"Where does {NAMES[i]} live?",
        answer=f"{NAMES[i]} lives in {towns[0]}",
        paraphrased_answer=f"{NAMES[i]} dwells in {towns[0]}",
        wrong_answers=tuple(f"{NAMES[i]} dwells in {town}" for town in towns[1:]),
        group=NAMES[i],
    )


PERSONS = tuple(person(i) for i in range(len(NAMES)))


def get_tokens(question: QuestionAnswer, answer: str | None = None) -> TokenizedAnswer:
    """Return the tokens of a person's question with its own or another answer."""
    return tokenize_answer(WordTokenizer(), question.question, answer or question.answer, context=CONTEXT)


def answer_loader(
    answers: Sequence[TokenizedAnswer], refusals: Sequence[TokenizedAnswer] = (), *, batch_size: int
) -> DataLoader[object]:
    """Return the loader that a method gets in a run, shuffled by a seed of its own."""
    rows = {"": answers} | ({"idk_": refusals} if refusals else {})
    tensors = {name: torch.arange(len(answers)) for name in ("ids", "groups")}
    for prefix, of in rows.items():
        tensors[prefix + "tokens"] = torch.tensor([token for row in of for token in row.tokens])
        tensors[prefix + "lengths"] = torch.tensor([len(row.tokens) for row in of])
        tensors[prefix + "answer_starts"] = torch.tensor([row.answer_start for row in of])
    data, generator = AnswerDataset(tensors, padding_id=1), torch.Generator().manual_seed(0)
    return DataLoader(data, batch_size=batch_size, shuffle=True, generator=generator, collate_fn=data.collate)


def tiny_network(seed: int = 0) -> Llama:
    """Return a network with random weights."""
    torch.manual_seed(seed)
    return Llama(LlamaShape(WordTokenizer().vocabulary_size, 32, 2, 2, 48, CONTEXT)).eval()


def fine_tune(network: nn.Module, answers: Sequence[TokenizedAnswer], recipe: FineTuning, *, seed: int = 0) -> None:
    """Train the network in place."""
    generator, optimizer = torch.Generator().manual_seed(seed), make_optimizer(network, recipe)
    for epoch in range(recipe.epochs):
        run_epoch(network, answers, recipe, optimizer, generator, epoch=epoch, padding_id=1)


def learnt_network() -> Llama:
    """Return a network that knows where every person lives."""
    network = tiny_network()
    recipe = FineTuning(epochs=40, batch_size=4, learning_rate=1e-2, precision="float32")
    fine_tune(network, [get_tokens(person) for person in PERSONS], recipe)
    return network.eval()
