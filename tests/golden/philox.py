"""Philox 4x32-10 with numpy: the numbers that yoke's tests make, made again in Python.

A stream is (key, purpose, epoch) as in src/base/core.h; block i gives four words.
"""
import numpy as np

TEST = 5  # YK__RANDOM_TEST


def blocks(count, key, epoch, purpose=TEST):
    """(count, 4) words for blocks 0..count-1 of a stream."""
    index = np.arange(count, dtype=np.uint64)
    c = [index & np.uint64(0xFFFFFFFF), index >> np.uint64(32),
         np.full(count, epoch, np.uint64), np.full(count, purpose, np.uint64)]
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & low]
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(c, axis=1)


def uniform(count, key, epoch):
    """`count` doubles in [0, 1): two a block, 53 bits each."""
    words = blocks((count + 1) // 2, key, epoch).reshape(-1, 2)[:count]
    bits = (words[:, 0] << np.uint64(32)) | words[:, 1]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0 ** -53
