"""How soon a command answers depends on what is imported before it is known which one was asked for."""

import subprocess
import sys

HEAVY = ("alembic", "celery", "cryptography", "fastapi", "numpy", "redis", "sqlalchemy", "torch")


def test_command_line_starts_without_optional_imports() -> None:
    code = f"import sys, lethe.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
