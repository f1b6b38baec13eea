"""Celery's program under a clock that is wrong by SKEW_S seconds, in its own code and in ours.

`python -m tests.faults.skewed_celery`. The class `datetime` cannot be replaced: compiled modules hold it.
"""

import os
import sys
import time
from datetime import datetime, timedelta

from server import db

SKEW_S = float(os.environ["SKEW_S"])
_right_time, _right_now = time.time, db.now


def _wrong_now() -> datetime:
    return _right_now() + timedelta(seconds=SKEW_S)


time.time = lambda: _right_time() + SKEW_S
db.now = _wrong_now  # before any module takes the name from there

from worker.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
