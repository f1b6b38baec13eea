import traceback
import weakref

import pytest
import torch

from lethe.device.memory import memory_given_back


@pytest.mark.parametrize(("device", "times"), [("cuda", 1), ("cpu", 0)])
def test_memory_is_released_after_the_block_even_on_error(monkeypatch, device, times):
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    with pytest.raises(ZeroDivisionError), memory_given_back(torch.device(device)):
        _ = 1 // len(emptied)  # nothing is emptied by then
    assert len(emptied) == times


def test_propagating_error_keeps_no_frames_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    alive_then: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive_then.extend(tensor() is not None for tensor in held))

    def fails() -> None:
        inner = torch.empty(1)
        held.append(weakref.ref(inner))
        raise ZeroDivisionError

    def fails_by_it() -> None:
        outer = torch.empty(1)
        held.append(weakref.ref(outer))
        try:
            fails()
        except ZeroDivisionError as error:
            raise RuntimeError("no room") from error

    with pytest.raises(RuntimeError, match="no room") as failed, memory_given_back(torch.device("cuda")):
        fails_by_it()
    assert alive_then == [False, False]
    assert "fails_by_it" in [frame.name for frame in traceback.extract_tb(failed.value.__traceback__)]
