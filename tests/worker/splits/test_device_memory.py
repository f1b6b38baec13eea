import pytest
import torch

from worker.splits.device_memory import memory_given_back


@pytest.mark.parametrize(("device", "times"), [("cuda", 1), ("cpu", 0)])
def test_memory_is_given_back_once_the_block_is_over_even_by_an_error(
    monkeypatch: pytest.MonkeyPatch, device: str, times: int
) -> None:
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    with pytest.raises(ZeroDivisionError), memory_given_back(torch.device(device)):
        _ = 1 // len(emptied)  # nothing is emptied by then
    assert len(emptied) == times
