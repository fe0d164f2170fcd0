#!/usr/bin/env python3
"""Writes the first inputs of fuzz_rpc (values of every kind, a ring, one of every message), of fuzz_rpc_calls (calls
of the library's own functions and classes, and answers to all that it asks of other workers) and of fuzz_rpc_keep
(snapshots of objects).

usage: tests/fuzz/make_rpc_corpus.py tests/fuzz/corpus
"""
import io
import os
import struct
import sys
import zipfile

VALUE, RING, CALLER, WORKER = b"\0", b"\1", b"\2", b"\3"


def text8(text):
    return bytes([len(text)]) + text


def real(x):
    return b"\4" + struct.pack("<d", x)


def string(text):
    return b"\5" + struct.pack("<Q", len(text)) + text


def integer(x):
    return b"\3" + struct.pack("<q", x)


def mapping(**items):
    return b"\x0a" + struct.pack("<I", len(items)) + b"".join(
        b"\1" + struct.pack("<I", len(k)) + k.encode() + v for k, v in items.items())


def reference(number, owner=77, name=b"c", shared=b""):
    return b"\x0c" + struct.pack("<IQ", owner, number) + text8(name) + text8(shared)


def head(references=0, context=0, message=0):
    return struct.pack("<QIQQ", 1 if references else 0, references, context, message)


def listed(*items, kind=7):
    return bytes([kind]) + struct.pack("<I", len(items)) + b"".join(items)


def tensor(*sizes, dtype=0, data=None):
    count = 4
    for size in sizes:
        count *= size
    return bytes([11, dtype, len(sizes)]) + struct.pack(f"<{len(sizes)}q", *sizes) + (b"\x3f" * count if data is None else data)


def lent(*sizes, file=0, offset=0):
    return bytes([32, 0, len(sizes)]) + struct.pack(f"<{len(sizes)}qHQ", *sizes, file, offset)


def message(kind, payload):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def call(number, kind, target, name, args, sync=1, chain=(), shared=b"", lends=0, top=head()):
    begin = struct.pack("<QBQIB", number, kind, target, 5000, sync) + text8(name) + text8(shared)
    waits = bytes([len(chain)]) + b"".join(struct.pack("<Q", i) + text8(label) for i, label in chain)
    return message(3 | lends, begin + waits + top + args)


def reply(number, value, lends=0, top=head()):
    return message(4 | lends, struct.pack("<QB", number, 1) + top + value)


INT, NONE, TRUE, FALSE = integer(-5), b"\1", b"\2\1", b"\2\0"
REFERENCE = 77 << 40 | 1
DICT = b"\x0a" + struct.pack("<I", 2) + b"\1" + struct.pack("<I", 1) + b"k" + INT + b"\0" + struct.pack("<q", -1) + NONE


def frame(kind, payload):
    return struct.pack("<II", len(payload), kind) + payload + b"\0" * (-len(payload) % 8)


inputs = {
    "none": VALUE + NONE, "bool": VALUE + TRUE, "int": VALUE + INT, "real": VALUE + real(0.5), "string": VALUE + string("grüß".encode()),
    "bytes": VALUE + b"\6" + struct.pack("<Q", 3) + b"a\0b", "dict": VALUE + DICT,
    "nested": VALUE + listed(listed(listed(INT, kind=8), kind=9), DICT, tensor(2, 3), tensor(3, 0, dtype=4), tensor()),
    "ordered": VALUE + b"\x0b" + bytes([64, 3, 2, 0, 1]) + struct.pack("<3q", 2, 1, 3) + b"\x3f" * 24,
    "no_order": VALUE + b"\x0b" + bytes([64, 2, 1, 1]) + struct.pack("<2q", 2, 3) + b"\x3f" * 24,
    "graph": VALUE + b"\x0b" + bytes([128, 1]) + struct.pack("<q", 2) + b"\x3f" * 8,
    "deep": VALUE + b"\7\1\0\0\0" * 250 + NONE,
    "huge_tensor": VALUE + tensor(1 << 40, 1 << 40, data=b""), "huge_list": VALUE + b"\7\xff\xff\xff\xff",
    "not_lent": VALUE + lent(4), "reference": VALUE + reference(REFERENCE), "reference_shared": VALUE + reference(REFERENCE, 1, b"c", b"kept"),
    "ring": RING + struct.pack("<QQ", 8, 1) + frame(3, b"hello") + frame(7, b"") + frame(4, b"x" * 100),
    "ring_wrapped": RING + struct.pack("<QQ", (1 << 18) - 16, 1) + frame(3, b"hello" * 9) + frame(200, b"12345678"),
    "ring_position": RING + struct.pack("<QQ", 0, 3 << 40) + frame(3, b"hello"),
    "ring_size": RING + struct.pack("<QQ", 0, 1) + struct.pack("<II", 1 << 31, 1) + b"12345678",
    "function": CALLER + call(1, 1, 0, b"f", listed(INT)) + call(2, 1, 0, b"g", listed()),
    "object": CALLER + call(1, 2, REFERENCE, b"c", listed()) + call(2, 3, REFERENCE, b"m", listed(real(1)))
    + call(3, 3, REFERENCE, b"n", listed()) + call(4, 4, REFERENCE, b"to_here", listed())
    + message(5, struct.pack("<Q", 2)) + message(6, struct.pack("<Q", REFERENCE)),
    "result": CALLER + call(1, 2, REFERENCE, b"f", listed(tensor(4)), shared=b"s") + call(2, 4, REFERENCE, b"to_here", listed())
    + call(3, 2, REFERENCE + 1, b"f", listed(), shared=b"s"),
    "shared": CALLER + call(1, 2, REFERENCE, b"c", listed(), shared=b"s") + call(2, 2, REFERENCE + 1, b"c", listed(), shared=b"s")
    + call(3, 5, REFERENCE + 2, b"c", struct.pack("<Q", REFERENCE)) + call(4, 3, REFERENCE + 2, b"m", listed(NONE))
    + call(5, 7, REFERENCE, b"save", listed()) + call(6, 6, REFERENCE + 3, b"c", listed(), shared=b"t")
    + call(7, 5, REFERENCE + 4, b"c", struct.pack("<Q", 9)),
    "passed": CALLER + call(1, 1, 0, b"f", listed(reference(REFERENCE), reference(1 << 40 | 1, 1)), top=head(2))
    + message(8, struct.pack("<QI", 1, 2)),
    "context": CALLER + call(1, 1, 0, b"f", listed(b"\x0b" + bytes([128, 1]) + struct.pack("<q", 2) + b"\x3f" * 8),
                             top=head(0, 77 << 40 | 1, 77 << 40 | 1)),
    "chain": CALLER + call(1, 1, 0, b"f", listed(NONE), chain=[(1, b"a.b.c"), (77 << 32 | 1, b"x\x1b[2J")]),
    "lent": CALLER + call(1, 1, 0, b"f", listed(lent(1000), lent(8, 4, offset=64), lent(2, file=1), lent(1 << 20)), lends=128)
    + message(34, struct.pack("<Q", 1)) + message(35, struct.pack("<Q", 5)),
    "parts": CALLER + b"".join(message(7, struct.pack("<QQB", 9, len(whole), 3) + whole[i:i + 20])
                               for whole in [call(1, 1, 0, b"f", listed(tensor(8)))[5:]] for i in range(0, len(whole), 20)),
    "part_of_part": CALLER + message(7, struct.pack("<QQB", 1, 10, 7) + b"x"),
    "part_large": CALLER + message(7, struct.pack("<QQB", 1, 1 << 60, 3) + b"x"),
    "share": CALLER + message(32, struct.pack("<IQQIQQ", 3, 4, 532480, 5, 6, 4096) + b"n" * 16),
    "ping": CALLER + message(36, struct.pack("<Q", 7)), "pong": WORKER + message(37, struct.pack("<Q", 7)),
    "replies": WORKER + reply(1, listed(tensor(3), DICT))
    + message(4, struct.pack("<QBIBI", 2, 0, 3, 1, 12) + text8(b"file.c") + b"why \x1b[2J not")
    + reply(99, NONE) + reply(1, NONE),
    "reply_lent": WORKER + reply(1, lent(16), lends=128),
    "reply_reference": WORKER + reply(1, listed(reference(REFERENCE), reference(REFERENCE, 77, b"c", b"kept")), top=head(2)),
    "reply_parts": WORKER + message(7, struct.pack("<QQB", 1, 38, 4) + struct.pack("<QB", 3, 1) + head()[:10])
    + message(7, struct.pack("<QQB", 1, 38, 4) + head()[10:] + NONE),
    "reply_short": WORKER + message(4, b"\1\0\0"),
}

# fuzz_rpc_calls: calls to itself, and answers. A call is a number: of a function, or of a class and its method.
SERVER, MODULE, OPTIMIZER, CONTEXT, SNAPSHOT = (5 + 9 * i for i in range(5))
PUSH, PULL, ROWS, SET_LR, SAVE, MISSING = range(SERVER + 1, SERVER + 7)
MARK, RUN, GRADIENTS, FETCH, COPY = range(5)


def calls(*each):
    return b"\0" + b"".join(struct.pack("<BH", which, len(args)) + args for which, args in each)


def answers(which, *each):
    return b"\1" + bytes([which]) + b"".join(struct.pack("<H", len(one)) + one for one in each)


def value(content, **top):
    return b"\1" + head(**top) + content


def error(code, text):
    return struct.pack("<BIBI", 0, code, 1, 12) + text8(b"file.c") + text


def indices(*rows):
    return tensor(len(rows), dtype=4, data=struct.pack(f"<{len(rows)}q", *rows))


SGD = listed(*[real(0.1)] + [real(0)] * 3 + [FALSE] * 3)
ADAM = listed(real(0.1), real(0.9), real(0.999), real(1e-8), real(0), FALSE, FALSE, FALSE)
ADAGRAD = listed(real(0.1), real(0), real(0), real(0), real(1e-10), FALSE, FALSE)
TABLES = listed(listed(string(b"t"), integer(9), integer(2), real(1), integer(0)))
PIECES = listed(tensor(6), tensor(2))


def session(optimizer=b"sgd", options=SGD, rank=0, mode=0, trainers=1, folder=NONE, dense=PIECES, tables=TABLES, parts=1, back=FALSE, **more):
    return listed(mapping(**dict(dict(
        name=string(b"parameters"), layout=string(b"optimizer"), rank=integer(rank), trainers=integer(trainers),
        id=integer(5 + rank), job=integer(7), mode=integer(mode), staleness=integer(1), sum=FALSE, folder=folder,
        every=integer(1), part=integer(0), parts=integer(parts), seed=integer(0), optimizer=string(optimizer),
        options=options, names=listed(string(b"a"), string(b"b")), dense=dense, tables=tables, back=back), **more)))


def push(number, dense=PIECES, rows=None):
    rows = listed(listed(integer(0), indices(1, 3), tensor(2, 2))) if rows is None else rows
    return listed(integer(number), TRUE, dense, rows)


SAVED = mapping(updates=integer(3), trainers=listed(listed(integer(5), integer(3), integer(3), FALSE)))
EVERY_METHOD = [(PUSH, push(1)), (PUSH, push(1)), (PULL, listed()), (ROWS, listed(integer(0), indices(0, 8))),
                (SET_LR, listed(real(0.5))), (SAVE, listed()), (MISSING, listed())]
GRAPH = b"\x0b" + bytes([128, 2]) + struct.pack("<2q", 2, 3) + b"\x3f" * 24
FLAT = (struct.pack("<IBBQQQ", 2, 0, 2, 1, 2, 64) + struct.pack("<H", 1) + b"w" + struct.pack("<BBQ", 4, 0, 128)
        + struct.pack("<H", 1) + b"n").ljust(64, b"\0") + b"\x3f" * 8 + b"\0" * 64
VERSION = listed(integer(2), integer(7), tensor(len(FLAT), dtype=6, data=FLAT))
PULLED = value(listed(integer(1), listed(tensor(1, 2), tensor(1))))
call_inputs = {
    "session": calls((SERVER, session()), *EVERY_METHOD),
    "session_adam": calls((SERVER, session(b"adam", ADAM, mode=1)), *EVERY_METHOD),
    "session_adagrad": calls((SERVER, session(b"adagrad", ADAGRAD, mode=2)), *EVERY_METHOD),
    "session_saved": calls((SERVER, session(folder=string(b"x"))), *EVERY_METHOD),
    "session_back": calls((SERVER, session(folder=string(b"x"))), (PUSH, push(1)), (SNAPSHOT, SAVED),
                          (SERVER, session(folder=string(b"x"), back=TRUE)), *EVERY_METHOD),
    "session_back_adam": calls((SERVER, session(b"adam", ADAM, folder=string(b"x"))), (PUSH, push(1)), (SNAPSHOT, mapping()),
                               (SERVER, session(b"adam", ADAM, folder=string(b"x"), back=TRUE)), *EVERY_METHOD),
    "session_back_other": calls((SERVER, session(folder=string(b"x"))), (SNAPSHOT, mapping(parameters=listed(tensor(3), tensor(2)))),
                                (SERVER, session(folder=string(b"x"))), (SNAPSHOT, mapping(layout=string(b"o"))), (SERVER, session(folder=string(b"x")))),
    "session_back_lost": calls((SERVER, session(folder=string(b"x"), back=TRUE)), (PULL, listed())),
    "session_two": calls((SERVER, session(mode=1, trainers=2)), (PUSH, push(1)), (MISSING, listed()), (SERVER, session(rank=1, trainers=2))),
    "session_other": calls((SERVER, session(rank=1, trainers=2)), (SERVER, session(tables=listed())), (PUSH, push(1)), (PUSH, push(2, rows=listed()))),
    "session_sizes": calls((SERVER, session(dense=listed(listed(integer(6), integer(0)), listed(integer(2), integer(1)))))),
    "table_largest": calls((SERVER, session(parts=3, tables=listed(listed(string(b"t"), integer((1 << 63) - 1), integer(1 << 20), real(0), integer(0)))))),
    "push_wrong": calls((SERVER, session()), (PUSH, push(1, dense=listed(tensor(5), NONE))), (PUSH, push(1, dense=listed(NONE, NONE))),
                        (PUSH, push(2, rows=listed(listed(integer(0), indices(9), tensor(1, 2))))), (PUSH, push(2, rows=listed(INT)))),
    "module": calls((MODULE, listed(string(b"linear"), listed(integer(3)))), (MODULE + 1, listed(TRUE, integer(1), listed(tensor(2, 3)))),
                    (MODULE + 1, listed(FALSE, integer(2), listed(NONE, tensor(2, 3)))), (MODULE + 2, listed())),
    "optimizer": calls((OPTIMIZER, listed(string(b"adam"), ADAM)), (OPTIMIZER + 1, listed(integer(1 << 40))), (OPTIMIZER + 2, listed(real(0.5)))),
    "context": calls((CONTEXT, listed(integer(77))), (MARK, listed(integer(77), integer(1), listed(listed(integer(9), listed(integer(0)))))),
                     (MARK, listed(integer(77), integer(2), listed())), (GRADIENTS, listed(integer(77), integer(2), integer(9), listed(integer(0), listed(tensor(2))))),
                     (RUN, listed(integer(77), integer(2), FALSE))),
    "publish": calls((FETCH, listed(string(b"net"), integer(1), integer(0))), (FETCH, listed(string(b"net"), integer(9), integer(-1))),
                     (COPY, listed(string(b"fuzzed"), string(b"net"), integer(1))), (COPY, listed(string(b"nobody"), string(b"net"), integer(1)))),
    **{f"fetch_{way}": answers(i, *[value(VERSION)] * 4) for i, way in enumerate(("near", "away", "copied"))},
    **{f"fetch_{way}_without_tensor": answers(i, *[value(listed(integer(2), integer(7)))] * 4) for i, way in enumerate(("near", "away", "copied"))},
    "fetch_other_dtype": answers(0, value(listed(integer(2), integer(7), tensor(4)))),
    "fetch_failed": answers(2, value(listed(NONE, integer(5), string(b"why")))), "fetch_error": answers(0, error(5, b"why")),
    "server": answers(3, value(NONE), PULLED, value(tensor(3, 2)), PULLED, value(NONE), value(NONE), PULLED),
    "server_other_shape": answers(3, value(NONE), value(listed(integer(1), listed(tensor(4), tensor(1))))),
    "server_other_rows": answers(3, value(NONE), PULLED, value(tensor(2, 2))),
    "remote_module": answers(4, value(NONE), value(listed(tensor(2, 2))), value(listed(reference(2 << 40 | 1, 2)), references=1),
                             value(NONE), value(NONE), value(NONE), value(tensor(2))),
    "remote_objects": answers(5, value(integer(1)), value(reference(2 << 40 | 1, 2, b"c", b"kept"), references=1), value(NONE), value(tensor(2)), value(NONE)),
    "remote_gradients": answers(6, value(NONE), value(GRAPH, message=2 << 40 | 9), value(listed()), value(NONE)),
    "remote_marks": answers(6, value(NONE), value(GRAPH, message=2 << 40 | 9), value(listed(listed(integer(1), integer(1 << 40 | 1), listed(integer(0))))),
                            value(listed(listed(integer(2), integer(2 << 40 | 9), listed(integer(0))))), value(NONE)),
    "store_ended": b"\1\7" + b"9 it hung\nlast line\n", "store_ended_exit": b"\1\7" + b"256 ", "store_ended_none": b"\1\7\n",
    "store_member": b"\1\x08" + b"name host 12 127.0.0.1:80", "store_member_long": b"\1\x08" + b"n" * 150 + b" h 1 1.2.3.4:5",
    "store_member_short": b"\1\x08" + b"name host", "store_member_port": b"\1\x08" + b"name host 99999999999 1.2.3.4:99999",
}

# fuzz_rpc_keep: files, members with right checksums, values.
KNOWN = 4


def picked(text):
    return b"X" + struct.pack("<I", len(text)) + text


def stored(storage, count, size):
    """A tensor (size) of the storage, in a pickle."""
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + picked(b"storage") + b"ctorch\nFloatStorage\n" + picked(storage)
            + picked(b"cpu") + b"K" + bytes([count]) + b"tQK\0" + size + b"\x89ccollections\nOrderedDict\n)RtR")


def snapshot(state, cls=b"whole"):
    return b"\x80\2}(" + picked(b"class") + picked(cls) + picked(b"name") + picked(b"kept") + picked(b"state") + state + b"u."


def archive(**members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo("archive/" + name.replace("_", "/", 1) if name != "pickle" else "archive/data.pkl"), content)
    return data.getvalue()


def members(*each):
    return b"".join(struct.pack("<BH", i, len(content)) + content for i, content in each)


WEIGHTS = stored(b"0", 6, b"K\2K\3\x86K\3K\1\x86")
PROGRAM = b"}(" + picked(b"sum") + b"K\5" + picked(b"texts") + b"](" + picked(b"a") + b"e" + picked(b"weights") + WEIGHTS + b"u"
STATE = mapping(sum=integer(5), texts=listed(string(b"a"), string(b"b")), weights=tensor(2, 3))
FLOATS = struct.pack("<6f", *range(6))
keep_inputs = {
    "file": b"\0" + archive(pickle=snapshot(PROGRAM), data_0=FLOATS, version=b"3\n"),
    "file_known": bytes([KNOWN]) + archive(pickle=snapshot(PROGRAM, b"known"), data_0=FLOATS, version=b"3\n"),
    "file_cut": b"\0" + archive(pickle=snapshot(PROGRAM), data_0=FLOATS)[:300], "file_empty": b"\0", "file_text": b"\0{}",
    "members": b"\1" + members((0, snapshot(PROGRAM)), (1, FLOATS), (3, b"3\n"), (4, b"little")),
    "members_known": bytes([KNOWN + 1]) + members((0, snapshot(PROGRAM, b"known")), (1, FLOATS), (3, b"3\n")),
    "members_big": b"\1" + members((0, snapshot(PROGRAM)), (1, FLOATS), (4, b"big")),
    "members_short": b"\1" + members((0, snapshot(PROGRAM)), (1, FLOATS[:8])),
    "members_twice": b"\1" + members((0, snapshot(b"N")), (0, snapshot(b"N"))), "members_none": b"\1",
    "members_shared": b"\1" + members((0, snapshot(b"(" + WEIGHTS + stored(b"0", 6, b"K\3\x85K\0\x85") + b"t")), (1, FLOATS)),
    "members_complex": b"\1" + members((0, snapshot(b"](K\1cbuiltins\ncomplex\nG" + b"\0" * 8 + b"G" + b"\0" * 8 + b"\x86Re"))),
    "members_ordered": b"\1" + members((0, snapshot(b"ccollections\nOrderedDict\n)R(" + picked(b"k") + b"K\1u"))),
    "members_class": b"\1" + members((0, snapshot(b"cos\nsystem\n" + picked(b"true") + b"\x85R"))),
    "other_class": b"\1" + members((0, snapshot(PROGRAM, b"known"))),
    "state": b"\2" + STATE, "state_known": bytes([KNOWN + 2]) + STATE, "state_none": b"\2" + NONE,
    "state_list": bytes([KNOWN + 2]) + listed(INT), "state_texts": bytes([KNOWN + 2]) + mapping(sum=integer(1), texts=DICT, weights=NONE),
    "state_sum": bytes([KNOWN + 2]) + mapping(sum=string(b"x"), texts=listed(INT), weights=tensor(3, 2)),
    "state_nested": b"\2" + listed(listed(listed(INT, kind=8), kind=9), DICT, tensor(2, 3), tensor(3, 0, dtype=4), tensor(), b"\6" + struct.pack("<Q", 3) + b"a\0b", real(float("nan"))),
    "state_ordered": b"\2" + b"\x0b" + bytes([64, 3, 2, 0, 1]) + struct.pack("<3q", 2, 1, 3) + b"\x3f" * 24,
    "state_deep": b"\2" + b"\7\1\0\0\0" * 197 + NONE, "state_reference": b"\2" + listed(reference(REFERENCE)),
    "whole": b"\3" + mapping(**{"class": string(b"whole"), "name": string(b"kept"), "state": STATE}),
    "whole_without_class": b"\3" + mapping(state=STATE), "whole_without_state": b"\3" + mapping(**{"class": string(b"whole")}),
    "whole_class_number": b"\3" + mapping(**{"class": INT, "state": NONE}), "whole_list": b"\3" + listed(INT), "whole_tensor": b"\3" + tensor(3),
}
# Messages of a worker that asks for an object that came back: the file's kind, the other class or not.
NO_FILE, RIGHT, OTHER_CLASS, NO_DICT = (bytes([8 + 16 * i]) for i in range(4))
PAUSE = message(0, b"")


def back(number, reference, cls=b"whole", shared=b"kept"):
    return call(number, 6, reference, cls, listed(), shared=shared)


def drop(reference):
    return message(6, struct.pack("<Q", reference))


USE = call(8, 3, REFERENCE, b"m", listed()) + call(9, 7, REFERENCE, b"save", listed())
keep_inputs.update({
    "back": RIGHT + back(1, REFERENCE) + PAUSE + USE + PAUSE,
    "back_at_once": RIGHT + back(1, REFERENCE) + USE + drop(REFERENCE) + PAUSE + back(2, REFERENCE + 1) + PAUSE,
    "back_twice": RIGHT + back(1, REFERENCE) + back(2, REFERENCE) + back(3, REFERENCE + 1) + drop(REFERENCE) + PAUSE + back(4, REFERENCE + 2),
    "back_known": bytes([RIGHT[0] + KNOWN]) + back(1, REFERENCE, b"known") + USE + PAUSE + drop(REFERENCE) + PAUSE,
    "back_without_file": NO_FILE + back(1, REFERENCE) + PAUSE + USE, "back_other_class": OTHER_CLASS + back(1, REFERENCE) + PAUSE + USE,
    "back_no_dict": bytes([NO_DICT[0] + KNOWN]) + back(1, REFERENCE, b"known") + PAUSE + USE + back(2, REFERENCE + 1, b"known"),
    "back_no_class": RIGHT + back(1, REFERENCE, b"wole") + USE, "back_no_name": RIGHT + back(1, REFERENCE, shared=b"") + USE,
    "back_path": RIGHT + back(1, REFERENCE, shared=b"../kept") + USE, "back_number": RIGHT + back(1, 5 << 40 | 1),
    "back_and_made": RIGHT + back(1, REFERENCE) + call(2, 2, REFERENCE + 1, b"whole", listed(), shared=b"kept") + USE
    + call(3, 2, REFERENCE + 2, b"known", listed(), shared=b"kept") + PAUSE,
    "back_passed": RIGHT + back(1, REFERENCE) + call(2, 5, REFERENCE + 1, b"whole", struct.pack("<Q", REFERENCE)) + drop(REFERENCE)
    + call(3, 3, REFERENCE + 1, b"m", listed()) + PAUSE,
    "back_fetched": RIGHT + back(1, REFERENCE) + call(2, 4, REFERENCE, b"to_here", listed()) + message(5, struct.pack("<Q", 2)) + PAUSE,
    "back_of_nothing": RIGHT + USE + drop(REFERENCE) + PAUSE,
})
for target, files in ("fuzz_rpc", inputs), ("fuzz_rpc_calls", call_inputs), ("fuzz_rpc_keep", keep_inputs):
    folder = os.path.join(sys.argv[1], target)
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
