/*
 * ckpt_show.c - `yoke ckpt` info, verify, convert and strip. Layer: cli.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "value/value.h"

/* ---- info -------------------------------------------------------------------------------------------------------- */

/* True if a leaf is in the list of tensors, or (`tensors` false) in that of other values. */
static bool is_listed(const yk_value *leaf, bool tensors)
{
    return !yk_value_left_out(leaf) && (yk_value_kind_of(leaf) == YK_VALUE_TENSOR) == tensors;
}

static json_t *leaves_json(const yk_value *leaves, bool tensors)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < yk_value_count(leaves); i++) {
        const yk_value *leaf = yk_value_at(leaves, i);
        yk_value_kind kind = yk_value_kind_of(leaf);
        if (!is_listed(leaf, tensors))
            continue;
        json_t *entry = tensors
                            ? ckpt_leaf_json(leaf)
                            : json_pack("{s:s, s:o}", "kind", yk_value_kind_name(kind), "value", ckpt_leaf_json(leaf));
        json_object_set_new(entry, "name", json_string(yk_value_key(leaves, i, NULL)));
        json_array_append_new(array, entry);
    }
    return array;
}

static void print_leaves(const yk_value *leaves, bool tensors)
{
    int width = 0;
    for (int64_t i = 0; i < yk_value_count(leaves); i++) {
        int length = (int)strlen(cli_plain(yk_value_key(leaves, i, NULL)));
        width = is_listed(yk_value_at(leaves, i), tensors) && length > width ? length : width;
    }
    width = width > 60 ? 60 : width;
    for (int64_t i = 0; i < yk_value_count(leaves); i++) {
        const yk_value *leaf = yk_value_at(leaves, i);
        if (!is_listed(leaf, tensors))
            continue;
        char *text = ckpt_leaf_text(leaf);
        printf("%-*s  %s\n", width, cli_plain(yk_value_key(leaves, i, NULL)), text ? cli_plain(text) : "?");
        free(text);
    }
}

/* {"name", "what"} of each that was left out. */
static json_t *left_out_json(const yk_value *left_out)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < yk_value_count(left_out); i++)
        json_array_append_new(array, json_pack("{s:s, s:s}", "name", yk_value_key(left_out, i, NULL), "what",
                                               yk_value_as_string(yk_value_at(left_out, i))));
    return array;
}

/* Tells on stderr how many were left out, and the first. */
static void notice_left_out(const char *path, const yk_value *left_out)
{
    int64_t count = yk_value_count(left_out);
    if (count)
        fprintf(stderr, "yoke: notice: %s: %" PRId64 " %s left out, which yoke has no kind for: %s: %s%s\n",
                cli_plain(path), count, count == 1 ? "value is" : "values are",
                cli_plain(yk_value_key(left_out, 0, NULL)), cli_plain(yk_value_as_string(yk_value_at(left_out, 0))),
                count > 1 ? "; yoke ckpt info lists all" : "");
}

/* The value of the path. Of a folder of training checkpoints that is the newest valid one: *found names it, and says
 * what was passed over. */
static yk_value *load(const ckpt_settings *s, const char **format, yk_checkpoint_found *found)
{
    *found = (yk_checkpoint_found){0};
    if (!ckpt_is_folder(s->paths[0]))
        return ckpt_load(s->paths[0], format);
    char *dir = ckpt_training_folder(s->paths[0], found);
    yk_value *value = dir ? ckpt_load(dir, format) : NULL;
    free(dir);
    return value;
}

/* Prints which checkpoint of a folder it was. */
static int print_found(const ckpt_settings *s, json_t *json, const yk_checkpoint_found *found)
{
    if (s->json && *found->path) {
        json_object_set_new(json, "checkpoint", json_string(found->path));
        json_object_set_new(json, "broken", json_integer(found->broken));
    }
    if (s->json)
        return ckpt_print_json(json);
    if (*found->path)
        printf("%s is the newest valid one of %s\n", cli_plain(found->path), cli_plain(s->paths[0]));
    if (found->broken)
        fprintf(stderr, "yoke: notice: %d newer %s broken: %s\n", found->broken, found->broken == 1 ? "one is" : "are",
                cli_plain(found->message));
    return EXIT_DONE;
}

/* The content of a path, for info and verify. */
typedef struct content {
    const char *format;
    yk_checkpoint_found found;
    yk_value *leaves, *left_out;
    int64_t tensors, elements, bytes;
} content;

static bool read_content(const ckpt_settings *s, content *c)
{
    yk_value *value = load(s, &c->format, &c->found);
    c->leaves = value ? ckpt_leaves(s->paths[0], value) : NULL;
    c->left_out = c->leaves ? yk_value_left_out_list(value) : NULL;
    if (c->leaves)
        ckpt_totals(c->leaves, &c->tensors, &c->elements, &c->bytes);
    return c->left_out;
}

int ckpt_info(const ckpt_settings *s)
{
    content c;
    if (!read_content(s, &c))
        return ckpt_failed(s);
    if (s->json)
        return print_found(s,
                           json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "path", s->paths[0], "format", c.format,
                                     "elements", (json_int_t)c.elements, "bytes", (json_int_t)c.bytes, "tensors",
                                     leaves_json(c.leaves, true), "values", leaves_json(c.leaves, false), "left_out",
                                     left_out_json(c.left_out)),
                           &c.found);
    printf("%s: %s, %" PRId64 " tensors, %" PRId64 " elements, %" PRId64 " bytes\n", cli_plain(s->paths[0]), c.format,
           c.tensors, c.elements, c.bytes);
    print_leaves(c.leaves, true);
    print_leaves(c.leaves, false);
    for (int64_t i = 0; i < yk_value_count(c.left_out); i++) {
        printf("%s  ", cli_plain(yk_value_key(c.left_out, i, NULL)));
        printf("left out: %s\n", cli_plain(yk_value_as_string(yk_value_at(c.left_out, i))));
    }
    return print_found(s, NULL, &c.found);
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

int ckpt_verify(const ckpt_settings *s)
{
    content c;
    if (!read_content(s, &c))
        return ckpt_failed(s);
    if (s->json)
        return print_found(s,
                           json_pack("{s:s, s:b, s:s, s:I, s:I, s:o}", "path", s->paths[0], "valid", 1, "format",
                                     c.format, "tensors", (json_int_t)c.tensors, "bytes", (json_int_t)c.bytes,
                                     "left_out", left_out_json(c.left_out)),
                           &c.found);
    printf("%s: valid, %s, %" PRId64 " tensors, %" PRId64 " bytes\n", cli_plain(s->paths[0]), c.format, c.tensors,
           c.bytes);
    notice_left_out(s->paths[0], c.left_out);
    return print_found(s, NULL, &c.found);
}

/* ---- convert and strip ------------------------------------------------------------------------------------------- */

/* `left_out`: of what the value is made of. */
static int save(const ckpt_settings *s, yk_value *value, const yk_value *left_out)
{
    char *notice = NULL;
    value = value && left_out ? yk__scope_own(yk__value_without_left_out(value)) : NULL;
    yk_value *leaves = value ? ckpt_leaves(s->paths[0], value) : NULL;
    if (!leaves || ckpt_save(s->paths[1], value, &notice))
        return ckpt_failed(s);
    int64_t tensors, elements, bytes;
    ckpt_totals(leaves, &tensors, &elements, &bytes);
    int code = EXIT_DONE;
    if (s->json) {
        json_t *json = json_pack("{s:s, s:s, s:I, s:I}", "from", s->paths[0], "to", s->paths[1], "tensors",
                                 (json_int_t)tensors, "bytes", (json_int_t)bytes);
        json_object_set_new(json, "notice", notice ? json_string(notice) : json_null());
        json_object_set_new(json, "left_out", left_out_json(left_out));
        code = ckpt_print_json(json);
    } else {
        printf("%s: %" PRId64 " tensors, %" PRId64 " bytes\n", s->paths[1], tensors, bytes);
        if (notice)
            fprintf(stderr, "yoke: notice: %s: %s\n", cli_plain(s->paths[1]), cli_plain(notice));
        notice_left_out(s->paths[0], left_out);
    }
    free(notice);
    return code;
}

int ckpt_convert(const ckpt_settings *s)
{
    const char *format;
    yk_value *value = ckpt_load(s->paths[0], &format);
    return save(s, value, value ? yk_value_left_out_list(value) : NULL);
}

int ckpt_strip(const ckpt_settings *s)
{
    const char *format;
    yk_value *value = ckpt_load(s->paths[0], &format);
    if (!value)
        return ckpt_failed(s);
    yk_state_dict *weights = yk_value_weights(value, YK_OPTIONS(yk_weights_options, .strip_module = s->strip_module));
    if (!weights) {
        yk__error_prefix("%s", s->paths[0]);
        return ckpt_failed(s);
    }
    return save(s, yk_value_from_state_dict(weights), yk_value_left_out_list(yk__value_weights_in(value)));
}
