"""Pictures of the public sample: what is drawn is what the sample holds."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lethe.data.stored_sets import StoredSet
from server.starter_kit import picture_key
from server.storage import Storage
from worker.preparation.starter_kit.build import GAP_PX, make_sheet, store_pictures


def opened(sheet: bytes) -> Image.Image:
    return Image.open(io.BytesIO(sheet))


def test_a_sheet_shows_sixteen_of_many_images_enlarged() -> None:
    images = np.arange(100, dtype=np.uint8).reshape(100, 1, 1, 1) * np.ones((1, 1, 8, 8), dtype=np.uint8)
    sheet = opened(make_sheet(images))
    assert sheet.size == (8 * 64 + 7 * GAP_PX, 2 * 64 + GAP_PX)
    assert sheet.getpixel((0, 0)) == (0, 0, 0, 255)
    assert sheet.getpixel((sheet.width - 1, sheet.height - 1)) == (99, 99, 99, 255)
    assert sheet.getpixel((64, 0))[3] == 0  # between two pictures


@pytest.mark.parametrize(
    ("channels", "colour"), [(3, (10, 20, 30, 255)), (1, (10, 10, 10, 255)), (2, (10, 10, 10, 255))]
)
def test_any_number_of_channels_is_drawn(channels: int, colour: tuple[int, ...]) -> None:
    image = np.stack([np.full((40, 30), 10 * (channel + 1), dtype=np.uint8) for channel in range(channels)])
    sheet = opened(make_sheet(image[None]))
    assert sheet.size == (60, 80)
    assert sheet.getpixel((5, 5)) == colour


def test_both_sets_are_stored_where_the_server_looks(tmp_path: Path) -> None:
    for name, value in (("forget", 7), ("retain", 200)):
        images = torch.full((3, 1, 4, 4), value, dtype=torch.uint8)
        numbers = torch.arange(3)
        StoredSet(images, numbers, numbers, numbers).write(tmp_path / f"{name}.safetensors")
    storage = Storage((tmp_path / "storage").as_uri())
    store_pictures(storage, tmp_path, "digits")
    assert opened(storage.read(picture_key("digits", "forget"))).getpixel((0, 0)) == (7, 7, 7, 255)
    assert opened(storage.read(picture_key("digits", "retain"))).getpixel((0, 0)) == (200, 200, 200, 255)


def test_rows_of_a_table_are_not_drawn(tmp_path: Path) -> None:
    numbers = torch.arange(3)
    for name in ("forget", "retain"):
        StoredSet(torch.rand(3, 5, 1, 1), numbers, numbers, numbers).write(tmp_path / f"{name}.safetensors")
    storage = Storage((tmp_path / "storage").as_uri())
    store_pictures(storage, tmp_path, "patients")
    assert not storage.exists(picture_key("patients", "forget"))
