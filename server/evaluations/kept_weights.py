"""Where the weights of a shard's first runs lie, if they are kept for probes: beside the outputs of its attempt."""

import re

from sqlalchemy import ColumnElement, or_

from server.models.evaluation import Shard

_SUFFIX = "-weights.safetensors"
_ATTEMPT = re.compile(r"^(evaluations/[^/]+/runs-\d+-attempt-\d+)(-[0-9a-f]{16})?\.safetensors$")


def weights_key(result_key: str) -> str:
    """Return where the weights lie that belong to an attempt's outputs, whether there are any or not."""
    found = _ATTEMPT.match(result_key)
    return (found[1] if found else result_key.removesuffix(".safetensors")) + _SUFFIX


def has_outputs_of(key: str) -> ColumnElement[bool]:
    """Return the condition that a shard's outputs are of the attempt whose weights lie under `key`."""
    attempt = key.removesuffix(_SUFFIX)
    named_by_content = Shard.result_key.startswith(f"{attempt}-", autoescape=True)
    return or_(Shard.result_key == f"{attempt}.safetensors", named_by_content)


def is_weights(key: str) -> bool:
    return key.endswith(_SUFFIX)
