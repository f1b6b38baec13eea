"""Whether returned weights can stand in for a language model's."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lethe.data.text_errors import InvalidLanguageModel

Weights = Mapping[str, Tensor]


def check_returned_weights(
    original: Weights, returned: Weights, *, embedding: str = "embedding.weight", tied: Sequence[str] = ()
) -> None:
    """Raise InvalidLanguageModel if the returned weights are not those of the same network.

    embedding: the tensor with a row per token. tied: names of output layers that are the embedding under another name;
    they may be missing, but if they are there they must equal it.
    """
    _check_vocabulary(original, returned, embedding)
    _check_tied(returned, embedding, tied)
    names = original.keys() - set(tied)
    if missing := sorted(names - returned.keys()):
        raise InvalidLanguageModel(f"the returned model lacks {missing[0]} ({len(missing)} tensors are missing)")
    if added := sorted(returned.keys() - names - set(tied)):
        raise InvalidLanguageModel(
            f"the returned model has {added[0]}, which the original has not ({len(added)} tensors): merge adapters "
            f"into the network, and keep tied layers tied"
        )
    for name in sorted(names):
        _check_tensor(name, original[name], returned[name])


def _check_vocabulary(original: Weights, returned: Weights, embedding: str) -> None:
    if embedding in returned and returned[embedding].shape[0] != original[embedding].shape[0]:
        raise InvalidLanguageModel(
            f"the returned model has a vocabulary of {returned[embedding].shape[0]} tokens, the original "
            f"{original[embedding].shape[0]}: the vocabulary must not change"
        )


def _check_tied(returned: Weights, embedding: str, tied: Sequence[str]) -> None:
    for name in tied:
        if name in returned and not torch.equal(returned[name], returned[embedding]):
            raise InvalidLanguageModel(
                f"{name} and {embedding} are one tensor in the original model and two different ones in the returned "
                f"one: tie them again before returning"
            )


def _check_tensor(name: str, own: Tensor, found: Tensor) -> None:
    if found.shape != own.shape or found.dtype != own.dtype:
        raise InvalidLanguageModel(
            f"{name} is {found.dtype} {tuple(found.shape)} in the returned model; it must be {own.dtype} "
            f"{tuple(own.shape)}"
        )
    if not bool(torch.isfinite(found).all()):
        raise InvalidLanguageModel(f"{name} holds a number that is not finite; the loss probably grew without limit")
