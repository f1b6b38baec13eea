"""Where the data for benchmarks lie."""

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """Return the folder that LETHE_TEST_DATA names; end the program with a sentence if it is not there."""
    named = os.environ.get("LETHE_TEST_DATA")
    if not named or not Path(named).is_dir():
        sys.exit("set LETHE_TEST_DATA to a folder that holds tofu.tar.xz")
    return Path(named)
