#!/usr/bin/python3
"""Writes tests/golden/iterable.golden: the batches of torch's DataLoader over an IterableDataset, in their order.

    python3 tests/golden/make_iterable.py
Worker w of 4 gives 100 w, 100 w + 1, ... tests/data/iterable_test.c makes the same streams.
"""
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import golden_file

LENGTHS = (9, 4, 7, 0)


class Streams(IterableDataset):
    def __iter__(self):
        worker = get_worker_info().id
        return iter(range(100 * worker, 100 * worker + LENGTHS[worker]))


if __name__ == "__main__":
    sections = []
    for size in (1, 2, 3, 5):
        for drop_last in (False, True):
            loader = DataLoader(Streams(), batch_size=size, num_workers=len(LENGTHS), drop_last=drop_last)
            rows = [" ".join(str(i) for i in [len(batch)] + batch.tolist()) for batch in loader]
            sections.append(("%d_%s" % (size, "full" if drop_last else "all"), rows))
    golden_file.write("iterable", "make_iterable.py", "batches of an iterable set of 4 workers", sections)
