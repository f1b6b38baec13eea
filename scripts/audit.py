"""Look for known vulnerabilities in what the lock file installs: `python scripts/audit.py requirements.lock`.

Asks PyPI's advisory service through pip-audit. Ends with 1 and names each hole if there is one. A service that cannot
be asked, or that knows nothing of a package that it must know, is said in one line and fails nothing: no network is
not a hole, and silence is not a clean bill.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WITHIN_S = 120.0  # of the whole audit, some 200 questions
FIRST_WITHIN_S = 20.0
KNOWN = "numpy==2.0.0"  # any package that the service certainly knows


class NotAsked(Exception):
    """No answer came, or one that cannot be true."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lock", type=Path)
    parser.add_argument("--program", default=str(Path(sys.executable).with_name("pip-audit")))
    options = parser.parse_args()
    try:
        holes = audit(options.lock, options.program)
    except NotAsked as error:
        print(f"audit: the advisory service could not be asked, nothing is known of holes ({error})")
        return
    for hole in holes:
        print(f"audit: {hole}", file=sys.stderr)
    if holes:
        sys.exit(1)
    print(f"audit: no known hole in what {options.lock} installs")


def audit(lock: Path, program: str) -> list[str]:
    """Return each known hole in words. Raises NotAsked."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.txt"
        probe.write_text(KNOWN + "\n")
        _answered(_ask(program, probe, "--no-deps", within_s=FIRST_WITHIN_S))
    return _holes(_answered(_ask(program, lock, "--require-hashes", within_s=WITHIN_S)))


def _ask(program: str, requirements: Path, *options: str, within_s: float) -> list[dict[str, Any]]:
    command = [program, "--requirement", str(requirements), "--disable-pip", "--format", "json", "--timeout", "5"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotAsked(f"no answer within {within_s:g} s") from error
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotAsked(last[:200]) from error
    return found


def _answered(dependencies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was answered for. Raises NotAsked if that is not most: a mirror knows packages but no advisories."""
    answered = [one for one in dependencies if "skip_reason" not in one]
    if 2 * len(answered) < len(dependencies):
        raise NotAsked(f"it knows {len(answered)} of {len(dependencies)} packages")
    return answered


def _holes(dependencies: list[dict[str, Any]]) -> list[str]:
    return [
        f"{one['name']} {one['version']} has {hole['id']}"
        + (f", fixed in {', '.join(hole['fix_versions'])}" if hole.get("fix_versions") else ", not fixed yet")
        for one in dependencies
        for hole in one["vulns"]
    ]


if __name__ == "__main__":
    main()
