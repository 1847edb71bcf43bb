"""`python -m benchmarks.peers [PEER …]`: bide and its peers do the same work, in turns. Progress goes to standard error.

The figures are kept in build/peers/results.json. --write makes them those of docs/comparison.md, where older figures of
what was not measured stay. All of it takes more than two hours; names, --work and --rounds choose a part of it.
"""

import argparse
import signal
import sys

from benchmarks.peers import report
from benchmarks.peers.registry import PEERS
from benchmarks.peers.results import LAST, keep, load, this_machine
from benchmarks.peers.rounds import all_measured, installed
from benchmarks.peers.summary import bars
from benchmarks.peers.table import tables
from benchmarks.peers.works import WORKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all, unless named: {', '.join(PEERS)}")
    parser.add_argument("--work", action="append", choices=WORKS, help="measure only this; may be repeated")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="rounds of each work; without it 5 where speed is measured, and fewer elsewhere"
    )
    parser.add_argument("--kept", action="store_true", help="measure nothing: use the figures that were kept")
    parser.add_argument("--write", action="store_true", help="write the tables and pictures of docs/comparison.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"there is no peer {sorted(unknown)[0]}; there is: {', '.join(PEERS)}")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    missing: dict[str, str] = {}
    results = load(LAST)
    if not arguments.kept:
        peers, missing = installed([PEERS[name] for name in arguments.peers or PEERS])
        works = arguments.work or list(WORKS)
        results = dict(all_measured(works, peers, arguments.rounds, keep))
    print(tables(results, this_machine()))
    print("\n".join(bar.line() for bar in bars(results)))
    for name, reason in missing.items():
        print(f"{PEERS[name].title} was left out: {reason}")
    if arguments.write:
        report.write()
        print(f"Written: {report.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
