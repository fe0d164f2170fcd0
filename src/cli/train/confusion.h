/*
 * confusion.h - which class was taken for which. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_CONFUSION_H
#define YOKE_CLI_TRAIN_CONFUSION_H

#include <stdio.h>

#include <jansson.h>

#include "cli/train/net_form.h"

/* counts[truth * size + answer]; zero memory is an empty one. */
typedef struct confusion {
    int64_t *counts, size;
} confusion;

yk_status confusion_create(confusion *c, int64_t size);
void confusion_clear(confusion *c);
/* A class that is not in [0, size) is left out. */
void confusion_add(confusion *c, int64_t truth, int64_t answer);
/* The share of all samples whose answer was the truth; NaN: there are none. */
double confusion_accuracy(const confusion *c);
/* A table of at most `columns` columns, or where that is too narrow the errors that are most frequent; then how many of
 * each class are right. Class names are the form's. */
void confusion_print(const confusion *c, const net_form *form, int columns, FILE *to);
/* {"classes": [...], "counts": [[truth 0: answers 0, 1, ...], ...]} */
json_t *confusion_json(const confusion *c, const net_form *form);

#endif
