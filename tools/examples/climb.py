#!/usr/bin/env python3
"""A search without a language model: doubles and halves the tile constants of a version, and climbs from the fastest.

    python3 tools/examples/climb.py conv3x3/fprop --from 8 --rounds 5 --width 6

It shows how a program of yours speaks to `./ladder try --serve`: a JSON line for each candidate, and one for its verdict.
All candidates go into results/search/, so `./ladder tree` draws the climb.
"""

import argparse
import json
import math
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTANT = re.compile(r"\bconstexpr int (k\w+) = (\d+);")


class Server:
    """`./ladder try --serve`, asked for one candidate after the other; `common` is in every request."""

    def __init__(self, command, **common):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace")
        self.common, self.count, self.last_line = common, 0, "it said nothing"
        self.relay = threading.Thread(target=self._relay_stderr, daemon=True)
        self.relay.start()

    def ask(self, **request):
        self.count += 1
        try:
            self.process.stdin.write(json.dumps({"id": self.count, **self.common, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            answer = json.loads(line) if line else self._ended()
        except OSError:  # nobody reads the requests any more
            answer = self._ended()
        except ValueError:
            answer = {"error": f"the server does not answer in JSON: {line.strip()}"}
        if "verdict" not in answer:
            sys.exit(f"climb: {answer.get('error')}")
        return answer

    def _relay_stderr(self):
        for line in self.process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            self.last_line = line.strip() or self.last_line

    def _ended(self):
        self.relay.join(timeout=5)  # until the last line is here
        return {"error": f"the server ended: {self.last_line}"}


def mutants(source, count, rng, tried):
    """Up to `count` (source, idea) that were not tried yet: each has one constant, or two, doubled or halved."""
    places = list(CONSTANT.finditer(source))
    for _ in range(20 * count if places else 0):
        text, ideas = source, []
        chosen = rng.sample(places, min(len(places), rng.choice((1, 1, 2))))
        for place in sorted(
            chosen, key=lambda place: -place.start()
        ):  # the last first, so that the others stay in place
            old = int(place[2])
            new = 2 * old if old < 2 or rng.random() < 0.5 else old // 2
            text = text[: place.start(2)] + str(new) + text[place.end(2) :]
            ideas.insert(0, f"{place[1]} {old} -> {new}")
        if text not in tried:
            tried.add(text)
            count -= 1
            yield text, ", ".join(ideas)
        if not count:
            return


def time_of(answer):
    """Microseconds with cold caches, as those of the baseline; None for what did not pass or was not timed."""
    return (answer.get("cold_us") or answer.get("us")) if answer["verdict"] == "PASS" else None


def climb(ask, version, source, rounds, width, rng):
    """(source, node, microseconds) of the fastest; None where the version itself has no time."""
    first = ask(source=source, idea="the version as it is", parent=version)
    if not time_of(first):
        print(f"{version}: {first['verdict']} {first.get('reason') or 'without a time'}")
        return None
    best, tried = (source, first["node"], time_of(first)), {source}
    print(f"{version}: {best[2]:.2f} us")
    for number in range(1, rounds + 1):
        source, parent, _ = best
        for text, idea in mutants(source, width, rng, tried):
            answer = ask(source=text, idea=idea, parent=parent)
            time = time_of(answer)
            print(f"round {number}: {f'{time:.2f} us' if time else answer['verdict']:<10} {idea}", flush=True)
            best = min(best, (text, answer["node"], time or math.inf), key=lambda one: one[2])
    return best


def main():
    parser = argparse.ArgumentParser(description="Climbs from a version by its tile constants.")
    parser.add_argument("target", metavar="layer/pass")
    parser.add_argument(
        "--from", dest="version", type=int, required=True, metavar="N", help="the version to begin with"
    )
    parser.add_argument("--rounds", type=int, default=4, help="each begins from the fastest so far (default: 4)")
    parser.add_argument("--width", type=int, default=6, help="candidates a round (default: 6)")
    parser.add_argument("--seed", type=int, default=1, help="of the choices (default: 1)")
    parser.add_argument("--problem", help="what to time, as ./ladder bench --problem takes it")
    parser.add_argument("--unsandboxed", action="store_true", help="handed on to ./ladder try: needs no bubblewrap")
    parser.add_argument("--server", type=shlex.split, help="what to speak to; default: ./ladder try --serve")
    chosen = parser.parse_args()
    files = sorted((ROOT / "dev" / chosen.target).glob(f"v{chosen.version:02d}_*.cu"))
    if not files:
        sys.exit(f"climb: {chosen.target} has no version {chosen.version}")
    if not chosen.server and not shutil.which("nvidia-smi"):
        sys.exit("climb: no GPU here (no nvidia-smi): a climb needs times")
    common = {"target": chosen.target, **({"problem": chosen.problem} if chosen.problem else {})}
    command = chosen.server or [str(ROOT / "ladder"), "try", "--serve"]
    server = Server(command + ["--unsandboxed"] * chosen.unsandboxed, **common)
    source, version = files[0].read_text(encoding="utf-8"), f"v{chosen.version:02d}"
    best = climb(server.ask, version, source, chosen.rounds, chosen.width, random.Random(chosen.seed))
    server.process.stdin.close()
    server.process.wait()
    if best:
        print(f"fastest: node {best[1]}, {best[2]:.2f} us; ./ladder promote-candidate {chosen.target} {best[1]}")
    return 0 if best else 1


if __name__ == "__main__":
    sys.exit(main())
