/*
 * confusion.c - which class was taken for which: counts, as a table for people and as JSON for programs. Layer: cli.
 */
#include "cli/train/confusion.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/json_line.h"
#include "cli/options.h"

enum { MOST_CLASSES = 4096, MOST_ERRORS = 20, NAME = 16 /* columns of a class's name, at most */ };

yk_status confusion_create(confusion *c, int64_t size)
{
    *c = (confusion){0};
    if (size < 1 || size > MOST_CLASSES)
        return yk__fail(YK_ERR_ARGUMENT, "a confusion matrix of %" PRId64 " classes: from 1 to %d can be counted", size,
                        MOST_CLASSES);
    c->counts = yk__calloc((size_t)(size * size), sizeof(*c->counts));
    c->size = size;
    return c->counts ? YK_OK : YK_ERR_MEMORY;
}

void confusion_clear(confusion *c)
{
    free(c->counts);
    *c = (confusion){0};
}

void confusion_add(confusion *c, int64_t truth, int64_t answer)
{
    if (truth >= 0 && truth < c->size && answer >= 0 && answer < c->size)
        c->counts[truth * c->size + answer]++;
}

static int64_t row_sum(const confusion *c, int64_t truth)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < c->size; i++)
        sum += c->counts[truth * c->size + i];
    return sum;
}

double confusion_accuracy(const confusion *c)
{
    int64_t right = 0, all = 0;
    for (int64_t i = 0; i < c->size; i++) {
        right += c->counts[i * c->size + i];
        all += row_sum(c, i);
    }
    return all ? (double)right / (double)all : NAN;
}

/* A class's name for the terminal, cut to NAME columns. */
static const char *class_text(const net_form *form, int64_t i, char text[4 * NAME + 1])
{
    char number[32];
    const char *name = net_form_class(form, i, number);
    return yk__escape(name, strlen(name), text, NAME + 1);
}

/* Width of the widest number, or of the widest name. */
static int widest_count(const confusion *c)
{
    int64_t most = 0;
    for (int64_t i = 0; i < c->size * c->size; i++)
        most = c->counts[i] > most ? c->counts[i] : most;
    return snprintf(NULL, 0, "%" PRId64, most);
}

static int widest_name(const confusion *c, const net_form *form)
{
    char text[4 * NAME + 1];
    size_t most = 0;
    for (int64_t i = 0; i < c->size; i++) {
        size_t length = strlen(class_text(form, i, text));
        most = length > most ? length : most;
    }
    return (int)most;
}

static void print_table(const confusion *c, const net_form *form, int name, int width, FILE *to)
{
    char text[4 * NAME + 1];
    fprintf(to, "%*s", name, "");
    for (int64_t i = 0; i < c->size; i++)
        fprintf(to, "  %*s", width, class_text(form, i, text));
    fprintf(to, "  right\n");
    for (int64_t truth = 0; truth < c->size; truth++) {
        int64_t all = row_sum(c, truth);
        fprintf(to, "%-*s", name, class_text(form, truth, text));
        for (int64_t i = 0; i < c->size; i++)
            fprintf(to, "  %*" PRId64, width, c->counts[truth * c->size + i]);
        if (all)
            fprintf(to, "  %5.3f", (double)c->counts[truth * c->size + truth] / (double)all);
        fputc('\n', to);
    }
}

/* An error and how often it was made. */
typedef struct mistake {
    int64_t truth, answer, count;
} mistake;

static void print_errors(const confusion *c, const net_form *form, FILE *to)
{
    char text[4 * NAME + 1];
    mistake worst[MOST_ERRORS] = {{0}};
    int n = 0;
    for (int64_t at = 0; at < c->size * c->size; at++) {
        mistake m = {at / c->size, at % c->size, c->counts[at]};
        int row = n;
        if (m.truth == m.answer || !m.count)
            continue;
        while (row > 0 && worst[row - 1].count < m.count)
            row--;
        if (row == MOST_ERRORS)
            continue;
        n += n < MOST_ERRORS;
        memmove(worst + row + 1, worst + row, (size_t)(n - row - 1) * sizeof(*worst));
        worst[row] = m;
    }
    for (int i = 0; i < n; i++) {
        fprintf(to, "%" PRId64 " times %s", worst[i].count, class_text(form, worst[i].truth, text));
        fprintf(to, " was taken for %s, of %" PRId64 "\n", class_text(form, worst[i].answer, text),
                row_sum(c, worst[i].truth));
    }
    if (!n)
        fprintf(to, "no errors\n");
}

void confusion_print(const confusion *c, const net_form *form, int columns, FILE *to)
{
    int name = widest_name(c, form), count = widest_count(c), width = count > name ? count : name;
    if (name + (int64_t)(width + 2) * c->size + 7 <= columns) {
        fprintf(to, "confusion: rows are the true classes, columns the network's answers\n");
        print_table(c, form, name, width, to);
    } else {
        fprintf(to, "confusion: the errors that are most frequent (--json: all counts)\n");
        print_errors(c, form, to);
    }
}

json_t *confusion_json(const confusion *c, const net_form *form)
{
    json_t *names = json_array(), *rows = json_array();
    char number[32];
    for (int64_t truth = 0; truth < c->size; truth++) {
        const char *name = net_form_class(form, truth, number);
        json_t *row = json_array();
        for (int64_t i = 0; i < c->size; i++)
            json_array_append_new(row, json_integer(c->counts[truth * c->size + i]));
        json_array_append_new(names, yk__json_text(name, strlen(name)));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:o}", "classes", names, "counts", rows);
}
