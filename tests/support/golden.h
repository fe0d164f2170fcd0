/*
 * golden.h - values that PyTorch computed, which tests compare with: files tests/golden/NAME.golden, written by the
 * scripts beside them (golden_file.py). A file has sections, each below a line "[SECTION]"; lines that begin with # are
 * for readers. A section is numbers, or rows: a line each, of words with single spaces.
 */
#ifndef YOKE_TESTS_GOLDEN_H
#define YOKE_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include <yoke/device.h>

/* The path of a file of the sources, wherever the test is started: below $YOKE_TEST_SOURCES, which scripts/run-test
 * sets, else below the current folder. The text lives until the next call. */
const char *source_path(const char *path);

/* The numbers of a section, in the order of the file. A file or section that is not there fails the test. What these
 * return lives as long as the process. */
const double *golden_numbers(const char *file, const char *section, size_t *count);
const char *const *golden_rows(const char *file, const char *section, size_t *count);

/* The next word of a row, after which *row then stands; one that is missing or of another kind fails the test. */
const char *golden_word(const char **row, char *word, size_t room);
double golden_number(const char **row);
int golden_integer(const char **row);
yk_dtype golden_dtype(const char **row);

#endif
