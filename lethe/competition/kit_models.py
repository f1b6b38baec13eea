"""How many models a starter kit compares local runs with."""

# Of runs: fewer do not put entries into the order that the server finds (docs/participants/submissions.md).
MIN_FOR_A_SHARE = 16
MIN_KIT_MODELS = 8
MAX_KIT_MODELS = 2 * MIN_FOR_A_SHARE  # as many for an oracle
SMALL_NETWORK_BYTES = 4 << 20


def kit_models(n_models: int, *, network_bytes: int) -> int:
    """Return how many retrained models the outputs of a kit come from.

    Enough for a share of the oracle where they are few beside the split's N, or where the network is small.
    """
    if network_bytes <= SMALL_NETWORK_BYTES:
        return MAX_KIT_MODELS
    return min(MAX_KIT_MODELS, max(MIN_KIT_MODELS, n_models // 8))
