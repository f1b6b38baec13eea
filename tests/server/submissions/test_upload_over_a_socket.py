"""A real server and real sockets: an upload that is cut off, and many at once."""

import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from server.models.competition import Team
from server.models.submission import Submission
from tests.support.instance import GOOD_CODE, Instance
from tests.support.web_process import web_process

FORM = 'Content-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'


def test_upload_cut_off_in_the_middle_leaves_nothing(server: Instance, tmp_path: Path) -> None:
    server.competition()
    token = server.participant()["Authorization"]
    folder = tmp_path / "temporary"
    folder.mkdir()
    before = set(server.storage.keys("submissions"))
    with web_process(tmp_path, TMPDIR=str(folder)) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = (
                "POST /api/v1/competitions/digits/submissions HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: {token}\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5000000\r\n\r\n"
            )
            connection.sendall(f"{head}--b\r\n{FORM}".encode() + GOOD_CODE + b"#" * 3_000_000)
            time.sleep(0.5)  # it lies spooled on the disk now
        headers = {"Authorization": token}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=60) as client:
            quota = client.get("/competitions/digits/quota").json()
            whole = client.post("/competitions/digits/submissions", files={"file": ("a.py", GOOD_CODE)})
    assert quota["used_today"] == 0
    assert list(folder.iterdir()) == []
    assert whole.status_code == 201, "the server goes on"
    with server.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 1
    assert len(set(server.storage.keys("submissions")) - before) == 1


@pytest.mark.timeout(300)
def test_200_parallel_uploads_with_quota_5_accept_exactly_5(both: Instance, tmp_path: Path) -> None:
    both.competition(limits={"submissions_per_day": 5})
    headers = both.participant()

    def upload(number: int) -> int:
        code = GOOD_CODE + f"# {number}\n".encode()
        answer = client.post("/competitions/digits/submissions", files={"file": ("a.py", code)})
        return answer.status_code

    folder = tmp_path / "temporary"
    folder.mkdir()
    with web_process(tmp_path, TMPDIR=str(folder)) as port:
        limits = httpx.Limits(max_connections=200)
        base_url = f"http://127.0.0.1:{port}/api/v1"
        with (
            httpx.Client(base_url=base_url, headers=headers, timeout=120, limits=limits) as client,
            ThreadPoolExecutor(200) as pool,
        ):
            statuses = Counter(pool.map(upload, range(200)))
    assert statuses == {201: 5, 429: 195}
    with both.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 5
        assert session.scalar(select(func.count()).select_from(Team)) == 1
