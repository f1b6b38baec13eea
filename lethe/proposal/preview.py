"""What a competition file makes of a list of images: how many go into each set, and some of them to look at."""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_list import ImageList
from lethe.data.partition import Indices, cut_dataset
from lethe.data.seeds import numpy_generator
from lethe.proposal.image_header import read_header
from lethe.proposal.source import Source

MAX_PICTURE = 128 << 10  # bytes of one that is shown


@dataclass(frozen=True)
class Picture:
    """One image. url: a data URL; "" for one that is too large, or of a format that browsers do not show."""

    label: str
    url: str


@dataclass(frozen=True)
class SetPreview:
    """One set of the public split. persons: 0 where they are not known. classes: the number of images of each."""

    name: str
    n: int
    persons: int
    classes: tuple[tuple[str, int], ...]
    pictures: tuple[Picture, ...] = ()


def preview_cut(
    images: ImageList, file: CompetitionFile, *, source: Source | None = None, n_pictures: int = 8
) -> tuple[SetPreview, ...]:
    """Return the sets of the public split. source: where the pictures are read; None shows none.

    Raises InvalidSplit as preparing does.
    """
    cut_dataset(images, file, Visibility.PRIVATE)  # it may fail where the public one does not
    cut = cut_dataset(images, file, Visibility.PUBLIC)
    sets = dict(cut.sets())
    return tuple(
        _preview(images, name, sets[name], source=source, n_pictures=n_pictures)
        for name in ("forget", "retain", "validation", "test")
    )


def _preview(images: ImageList, name: str, indices: Indices, *, source: Source | None, n_pictures: int) -> SetPreview:
    counts = Counter(images.labels[indices].tolist())
    return SetPreview(
        name=name,
        n=len(indices),
        persons=len(np.unique(images.persons[indices])) if images.knows_persons else 0,
        classes=tuple((each, counts[number]) for number, each in enumerate(images.class_names)),
        pictures=() if source is None else tuple(_pictures(images, indices, source, n_pictures)),
    )


def _pictures(images: ImageList, indices: Indices, source: Source, n: int) -> Sequence[Picture]:
    chosen = numpy_generator(0).permutation(indices)[:n]
    return [Picture(images.class_names[images.labels[i]], _url(source, images.names[i])) for i in chosen]


def _url(source: Source, name: str) -> str:
    data = source.read(name, at_most=MAX_PICTURE + 1)
    header = read_header(data)
    if len(data) > MAX_PICTURE or header is None or not header.mime:
        return ""
    return f"data:{header.mime};base64,{base64.b64encode(data).decode()}"
