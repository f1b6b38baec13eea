"""Uploads made to hang or crash what reads them, cut off in the middle, and many at once."""

import contextlib
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from lethe.errors import InvalidSubmission
from lethe.submission.package import load_package
from server.models.competition import Team
from server.models.submission import Submission
from tests.support.instance import GOOD_CODE, Instance, make_zip
from tests.support.web_process import web_process

FUNCTION = "def unlearning(net, retain, forget, val):\n    return net\n"
# Hours for a reader that goes through all of it again from each of its lines, under a second for one that does not.
MANY, LINES = 500_000, 8000
WITHIN_S = 60.0
DEEP = 2500  # levels: the parser takes them, a reader in Python that recurses does not
HOSTILE = {
    "empty lines": "\n" * MANY + FUNCTION,
    "spaces before a magic's mark": FUNCTION + "a" + " " * MANY + "!ls",
    "cell magics on one another": "%%time\n" * LINES + FUNCTION,
    "magics in a block": FUNCTION + "if True:\n" + " !ls\n" * LINES,
    "magics in a string": FUNCTION + "'''\n" + "!ls\n" * LINES,
    "definitions": FUNCTION + "def f(): x\n" * 4000,
    "a chain of names": "".join(f"x{i} = x{i - 1}\n" for i in range(1, 4000))
    + "def unlearning(net, retain, forget, val):\n    return x3999\n",
    "a deep sum": FUNCTION + "x = " + "+".join("a" * DEEP),
    "deep attributes": FUNCTION + "x = a" + ".b" * DEEP,
    "a deep function": f"def unlearning(net, retain, forget, val):\n    return {'lambda: ' * DEEP}1\n",
    "deep lists": FUNCTION + "x = " + "[" * LINES + "]" * LINES,
}


def make_notebook(source: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": source}], "nbformat": 4, "metadata": {}}).encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_is_taken_or_refused_soon(name: str) -> None:
    is_refused = name in ("a deep sum", "deep attributes", "a deep function")
    began = time.process_time()
    for filename, data in (("a.ipynb", make_notebook(HOSTILE[name])), ("a.py", HOSTILE[name].encode())):
        refused = pytest.raises(InvalidSubmission, match="deeper than 200 levels")
        with refused if is_refused else contextlib.suppress(InvalidSubmission):
            load_package(data, filename, modes=("function", "notebook"))
    assert time.process_time() - began < WITHIN_S


def test_deep_descriptions_are_refused() -> None:
    description = b"file = " + b"[" * LINES + b"]" * LINES
    with pytest.raises(InvalidSubmission, match="TOML"):
        load_package(make_zip({"submission.py": FUNCTION.encode(), "submission.toml": description}), "a.zip")
    levels = 200_000  # Python 3.14 reads 50,000 levels of JSON, which fit its stack
    with pytest.raises(InvalidSubmission, match="not JSON"):
        load_package(b'{"cells": ' + b"[" * levels + b"]" * levels + b"}", "a.ipynb")


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
