/*
 * csv.c - rows of numbers with a class each, from a file of comma-separated values. Layer: data.
 *
 * The form is RFC 4180's: a header row of column names, then rows with as many fields; a field in quotes may hold
 * separators, ends of lines and doubled quotes. The separator is the one of comma, semicolon and tab that the header
 * has most of; a byte order mark, CRLF and empty lines are passed over. The file is read whole, once, and fields are
 * cut out of it in place. All inputs must be finite numbers: a hole in the data is an error that names file and line,
 * and no number is made up for it. Source: csv.DictReader.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/dataset.h"
#include "host/file.h"

enum { MOST_COLUMNS = 4096, MOST_CLASSES = 10000 };
static const size_t MOST_BYTES = (size_t)1 << 32;

typedef struct csv {
    char *path;
    char **columns; /* of the inputs, in order */
    int n_columns;
    char *target; /* the column's name; NULL: rows have no class */
    char **classes;
    int64_t n_classes, rows, capacity;
    double *values; /* (rows, n_columns) */
    int64_t *labels;
    int64_t *lines; /* where each row is in the file */
} csv;

/* The file while it is read. */
typedef struct csv_reader {
    csv *to;
    const yk__csv_options *options;
    char *text, *at, *end;
    char separator;
    int64_t line; /* of `at`, from 1 */
    char **fields;
    int n_fields, width; /* width: fields of the header; 0 before it */
    int target;          /* its position in a row; -1: none */
    int *inputs;         /* positions in a row of the inputs, n_columns of them */
    char **words;        /* (rows): the text in the target column, inside `text` */
} csv_reader;

static void csv_destroy(void *context)
{
    csv *c = context;
    for (int i = 0; c->columns && i < c->n_columns; i++)
        free(c->columns[i]);
    for (int64_t i = 0; c->classes && i < c->n_classes; i++)
        free(c->classes[i]);
    free(c->columns);
    free(c->classes);
    free(c->target);
    free(c->values);
    free(c->labels);
    free(c->lines);
    free(c->path);
    free(c);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* An error of a line of the file. */
__attribute__((format(printf, 3, 4))) static yk_status csv_fail(const csv_reader *r, int64_t line, const char *format,
                                                                ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return yk__fail(YK_ERR_FORMAT, "%s:%lld: %s", r->to->path, (long long)line, text);
}

/* A field for a message. */
static const char *csv_quote(const char *text, char to[120])
{
    return yk__escape(text, strlen(text), to, 120);
}

static char *csv_trim(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && strchr(" \t\r", text[length - 1]))
        length--;
    text[length] = 0;
    return text;
}

/* Cuts the field at `at` out of the text, and goes behind it: *last where the record ends with it. */
static yk_status field_next(csv_reader *r, char **field, bool *last)
{
    int64_t begun = r->line;
    char *from = r->at, *to;
    from += from < r->end && *from == ' ' ? strspn(from, " ") : 0;
    bool quoted = from < r->end && *from == '"';
    if (quoted) {
        *field = to = ++from;
        for (;; from++) {
            if (from == r->end)
                return csv_fail(r, begun, "a quote is opened here and not closed before the file ends");
            if (*from == '"' && from + 1 < r->end && from[1] == '"')
                from++;
            else if (*from == '"')
                break;
            r->line += *from == '\n';
            *to++ = *from;
        }
        from++;
        from += strspn(from, " \r");
        if (from < r->end && *from != r->separator && *from != '\n')
            return csv_fail(r, r->line, "there is text behind a closing quote: '%.20s'", from);
    } else {
        *field = r->at;
        while (from < r->end && *from != r->separator && *from != '\n')
            from++;
        to = from;
    }
    *last = from >= r->end || *from == '\n';
    r->line += from < r->end && *from == '\n';
    r->at = from < r->end ? from + 1 : from;
    *to = 0;
    *field = quoted ? *field : csv_trim(*field);
    return YK_OK;
}

/* The next record that is not an empty line, to r->fields, and where it begins to *line; n_fields is 0 at the end. A
 * record that has too many fields is read to its end. */
static yk_status record_next(csv_reader *r, int64_t *line)
{
    bool last = false;
    for (;;) {
        r->n_fields = 0;
        *line = r->line;
        if (r->at >= r->end)
            return YK_OK;
        char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));
        char *stop = end ? end : r->end;
        size_t blank = strspn(r->at, " \t\r");
        if (r->at + blank < stop)
            break;
        r->at = end ? end + 1 : r->end;
        r->line++;
    }
    while (!last) {
        char *field;
        yk_status status = field_next(r, &field, &last);
        if (status)
            return status;
        if (r->n_fields < MOST_COLUMNS)
            r->fields[r->n_fields] = field;
        r->n_fields++;
    }
    return YK_OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static char find_separator(const char *text)
{
    static const char separators[] = ",;\t";
    size_t length = strcspn(text, "\n"), most = 0;
    char best = ',';
    for (const char *s = separators; *s; s++) {
        size_t count = 0;
        for (size_t i = 0; i < length; i++)
            count += text[i] == *s;
        if (count > most)
            most = count, best = *s;
    }
    return best;
}

static bool parse_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && !strpbrk(text, "xXpP");
}

static int find_column(const csv_reader *r, const char *name, bool exact)
{
    for (int i = 0; i < r->width; i++) {
        if ((exact ? strcmp : strcasecmp)(r->fields[i], name) == 0)
            return i;
    }
    return -1;
}

static yk_status no_column(const csv_reader *r, const char *name, const char *what)
{
    char quoted[120], all[400] = "";
    const char *near = yk__nearest(name, (const char *const *)r->fields, (size_t)r->width);
    for (int i = 0, n = 0; i < r->width && n < 300; i++)
        n += snprintf(all + n, sizeof(all) - (size_t)n, "%s%.40s", i ? ", " : "", csv_quote(r->fields[i], quoted));
    if (near)
        return csv_fail(r, 1, "there is no column '%s'%s; did you mean '%s'?", name, what, near);
    return csv_fail(r, 1, "there is no column '%s'%s; the header has: %s", name, what, all);
}

/* The column of the classes: the one that is named, or one that is called so, or the last. */
static yk_status choose_target(csv_reader *r)
{
    static const char *const usual[] = {"target", "label", "class"};
    const yk__csv_options *o = r->options;
    r->target = -1;
    if (o->no_target)
        return YK_OK;
    if (o->target) {
        r->target = find_column(r, o->target, true);
        return r->target < 0 ? no_column(r, o->target, "") : YK_OK;
    }
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual) && r->target < 0; i++)
        r->target = find_column(r, usual[i], false);
    r->target = r->target < 0 ? r->width - 1 : r->target;
    return YK_OK;
}

static yk_status choose_inputs(csv_reader *r)
{
    const yk__csv_options *o = r->options;
    csv *c = r->to;
    int count = o->columns ? o->n_columns : r->width - (r->target >= 0);
    if (count < 1)
        return csv_fail(r, 1, "there is one column, '%.60s', and no column of numbers besides it", r->fields[0]);
    r->inputs = yk__calloc((size_t)count, sizeof(*r->inputs));
    c->columns = yk__calloc((size_t)count, sizeof(*c->columns));
    if (!r->inputs || !c->columns)
        return YK_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        int at = o->columns ? find_column(r, o->columns[i], true) : i + (r->target >= 0 && i >= r->target);
        if (at < 0)
            return no_column(r, o->columns[i], ", which the network was trained on");
        r->inputs[i] = at;
        c->columns[c->n_columns] = yk__strdup(r->fields[at]);
        if (!c->columns[c->n_columns++])
            return YK_ERR_MEMORY;
    }
    return YK_OK;
}

static yk_status read_header(csv_reader *r)
{
    int64_t line, numbers = 0;
    double ignored;
    yk_status status = record_next(r, &line);
    if (status)
        return status;
    if (!r->n_fields)
        return yk__fail(YK_ERR_FORMAT, "%s: the file is empty; expected a header row and rows of numbers", r->to->path);
    if (r->n_fields > MOST_COLUMNS)
        return csv_fail(r, line, "%d columns, more than %d", r->n_fields, MOST_COLUMNS);
    r->width = r->n_fields;
    for (int i = 0; i < r->width; i++) {
        numbers += parse_number(r->fields[i], &ignored);
        if (!*r->fields[i])
            return csv_fail(r, line, "column %d has no name", i + 1);
        for (int k = 0; k < i; k++) {
            if (strcmp(r->fields[k], r->fields[i]) == 0)
                return csv_fail(r, line, "two columns, %d and %d, are named '%.60s'", k + 1, i + 1, r->fields[i]);
        }
    }
    if (numbers == r->width)
        return csv_fail(r, line, "the first row holds numbers, no names of columns: put a header row above it");
    status = choose_target(r);
    if (!status)
        status = choose_inputs(r);
    if (!status && r->target >= 0) {
        r->to->target = yk__strdup(r->fields[r->target]);
        status = r->to->target ? YK_OK : YK_ERR_MEMORY;
    }
    return status;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static yk_status grow_rows(csv_reader *r)
{
    csv *c = r->to;
    if (c->rows < c->capacity)
        return YK_OK;
    int64_t capacity = c->capacity ? 2 * c->capacity : 256;
    double *values = yk__realloc(c->values, (size_t)(capacity * c->n_columns) * sizeof(*values));
    c->values = values ? values : c->values;
    int64_t *lines = yk__realloc(c->lines, (size_t)capacity * sizeof(*lines));
    c->lines = lines ? lines : c->lines;
    char **words = yk__realloc(r->words, (size_t)capacity * sizeof(*words));
    r->words = words ? words : r->words;
    if (!values || !lines || !words)
        return YK_ERR_MEMORY;
    c->capacity = capacity;
    return YK_OK;
}

/* The numbers of the record, and its class as text, become the next row. */
static yk_status take_row(csv_reader *r, int64_t line)
{
    csv *c = r->to;
    char quoted[120];
    if (r->n_fields != r->width)
        return csv_fail(r, line, "%d field%s, and the header has %d", r->n_fields, r->n_fields == 1 ? "" : "s",
                        r->width);
    yk_status status = grow_rows(r);
    if (status)
        return status;
    for (int i = 0; i < c->n_columns; i++) {
        const char *field = r->fields[r->inputs[i]];
        if (!*field)
            return csv_fail(r, line, "column '%.60s' is empty; expected a number", c->columns[i]);
        if (!parse_number(field, &c->values[c->rows * c->n_columns + i]))
            return csv_fail(r, line, "column '%.60s' is '%s'; expected a number%s%.60s%s", c->columns[i],
                            csv_quote(field, quoted), c->target ? ", as every column but '" : "",
                            c->target ? c->target : "", c->target ? "', the class's, is an input" : "");
    }
    if (r->target >= 0 && !*r->fields[r->target])
        return csv_fail(r, line, "column '%.60s' is empty; expected a class", c->target);
    r->words[c->rows] = r->target >= 0 ? r->fields[r->target] : NULL;
    c->lines[c->rows++] = line;
    return YK_OK;
}

/* Gives the error of a row to who wants to know all of them; otherwise it ends the reading. */
static yk_status pass_fault(const csv_reader *r, yk_status status)
{
    if (!r->options->fault || status != YK_ERR_FORMAT)
        return status;
    r->options->fault(r->options->user, yk_last_error()->message);
    yk_clear_error();
    return YK_OK;
}

static yk_status read_rows(csv_reader *r)
{
    yk_status status = YK_OK;
    while (!status) {
        int64_t line;
        status = record_next(r, &line);
        if (!status && !r->n_fields)
            break;
        if (status) /* where the next record begins is not known */
            return pass_fault(r, status);
        status = pass_fault(r, take_row(r, line));
    }
    if (!status && !r->to->rows && !r->options->fault)
        return yk__fail(YK_ERR_FORMAT, "%s: there are no rows below the header", r->to->path);
    return status;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static bool is_integer(const char *text)
{
    double value;
    return parse_number(text, &value) && value == floor(value) && fabs(value) < 1e15;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_integers(const void *a, const void *b)
{
    double x = strtod(*(char *const *)a, NULL), y = strtod(*(char *const *)b, NULL);
    return x != y ? (x < y ? -1 : 1) : compare_words(a, b);
}

/* Numbers with fractions, and a column in which nearly every row has a value of its own, are no classes. */
static yk_status check_classes_are_some(const csv_reader *r, char **names, int64_t count)
{
    const csv *c = r->to;
    double value;
    char quoted[120];
    for (int64_t i = 0; i < count; i++) {
        if (parse_number(names[i], &value) && value != floor(value))
            return yk__fail(YK_ERR_FORMAT,
                            "%s: column '%.60s' holds numbers with fractions, as '%s': it is no column of classes; "
                            "name the one that is (--target)",
                            c->path, c->target, csv_quote(names[i], quoted));
    }
    if (count > MOST_CLASSES || (count > 50 && count > c->rows / 2))
        return yk__fail(YK_ERR_FORMAT,
                        "%s: column '%.60s' has %lld different values in %lld rows: it is no column of classes; name "
                        "the one that is (--target)",
                        c->path, c->target, (long long)count, (long long)c->rows);
    if (count == 1 && c->rows > 1)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: column '%.60s' is '%s' in all rows: there is nothing to learn; name the column of the "
                        "classes (--target)",
                        c->path, c->target, csv_quote(names[0], quoted));
    return YK_OK;
}

/* The different words of the target column become the classes: whole numbers by value, names byte by byte. */
static yk_status find_classes(csv_reader *r)
{
    csv *c = r->to;
    char **sorted = yk__calloc((size_t)c->rows, sizeof(*sorted));
    if (!sorted)
        return YK_ERR_MEMORY;
    memcpy(sorted, r->words, (size_t)c->rows * sizeof(*sorted));
    bool integers = true;
    for (int64_t i = 0; i < c->rows && integers; i++)
        integers = is_integer(sorted[i]);
    qsort(sorted, (size_t)c->rows, sizeof(*sorted), integers ? compare_integers : compare_words);
    int64_t count = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        if (!i || strcmp(sorted[i], sorted[i - 1]) != 0)
            sorted[count++] = sorted[i];
    }
    yk_status status = check_classes_are_some(r, sorted, count);
    c->classes = status ? NULL : yk__calloc((size_t)count, sizeof(*c->classes));
    if (!status && !c->classes)
        status = YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        c->classes[i] = yk__strdup(sorted[i]);
        c->n_classes += c->classes[i] != NULL;
        status = c->classes[i] ? YK_OK : YK_ERR_MEMORY;
    }
    free(sorted);
    return status;
}

static yk_status copy_classes(csv_reader *r)
{
    csv *c = r->to;
    c->classes = yk__calloc((size_t)r->options->n_classes + 1, sizeof(*c->classes));
    for (; c->classes && c->n_classes < r->options->n_classes; c->n_classes++) {
        c->classes[c->n_classes] = yk__strdup(r->options->classes[c->n_classes]);
        if (!c->classes[c->n_classes])
            return YK_ERR_MEMORY;
    }
    return c->classes ? YK_OK : YK_ERR_MEMORY;
}

/* The label of each row. Classes that are sorted as compare_words sorts could be found faster; a set of them that is
 * large is rare, and the last one that was found is tried first. */
static yk_status label_rows(csv_reader *r)
{
    csv *c = r->to;
    char quoted[120];
    int64_t label = 0;
    c->labels = yk__calloc((size_t)c->rows, sizeof(*c->labels));
    if (!c->labels)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < c->rows; i++) {
        if (strcmp(c->classes[label], r->words[i]) != 0) {
            for (label = 0; label < c->n_classes && strcmp(c->classes[label], r->words[i]) != 0;)
                label++;
        }
        if (label == c->n_classes)
            return csv_fail(r, c->lines[i], "column '%.60s' is '%s', which is none of the %lld classes of the network",
                            c->target, csv_quote(r->words[i], quoted), (long long)c->n_classes);
        c->labels[i] = label;
    }
    return YK_OK;
}

/* ---- the set ----------------------------------------------------------------------------------------------------- */

static yk_status csv_read(csv *c, const yk__csv_options *options)
{
    static const unsigned char mark[] = {0xEF, 0xBB, 0xBF};
    csv_reader r = {.to = c, .options = options, .line = 1, .target = -1};
    unsigned char *bytes = NULL;
    size_t size = 0;
    yk_status status = yk__file_read(c->path, MOST_BYTES, &bytes, &size);
    if (status)
        return status;
    r.text = yk__realloc(bytes, size + 1); /* a zero ends the last field */
    r.fields = yk__calloc(MOST_COLUMNS, sizeof(*r.fields));
    if (!r.text || !r.fields) {
        status = YK_ERR_MEMORY;
    } else {
        r.text[size] = 0;
        r.end = r.text + size;
        r.at = r.text + (size >= sizeof(mark) && memcmp(r.text, mark, sizeof(mark)) == 0 ? sizeof(mark) : 0);
        if (memchr(r.text, 0, size))
            status = yk__fail(YK_ERR_FORMAT, "%s: there are zero bytes in it: it is no text in UTF-8", c->path);
        r.separator = find_separator(r.at);
        if (!status)
            status = read_header(&r);
        if (!status)
            status = read_rows(&r);
        if (!status && r.target >= 0 && c->rows)
            status = options->classes ? copy_classes(&r) : find_classes(&r);
        if (status && !c->labels && c->rows) /* of all rows together */
            status = pass_fault(&r, status);
        else if (!status && r.target >= 0 && c->rows)
            status = label_rows(&r);
    }
    free(r.text ? r.text : (char *)bytes);
    free(r.fields);
    free(r.inputs);
    free(r.words);
    return status;
}

static yk_status csv_get(void *context, int64_t index, yk_sample *sample)
{
    const csv *c = context;
    yk_sample_view(sample, c->values + index * c->n_columns, YK_F64, 3, (int64_t[]){c->n_columns, 1, 1});
    if (c->labels)
        yk_sample_label(sample, c->labels[index]);
    return YK_OK;
}

static int64_t csv_label(void *context, int64_t index)
{
    const csv *c = context;
    return c->labels ? c->labels[index] : -1;
}

static void csv_describe(void *context, int64_t index, char *text, size_t size)
{
    const csv *c = context;
    snprintf(text, size, "%s:%lld", c->path, (long long)c->lines[index]);
}

yk_dataset *yk__csv_open(const char *path, const yk__csv_options *options, yk_transform *transform)
{
    csv *c = yk__calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->path = yk__strdup(path);
    if (!c->path || csv_read(c, options)) {
        csv_destroy(c);
        return NULL;
    }
    yk_dataset_table table = {.name = "csv",
                              .length = c->rows,
                              .classes = c->n_classes,
                              .class_names = (const char *const *)c->classes,
                              .get = csv_get,
                              .label = csv_label,
                              .describe = csv_describe,
                              .destroy = csv_destroy};
    return yk_dataset_create(&table, c, transform);
}

yk_dataset *yk_csv(const char *path, const char *target, yk_transform *transform)
{
    YK__LIVE(transform);
    if (yk__transform_lost(transform) || !yk__scope_check("csv") || !yk__is_there("csv", "path", path))
        return NULL;
    YK__OWN_RECORD;
    return yk__csv_open(path, &(yk__csv_options){.target = target}, transform);
}

const double *yk__csv_values(const yk_dataset *dataset, int64_t *rows, int *columns)
{
    const csv *c = dataset->context;
    *rows = c->rows;
    *columns = c->n_columns;
    return c->values;
}

const char *yk__csv_column(const yk_dataset *dataset, int i)
{
    const csv *c = dataset->context;
    return i < 0 ? c->target : c->columns[i];
}
