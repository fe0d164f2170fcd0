/*
 * schedule_text.c - a schedule as text: for people, and as checkpoints of 0.1 and 0.2 have it. Layer: optim.
 *
 *     linear_warmup_lr(steps=5, start_factor=0.2, after=cosine_lr(t_max=100, eta_min=0))
 *
 * In brackets stand, of what a kind has, its length, milestones, constant, numbers, schedules and what comes after it.
 */
#include <stdlib.h>
#include <string.h>

#include "optim/schedule_form.h"

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* A growing text that stops at its end. */
typedef struct writer {
    char *text;
    size_t size, used;
    bool inside; /* something stands before this in the same brackets */
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = w->used < w->size ? vsnprintf(w->text + w->used, w->size - w->used, format, arguments) : 0;
    w->used += n > 0 ? (size_t)n : 0;
    va_end(arguments);
}

/* Begins a member: "name=" or ", name=". */
static void member_put(writer *w, const char *name)
{
    put(w, "%s%s=", w->inside ? ", " : "", name);
    w->inside = true;
}

static void real_put(writer *w, const char *name, double value)
{
    char number[YK__NUMBER_ROOM];
    member_put(w, name);
    put(w, "%s", yk__number_format(value, number));
}

static void form_put(writer *w, const yk__schedule_form *f)
{
    const yk__schedule_names *names = yk__schedule_names_of(f->kind);
    put(w, "%s(", names->kind);
    w->inside = false;
    if (names->length) {
        member_put(w, names->length);
        put(w, "%lld", (long long)f->period);
    }
    if (yk__schedule_has_milestones(f->kind)) {
        member_put(w, "milestones");
        for (int i = 0; i < f->n_milestones; i++)
            put(w, "%s%lld", i ? ", " : "[", (long long)f->milestones[i]);
        put(w, f->n_milestones ? "]" : "[]");
    }
    if (names->constant)
        real_put(w, names->constant, f->constant);
    for (int i = 0; i < YK__SCHEDULE_NUMBERS && names->numbers[i]; i++)
        real_put(w, names->numbers[i], f->numbers[i]);
    for (int i = 0; i < f->n_parts; i++) {
        if (i == 0)
            member_put(w, "schedules");
        put(w, i ? ", " : "[");
        form_put(w, f->parts[i]);
    }
    put(w, f->n_parts ? "]" : "");
    if (f->after) {
        member_put(w, "after");
        form_put(w, f->after);
    }
    put(w, ")");
    w->inside = true;
}

const char *yk__schedule_print(const yk__schedule_form *f, char *text, size_t size)
{
    writer w = {.text = text, .size = size};
    if (size)
        *text = 0;
    form_put(&w, f);
    return text;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* True, and moves past the word, if it is next. */
static bool accept(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0)
        return false;
    *at += length;
    return true;
}

/* True, and moves past it, if a member of this name is next; in brackets that were just opened, or behind another. */
static bool accept_member(const char **at, const char *name)
{
    const char *begin = *at;
    if ((begin[-1] == '(' || accept(at, ", ")) && accept(at, name) && accept(at, "="))
        return true;
    *at = begin;
    return false;
}

static bool read_integer(const char **at, int64_t *value)
{
    char *end;
    *value = strtoll(*at, &end, 10);
    bool read = end > *at;
    *at = end;
    return read;
}

static bool read_real(const char **at, const char *name, double *value)
{
    char *end;
    if (!accept_member(at, name))
        return false;
    *value = yk__number_parse(*at, &end);
    bool read = end > *at;
    *at = end;
    return read;
}

static yk_status read_milestones(const char **at, yk__schedule_form *f)
{
    int count = **at != ']';
    for (const char *c = *at; *c && *c != ']'; c++)
        count += *c == ',';
    f->milestones = yk__calloc((size_t)count, sizeof(*f->milestones));
    if (!f->milestones)
        return YK_ERR_MEMORY;
    for (; f->n_milestones < count; f->n_milestones++) {
        const char *before = *at;
        if (!read_integer(at, &f->milestones[f->n_milestones]) || !(accept(at, ", ") || **at == ']'))
            return yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' is no milestone", before);
    }
    return YK_OK;
}

static yk_status form_read(const char **at, yk__schedule_form **made);

/* The schedules of a sequential_lr, one more than its milestones; others are refused by the check. */
static yk_status read_parts(const char **at, yk__schedule_form *f)
{
    yk_status status = YK_OK;
    f->parts = yk__calloc((size_t)f->n_milestones + 1, sizeof(*f->parts));
    if (!f->parts)
        return YK_ERR_MEMORY;
    do
        status = form_read(at, &f->parts[f->n_parts++]);
    while (!status && f->n_parts <= f->n_milestones && accept(at, ", "));
    return status;
}

/* All that stands in the brackets; *read: it is what this kind has. */
static yk_status read_members(const char **at, yk__schedule_form *f, bool *read)
{
    const yk__schedule_names *names = yk__schedule_names_of(f->kind);
    yk_status status = YK_OK;
    *read = !names->length || (accept_member(at, names->length) && read_integer(at, &f->period));
    if (*read && yk__schedule_has_milestones(f->kind) && (*read = accept_member(at, "milestones") && accept(at, "["))) {
        status = read_milestones(at, f);
        *read = !status && accept(at, "]");
    }
    *read = *read && (!names->constant || read_real(at, names->constant, &f->constant));
    for (int i = 0; i < YK__SCHEDULE_NUMBERS && names->numbers[i] && *read; i++)
        *read = read_real(at, names->numbers[i], &f->numbers[i]);
    if (*read && f->kind == YK__SEQUENTIAL_LR && (*read = accept_member(at, "schedules") && accept(at, "["))) {
        status = read_parts(at, f);
        *read = !status && accept(at, "]");
    }
    if (*read && f->kind == YK__LINEAR_WARMUP_LR && accept_member(at, "after"))
        status = form_read(at, &f->after);
    return status;
}

static yk_status form_read(const char **at, yk__schedule_form **made)
{
    int kind = 0;
    const char *begin = *at;
    for (; kind < YK__SCHEDULE_KINDS; kind++, *at = begin) {
        if (accept(at, yk__schedule_names_of((yk__schedule_kind)kind)->kind) && accept(at, "("))
            break;
    }
    if (kind == YK__SCHEDULE_KINDS)
        return yk__fail(YK_ERR_UNSUPPORTED, "schedule '%.60s' is none of those that are known here", begin);
    yk__schedule_form *f = *made = yk__schedule_form_new((yk__schedule_kind)kind);
    bool read = false;
    yk_status status = f ? read_members(at, f, &read) : YK_ERR_MEMORY;
    if (!status && read)
        status = yk__schedule_check(f);
    if (!status && !(read && accept(at, ")")))
        status = yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' is not what a schedule goes on with", *at);
    return status;
}

yk__schedule_form *yk__schedule_parse(const char *text)
{
    enum { MOST = 1 << 16 }; /* bounds the recursion */
    yk__schedule_form *f = NULL;
    const char *at = text;
    yk_status status = strnlen(text, MOST) < MOST
                           ? form_read(&at, &f)
                           : yk__fail(YK_ERR_FORMAT, "schedule '%.60s' has more than %d characters", text, MOST);
    if (!status && *at)
        status = yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' comes after its end", at);
    if (!status)
        return f;
    yk__schedule_form_free(f);
    return NULL;
}
