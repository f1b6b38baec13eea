"""A starter kit's own script where nothing of this project can be imported: `-m tests.support.kit_script FILE RUNS`."""

import runpy
import sys

if __name__ == "__main__":
    for name in ("lethe", "server", "worker", "sandbox"):
        sys.modules[name] = None  # type: ignore[assignment]  # as the import system has it for what must not be found
    sys.path.insert(0, "")
    sys.argv[0] = "run_local.py"
    runpy.run_path("run_local.py", run_name="__main__")
