"""Stand-in for a program that is a rank: notes what it sees in a file RANK of the folder NOTES, and does as it is told.

Arguments RANK:ACTION,ACTION... say what a rank does, * all ranks. It ends when LADDER_PARENT_PIPE closes.
"""

import json
import os
import signal
import sys
import threading
import time

NOTES = os.environ["NOTES"]
RANK = os.environ.get("RANK", "alone")
signals = []


def note(word):
    with open(f"{NOTES}/{RANK}", "a") as file:
        file.write(f"{word}\n")


def handle(number, _):
    signals.append(number)
    note(signal.Signals(number).name)


def watch(pipe):
    os.read(pipe, 1)
    note("alone")
    os._exit(1)


def wait_until(condition):
    while not condition():
        time.sleep(0.005)


def is_alive(rank):
    """Returns False once ./ladder has taken the rank's status."""
    try:
        os.kill(json.loads(open(f"{NOTES}/{rank}").readline())["pid"], 0)
    except ProcessLookupError:
        return False
    return True


ACTIONS = {
    "signals": lambda count: wait_until(lambda: len(signals) >= int(count)),
    "after": lambda rank: wait_until(lambda: not is_alive(rank)),
    "pause": lambda seconds: time.sleep(float(seconds)),
    "hang": lambda _: wait_until(lambda: False),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "out": lambda text: print(text, flush=True),
    "err": lambda text: print(text, file=sys.stderr, flush=True),
    "die": lambda name: os.kill(os.getpid(), signal.Signals[name]),
    "exit": lambda status: os._exit(int(status)),
}

told = [word.partition(":")[2] for word in sys.argv[1:] if word.partition(":")[0] in (RANK, "*")]
actions = [action.partition("=")[::2] for action in ",".join(told).split(",") if action]
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN and ("default", "") not in actions:
        signal.signal(number, handle)
if "LADDER_PARENT_PIPE" in os.environ and ("deaf", "") not in actions:
    threading.Thread(target=watch, args=[int(os.environ["LADDER_PARENT_PIPE"])], daemon=True).start()
facts = {
    "pid": os.getpid(),
    "session": os.getsid(0),
    "stdin": os.readlink("/proc/self/fd/0"),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "words": sys.argv[1:],
    "environment": dict(os.environ),
}
with open(f"{NOTES}.{RANK}", "w") as file:
    file.write(json.dumps(facts) + "\n")
os.rename(f"{NOTES}.{RANK}", f"{NOTES}/{RANK}")  # a file of notes has them from the beginning
size = int(os.environ.get("WORLD_SIZE", 1))
wait_until(lambda: len(os.listdir(NOTES)) >= size)
for name, value in actions:
    if name in ACTIONS:
        ACTIONS[name](value)
