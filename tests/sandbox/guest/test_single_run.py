from pathlib import Path

from sandbox.guest import single_run


def test_scratch_is_emptied_of_whatever_lies_there(tmp_path: Path) -> None:
    elsewhere, scratch = tmp_path / "elsewhere", tmp_path / "scratch"
    (elsewhere / "kept").mkdir(parents=True)
    (scratch / "folder" / "deeper").mkdir(parents=True)
    (scratch / "file").write_text("x")
    (scratch / "link").symlink_to(elsewhere)
    (scratch / "dangling").symlink_to(tmp_path / "nowhere")
    single_run._empty(scratch)
    assert list(scratch.iterdir()) == []
    assert (elsewhere / "kept").is_dir()
