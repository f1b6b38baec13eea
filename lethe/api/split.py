"""What unlearned models are compared with: outputs in .npz files, or a prepared split; and what is written of them."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lethe.metrics.core.invalid_input import InvalidMetricInput, InvalidScoreInput
from lethe.metrics.scoring.arrays import ModelOutputs


def load_outputs(path: Path) -> ModelOutputs:
    """Return the outputs stored in a .npz file under `confidences`, `retain_accuracy` and `test_accuracy`.

    `confidences` has shape (n_models, n_examples); the accuracies, shape (n_models,), may be absent. Nothing pickled
    is read. Raises InvalidScoreInput, naming the file, if it cannot be read or holds no confidences.
    """
    try:
        with path.open("rb") as file:  # numpy leaves one open that it cannot read
            archive = np.load(file, allow_pickle=False)
            is_single = isinstance(archive, np.ndarray)
            stored = {"": archive} if is_single else {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile, EOFError, zlib.error) as error:
        raise InvalidScoreInput(f"{path} cannot be read as a .npz file of plain arrays: {error}") from error
    if "" in stored:
        raise InvalidScoreInput(f"{path} is no .npz file: it holds a single array without a name")
    if "confidences" not in stored:
        raise InvalidScoreInput(f"{path} has no array 'confidences', only {sorted(stored) or 'nothing'}")
    return ModelOutputs(stored["confidences"], stored.get("retain_accuracy"), stored.get("test_accuracy"))


def save_outputs(path: Path, outputs: ModelOutputs) -> None:
    """Write outputs to a .npz file that `load_outputs` reads; accuracies that are None are left out."""
    arrays = {"confidences": outputs.confidences}
    if outputs.retain_accuracy is not None:
        arrays["retain_accuracy"] = outputs.retain_accuracy
    if outputs.test_accuracy is not None:
        arrays["test_accuracy"] = outputs.test_accuracy
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


STORED = "outputs.safetensors"
RETRAINED, ORACLE, ORIGINAL = (Path("hidden") / side / STORED for side in ("retrained", "oracle", "original"))


def read_outputs(path: Path) -> ModelOutputs:
    """Return the outputs in a .npz file, or in a prepared split's outputs.safetensors. Raises InvalidScoreInput."""
    if path.suffix != ".safetensors":
        return load_outputs(path)
    arrays = safetensors_arrays(path)
    if "confidences" not in arrays:
        raise InvalidScoreInput(f"{path} has no array 'confidences', only {', '.join(sorted(arrays)) or 'nothing'}")
    return ModelOutputs(arrays["confidences"], arrays.get("retain_accuracy"), arrays.get("test_accuracy"))


def split_outputs(
    retrained: Path | None, oracle: Path | None, split: Path | None
) -> tuple[ModelOutputs, ModelOutputs | None]:
    """Return what is compared with, and the oracle's: the files named, else those of the split.

    Raises InvalidScoreInput where neither is given.
    """
    if split is not None:
        if not (split / RETRAINED).is_file():
            raise InvalidScoreInput(f"{split} is not a prepared split: it has no {RETRAINED}")
        retrained = retrained or split / RETRAINED
        oracle = oracle or split / ORACLE
    if retrained is None:
        raise InvalidScoreInput("name what to compare with: --retrained FILE, or --split DIR of a prepared split")
    return read_outputs(retrained), None if oracle is None else read_outputs(oracle)


def split_side(split: Path, side: str) -> ModelOutputs:
    """Return the stored outputs of one side of a prepared split.

    Raises InvalidInput for another side than `retrained`, `oracle` and `original`, or one that the split lacks.
    """
    from lethe.errors import InvalidInput

    files = {"retrained": RETRAINED, "oracle": ORACLE, "original": ORIGINAL}
    if side not in files:
        raise InvalidInput(f"a split has no models {side!r}; there are {', '.join(files)}")
    if not (split / files[side]).is_file():
        raise InvalidInput(f"{split} has no outputs of {side} models ({files[side]}): prepare the split again")
    return read_outputs(split / files[side])


def safetensors_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file. Raises InvalidScoreInput if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidScoreInput(f"{path} cannot be read as a safetensors file: {error}") from error
    return arrays


if TYPE_CHECKING:
    from torch import nn

    from lethe.evaluation.manifest import Manifest
    from lethe.metrics import Inputs, ModelOutputs
    from lethe.reference.bundle import BundleDescription

Arrays = dict[str, NDArray[Any]]
BFLOAT16 = "torch.bfloat16"


@dataclass(frozen=True)
class Split:
    """A folder that `lethe prepare` made. path: the folder. manifest: what it consists of and how it was made."""

    path: Path
    manifest: "Manifest"

    @classmethod
    def load(cls, path: str | Path) -> "Split":
        """Return the prepared split in a folder. Nothing but its manifest is read yet.

        Raises SplitNotPrepared or DamagedSplit, naming the file. Needs the extra `torch`.
        """
        from lethe.evaluation.manifest import Manifest

        return cls(Path(path), Manifest.read(Path(path)))

    @classmethod
    def fetch(
        cls, source: str | Path, into: str | Path, *, keys: Collection[str] = (), any_signer: bool = False
    ) -> "Split":
        """Return a reference split of somebody else, unpacked into a new folder.

        source: a file, a folder or an https:// address. keys: public keys that are trusted. any_signer: take it whoever
        signed it, or nobody. Raises InvalidReference for one that nobody trusted signed or whose bytes are others.
        """
        from lethe.reference.fetch import fetch

        fetch(source, Path(into), keys=keys, any_signer=any_signer)
        return cls.load(into)

    def export(
        self,
        out: str | Path,
        *,
        licence: str,
        description: str = "",
        key: str | Path | None = None,
        checkpoints: bool = False,
        leave_out: Collection[int] = (),
    ) -> "BundleDescription":
        """Write this split as one file for others, with a data card, and return what it is.

        licence: of its data. key: the file of the private key that signs it (`lethe reference key`). checkpoints: also
        the retrained models, not their outputs alone. leave_out: capture levels whose arrays stay behind; 2, logits, is
        most of the size. The hidden test set is in it.
        """
        from lethe.reference.bundle import read_key
        from lethe.reference.export import export_split

        signer = None if key is None else read_key(Path(key))
        return export_split(
            self.path,
            Path(out),
            licence=licence,
            description=description,
            key=signer,
            checkpoints=checkpoints,
            leave_out=leave_out,
        )

    @property
    def competition(self) -> str:
        """Return the slug of the competition file that the split was prepared from."""
        return self.manifest.competition

    @property
    def n_models(self) -> int:
        """Return N, the number of retrained models."""
        return self.manifest.n_models

    @property
    def retraining_time_s(self) -> float:
        """Return how long one retraining took, in seconds."""
        return self.manifest.retraining_time_s

    def outputs(self, side: str = "retrained") -> "ModelOutputs":
        """Return confidences [N, S] and accuracies [N] of the `retrained`, `oracle` or `original` models.

        Raises InvalidInput for another side, DamagedSplit if the file is not what was prepared.
        """
        from lethe.api.split import split_side

        return split_side(self.path, side)

    def examples(self, name: str) -> Arrays:
        """Return images uint8 [n, C, H, W], labels, ids and persons int64 [n] of `forget`, `retain`, `validation`,
        `test`; of language models tokens and lengths.

        Raises InvalidInput for another set, DamagedSplit if the file cannot be read.
        """
        from lethe.data.files import read_tensors
        from lethe.data.stored_sets import SET_PATHS
        from lethe.errors import InvalidInput

        if name not in SET_PATHS:
            raise InvalidInput(f"a split has no set {name!r}; there are {', '.join(SET_PATHS)}")
        return {key: tensor.numpy() for key, tensor in read_tensors(self.path / SET_PATHS[name]).items()}

    def original_model(self) -> "nn.Module":
        """Return a new copy of the original model, in evaluation mode: where unlearning begins."""
        from lethe.networks.builders import build
        from lethe.runtime.data_loaders import load_data

        data = load_data(self.path / "visible")
        network = build(data.network)
        network.load_state_dict(data.original_state)
        return network.eval()

    def inputs(self, unlearned: Mapping[str, NDArray[Any]] | None = None) -> "Inputs":
        """Return the arrays of all sides, as metrics read them."""
        from lethe.competition.file import Scoring
        from lethe.evaluation.model_outputs import split_inputs

        return split_inputs(self.path, unlearned, scored_by=Scoring())

    def __repr__(self) -> str:
        return f"Split({str(self.path)!r}, competition={self.competition!r}, n_models={self.n_models})"

    def _repr_html_(self) -> str:
        from lethe.reports.table import html_table

        rows = [
            ("competition", self.competition),
            ("half", str(self.manifest.visibility)),
            ("retrained models", str(self.n_models)),
            ("one retraining", f"{self.retraining_time_s:.3g} s"),
        ]
        return html_table(("", str(self.path)), rows)


def as_split(given: "Split | str | Path") -> Split:
    """Return the split, loaded where a folder is named."""
    return given if isinstance(given, Split) else Split.load(given)


def as_array(values: Any, *, name: str = "values") -> NDArray[Any]:
    """Return values as an array; a torch tensor is taken from its device and graph, bfloat16 is widened.

    name: for the message. Raises InvalidMetricInput for what is masked, sparse or no array.
    """
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = (values.float() if str(values.dtype) == BFLOAT16 else values).numpy()
        if np.ma.is_masked(values):
            raise InvalidMetricInput(f"{name} has masked values: fill them, or leave these examples out of all arrays")
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidMetricInput(f"{name} cannot be read as an array of numbers: {error}") from error
    return array.astype(np.float32) if array.dtype.name == BFLOAT16.removeprefix("torch.") else array
