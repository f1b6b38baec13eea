"""Run the tests as strangers do: in odd places, as other users, with fewer files, without a network, on a busy machine.

    python -m scripts.test_fresh_checkout                    three combined situations with the chosen tests
    python -m scripts.test_fresh_checkout --whole            with every test: an hour on two cores
    python -m scripts.test_fresh_checkout --only together    one situation; --list names them
    nohup python -m scripts.test_fresh_checkout --whole --json build/stranger.json >build/stranger.log &

Each situation is a copy of the checkout with an environment of links to this one's packages, or one installed by `make
install` where it needs another Python. Its output is in build/stranger/NAME.log. Ends with a table that also says what
this machine does not allow; an ordinary user has no other users. Exit status 1 if a test failed.
"""

import argparse
import json
import os
import platform
import pwd
import sys
from dataclasses import asdict
from pathlib import Path

from scripts.test_fresh_checkout.namespaces import STRANGER_ID
from scripts.test_fresh_checkout.run import Outcome, outcome_of
from scripts.test_fresh_checkout.situations import CHOSEN, COMBINED, SINGLE, allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="SITUATION", help="may be given more than once")
    parser.add_argument("--whole", action="store_true", help="every test, not the chosen ones")
    parser.add_argument("--list", action="store_true", help="name the situations, and what this machine lacks for them")
    parser.add_argument("--starts", type=int, default=50, help="how often the small demo is started (50)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too, after each situation")
    parser.add_argument("arguments", nargs="*", help="of pytest, after --: instead of the chosen tests")
    options = parser.parse_args()
    known = {situation.name: situation for situation in (*COMBINED, *SINGLE)}
    if unknown := set(options.only or ()) - known.keys():
        parser.error(f"{', '.join(sorted(unknown))} is no situation; there are {', '.join(known)}")
    if options.list:
        for situation in known.values():
            print(f"{situation.name:18} {situation.covers()} {_in_brackets(allowed(situation)[1])}")
        return 0
    if any(account.pw_uid == STRANGER_ID for account in pwd.getpwall()):
        sys.exit(f"the user id {STRANGER_ID} belongs to somebody here")
    tests = tuple(options.arguments) or (("tests",) if options.whole else CHOSEN)
    outcomes: list[Outcome] = []
    for name in options.only or [situation.name for situation in COMBINED]:
        outcomes.append(outcome_of(known[name], tests, starts=options.starts))
        if options.json:
            _write(options.json, outcomes)
    _print(outcomes)
    return 1 if any(outcome.verdict == "red" for outcome in outcomes) else 0


def _write(file: Path, outcomes: list[Outcome]) -> None:
    machine = {"cores": os.cpu_count(), "root": os.geteuid() == 0, "python": platform.python_version()}
    file.write_text(json.dumps({"machine": machine, "situations": [asdict(outcome) for outcome in outcomes]}, indent=1))


def _print(outcomes: list[Outcome]) -> None:
    print(f"\n{'':18} {'':8} {'passed':>7} {'failed':>7} {'skipped':>7} {'seconds':>7} {'GiB':>5}")
    for outcome in outcomes:
        figures = (outcome.passed, outcome.failed, outcome.skipped, outcome.seconds)
        print(f"{outcome.name:18} {outcome.verdict:8}", *(f"{figure:7}" for figure in figures), end=" ")
        print(f"{outcome.memory_gib:5.1f}  {outcome.covers} {_in_brackets(outcome.left_out)} {outcome.remark}".rstrip())


def _in_brackets(left_out: tuple[str, ...]) -> str:
    return f"(left out: {'; '.join(left_out)})" if left_out else ""


if __name__ == "__main__":
    sys.exit(main())
