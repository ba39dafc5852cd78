"""Progress of a recording, and an estimate of the time left."""

import time

from records import record_files

from . import say


def seconds_spent(results, slug):
    """{"layer/pass/vNN_idea/problem": seconds that its newest record on this device took}."""
    spent = {}
    for record in record_files.load_all(results, slug)[0]:
        spent.update(
            {
                f"{result.path}/v{result.version:02d}_{result.idea}/{result.problem}": result.seconds_spent
                for result in record.results
                if result.seconds_spent > 0
            }
        )
    return spent


class Progress:
    """Progress of a recording. Estimates the time left from the time that the same results took last time."""

    def __init__(self, names, estimates):
        self.names, self.finished = names, {}
        known = [estimates[name] for jobs in names.values() for name in jobs if name in estimates]
        self.typical = sum(known) / len(known) if known else None
        self.estimates = estimates
        self.started, self.seen_before = time.monotonic(), None

    @property
    def done(self):
        return sum(self.finished.values())

    def forecast(self):
        return f"about {_minutes(self._expected(0))} by the last record" if self.typical else "no estimate yet"

    def start(self, part):
        self.finished.setdefault(part, 0)

    def show(self, part, done):
        self.finished[part] = max(self.finished[part], done)
        if self.seen_before is None:
            self.seen_before = self.done  # results of an interrupted run: they do not count for this run's pace
        total = sum(len(jobs) for jobs in self.names.values())
        left = self._left()
        about = f", about {_minutes(left)} left" if left is not None else ""
        at = self.names[part][done] if done < len(self.names[part]) else part
        say.progress(f"{say.bar(self.done, total)} {self.done} of {total}{about}  {at}")

    def _left(self):
        spent, new_ones = time.monotonic() - self.started, self.done - (self.seen_before or 0)
        if self.typical:
            # This run's pace against the last one's, as if ten results had come at the same pace: a few that took no time
            # last time say nothing.
            expected_so_far = self._expected(self.seen_before or 0) - self._expected(self.done)
            usual = 10 * self.typical
            return (spent + usual) / (expected_so_far + usual) * self._expected(self.done)
        if new_ones < 1:
            return None
        total = sum(len(jobs) for jobs in self.names.values())
        return spent / new_ones * (total - self.done)

    def _expected(self, done):
        """Seconds that the results after the first `done` took last time; the typical time for a new result."""
        jobs = [name for part in self.names.values() for name in part]
        return sum(self.estimates.get(name, self.typical) for name in jobs[done:])


def _minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
