"""A network with the rows of its vocabulary that a task needs."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from lethe.data.vocabulary_cut import cut_rows
from lethe.networks.decoder import Decoder


def with_vocabulary(network: Decoder, kept_ids: Sequence[int]) -> Decoder:
    """Return a network whose token i is token kept_ids[i] of the given one; all other weights are equal.

    Raises InvalidTokenizer if a token is outside the network's vocabulary.
    """
    weights = network.state_dict()
    smaller = type(network)(replace(network.shape, vocabulary_size=len(kept_ids)))
    with torch.no_grad():
        smaller.load_state_dict({**weights, "embedding.weight": cut_rows(weights["embedding.weight"], kept_ids)})
    return smaller.to(weights["embedding.weight"].device)
