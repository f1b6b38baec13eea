"""The measurements: `python -m benchmarks` runs all, `python -m benchmarks scoring platform` those of two suites.

A measurement is a module below this folder with a `__main__` part. One that cannot run without arguments (a prepared
split, a server) is named with how to call it; the others run one after another, for they share the processors.
"""

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NEEDS_ARGUMENTS = 2  # the exit status of argparse and typer


def measurements() -> dict[str, str]:
    """Return the first line of each measurement's docstring by its name, such as `scoring.speed`."""
    found = {}
    for path in sorted(FOLDER.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path != Path(__file__) and 'if __name__ == "__main__":' in source:
            name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
            found[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return found


def main() -> int:
    chosen = {
        name: summary
        for name, summary in measurements().items()
        if not sys.argv[1:] or any(name == word or name.startswith(f"{word}.") for word in sys.argv[1:])
    }
    if not chosen:
        print(f"no measurement is called {' or '.join(sys.argv[1:])}; there are {', '.join(measurements())}")
        return 1
    failed = []
    for name, summary in chosen.items():
        print(f"\n== {name}: {summary}", flush=True)
        run = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], stderr=subprocess.PIPE, text=True, check=False
        )
        if run.returncode == NEEDS_ARGUMENTS:
            print(f"needs arguments: python -m benchmarks.{name} --help")
        elif run.returncode:
            failed.append(name)
            print(run.stderr, file=sys.stderr)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
