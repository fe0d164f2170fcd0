/*
 * shard_layout.c - boxes of elements: the ranks that hold the parts of a tensor, and checks that the parts make up the
 * tensor. Layer: checkpoint.
 *
 * Invariant: every part of a layout lies inside its tensor, whose number of bytes fits 63 bits.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/invariant.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/shards/shards.h"

/* ---- boxes ------------------------------------------------------------------------------------------------------ */

bool yk__box_cut(int ndim, const yk__box *a, const yk__box *b, yk__box *both)
{
    for (int d = 0; d < ndim; d++) {
        int64_t begin = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        int64_t end_a = a->offset[d] + a->shape[d], end_b = b->offset[d] + b->shape[d];
        int64_t end = end_a < end_b ? end_a : end_b;
        if (begin >= end)
            return false;
        both->offset[d] = begin;
        both->shape[d] = end - begin;
    }
    return true;
}

int64_t yk__box_count(int ndim, const yk__box *box)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= box->shape[d];
    return count;
}

const char *yk__box_format(int ndim, const yk__box *box, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64 ":%" PRId64, d ? ", " : "", box->offset[d],
                                 box->offset[d] + box->shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

static const char *shape_format(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "%s)", ndim == 1 ? "," : "");
    return text;
}

/* ---- layouts ---------------------------------------------------------------------------------------------------- */

void yk__layout_clear(yk__layout *layout)
{
    for (size_t i = 0; i < layout->count; i++) {
        free(layout->tensors[i].name);
        free(layout->tensors[i].parts);
    }
    free(layout->tensors);
    yk__name_clear(&layout->names);
    *layout = (yk__layout){0};
}

static bool same_name(const void *owner, uint32_t index, const void *key)
{
    const yk__layout *layout = owner;
    return strcmp(layout->tensors[index].name, key) == 0;
}

yk__whole *yk__layout_find(const yk__layout *layout, const char *name)
{
    uint32_t at = yk__name_find(&layout->names, yk__name_hash(name, strlen(name)), same_name, layout, name);
    return at == UINT32_MAX ? NULL : &layout->tensors[at];
}

/* Room for one more of `size` bytes in *array of `count`. */
static yk_status make_room(void *array, size_t size, size_t count, size_t *room)
{
    if (count < *room)
        return YK_OK;
    size_t more = *room ? 2 * *room : 8;
    void **items = array, *grown = yk__realloc(*items, more * size);
    if (!grown)
        return YK_ERR_MEMORY;
    *items = grown;
    *room = more;
    return YK_OK;
}

static yk_status check_tensor(const char *where, const yk__whole *t)
{
    char text[200];
    int64_t bytes = (int64_t)yk_dtype_size(t->dtype);
    bool overflow = false;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] < 0)
            return yk__fail(YK_ERR_SHAPE, "%s: tensor '%s' has the shape %s", where, t->name,
                            shape_format(t->ndim, t->shape, text, sizeof(text)));
        overflow |= __builtin_mul_overflow(bytes, t->shape[d] ? t->shape[d] : 1, &bytes);
    }
    if (overflow)
        return yk__fail(YK_ERR_SHAPE, "%s: tensor '%s' of shape %s has more bytes than 63 bits count", where, t->name,
                        shape_format(t->ndim, t->shape, text, sizeof(text)));
    return YK_OK;
}

static yk_status check_part(const char *where, const yk__whole *t, const yk__part *part)
{
    for (int d = 0; d < t->ndim; d++) {
        int64_t offset = part->box.offset[d], size = part->box.shape[d];
        if (offset >= 0 && size >= 0 && offset <= t->shape[d] && size <= t->shape[d] - offset)
            continue;
        char shape[200];
        return yk__fail(YK_ERR_SHAPE,
                        "%s: tensor '%s': the part of rank %d begins at %" PRId64 " in dimension %d and has %" PRId64
                        ", outside the shape %s",
                        where, t->name, part->holder, offset, d, size,
                        shape_format(t->ndim, t->shape, shape, sizeof(shape)));
    }
    return YK_OK;
}

/* The same tensor on two ranks. */
static yk_status check_same(const char *where, const yk__whole *there, const yk__whole *t, int holder)
{
    char a[200], b[200];
    bool same = there->dtype == t->dtype && there->ndim == t->ndim &&
                memcmp(there->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) == 0;
    if (same)
        return YK_OK;
    return yk__fail(YK_ERR_SHAPE, "%s: tensor '%s' is %s %s on rank %d but %s %s on rank %d", where, t->name,
                    yk_dtype_name(there->dtype), shape_format(there->ndim, there->shape, a, sizeof(a)),
                    there->count ? there->parts[0].holder : 0, yk_dtype_name(t->dtype),
                    shape_format(t->ndim, t->shape, b, sizeof(b)), holder);
}

/* The tensor of the layout that is `t`, added where it is not there. */
static yk__whole *find_or_add(yk__layout *layout, const char *where, const yk__whole *t, int holder)
{
    yk__whole *there = yk__layout_find(layout, t->name);
    if (there)
        return check_same(where, there, t, holder) ? NULL : there;
    if (check_tensor(where, t) || make_room(&layout->tensors, sizeof(*t), layout->count, &layout->room))
        return NULL;
    char *name = yk__strdup(t->name);
    there = &layout->tensors[layout->count];
    *there = *t;
    there->name = name;
    there->parts = NULL;
    there->count = there->room = 0;
    if (!name || yk__name_add(&layout->names, yk__name_hash(name, strlen(name)), (uint32_t)layout->count)) {
        free(name);
        return NULL;
    }
    layout->count++;
    return there;
}

static const char *check_whole(const yk__layout *layout, size_t i)
{
    const yk__whole *t = &layout->tensors[i];
    if (!t->name || yk__layout_find(layout, t->name) != t)
        return yk__broken("tensor %zu, '%s', is not found by its name", i, t->name ? t->name : "(NULL)");
    if (t->ndim < 0 || t->ndim > YK_MAX_DIMS || t->count > t->room || (t->count && !t->parts))
        return yk__broken("tensor '%s' has %d dimensions, and %zu parts in memory for %zu", t->name, t->ndim, t->count,
                          t->room);
    for (size_t p = 0; p < t->count; p++) {
        const yk__box *box = &t->parts[p].box;
        for (int d = 0; d < t->ndim; d++)
            if (box->offset[d] < 0 || box->shape[d] < 0 || box->offset[d] > t->shape[d] - box->shape[d])
                return yk__broken("tensor '%s': part %zu, of holder %d, has %" PRId64 " elements from %" PRId64
                                  " on in dimension %d of size %" PRId64,
                                  t->name, p, t->parts[p].holder, box->shape[d], box->offset[d], d, t->shape[d]);
        if (t->parts[p].holder < 0)
            return yk__broken("tensor '%s': part %zu has the holder %d", t->name, p, t->parts[p].holder);
    }
    return NULL;
}

const char *yk__layout_table_check(const yk__layout *layout)
{
    const char *wrong = NULL;
    if (layout->count > layout->room || (layout->count && !layout->tensors))
        return yk__broken("%zu tensors in memory for %zu", layout->count, layout->room);
    for (size_t i = 0; i < layout->count && !wrong; i++)
        wrong = check_whole(layout, i);
    return wrong;
}

yk_status yk__layout_add(yk__layout *layout, const char *where, const yk__whole *tensor, const yk__part *part)
{
    yk__whole *t = find_or_add(layout, where, tensor, part->holder);
    yk_status status = t ? check_part(where, t, part) : yk__error_code();
    if (!status && t->count && t->parts[t->count - 1].holder == part->holder)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: rank %d gives two parts of tensor '%s'", where, part->holder, t->name);
    if (!status)
        status = make_room(&t->parts, sizeof(*t->parts), t->count, &t->room);
    if (!status)
        t->parts[t->count++] = *part;
    return status;
}

/* ---- as JSON ---------------------------------------------------------------------------------------------------- */

static json_t *numbers_json(int count, const int64_t *numbers)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_integer(numbers[i]));
    return list;
}

json_t *yk__layout_json(const yk__layout *layout)
{
    json_t *tensors = json_object();
    for (size_t i = 0; i < layout->count; i++) {
        const yk__whole *t = &layout->tensors[i];
        json_t *parts = json_array();
        for (size_t p = 0; p < t->count; p++)
            json_array_append_new(parts, json_pack("{s:i, s:o, s:o}", "file", t->parts[p].holder, "offset",
                                                   numbers_json(t->ndim, t->parts[p].box.offset), "shape",
                                                   numbers_json(t->ndim, t->parts[p].box.shape)));
        json_t *entry = json_pack("{s:s, s:o, s:o}", "dtype", yk__safetensors_dtype(t->dtype), "shape",
                                  numbers_json(t->ndim, t->shape), "parts", parts);
        if (json_array_size(parts) != t->count || json_object_set_new(tensors, t->name, entry)) {
            yk__fail(YK_ERR_ARGUMENT, "tensor '%s': its name is not valid UTF-8, or there is no memory", t->name);
            json_decref(tensors);
            return NULL;
        }
    }
    if (!tensors)
        yk__fail_memory(sizeof(json_t *));
    return tensors;
}

/* A list of integers; -1 where it is none, or longer than a shape can be. */
static int read_numbers(const json_t *list, int64_t numbers[YK_MAX_DIMS])
{
    if (!json_is_array(list) || json_array_size(list) > YK_MAX_DIMS)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return -1;
        numbers[i] = json_integer_value(json_array_get(list, i));
    }
    return (int)json_array_size(list);
}

static yk_status read_dtype(const char *where, const char *name, const json_t *value, yk_dtype *dtype)
{
    const char *text = json_string_value(value);
    for (int i = 0; text && i < YK__DTYPES; i++) {
        *dtype = (yk_dtype)i;
        if (strcmp(text, yk__safetensors_dtype(*dtype)) == 0)
            return YK_OK;
    }
    return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': unknown dtype '%.32s'", where, name, text ? text : "");
}

static yk_status add_tensor_json(yk__layout *layout, const char *where, const char *name, json_t *entry, int holders)
{
    yk__whole t = {.name = (char *)name};
    yk_status status = read_dtype(where, name, json_object_get(entry, "dtype"), &t.dtype);
    json_t *parts = json_object_get(entry, "parts"), *item;
    t.ndim = read_numbers(json_object_get(entry, "shape"), t.shape);
    if (!status && (t.ndim < 0 || !json_is_array(parts)))
        status = yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': no shape of at most %d dimensions, or no parts", where, name,
                          YK_MAX_DIMS);
    if (!status && json_array_size(parts) > (size_t)holders) /* looking for overlaps would take long */
        status = yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': %zu parts in %d files, where a file has one at most", where,
                          name, json_array_size(parts), holders);
    if (!status && json_array_size(parts) == 0) /* a tensor without elements may have none */
        status = find_or_add(layout, where, &t, 0) ? YK_OK : yk__error_code();
    size_t i;
    json_array_foreach(parts, i, item)
    {
        if (status)
            break;
        yk__part part = {.holder = -1};
        json_t *holder = json_object_get(item, "file");
        if (json_is_integer(holder) && json_integer_value(holder) >= 0 && json_integer_value(holder) < holders)
            part.holder = (int)json_integer_value(holder);
        if (part.holder < 0 || read_numbers(json_object_get(item, "offset"), part.box.offset) != t.ndim ||
            read_numbers(json_object_get(item, "shape"), part.box.shape) != t.ndim)
            status = yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': part %zu has no file of the %d, or not %d dimensions",
                              where, name, i, holders, t.ndim);
        else
            status = yk__layout_add(layout, where, &t, &part);
    }
    return status;
}

yk_status yk__layout_add_json(yk__layout *layout, const char *where, json_t *tensors, int holders)
{
    if (!json_is_object(tensors))
        return yk__fail(YK_ERR_FORMAT, "%s: no list of tensors", where);
    yk_status status = YK_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(tensors, name, entry)
    {
        status = add_tensor_json(layout, where, name, entry, holders);
        if (status)
            break;
    }
    return status;
}

/* ---- dividing the writing among ranks ---------------------------------------------------------------------------- */

/* Equal boxes of one tensor: parts [first, first + count). */
typedef struct same {
    yk__whole *tensor;
    size_t first, count;
    int64_t bytes;
} same;

/* Order by offsets, then holder; unused dimensions are zeros. */
static int by_box(const void *a, const void *b)
{
    const yk__part *x = a, *y = b;
    for (int d = 0; d < YK_MAX_DIMS; d++)
        if (x->box.offset[d] != y->box.offset[d])
            return x->box.offset[d] < y->box.offset[d] ? -1 : 1;
    for (int d = 0; d < YK_MAX_DIMS; d++)
        if (x->box.shape[d] != y->box.shape[d])
            return x->box.shape[d] < y->box.shape[d] ? -1 : 1;
    return (x->holder > y->holder) - (x->holder < y->holder);
}

/* Those without a choice first, then the largest; the tensors' order among equals. */
static int by_weight(const void *a, const void *b)
{
    const same *x = a, *y = b;
    if ((x->count == 1) != (y->count == 1))
        return x->count == 1 ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the parts of each tensor, and lists the runs of equal ones. */
static size_t find_same(yk__layout *layout, same *runs)
{
    size_t count = 0;
    for (size_t i = 0; i < layout->count; i++) {
        yk__whole *t = &layout->tensors[i];
        if (t->count)
            qsort(t->parts, t->count, sizeof(*t->parts), by_box);
        for (size_t p = 0; p < t->count; p++) {
            if (p && memcmp(&t->parts[p].box, &t->parts[p - 1].box, sizeof(t->parts[p].box)) == 0)
                runs[count - 1].count++;
            else
                runs[count++] =
                    (same){t, p, 1, yk__box_count(t->ndim, &t->parts[p].box) * (int64_t)yk_dtype_size(t->dtype)};
        }
    }
    return count;
}

yk_status yk__layout_spread(yk__layout *layout, int holders)
{
    size_t parts = 0;
    for (size_t i = 0; i < layout->count; i++)
        parts += layout->tensors[i].count;
    same *runs = yk__calloc(parts + 1, sizeof(*runs));
    int64_t *load = yk__calloc((size_t)holders, sizeof(*load));
    yk_status status = runs && load ? YK_OK : YK_ERR_MEMORY;
    size_t count = status ? 0 : find_same(layout, runs);
    if (count)
        qsort(runs, count, sizeof(*runs), by_weight);
    for (size_t i = 0; i < count; i++) {
        yk__part *same_parts = runs[i].tensor->parts + runs[i].first;
        size_t best = 0;
        for (size_t p = 1; p < runs[i].count; p++)
            best = load[same_parts[p].holder] < load[same_parts[best].holder] ? p : best;
        int holder = same_parts[best].holder;
        load[holder] += runs[i].bytes;
        for (size_t p = 0; p < runs[i].count; p++)
            same_parts[p].holder = p ? -1 : holder;
    }
    for (size_t i = 0; i < layout->count && !status; i++) {
        yk__whole *t = &layout->tensors[i];
        size_t kept = 0;
        for (size_t p = 0; p < t->count; p++)
            if (t->parts[p].holder >= 0)
                t->parts[kept++] = t->parts[p];
        t->count = kept;
    }
    free(runs);
    free(load);
    YK__ASSERT_SOUND(status ? NULL : yk__layout_table_check(layout));
    return status;
}

/* ---- checking that the parts fill the tensors -------------------------------------------------------------------- */

static yk_status check_overlaps(const char *where, const yk__whole *t)
{
    yk__box both;
    for (size_t i = 0; i < t->count; i++) {
        const yk__box *a = &t->parts[i].box;
        for (size_t j = i + 1; j < t->count; j++) {
            const yk__box *b = &t->parts[j].box;
            if (t->ndim && b->offset[0] >= a->offset[0] + a->shape[0])
                break; /* sorted: nor does any later one */
            if (!yk__box_cut(t->ndim, a, b, &both))
                continue;
            char x[200], y[200];
            return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': elements %s of rank %d overlap %s of rank %d", where,
                            t->name, yk__box_format(t->ndim, a, x, sizeof(x)), t->parts[i].holder,
                            yk__box_format(t->ndim, b, y, sizeof(y)), t->parts[j].holder);
        }
    }
    return YK_OK;
}

yk_status yk__layout_check(yk__layout *layout, const char *where)
{
    YK__ASSERT_SOUND(yk__layout_table_check(layout));
    for (size_t i = 0; i < layout->count; i++) {
        yk__whole *t = &layout->tensors[i];
        int64_t held = 0, all = 1;
        for (int d = 0; d < t->ndim; d++)
            all *= t->shape[d];
        if (t->count)
            qsort(t->parts, t->count, sizeof(*t->parts), by_box);
        yk_status status = check_overlaps(where, t);
        if (status)
            return status;
        for (size_t p = 0; p < t->count; p++) /* disjoint, so at most `all` together */
            held += yk__box_count(t->ndim, &t->parts[p].box);
        char shape[200];
        if (held != all)
            return yk__fail(YK_ERR_FORMAT,
                            "%s: tensor '%s' of shape %s: the parts of all ranks hold %" PRId64 " of its %" PRId64
                            " elements",
                            where, t->name, shape_format(t->ndim, t->shape, shape, sizeof(shape)), held, all);
    }
    return YK_OK;
}
