"""Work on networks that are source code, which a worker leaves to a confined process.

Whoever wrote the source decides what that process answers: it can spoil the results of its own competition, and no
more than that.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

import lethe
from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.datasets import registry
from lethe.data.errors import InvalidSplit
from lethe.data.files import read_json
from lethe.data.stored_sets import SET_PATHS, TRUE_LABELS
from lethe.errors import HostFault
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.manifest import MANIFEST, NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.model_outputs import ORIGINAL, read_integer_buffers
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.networks.builders import is_source
from lethe.preparation.public_sample import SampleModels
from lethe.preparation.step_cache import OnProgress, PreparationProgress
from sandbox.confined import Answer, Confined, ConfinedFailed, ConfinedSpec
from sandbox.errors import BackendUnavailable, MachineTooBusy
from server.config import Settings

MODULE = "lethe.preparation.confined_main"
INSIDE = "/split"
BASE_MIB = 1536  # what the libraries and a split's data take before any network does
ANSWER_S = 3600.0  # the longest that one model's evaluation may take
READ = (MANIFEST, NETWORK_PATH, ORIGINAL, TRUE_LABELS, *(SET_PATHS[name] for name in ("forget", "retain", "test")))
State = Mapping[str, Tensor]


def has_source(split_dir: Path) -> bool:
    """Return whether a prepared split's network is source code."""
    return is_source(read_json(split_dir / NETWORK_PATH))


def is_source_file(competition: CompetitionFile) -> bool:
    """Return whether a competition file's network is source code."""
    return is_source({"task": competition.task.kind, "name": competition.network.name})


class ConfinedEvaluator:
    """Evaluates the models of a split whose network is source code, in a confined process that stays warm."""

    def __init__(self, settings: Settings, split_dir: Path) -> None:
        """Raises SplitNotPrepared or DamagedSplit, naming a file of the split."""
        require_whole(split_dir, only=READ[1:])
        self.network: Mapping[str, Any] = read_json(split_dir / NETWORK_PATH)
        self.device = torch.device("cpu")
        self._integer_buffers = read_integer_buffers(split_dir / ORIGINAL)
        self._settings, self._split_dir = settings, split_dir
        self._process: Confined | None = None

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return what `SplitEvaluator` would. Raises NonFiniteOutputs, or HostFault where nothing is confined."""
        given = dict(self._integer_buffers if integer_buffers is None else integer_buffers)
        payloads = [weights, *([safetensors.torch.save(given)] if given else [])]
        if self._process is None:
            self._process = _started(self._settings, reads=_parts(self._split_dir, READ))
        try:
            answer = self._process.ask({"do": "evaluate"}, payloads, wall_time_s=ANSWER_S)
        except (ConfinedFailed, MachineTooBusy) as error:
            self.close()
            raise HostFault(f"the network's own code failed in the evaluation: {error}") from error
        if answer.values.get("error") == NonFiniteOutputs.slug:
            raise NonFiniteOutputs(str(answer.values.get("detail")))
        return _run_outputs(_arrays(answer))

    def evaluate_state(self, state: Mapping[str, Tensor]) -> RunOutputs:
        return self.evaluate(safetensors.torch.save({name: value.contiguous() for name, value in state.items()}))

    def close(self) -> None:
        """End the process; another evaluation starts a new one."""
        if self._process is not None:
            self._process.close()
            self._process = None


def probe_models(
    settings: Settings, split_dir: Path, models: Sequence[State], retrained: Sequence[State]
) -> dict[str, NDArray[Any]]:
    """Return what SplitProbes.arrays would of a split whose network is source code. Raises HostFault."""
    payloads = [safetensors.torch.save(dict(state)) for state in (*models, *retrained)]
    with _started(settings, reads=_parts(split_dir, READ)) as process:
        try:
            return _arrays(process.ask({"do": "probe", "models": len(models)}, payloads, wall_time_s=ANSWER_S))
        except (ConfinedFailed, MachineTooBusy) as error:
            raise HostFault(f"the network's own code failed in the probes: {error}") from error


def retrain_on_sample(settings: Settings, split_dir: Path, competition: CompetitionFile) -> SampleModels:
    """Do what `lethe.preparation.public_sample.retrain_on_sample` does. Raises InvalidSplit, HostFault."""
    request = {"do": "sample", "competition": competition.model_dump(mode="json")}
    sample = split_dir / "sample"
    with _started(settings, reads={f"{INSIDE}/sample": sample}) as process:
        answer = _organisers(process, request, wall_time_s=_seconds(settings))
    outputs, *states = answer.payloads
    finetuned = ShardOutputs.from_bytes(states.pop(0)) if answer.values["finetuned"] else None
    weights = tuple(safetensors.torch.load(state) for state in states)
    return SampleModels(ShardOutputs.from_bytes(outputs), weights, finetuned)


def make_split(
    settings: Settings, competition: CompetitionFile, visibility: Visibility, out: Path, *, progress: OnProgress
) -> Manifest:
    """Do what `lethe.preparation.prepare.make_split` does, on a CPU. Raises InvalidSplit or HostFault."""
    if settings.worker_device != "cpu":
        raise InvalidSplit(
            "[network]: a network given as Python text is prepared by workers with LETHE_WORKER_DEVICE=cpu only"
        )
    out.mkdir(parents=True, exist_ok=True)
    places = registry.places_of(competition.dataset.options)
    request = {
        "do": "prepare",
        "competition": competition.model_dump(mode="json"),
        "visibility": visibility,
        "roots": [str(root) for root in places.roots],
        "uploads": {name: str(folder) for name, folder in places.uploads.items()},
    }
    reads = {str(path): path for path in places.read}
    writes = {INSIDE: out, **{str(path): path for path in places.decoded}}
    last = PreparationProgress("starting", 0, 1)

    def tell(values: Mapping[str, Any] | None) -> None:
        nonlocal last
        if values is not None:
            last = _progress(values["progress"])
        progress(last)

    try:
        with _started(settings, reads=reads, writes=writes) as process:
            answer = _organisers(process, request, wall_time_s=4 * _seconds(settings), on_wait=tell)
    except ConfinedFailed as error:  # at its end, what it left in the split's folder
        raise InvalidSplit(f"[network]: the network's own code spoiled the split: {error}") from error
    return _checked_manifest(answer.values.get("manifest"), out)


def _started(settings: Settings, *, reads: Mapping[str, Path], writes: Mapping[str, Path] | None = None) -> Confined:
    spec = ConfinedSpec(
        module=MODULE,
        reads={"/opt/lethe/lethe": Path(next(iter(lethe.__path__))), **reads},
        writes=writes or {},
        memory_mib=BASE_MIB + settings.network_memory_mib,
        cpu_time_s=_seconds(settings),
        disk_mib=settings.cache_mib,
        threads=settings.worker_threads,
    )
    try:
        return Confined(spec)
    except (BackendUnavailable, OSError) as error:
        raise HostFault(f"a network given as Python text needs the sandbox: {error}") from error


def _seconds(settings: Settings) -> float:
    return settings.network_hours * 3600


def _parts(split_dir: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return where each file of a split that is there is shown."""
    return {f"{INSIDE}/{name}": split_dir / name for name in names if (split_dir / name).is_file()}


def _organisers(process: Confined, request: Mapping[str, Any], **how: Any) -> Answer:
    """Ask for what an organiser's network decides. Raises InvalidSplit, which they read."""
    try:
        answer = process.ask(request, **how)
    except MachineTooBusy as error:
        raise HostFault(str(error)) from error
    except ConfinedFailed as error:
        raise InvalidSplit(f"[network]: the network's own code ended its preparation: {error}") from error
    if "error" in answer.values:
        raise InvalidSplit(str(answer.values.get("detail")))
    return answer


def _arrays(answer: Answer) -> dict[str, NDArray[Any]]:
    if "error" in answer.values or len(answer.payloads) != 1:
        raise HostFault(f"the network's own code failed: {answer.values.get('detail', 'it answered nothing')}")
    try:
        return safetensors.numpy.load(answer.payloads[0])
    except Exception as error:  # the parser's own, of bytes that anybody may have written
        raise HostFault(f"the network's own code answered no arrays: {error}") from error


def _run_outputs(arrays: Mapping[str, NDArray[Any]]) -> RunOutputs:
    try:
        confidences, of_classes = arrays["confidences"], arrays["class_accuracy"]
        if confidences.dtype != np.float64 or confidences.ndim != 1 or of_classes.ndim != 2:
            raise HostFault(f"the network's own code answered confidences as {confidences.dtype}{confidences.shape}")
        return RunOutputs(
            confidences=confidences,
            retain_accuracy=float(arrays["retain_accuracy"][0]),
            test_accuracy=float(arrays["test_accuracy"][0]),
            class_accuracy=of_classes.astype(np.float32),
            captured={
                name.removeprefix("captured."): array for name, array in arrays.items() if name.startswith("captured.")
            },
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise HostFault(f"the network's own code answered other arrays: {error}") from error


def _progress(values: Any) -> PreparationProgress:
    try:
        return PreparationProgress(
            str(values["stage"])[:80], float(values["done"]), int(values["total"]), str(values.get("message", ""))[:500]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return PreparationProgress("training", 0, 1)


def _checked_manifest(given: Any, out: Path) -> Manifest:
    """Return the manifest that a confined process made, if it is of the files that lie there."""
    try:
        manifest = Manifest.model_validate(json.loads(json.dumps(given)))
    except (ValidationError, TypeError, ValueError) as error:
        raise InvalidSplit("[network]: the network's own code answered no manifest") from error
    for name in manifest.files:
        if Path(name).is_absolute() or ".." in Path(name).parts or not (out / name).is_file():
            raise InvalidSplit(f"[network]: the split's manifest names {name!r:.200}, which is not a file of it")
    return manifest
