"""A prepared split: what unlearned models are compared with."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lethe.metrics.core.invalid_input import InvalidMetricInput

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
        from lethe.api.score_inputs import split_side

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
        from lethe.evaluation.split_inputs import split_inputs

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
