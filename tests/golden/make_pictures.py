#!/usr/bin/python3
"""Writes tests/golden/pictures.golden: what PIL makes of the BMP, TIFF, WebP, PGM and PPM seeds of tests/fuzz/corpus/fuzz_image.

    python3 tests/golden/make_pictures.py
Each section is a file: height, width, and its pixels as RGB, row by row.
"""
import glob
import os

import numpy
from PIL import Image

import golden_file

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sections = []
    for path in sorted(glob.glob(os.path.join(here, "../fuzz/corpus/fuzz_image/*"))):
        if not path.endswith((".bmp", ".webp", ".tif", ".pgm", ".ppm")):
            continue
        pixels = numpy.asarray(Image.open(path).convert("RGB"))
        sections.append((os.path.basename(path), list(pixels.shape[:2]) + pixels.flatten().tolist()))
    golden_file.write("pictures", "make_pictures.py", "pixels of files of pictures", sections)
