"""The programs that a notebook's shell finds beside the small ones of every system: `zip` and `python`."""

import os
import sys
from pathlib import Path

from sandbox.guest.notebook import children

PROGRAMS = Path("/scratch/.lethe/bin")
PATH = f"{PROGRAMS}:/bin:/usr/bin:/opt/python/bin"


def install_programs() -> None:
    """Write the programs, and let the shell find them."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    zip_program = PROGRAMS / "zip"
    zip_program.write_text(
        f"#!{sys.executable} -S\nimport sys\nfrom sandbox.guest.notebook.zip_command import main\nsys.exit(main())\n",
        encoding="utf-8",
    )
    zip_program.chmod(0o755)
    for name in ("python", "python3"):
        (PROGRAMS / name).unlink(missing_ok=True)
        (PROGRAMS / name).symlink_to(sys.executable)
    os.environ["PATH"] = PATH
    children.prepare()
