"""trace_check.py FILE [RANKS]: what a viewer of Chrome's traces expects of a file: it parses, every event has its members,
and on each thread events nest strictly, compared in whole nanoseconds; an arrow goes forward in time, from within an event
of communication to within one of another rank. Prints a count of events for each category, and of arrows as "flow"."""
import collections
import json
import sys


def ns(number):
    return round(number * 1000)


with open(sys.argv[1], encoding="ascii") as source:
    trace = json.load(source)
assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}, set(trace)
ranks = [r["rank"] for r in trace["otherData"]["ranks"]]
if len(sys.argv) > 2:
    assert sorted(ranks) == list(range(int(sys.argv[2]))), ranks
threads = collections.defaultdict(list)
counts = collections.Counter()
arrows = collections.defaultdict(list)
ends = collections.defaultdict(list)
for event in trace["traceEvents"]:
    assert event["ph"] in "XiCMsf" and event["pid"] in ranks and isinstance(event["name"], str), event
    if event["ph"] == "X":
        assert event["dur"] >= 0, event
        if event["cat"] in ("communication", "message", "wait"):
            ends[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
        threads[event["pid"], event["tid"]].append((ns(event["ts"]), -ns(event["dur"]), event["name"]))
    if event["ph"] in "sf":
        arrows[event["id"]].append(event)
    elif event["ph"] != "M":
        counts[event["cat"]] += 1
for thread, events in threads.items():
    open_ends = []
    for begin, minus, name in sorted(events):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or begin - minus <= open_ends[-1], (thread, name, begin)
        open_ends.append(begin - minus)
for arrow, (start, finish) in arrows.items():
    assert start["ph"] == "s" and finish["ph"] == "f" and finish["bp"] == "e" and start["name"] == finish["name"], arrow
    assert start["pid"] != finish["pid"] and start["ts"] <= finish["ts"], (start, finish)
    for event in start, finish:
        at = ns(event["ts"])
        assert any(begin <= at <= end for begin, end in ends[event["pid"], event["tid"]]), event
counts["flow"] = len(arrows)
print(*(f"{category} {count}" for category, count in sorted(counts.items())))
