"""Greedy generation of answers: batched, with a cache of keys and values, and the same on every call.

Prompts of similar length share a batch and are padded on the left. A row that has ended leaves the batch as soon as
half of the rows have, so that one long answer does not keep the others computing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.data.answer_batches import batches_by_length
from lethe.networks.decoder import CausalNetwork

MAX_NEW_TOKENS = 200  # as in TOFU's evaluation


@torch.inference_mode()
def generate_greedily(
    network: CausalNetwork,
    prompts: Sequence[Sequence[int]],
    *,
    end_id: int,
    max_new_tokens: int = MAX_NEW_TOKENS,
    batch_size: int = 64,
) -> list[list[int]]:
    """Return the most likely continuation of every prompt, token by token, without its end, in their order.

    A continuation ends before the end token, after `max_new_tokens`, or at the end of the network's context. Equal
    probabilities: the lower token. The result depends on the network, the prompts and `batch_size` alone.
    """
    network.eval()
    found: list[list[int]] = [[] for _ in prompts]
    for rows in batches_by_length([len(prompt) for prompt in prompts], batch_size):
        batch = [prompts[row] for row in rows]
        left = network.context - max(len(prompt) for prompt in batch)
        generated = _generate(network, batch, end_id=end_id, n_tokens=min(max_new_tokens, left))
        for row, tokens in zip(rows, generated, strict=True):
            found[row] = tokens[: tokens.index(end_id)] if end_id in tokens else tokens
    return found


def _generate(network: CausalNetwork, prompts: list[Sequence[int]], *, end_id: int, n_tokens: int) -> list[list[int]]:
    if n_tokens < 1:
        return [[] for _ in prompts]
    input_ids, mask = _padded_on_the_left(prompts, next(network.parameters()).device)
    cache = network.new_cache(rows=len(prompts), capacity=input_ids.shape[1] + n_tokens)
    generated = torch.full((len(prompts), n_tokens), end_id, device=input_ids.device)
    active = torch.arange(len(prompts), device=input_ids.device)
    going_on = torch.ones_like(active, dtype=torch.bool)
    tokens = network.next_logits(input_ids, mask, cache).argmax(dim=-1)
    for step in range(n_tokens):
        generated[active, step] = tokens
        going_on = going_on & (tokens != end_id)
        if not going_on.any() or step == n_tokens - 1:
            break
        if going_on.sum() <= len(active) // 2:
            kept = going_on.nonzero()[:, 0]
            active, tokens, mask, going_on = active[kept], tokens[kept], mask[kept], going_on[kept]
            cache.keep_rows(kept)
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        tokens = network.next_logits(tokens[:, None], mask, cache).argmax(dim=-1)
    return [row.tolist() for row in generated]


def _padded_on_the_left(prompts: list[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.int64)  # no real token reads the padding
    mask = torch.zeros(len(prompts), longest, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        input_ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return input_ids.to(device), mask.to(device)
