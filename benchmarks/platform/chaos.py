"""Random faults over real processes, PostgreSQL and Redis, and the promises that must hold afterwards.

    python -m benchmarks.platform.chaos [--faults 200] [--submissions 50] [--seed 1] [--brief]

The same seed draws the same faults in the same order. Ends with 1 and names each broken promise. Without --brief some
outages of Redis last 30 s, and clocks jump by an hour.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults import chaos
from tests.faults.chaos import Chaos
from tests.faults.cluster import code, running_cluster


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--submissions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two faults, on average")
    parser.add_argument("--within", type=float, default=600.0, help="seconds for what is left after the last fault")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - started:7.1f} {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="lethe-chaos-") as folder, running_cluster(Path(folder)) as cluster:
        worker = cluster.start_worker("undisturbed")
        submission = cluster.submit("undisturbed", code())
        cluster.wait_for_end("undisturbed", submission)
        undisturbed = cluster.exact_score(submission)
        worker.stop()
        disturbed = Chaos(cluster, random.Random(options.seed), long=not options.brief, tell=tell)
        try:
            chaos.run(
                disturbed,
                faults=options.faults,
                submissions=options.submissions,
                workers=options.workers,
                pause_s=options.pause,
                within_s=options.within,
            )
            broken = chaos.broken_promises(disturbed, undisturbed)
        finally:
            disturbed.fix_what_is_due(all_of_it=True)
        found = {
            "seed": options.seed,
            "faults": sum(disturbed.counts.values()),
            "by_kind": disturbed.counts,
            "accepted": len(disturbed.accepted),
            "without_answer": disturbed.unsure,
            "ends": dict(Counter(row["stage"] for row in chaos.submissions(cluster))),
            "attempts": chaos.attempts(cluster),
            "seconds": round(time.monotonic() - started),
            "broken_promises": broken,
        }
    print(json.dumps(found))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
