"""What a worker's process keeps between shards."""

from pathlib import Path
from typing import Any

from sandbox.launcher import RunRequest
from server.config import Settings
from tests.sandbox.conftest import MOUNTS, TEST_POLICY, write_split, write_submission
from worker.context import RunningContext
from worker.host.worker_info import worker_facts
from worker.split_storage.split_cache import SplitCache


def test_mounts_do_not_reveal_the_split(tmp_path_factory: Any) -> None:
    home: Path = tmp_path_factory.mktemp("h")
    settings = Settings(home=home)
    unused: Any = None
    context = RunningContext(
        settings=settings,
        facts=worker_facts(settings),
        leases=unused,
        artefacts=unused,
        cache=SplitCache(settings.scratch / "splits", cap_bytes=1),
    )
    data_dir = write_split(home / "storage" / "splits" / "digits" / "private" / "visible")
    try:
        sandbox = context.sandbox(data_dir, TEST_POLICY)
        code = write_submission(context.stage_dir, "0123456789abcdef", MOUNTS)
        told = sandbox.run(RunRequest(code_dir=code, kind="sample")).log.decode()
    finally:
        context.close()
    roots = {target: root for root, target in (line.split() for line in told.splitlines())}
    assert f"{home.name}/scratch/shown/" in roots["/data"]
    assert f"{home.name}/scratch/stage/" in roots["/submission"]
    assert not [
        target for target in ("/data", "/submission") if "digits" in roots[target] or "private" in roots[target]
    ]
    assert list((settings.scratch / "shown").iterdir()) == []
