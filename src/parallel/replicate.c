/*
 * replicate.c - copies of a module on several devices, which live as long as the module does. Layer: parallel.
 *
 * Note [Replicas]
 * A replica is a tree of modules like the original's, of the same classes, whose data is a copy in which every pointer
 * to a part of the original is one to the replica's part. Before each forward it is brought up to date: modes, data and
 * hooks are copied; a parameter becomes a new tensor on the replica's device that is recorded as made from the
 * original's, so its gradient goes there by itself; a buffer is copied where either side was written since. Devices of
 * one memory share the parameters' memory. Where they do not, the copy of a parameter is kept and made anew when the
 * original's version, or its memory, has changed.
 *
 * Replica r gets its parameters from replica r & (r - 1), r without its lowest bit: a binomial tree, rooted at the
 * original.
 *
 *     0 --- 4 --- 6 --- 7        The engine adds what a tensor's uses give as soon as all have come, on the thread
 *     |     '---- 5              of the tensor's device; so a parameter's gradients are reduced along the tree while
 *     |---- 2 --- 3              the backward of other parameters goes on. Terms are added in the order of recording,
 *     '---- 1                    and the tree is recorded before any forward: the order of sums is always the same.
 *
 * Replica 0 is the module itself, on its own device. What a forward does to its buffers lasts; what it does to the
 * others' does not, as in PyTorch.
 *
 * Invariant: `seen` lists the modules and tensors of the original in the order of the walk, as they were when the
 * replicas were made. Where a walk finds others, all replicas are made anew.
 */
#include <stdlib.h>
#include <string.h>

#include "parallel/replicas.h"

typedef enum part_kind { PART_MODULE, PART_PARAMETER, PART_BUFFER } part_kind;

/* A module or tensor of the original; one that stands in the tree twice is one part. */
typedef struct part {
    void *original; /* borrowed: the tree holds it */
    char *name;     /* of a tensor: its path */
    part_kind kind;
} part;

/* A part of one replica. */
typedef struct twin {
    void *object; /* one reference */
    /* A tensor with memory of its own: what it was copied from. */
    yk_tensor *copy;
    const void *from_memory;
    uint32_t from_version, own_version;
} twin;

struct yk__replicas {
    yk_module *module;
    int count;
    yk_device devices[YK__MOST_REPLICAS];
    const void **seen; /* every position of the tree, repetitions too */
    int64_t n_seen, seen_capacity;
    part *parts;
    int64_t n_parts, parts_capacity;
    int64_t *table; /* hash of originals: index of the part + 1, 0 for none */
    int64_t table_size;
    twin *twins[YK__MOST_REPLICAS]; /* NULL for replica 0, and until it is first used */
};

/* ---- the parts of the original ---- */

static size_t hash_of(const void *pointer)
{
    return (size_t)((uintptr_t)pointer * 0x9E3779B97F4A7C15u >> 20);
}

static int64_t part_find(const yk__replicas *r, const void *original)
{
    if (!r->table_size)
        return -1;
    for (size_t h = hash_of(original);; h++) {
        int64_t at = r->table[h & (size_t)(r->table_size - 1)];
        if (!at)
            return -1;
        if (r->parts[at - 1].original == original)
            return at - 1;
    }
}

static void table_add(yk__replicas *r, int64_t index)
{
    size_t h = hash_of(r->parts[index].original);
    while (r->table[h & (size_t)(r->table_size - 1)])
        h++;
    r->table[h & (size_t)(r->table_size - 1)] = index + 1;
}

static yk_status table_grow(yk__replicas *r)
{
    int64_t size = r->table_size ? 4 * r->table_size : 256;
    int64_t *table = yk__calloc((size_t)size, sizeof(*table));
    if (!table)
        return YK_ERR_MEMORY;
    free(r->table);
    r->table = table;
    r->table_size = size;
    for (int64_t i = 0; i < r->n_parts; i++)
        table_add(r, i);
    return YK_OK;
}

/* The index of the part, made where it is new; -1 and an error without memory. */
static int64_t part_add(yk__replicas *r, void *original, part_kind kind, const char *path, const char *name)
{
    int64_t found = part_find(r, original);
    if (found >= 0)
        return found;
    if (2 * (r->n_parts + 1) > r->table_size && table_grow(r))
        return -1;
    if (r->n_parts == r->parts_capacity) {
        int64_t capacity = r->parts_capacity ? 2 * r->parts_capacity : 64;
        part *grown = yk__realloc(r->parts, (size_t)capacity * sizeof(*grown));
        if (!grown)
            return -1;
        r->parts = grown;
        r->parts_capacity = capacity;
    }
    char *whole = yk__format("%s%s%s", path, *path && *name ? "." : "", name);
    if (!whole)
        return -1;
    r->parts[r->n_parts] = (part){.original = original, .name = whole, .kind = kind};
    table_add(r, r->n_parts);
    return r->n_parts++;
}

static yk_status part_note(yk__replicas *r, void *object, part_kind kind, const char *path, const char *name)
{
    if (r->n_seen == r->seen_capacity) {
        int64_t capacity = r->seen_capacity ? 2 * r->seen_capacity : 64;
        const void **seen = yk__realloc(r->seen, (size_t)capacity * sizeof(*seen));
        if (!seen)
            return YK_ERR_MEMORY;
        r->seen = seen;
        r->seen_capacity = capacity;
    }
    if (part_add(r, object, kind, path, name) < 0)
        return yk__error_code();
    r->seen[r->n_seen++] = object;
    return YK_OK;
}

/* Notes a module and all below it. */
static yk_status note_tree(yk__replicas *r, yk_module *m, const char *path)
{
    yk_status status = part_note(r, m, PART_MODULE, path, "");
    for (int64_t i = 0; !status && i < m->parameters.count; i++)
        status = part_note(r, m->parameters.items[i].object, PART_PARAMETER, path, m->parameters.items[i].name);
    for (int64_t i = 0; !status && i < m->buffers.count; i++)
        status = part_note(r, m->buffers.items[i].object, PART_BUFFER, path, m->buffers.items[i].name);
    for (int64_t i = 0; !status && i < m->children.count; i++) {
        char *below = yk__format("%s%s%s", path, *path ? "." : "", m->children.items[i].name);
        status = below ? note_tree(r, m->children.items[i].object, below) : YK_ERR_MEMORY;
        free(below);
    }
    return status;
}

static bool seen_next(const yk__replicas *r, int64_t *at, const void *object)
{
    return *at < r->n_seen && r->seen[(*at)++] == object;
}

/* True if the tree is the one that was seen; *at goes on through `seen`. */
static bool same_tree(const yk__replicas *r, const yk_module *m, int64_t *at)
{
    if (!seen_next(r, at, m))
        return false;
    const yk__entries *lists[] = {&m->parameters, &m->buffers};
    for (int l = 0; l < 2; l++) {
        for (int64_t i = 0; i < lists[l]->count; i++) {
            if (!seen_next(r, at, lists[l]->items[i].object))
                return false;
        }
    }
    for (int64_t i = 0; i < m->children.count; i++) {
        if (!same_tree(r, m->children.items[i].object, at))
            return false;
    }
    return true;
}

/* ---- life ---- */

static void twins_free(yk__replicas *r, int replica)
{
    twin *twins = r->twins[replica];
    r->twins[replica] = NULL;
    for (int64_t i = 0; twins && i < r->n_parts; i++) {
        yk_object_release(twins[i].object);
        yk_tensor_release(twins[i].copy);
    }
    free(twins);
}

static void forget_tree(yk__replicas *r)
{
    for (int i = 0; i < r->count; i++)
        twins_free(r, i);
    for (int64_t i = 0; i < r->n_parts; i++)
        free(r->parts[i].name);
    free(r->table);
    r->table = NULL;
    r->n_parts = r->n_seen = r->table_size = 0;
}

yk__replicas *yk__replicas_create(yk_module *m, const yk_device *devices, int count)
{
    yk__replicas *r = yk__calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->module = m;
    r->count = count;
    memcpy(r->devices, devices, sizeof(*devices) * (size_t)count);
    return r;
}

void yk__replicas_free(yk__replicas *r)
{
    if (!r)
        return;
    forget_tree(r);
    free(r->parts);
    free(r->seen);
    free(r);
}

yk_module *yk__replicas_at(yk__replicas *r, int i)
{
    return i == 0 ? r->module : r->twins[i][0].object; /* the root is the first part */
}

/* ---- bringing up to date ---- */

/* Makes the entries of a replica those of the original, by the replica's own parts. */
static void entries_update(const yk__replicas *r, twin *twins, yk__entries *to, const yk__entries *from)
{
    for (int64_t i = 0; i < to->count; i++) {
        void *now = twins[part_find(r, from->items[i].object)].object;
        void *before = to->items[i].object;
        if (now == before)
            continue;
        to->items[i].object = yk_object_retain(now);
        yk_object_release(before);
    }
}

/* A replica in the making: its twins of all parts. */
typedef struct replica_tree {
    const yk__replicas *replicas;
    twin *twins;
} replica_tree;

/* The twin of a part of the tree, a yk__counterpart. */
static void *replica_twin(const void *tree, const void *original)
{
    const replica_tree *t = tree;
    int64_t index = part_find(t->replicas, original);
    return index < 0 ? NULL : t->twins[index].object;
}

static yk_status module_update(const yk__replicas *r, twin *twins, yk_module *to, const yk_module *from)
{
    entries_update(r, twins, &to->parameters, &from->parameters);
    entries_update(r, twins, &to->buffers, &from->buffers);
    entries_update(r, twins, &to->children, &from->children);
    return yk__module_replica_update(to, from, replica_twin, &(replica_tree){r, twins});
}

static void put(twin *t, void *object)
{
    void *before = t->object;
    t->object = object;
    yk_object_release(before);
}

/* t->copy, on the device, with the values of x; copied where one of them was written since the last time, or x moved.
 */
static yk_status copy_update(twin *t, yk_tensor *x, yk_device device)
{
    bool same = t->copy && t->copy->dtype == x->dtype && t->from_memory == x->data &&
                t->from_version == yk__version(x) && t->own_version == yk__version(t->copy);
    if (same)
        return YK_OK;
    if (!t->copy || t->copy->dtype != x->dtype || !yk__same_strides(t->copy, x)) {
        yk_tensor *made =
            yk__tensor_new(x->ndim, x->shape, yk__is_dense(x) ? x->stride : NULL, (yk_dtype)x->dtype, device);
        if (!made)
            return yk__error_code();
        yk_tensor_release(t->copy);
        t->copy = made;
    }
    yk_status status = yk__raw_copy(t->copy, x);
    if (status)
        return status;
    yk__bump_version(t->copy);
    t->from_memory = x->data;
    t->from_version = yk__version(x);
    t->own_version = yk__version(t->copy);
    return YK_OK;
}

/* The parameter on the replica's device, made from `from`, the one of the replica above it in the tree. */
static yk_status parameter_update(twin *t, yk_tensor *from, yk_device device)
{
    bool recorded = yk__will_record(1, &from), shared = yk__same_memory(yk__device_of(from), device);
    const yk_tensor *now = t->object;
    if (!recorded && shared && now && !now->node && !now->leaf_gradient && now->data == from->data &&
        now->dtype == from->dtype && now->storage->versions == from->storage->versions && yk__same_strides(now, from))
        return YK_OK;
    yk_status status = shared ? YK_OK : copy_update(t, from, device);
    yk_tensor *x = status ? NULL : shared ? yk__raw_on_device(from, device) : yk__tensor_alias(t->copy);
    if (recorded)
        x = yk_tensor_retain(yk__record_on_device(x, from));
    if (!x)
        return yk__error_code();
    put(t, x);
    return YK_OK;
}

static yk_status buffer_update(twin *t, yk_tensor *original, yk_device device)
{
    yk_status status = copy_update(t, original, device);
    if (!status && t->object != t->copy)
        put(t, yk_tensor_retain(t->copy));
    return status;
}

static yk_status twins_make(yk__replicas *r, int replica)
{
    twin *twins = yk__calloc((size_t)r->n_parts, sizeof(*twins));
    if (!twins)
        return YK_ERR_MEMORY;
    r->twins[replica] = twins;
    for (int64_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].kind == PART_MODULE && !(twins[i].object = yk__module_replica_make(r->parts[i].original))) {
            twins_free(r, replica);
            return YK_ERR_MEMORY;
        }
    }
    return YK_OK;
}

static yk_status replica_update(yk__replicas *r, int replica)
{
    yk_status status = r->twins[replica] ? YK_OK : twins_make(r, replica);
    const twin *above = r->twins[replica & (replica - 1)];
    twin *twins = r->twins[replica];
    for (int64_t i = 0; !status && i < r->n_parts; i++) {
        yk_tensor *original = r->parts[i].original;
        if (r->parts[i].kind == PART_PARAMETER)
            status = parameter_update(&twins[i], above ? above[i].object : original, r->devices[replica]);
        else if (r->parts[i].kind == PART_BUFFER)
            status = buffer_update(&twins[i], original, r->devices[replica]);
    }
    for (int64_t i = 0; !status && i < r->n_parts; i++) {
        if (r->parts[i].kind == PART_MODULE)
            status = module_update(r, twins, twins[i].object, r->parts[i].original);
    }
    return status;
}

/* Source: DataParallel.forward. */
static yk_status check_devices(const yk__replicas *r, const char *what)
{
    for (int64_t i = 0; i < r->n_parts; i++) {
        const part *p = &r->parts[i];
        if (p->kind == PART_MODULE || yk_device_equal(yk__device_of(p->original), r->devices[0]))
            continue;
        char first[16], there[16];
        return yk__fail(YK_ERR_DEVICE,
                        "%s: module must have its parameters and buffers on device %s (device_ids[0]) but found one of "
                        "them on device: %s (%s)",
                        what, yk_device_format(r->devices[0], first),
                        yk_device_format(yk__device_of(p->original), there), p->name);
    }
    return YK_OK;
}

static yk_status check_modules(const yk__replicas *r, const char *what)
{
    for (int64_t i = 0; i < r->n_parts; i++) {
        const part *p = &r->parts[i];
        if (p->kind == PART_MODULE && yk_is_ddp(p->original))
            return yk__fail(YK_ERR_STATE, "%s: %s is a module of yk_ddp, which has no replicas; put yk_ddp around",
                            what, p->name[0] ? p->name : "the module");
        if (p->kind == PART_MODULE && yk__is_sync_batch_norm(p->original))
            return yk__fail(YK_ERR_STATE,
                            "%s: %s is a SyncBatchNorm, whose ranks have one device each; use yk_ddp, or leave it a "
                            "BatchNorm2d",
                            what, p->name[0] ? p->name : "the module");
    }
    return YK_OK;
}

yk_status yk__replicas_update(yk__replicas *r, const char *what, int used)
{
    int64_t at = 0;
    yk_status status = YK_OK;
    if (!same_tree(r, r->module, &at) || at != r->n_seen) {
        forget_tree(r);
        status = note_tree(r, r->module, "");
        if (!status)
            status = check_modules(r, what);
        if (status) {
            forget_tree(r);
            return status;
        }
    }
    status = check_devices(r, what);
    yk_scope scope = yk_scope_begin();
    for (int i = 1; i < used && !status; i++)
        status = replica_update(r, i);
    yk_scope_end(scope);
    return status;
}

yk_status yk_replicate(yk_module *m, const yk_device *devices, int count, yk_module **replicas)
{
    YK__LIVE(m);
    YK__OWN_RECORD;
    for (int i = 0; replicas && i < count; i++)
        replicas[i] = NULL;
    if (!yk__module_usable("replicate", m))
        return yk__error_code();
    if (!replicas)
        return yk__fail(YK_ERR_ARGUMENT, "replicate: replicas is NULL");
    yk_status status = yk__devices_check("replicate", devices, count);
    if (status || !yk__scope_reserve("replicate", (size_t)count))
        return yk__error_code();
    yk__replicas *r = yk__replicas_create(m, devices, count);
    status = r ? yk__replicas_update(r, "replicate", count) : yk__error_code();
    for (int i = 0; !status && i < count; i++)
        replicas[i] = yk__scope_own(yk_module_retain(yk__replicas_at(r, i)));
    yk__replicas_free(r);
    return status;
}
