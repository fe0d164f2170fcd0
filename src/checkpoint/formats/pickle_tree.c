/*
 * pickle_tree.c - looks over the tree of nodes that a pickle left, before values are made of it. Layer: checkpoint.
 *
 * Invariant: a tree that passes has no cycle, is no deeper than values may be, stands for a bounded number of items,
 * and its names are bounded (Note [Names are bounded]); classes and objects are in none.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint/formats/pickle.h"
#include "value/value.h"

enum { UNSEEN, OPEN, DONE };

/* The tree below a node, shared parts counted each time: Note [Names are bounded]. */
typedef struct extent {
    uint32_t size;    /* items */
    uint32_t leaves;  /* of them, those that hold no others */
    uint32_t longest; /* bytes of the longest name of a leaf, each part with its dot */
    uint64_t text;    /* bytes of all names of leaves, and of the texts among these */
} extent;

typedef struct survey {
    uint8_t *state, *height;
    extent *extents;
} survey;

/* Adds the tree below an item to that of the container that holds it under a key of `key` bytes. */
static void extent_add(extent *all, uint64_t *size, const extent *item, size_t key)
{
    *size += item->size;
    all->leaves += item->leaves;
    all->text += item->text + (uint64_t)item->leaves * (key + 1);
    uint64_t longest = (uint64_t)item->longest + key + 1;
    longest = longest < UINT32_MAX ? longest : UINT32_MAX;
    all->longest = longest > all->longest ? (uint32_t)longest : all->longest;
}

/* The length of an item's part of a name. */
static size_t key_length(const yk__pickle *p, const yk__node *container, uint32_t i)
{
    enum { LONGEST = 96 }; /* of yk__pickle_key_name, with what is added where it is taken */
    if (container->kind != YK__NODE_DICT)
        return yk__value_digits(i);
    const yk__node *key = &p->nodes[container->as.list.items[i - 1]];
    return key->kind == YK__NODE_STRING ? key->as.text.size
           : key->kind == YK__NODE_INT  ? yk__value_digits(key->as.integer)
                                        : LONGEST;
}

static yk_status check_names(const yk__pickle *p, const extent *all, uint64_t most)
{
    if (all->longest > YK__VALUE_NAME)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a name of %u bytes; %d are allowed", all->longest, YK__VALUE_NAME);
    if (all->text > most)
        return yk__pickle_fail(p, YK_ERR_FORMAT,
                               "the names and texts that it stands for have %" PRIu64 " bytes; %" PRIu64
                               " are allowed in a file of this size",
                               all->text, most);
    return YK_OK;
}

/* Looks for cycles, and measures what stands below. A node whose height is known is not looked into again. */
static yk_status survey_node(yk__pickle *p, survey *s, uint32_t index, int depth)
{
    const yk__node *node = &p->nodes[index];
    bool container = node->kind >= YK__NODE_LIST && node->kind <= YK__NODE_DICT;
    if (node->kind == YK__NODE_CLASS || node->kind == YK__NODE_OBJECT)
        return yk__pickle_refuse(p, index);
    if (s->state[index] == OPEN)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a %s contains itself", yk__node_kind_name(node));
    if (s->state[index] == DONE || !container) {
        bool has_text = node->kind == YK__NODE_STRING || node->kind == YK__NODE_LEFT_OUT;
        if (!s->extents[index].size)
            s->extents[index] = (extent){1, 1, 0, has_text ? node->as.text.size : 0};
        return YK_OK;
    }
    if (depth >= YK__VALUE_DEPTH)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d containers inside one another", YK__VALUE_DEPTH);
    s->state[index] = OPEN;
    uint64_t size = 1;
    uint32_t height = 0, count = node->as.list.count;
    extent all = {.leaves = count == 0};
    for (uint32_t i = 0; i < count + (node->attributes != 0); i++) {
        uint32_t item = i < count ? node->as.list.items[i] : node->attributes - 1;
        bool is_key = node->kind == YK__NODE_DICT && i < count && i % 2 == 0;
        yk_status status = survey_node(p, s, item, depth + 1);
        if (status)
            return status;
        if (is_key)
            size += s->extents[item].size;
        else
            extent_add(&all, &size, &s->extents[item], i < count ? key_length(p, node, i) : 0);
        height = s->height[item] > height ? s->height[item] : height;
    }
    if (size > YK__PICKLE_ITEMS)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a %s that stands for more than %d items", yk__node_kind_name(node),
                               YK__PICKLE_ITEMS);
    if (height >= YK__VALUE_DEPTH)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d containers inside one another", YK__VALUE_DEPTH);
    s->extents[index] = all;
    s->extents[index].size = (uint32_t)size;
    s->height[index] = (uint8_t)(height + 1);
    s->state[index] = DONE;
    return YK_OK;
}

yk_status yk__pickle_survey(yk__pickle *p, uint64_t bytes)
{
    survey s = {yk__calloc(p->node_count, 1), yk__calloc(p->node_count, 1), yk__calloc(p->node_count, sizeof(extent))};
    yk_status status = s.state && s.height && s.extents ? survey_node(p, &s, p->root, 0) : YK_ERR_MEMORY;
    if (!status)
        status = check_names(p, &s.extents[p->root], yk__value_text_most(bytes));
    free(s.state);
    free(s.height);
    free(s.extents);
    return status;
}
