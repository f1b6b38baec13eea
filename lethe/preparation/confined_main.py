"""What a confined process does with a network that is source code: prepare its split, evaluate models, probe them.

The host's end is `worker/source_networks.py`. Requests and answers are a length, JSON and bytes; a request comes on
standard input, an answer leaves by what was standard output, where nothing that a network prints can mix with it.
"""

import json
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors.numpy
import safetensors.torch
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import datasets_below
from lethe.errors import AppError
from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.evaluation.probes.split_probes import SplitProbes
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.preparation.prepare import make_split
from lethe.preparation.public_sample import retrain_on_sample

SPLIT = Path("/split")  # where the split lies inside
LENGTH = struct.Struct(">I")
SAID = 1000  # characters of an error
MIB = 2**20
Payloads = Sequence[bytes]
Send = Callable[..., None]


def main() -> None:
    """Serve requests until standard input ends."""
    _limit_resources(json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(values: Mapping[str, Any], payloads: Payloads = ()) -> None:
        header = json.dumps({**values, "sizes": [len(payload) for payload in payloads]}).encode()
        for piece in (LENGTH.pack(len(header)), header, *payloads):
            answers.write(piece)
        answers.flush()

    evaluators: list[Evaluator] = []
    for request, payloads in _requests(sys.stdin.buffer):
        try:
            send(*_answer(request, payloads, evaluators, send))
        except AppError as error:
            send({"error": error.slug, "detail": error.detail[:SAID]})
        except Exception as error:  # whatever the network raises is its answer
            send({"error": "exception", "detail": f"{type(error).__name__}: {error}"[:SAID]})


def _limit_resources(limits: Mapping[str, int]) -> None:
    """Set what the kernel keeps for each process; the control group, where there is one, counts all together."""
    for name, value in {
        resource.RLIMIT_DATA: limits["memory_mib"] * MIB,
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_FSIZE: limits["file_mib"] * MIB,
        resource.RLIMIT_NOFILE: 512,
    }.items():
        hard = resource.getrlimit(name)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (wanted, wanted))


def _requests(stream: IO[bytes]) -> Iterator[tuple[dict[str, Any], Payloads]]:
    while length := stream.read(LENGTH.size):
        request = json.loads(stream.read(*LENGTH.unpack(length)))
        yield request, [stream.read(size) for size in request.pop("sizes")]


def _answer(
    request: Mapping[str, Any], payloads: Payloads, evaluators: list[Evaluator], send: Send
) -> tuple[dict[str, Any], Payloads]:
    do = request["do"]
    if do == "evaluate":
        if not evaluators:
            evaluators.append(load_evaluator(SPLIT))
        return {}, [_outputs(evaluators[0].evaluate_state(_joined(payloads)))]
    if do == "probe":
        models, retrained = (payloads[: request["models"]], payloads[request["models"] :])
        states = [[safetensors.torch.load(one) for one in part] for part in (models, retrained)]
        arrays = SplitProbes.load(SPLIT).arrays(*states, on_model=lambda: send({"progress": {}}))
        return {}, [safetensors.numpy.save(_contiguous(arrays))]
    competition = CompetitionFile.model_validate(request["competition"])
    if do == "sample":
        found = retrain_on_sample(SPLIT / "sample", competition)
        kept = [{name: value.contiguous() for name, value in state.items()} for state in found.states]
        finetuned = [found.finetuned.to_bytes()] if found.finetuned else []
        payloads = [found.outputs.to_bytes(), *finetuned, *(safetensors.torch.save(state) for state in kept)]
        return {"finetuned": bool(finetuned)}, payloads
    roots, uploads = [Path(root) for root in request["roots"]], request["uploads"]
    with datasets_below(roots, uploads={name: Path(folder) for name, folder in uploads.items()}):
        manifest = make_split(
            competition,
            Visibility(request["visibility"]),
            SPLIT,
            progress=lambda made: send({"progress": asdict(made)}),
        )
    return {"manifest": manifest.model_dump(mode="json")}, ()


def _joined(payloads: Payloads) -> dict[str, Any]:
    """Return a model's state from its frame and, after it, the whole numbers of its own original model."""
    state: dict[str, Any] = {}
    for payload in payloads:
        state |= safetensors.torch.load(payload)
    return state


def _outputs(outputs: RunOutputs) -> bytes:
    """Return a run's outputs as one safetensors file; captured arrays have the prefix `captured.`."""
    arrays: dict[str, NDArray[Any]] = {
        "confidences": outputs.confidences,
        "retain_accuracy": np.float64(outputs.retain_accuracy).reshape(1),
        "test_accuracy": np.float64(outputs.test_accuracy).reshape(1),
        "class_accuracy": outputs.class_accuracy,
        **{f"captured.{name}": array for name, array in outputs.captured.items()},
    }
    return safetensors.numpy.save(_contiguous(arrays))


def _contiguous(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


if __name__ == "__main__":
    main()
