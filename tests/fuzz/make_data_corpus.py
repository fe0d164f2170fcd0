#!/usr/bin/env python3
"""Writes the seeds of the data layer's fuzzers: corpus/fuzz_{idx,cifar,image,tar}/* beside this file.

Usage: tests/fuzz/make_data_corpus.py
"""
import base64
import gzip
import io
import os
import struct
import tarfile
import zlib

JPEGS = {  # 17 x 16 pixels each
    "grey": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm
x5moq6T/wAALCAAQABEBAREA/8QAFwAAAwEAAAAAAAAAAAAAAAAAAgMEBf/EABgQAAMBAQAAAAAAAAAAAAAAAAADYQQU/9oACAEBAAA/AMhWeFas
8H88DVnhYrPB3PD/2Q==
""",
    "rgb420": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm
x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAQABED
ASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAgAD/8QAFxABAQEBAAAAAAAAAAAAAAAAAAECEv/EABUBAQEAAAAAAAAAAAAAAAAAAAME/8QA
GREBAAIDAAAAAAAAAAAAAAAAAAIDBBMU/9oADAMBAAIRAxEAPwB3QXQ3QXSOFQ6sVp0mXSLqVcr/2Q==
""",
    "progressive": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm
x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wgARCAAQABED
ASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAQIA/8QAFQEBAQAAAAAAAAAAAAAAAAAAAgP/2gAMAwEAAhADEAAAAUJia05V/8QAFBABAAAA
AAAAAAAAAAAAAAAAIP/aAAgBAQABBQJf/8QAFxEBAAMAAAAAAAAAAAAAAAAAAAIDE//aAAgBAwEBPwGNTJ//xAAXEQEAAwAAAAAAAAAAAAAAAAAA
AQIS/9oACAECAQE/AYqy/8QAFBABAAAAAAAAAAAAAAAAAAAAIP/aAAgBAQAGPwJf/8QAFRABAQAAAAAAAAAAAAAAAAAAABH/2gAIAQEAAT8hqqqq
/9oADAMBAAIAAwAAABCTL//EABQRAQAAAAAAAAAAAAAAAAAAABD/2gAIAQMBAT8QJ//EABQRAQAAAAAAAAAAAAAAAAAAABD/2gAIAQIBAT8QP//E
ABYQAQEBAAAAAAAAAAAAAAAAAAEAEP/aAAgBAQABPxBjgxw//9k=
""",
    "cmyk": """
/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAoHB4jHhkoIyEjLSsoMDxkQTw3Nzx7WF1JZJGAmZaPgIyKoLTmw6Cq2q2KjMj/y9ru9f///5vB////+v/m
/f/4/8AAFAgAEAARBEMRAE0RAFkRAEsRAP/EABgAAAMBAQAAAAAAAAAAAAAAAAIDBAUB/8QAGBABAQEBAQAAAAAAAAAAAAAAAAIDExL/2gAOBEMA
TQBZAEsAAD8A0L1Z8ZNWraF6p71URkXVp71K6m8geyuob1FGTlWG9U96qIyLq096l9TOQfZfV//Z
""",
}


def png(color, depth, channels, interlace):
    width, height = 5, 4

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def rows(w, h):
        return b"".join(b"\0" + bytes((17 * i + y) % 256 for i in range((w * channels * depth + 7) // 8)) for y in range(h))

    if interlace:  # the seven passes of Adam7: first column and row, then the steps
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
        data = b"".join(rows(w, h) for w, h in sizes if w > 0 and h > 0)
    else:
        data = rows(width, height)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace))
    if color == 3:
        out += chunk(b"PLTE", bytes(range(48))) + chunk(b"tRNS", b"\0\x80")
    return out + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


# A picture of 7 x 5 pixels, without loss, and another with.
WEBPS = {
    "lossless": """
UklGRjoAAABXRUJQVlA4TC0AAAAvBgABALmM6H/soviF739AUds2UJH0Xf4Yr43BKW7UtG3ApIM/3NwxAXzQii8A
""",
    "lossy": """
UklGRkwAAABXRUJQVlA4IEAAAADwAQCdASoHAAUAAUAmJbACdEyAAdU2pbAA/uoB8k6YMEJbbjiz7w5DUheP4PE/6f6ZfW/9tN9lvmP/+//vToAA
""",
}


def bmp(bits, header, top_down=False, masks=None, colors=None):
    width, height = 7, 5
    stride = (width * bits + 31) // 32 * 4
    rows = bytes((29 * i + 7 * (i // 3)) % 256 for i in range(stride * height))
    entry = 3 if header == 12 else 4
    count = colors or (1 << bits if bits <= 8 else 0)
    palette = b"".join(bytes((5 * i % 256, 11 * i % 256, 255 - i, 0))[:entry] for i in range(count))
    mask_bytes = struct.pack("<III", *masks) if masks else b""
    start = 14 + max(header, 40 + len(mask_bytes) if masks else header) + len(palette)
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", header, width, -height if top_down else height, 1, bits, 3 if masks else 0,
                           len(rows), 0, 0, colors or 0, 0) + mask_bytes
        head += bytes(max(0, header - len(head)))
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + palette + rows


def tiff(photometric, samples, bits=8, order="<", deflate=False, planes=False, tile=False, orientation=1, extra=None):
    width, height = 7, 5
    columns, rows = (16, 16) if tile else (width, height)

    def samples_of(count, plane):
        values = [(29 * i + 7 * (i // 3) + 50 * plane) % 256 for i in range(count)]
        if bits == 16:
            return struct.pack(f"{order}{count}H", *(257 * v & 0xffff for v in values))
        return bytes(values)

    row_bytes = (columns * (1 if planes else samples) * bits + 7) // 8
    parts = [samples_of(row_bytes * rows * 8 // max(bits, 8), plane) for plane in range(samples if planes else 1)]
    if deflate:
        parts = [zlib.compress(part) for part in parts]
    head = (b"II*\0" if order == "<" else b"MM\0*")
    at, offsets = 8, []
    for part in parts:
        offsets.append(at)
        at += len(part) + len(part) % 2
    entries = [(256, 4, [width]), (257, 4, [height]), (258, 3, [bits] * samples), (259, 3, [8 if deflate else 1]),
               (262, 3, [photometric]), (274, 3, [orientation]), (277, 3, [samples]), (284, 3, [2 if planes else 1])]
    sizes = [len(part) for part in parts]
    entries += ([(322, 3, [16]), (323, 3, [16]), (324, 4, offsets), (325, 4, sizes)] if tile else
                [(273, 4, offsets), (278, 3, [height]), (279, 4, sizes)])
    if photometric == 3:
        entries.append((320, 3, [(977 * i) & 0xffff for i in range(3 << bits)]))
    if extra is not None:
        entries.append((338, 3, [extra]))
    entries.sort()
    values_at = at + 2 + 12 * len(entries) + 4
    directory, values = struct.pack(order + "H", len(entries)), b""
    for tag, kind, numbers in entries:
        content = struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        directory += struct.pack(order + "HHI", tag, kind, len(numbers))
        if len(content) <= 4:
            directory += content.ljust(4, b"\0")
        else:
            directory += struct.pack(order + "I", values_at + len(values))
            values += content
    body = b"".join(part + bytes(len(part) % 2) for part in parts)
    return head + struct.pack(order + "I", at) + body + directory + bytes(4) + values


def pnm(kind, most, comment=b""):
    width, height = 7, 5
    count = width * height * (3 if kind == b"P6" else 1)
    values = [(29 * i + 7 * (i // 3)) % (most + 1) for i in range(count)]
    pixels = struct.pack(f">{count}H", *values) if most > 255 else bytes(values)
    return kind + b"\n" + comment + b"7 5\n%d\n" % most + pixels


TIFFS = {
    "grey": tiff(1, 1), "white": tiff(0, 1, order=">"), "bit": tiff(1, 1, bits=1), "palette": tiff(3, 1),
    "palette4": tiff(3, 1, bits=4), "rgb": tiff(2, 3), "rgb-be": tiff(2, 3, order=">"), "deflate": tiff(2, 3, deflate=True),
    "rgb16": tiff(2, 3, bits=16), "rgb16-be": tiff(2, 3, bits=16, order=">"), "planes": tiff(2, 3, planes=True),
    "tiles": tiff(2, 3, tile=True), "alpha": tiff(2, 4, extra=2), "premultiplied": tiff(2, 4, extra=1),
    **{f"turned{o}": tiff(2, 3, orientation=o) for o in range(2, 9)},
}
PNMS = {"grey.pgm": pnm(b"P5", 255), "few.pgm": pnm(b"P5", 9), "rgb.ppm": pnm(b"P6", 255, b"# a comment\n"),
        "wide.ppm": pnm(b"P6", 1000)}


def tar(form, names):
    """An archive of small files; a name that ends in a slash is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for i, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = 0 if name.endswith("/") else 3 * i
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()[:6144]  # without most of the zeros at its end


def main():
    seeds = {}
    images = struct.pack(">IIII", 0x803, 3, 2, 2) + bytes(range(12))
    labels = struct.pack(">II", 0x801, 5) + bytes(range(5))
    for kind, first, content in (("images", b"\0", images), ("labels", b"\1", labels)):
        seeds[f"idx/{kind}"] = first + content
        seeds[f"idx/{kind}.gz"] = first + gzip.compress(content, mtime=0)
        seeds[f"idx/{kind}.two.gz"] = first + gzip.compress(content[:9], mtime=0) + gzip.compress(content[9:], mtime=0)
        seeds[f"idx/{kind}.padded.gz"] = first + gzip.compress(content, mtime=0) + bytes(9)
    seeds["cifar/one"] = b"\3" + bytes(i % 256 for i in range(3072))
    seeds["cifar/two"] = seeds["cifar/one"] + b"\x0a" + bytes(3072)
    for name, text in JPEGS.items():
        seeds[f"image/{name}.jpg"] = base64.b64decode(text)
    clean = seeds["image/grey.jpg"]
    table, scan = clean.index(b"\xff\xc4"), clean.index(b"\xff\xda")
    seeds["image/stray.jpg"] = clean[:table] + b"\x11" + clean[table:scan] + b"\x22\x33" + clean[scan:-2] + bytes(9) + clean[-2:]
    for color, depth, channels in ((0, 1, 1), (0, 8, 1), (0, 16, 1), (2, 8, 3), (2, 16, 3), (3, 4, 1), (4, 8, 2), (6, 8, 4)):
        for interlace in (0, 1):
            seeds[f"image/{color}-{depth}-{interlace}.png"] = png(color, depth, channels, interlace)
    for interlace in (0, 1):
        seeds[f"image/endless-{interlace}.png"] = seeds[f"image/2-8-{interlace}.png"][:-14]
    for bits in (1, 4, 8, 16, 24, 32):
        seeds[f"image/{bits}.bmp"] = bmp(bits, 40)
        if bits <= 8 or bits == 24:
            seeds[f"image/{bits}-core.bmp"] = bmp(bits, 12)
    seeds["image/8-few.bmp"] = bmp(8, 40, colors=256)
    seeds["image/24-down.bmp"] = bmp(24, 124, top_down=True)
    seeds["image/16-565.bmp"] = bmp(16, 40, masks=(0xf800, 0x7e0, 0x1f))
    seeds["image/32-masks.bmp"] = bmp(32, 56, masks=(0xff0000, 0xff00, 0xff))
    for name, text in WEBPS.items():
        seeds[f"image/{name}.webp"] = base64.b64decode(text)
    for name, content in TIFFS.items():
        seeds[f"image/{name}.tif"] = content
    for name, content in PNMS.items():
        seeds[f"image/{name}"] = content
    names = ("d/", "d/1.png", "d/1.cls")
    for name, form, last in (("ustar", tarfile.USTAR_FORMAT, "y" * 90 + "/" + "x" * 60),
                             ("gnu", tarfile.GNU_FORMAT, "x" * 120), ("pax", tarfile.PAX_FORMAT, "x" * 120)):
        seeds[f"tar/{name}.tar"] = tar(form, names + (last,))
    for name, content in seeds.items():
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "fuzz_" + name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


main()
