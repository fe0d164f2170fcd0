"""perfetto_check.py JSON PFTRACE: the packets of a trace in Perfetto's form, decoded here, have the events of its JSON, with
their names and times; each slice ends, and none before what is in it. Field numbers are those of perfetto_trace.proto."""
import collections
import json
import sys


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        else:
            assert key & 7 == 2, key
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        found[key >> 3].append(value)
    return found


def ns(number):
    return round(number * 1000)


with open(sys.argv[1], encoding="ascii") as source:
    events = [event for event in json.load(source)["traceEvents"] if event["ph"] != "M"]
arrows = {(event["ph"], event["id"]) for event in events if event["ph"] in "sf"}
events = [event for event in events if event["ph"] not in "sf"]
base = min(ns(event["ts"]) for event in events)
expected = collections.Counter((e["ph"], e["name"], ns(e["ts"]) - base, ns(e.get("dur", 0))) for e in events)
with open(sys.argv[2], "rb") as source:
    packets = [fields(packet) for packet in fields(source.read())[1]]
assert packets[0][13] == [3] and all(packet[13] == [2] for packet in packets[1:])
names, tracks, stacks, found = {1: {}, 2: {}}, {}, collections.defaultdict(list), collections.Counter()
found_arrows = set()
for packet in packets:
    if 60 in packet:
        descriptor = fields(packet[60][0])
        assert descriptor[1][0] not in tracks
        tracks[descriptor[1][0]] = descriptor
        continue
    for interned in packet[12]:
        for field, texts in fields(interned).items():
            for text in map(fields, texts):
                assert text[1][0] not in names[field]
                names[field][text[1][0]] = text[2][0].decode()
    [time], event = packet[8], fields(packet[11][0])
    [kind], [track] = event[9], event[11]
    assert track in tracks
    went = [("s", arrow) for arrow in event[47]] + [("f", arrow) for arrow in event[48]]
    assert (not event[47] or kind == 1) and (not event[48] or kind == 2) and not found_arrows & set(went)
    found_arrows |= set(went)
    if kind == 2:
        begin, name = stacks[track].pop()
        found["X", name, begin, time - begin] += 1
    elif kind == 1:
        assert event[3][0] in names[1]
        stacks[track].append((time, names[2][event[10][0]]))
    elif kind == 3:
        found["i", names[2][event[10][0]], time, 0] += 1
    else:
        found["C", tracks[track][2][0].decode(), time, 0] += 1
assert not any(stacks.values())
assert found == expected, (list(found - expected)[:5], list(expected - found)[:5])
assert found_arrows == arrows, (len(found_arrows), len(arrows))
print(len(arrows) // 2, "arrows")
