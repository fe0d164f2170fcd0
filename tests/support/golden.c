/*
 * golden.c - golden.h's reader. A file is read once in a process, whole, and kept; a section's numbers and rows are
 * made when they are first asked for.
 */
#include "tests/support/golden.h"

#include "tests/support/expect.h"

#include <errno.h>
#include <stdio.h>

typedef struct section {
    char *name, *text;
    double *numbers;
    char **rows;
    size_t number_count, row_count;
} section;

static struct file {
    char name[40];
    section sections[128];
    int count;
} files[8];

const char *source_path(const char *path)
{
    static char text[4096];
    const char *root = getenv("YOKE_TEST_SOURCES");
    snprintf(text, sizeof(text), "%s%s%s", root ? root : "", root ? "/" : "", path);
    return text;
}

static char *file_text(const char *name)
{
    char path[100], *text = NULL;
    size_t room = 0;
    snprintf(path, sizeof(path), "tests/golden/%s.golden", name);
    FILE *in = fopen(source_path(path), "r");
    if (!in)
        fail_msg("%s: %s; run the test in the folder of the sources, by scripts/run-test, or set YOKE_TEST_SOURCES",
                 source_path(path), strerror(errno));
    /* A file has no 0: this reads it whole. */
    if (getdelim(&text, &room, 0, in) < 0)
        fail_msg("%s: it is empty, or cannot be read", source_path(path));
    fclose(in);
    return text;
}

static struct file *file_of(const char *name)
{
    struct file *f = files;
    while (f < files + sizeof(files) / sizeof(*files) && f->count && strcmp(f->name, name) != 0)
        f++;
    assert_true(f < files + sizeof(files) / sizeof(*files));
    if (f->count)
        return f;
    snprintf(f->name, sizeof(f->name), "%s", name);
    /* Each section's text ends where the next one's line begins. */
    for (char *at = strstr(file_text(name), "\n["); at;) {
        assert_true(f->count < (int)(sizeof(f->sections) / sizeof(*f->sections)));
        section *s = &f->sections[f->count++];
        s->name = at + 2;
        s->text = strstr(s->name, "]\n");
        assert_non_null(s->text);
        *s->text = 0;
        s->text += 2;
        at = strstr(s->text - 1, "\n[");
        if (at)
            *at = 0;
    }
    return f;
}

static section *section_of(const char *file, const char *name)
{
    struct file *f = file_of(file);
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->sections[i].name, name) == 0)
            return &f->sections[i];
    fail_msg("tests/golden/%s.golden has no section [%s]", file, name);
    return NULL;
}

const double *golden_numbers(const char *file, const char *name, size_t *count)
{
    section *s = section_of(file, name);
    if (!s->numbers) {
        s->numbers = calloc(strlen(s->text) / 2 + 1, sizeof(double)); /* a number takes a digit and a space */
        assert_non_null(s->numbers);
        for (char *at = s->text, *end;; at = end) {
            double number = strtod(at, &end);
            if (end == at) {
                if (at[strspn(at, " \n")])
                    fail_msg("tests/golden/%s.golden [%s]: number %zu is '%.20s'", file, name, s->number_count, at);
                break;
            }
            s->numbers[s->number_count++] = number;
        }
    }
    if (count)
        *count = s->number_count;
    return s->numbers;
}

const char *const *golden_rows(const char *file, const char *name, size_t *count)
{
    section *s = section_of(file, name);
    if (!s->rows) {
        size_t lines = 1;
        for (const char *at = s->text; *at; at++)
            lines += *at == '\n';
        s->rows = calloc(lines, sizeof(*s->rows));
        assert_non_null(s->rows);
        for (char *at = s->text, *rest; at && *at; at = rest) {
            rest = strchr(at, '\n');
            if (rest)
                *rest++ = 0;
            s->rows[s->row_count++] = at;
        }
    }
    *count = s->row_count;
    return (const char *const *)s->rows;
}

const char *golden_word(const char **row, char *word, size_t room)
{
    size_t length = strcspn(*row, " ");
    if (!length || length >= room)
        fail_msg("a golden row has no word of at most %zu letters at '%.40s'", room - 1, *row);
    memcpy(word, *row, length);
    word[length] = 0;
    *row += length + ((*row)[length] == ' ');
    return word;
}

double golden_number(const char **row)
{
    char word[40], *end;
    double number = strtod(golden_word(row, word, sizeof(word)), &end);
    if (*end)
        fail_msg("'%s' in a golden row is no number", word);
    return number;
}

int golden_integer(const char **row)
{
    double number = golden_number(row);
    if (number != (int)number)
        fail_msg("%g in a golden row is no integer", number);
    return (int)number;
}

yk_dtype golden_dtype(const char **row)
{
    char word[20];
    golden_word(row, word, sizeof(word));
    yk_dtype dtype = YK_F32;
    if (yk_dtype_parse(word, &dtype))
        fail_msg("'%s' in a golden row is no dtype", word);
    return dtype;
}
