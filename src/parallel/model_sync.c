/*
 * model_sync.c - models of several ranks: are they alike, and one rank's values for all. Layer: parallel.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "comm/agreement.h"
#include "nn/module.h"
#include "parallel/reducer.h"
#include "tensor/host_tensor.h"

/* ---- are they alike ---------------------------------------------------------------------------------------------- */

/* One line per tensor: "parameter fc.weight (10, 84) of float32\n". The caller frees. */
static char *manifest(const yk__reducer *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) {
        yk__fail_memory(1);
        return NULL;
    }
    char shape[200];
    for (int i = 0; i < r->count; i++) {
        const yk__ddp_parameter *p = &r->parameters[i];
        fprintf(to, "%s %s %s of %s%s\n", yk__wants_grad(p->x) ? "parameter" : "frozen parameter", p->name,
                yk_shape_format(p->x, shape, sizeof(shape)), yk_dtype_name((yk_dtype)p->x->dtype),
                p->name == r->wrapped ? ", which belongs to another module of yk_ddp" : "");
    }
    for (int i = 0; i < r->n_buffers; i++)
        fprintf(to, "buffer %d %s of %s\n", i, yk_shape_format(r->buffers[i], shape, sizeof(shape)),
                yk_dtype_name((yk_dtype)r->buffers[i]->dtype));
    if (fclose(to)) {
        free(text);
        yk__fail_memory(size);
        return NULL;
    }
    return text;
}

/* A rank's summary of its model. */
typedef struct model_summary {
    uint64_t hash, bytes;
    int64_t pid;
    char host[64];
    char difference[700]; /* from rank 0's; empty: none */
} model_summary;

static const char *line_of(const char *text, char *line, size_t size)
{
    size_t n = strcspn(text, "\n");
    snprintf(line, size, "%.*s", (int)(n < 280 ? n : 280), text);
    return line;
}

static void describe_difference(const char *mine, const char *first, char *out, size_t size)
{
    char a[300], b[300];
    while (*mine && *first) {
        size_t n = strcspn(mine, "\n") + 1;
        if (strncmp(mine, first, n) != 0) {
            snprintf(out, size, "has %s, but rank 0 has %s", line_of(mine, a, sizeof(a)), line_of(first, b, sizeof(b)));
            return;
        }
        mine += n;
        first += n;
    }
    if (*mine)
        snprintf(out, size, "has %s, and rank 0 has no such", line_of(mine, a, sizeof(a)));
    else if (*first)
        snprintf(out, size, "lacks %s of rank 0", line_of(first, b, sizeof(b)));
}

/* The manifests differ somewhere: rank 0's goes to all, each says how its own differs, and all fail alike. */
static yk_status explain(yk__reducer *r, const char *mine, model_summary *own, model_summary *all)
{
    int64_t bytes = (int64_t)all[0].bytes;
    yk_scope scope = yk_scope_begin();
    yk_tensor *text = yk__scope_own(yk__host_zeros(YK_SHAPE(bytes + 1), YK_U8));
    if (text && r->rank == 0)
        memcpy(text->data, mine, (size_t)bytes);
    yk_status status = text ? YK__HOST_TENSORS(yk_broadcast(text, 0, r->group)) : yk__error_code();
    if (!status)
        describe_difference(mine, text->data, own->difference, sizeof(own->difference));
    yk_scope_end(scope);
    if (!status)
        status = yk__gather_bytes(own, all, sizeof(*own), r->group);
    for (int i = 0; i < r->world_size && !status; i++)
        if (all[i].difference[0])
            return yk__fail(YK_ERR_MISMATCH, "ddp: the ranks' models differ: rank %d (host %s, pid %" PRId64 ") %s", i,
                            all[i].host, all[i].pid, all[i].difference);
    return status ? status : yk__fail(YK_ERR_INTERNAL, "ddp: the ranks' models differ in their hash alone");
}

yk_status yk__model_compare(yk__reducer *r)
{
    char *mine = manifest(r);
    model_summary own = {0}, *all = yk__calloc((size_t)r->world_size, sizeof(*all));
    yk_status status = mine && all ? YK_OK : yk__error_code();
    if (!status) {
        own.hash = yk__hash(YK__HASH_BASIS, mine, strlen(mine));
        own.bytes = strlen(mine);
        own.pid = getpid();
        if (gethostname(own.host, sizeof(own.host) - 1))
            snprintf(own.host, sizeof(own.host), "unknown");
        status = yk__gather_bytes(&own, all, sizeof(own), r->group);
    }
    bool same = true;
    for (int i = 0; i < r->world_size && !status; i++)
        same = same && all[i].hash == all[0].hash && all[i].bytes == all[0].bytes;
    if (!status && !same)
        status = explain(r, mine, &own, all);
    free(mine);
    free(all);
    return status;
}

/* ---- one rank's values for all ----------------------------------------------------------------------------------- */

/* ALIGNMENT: bytes; a cache line. */
enum { ALIGNMENT = 64, PIECE = 32 << 20 /* bytes that travel at once, unless one tensor is larger */ };

static size_t padded_bytes(const yk_tensor *x)
{
    size_t bytes = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The view for x in the flat tensor: C order, x's dtype. */
static yk_tensor *view_in(yk_tensor *flat, size_t offset, const yk_tensor *x)
{
    yk_tensor *view = yk__tensor_over(yk__storage_retain(flat->storage), x->ndim, x->shape, (yk_dtype)x->dtype);
    if (view)
        view->data = (char *)flat->data + offset;
    return view;
}

/* Copies the tensors to `flat`, one after the other. */
static yk_status pack_tensors(int count, yk_tensor *const *tensors, yk_tensor *flat)
{
    size_t offset = 0;
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        yk_tensor *part = view_in(flat, offset, tensors[i]);
        status = part ? yk__raw_copy(part, tensors[i]) : YK_ERR_MEMORY;
        yk_tensor_release(part);
        offset += padded_bytes(tensors[i]);
    }
    return status;
}

/* Copies them back from `flat`; `written`: their versions count up. */
static yk_status unpack_tensors(int count, yk_tensor *const *tensors, yk_tensor *flat, bool written)
{
    size_t offset = 0;
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        yk_tensor *part = view_in(flat, offset, tensors[i]);
        status = part ? yk__raw_copy(tensors[i], part) : YK_ERR_MEMORY;
        if (written)
            yk__bump_version(tensors[i]);
        yk_tensor_release(part);
        offset += padded_bytes(tensors[i]);
    }
    return status;
}

/* The device on which the bytes travel: the GPU that has all of the tensors, else memory that the host's ranks
 * share. */
static yk_device flat_device(int count, yk_tensor *const *tensors)
{
    yk_device device = yk__device_of(tensors[0]), host = {YK_CPU, 0};
    for (int i = 0; i < count; i++)
        if (device.type == YK_CPU || !yk_device_equal(yk__device_of(tensors[i]), device))
            return host;
    return device;
}

static yk_status broadcast_piece(int count, yk_tensor *const *tensors, size_t bytes, int src, bool written,
                                 yk_process_group *group, yk_tensor **flat)
{
    int64_t size = (int64_t)bytes;
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = YK_U8, .device = flat_device(count, tensors));
    if (!*flat || (*flat)->numel != size || !yk_device_equal(yk__device_of(*flat), o.device)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *made =
            yk_tensor_retain(o.device.type == YK_CPU ? yk_comm_alloc(1, &size, &o) : yk_empty(1, &size, &o));
        yk_scope_end(scope);
        if (!made)
            return yk__error_code();
        yk_tensor_release(*flat);
        *flat = made;
    }
    bool root = yk_rank(group) == src;
    yk_status status = root ? pack_tensors(count, tensors, *flat) : YK_OK;
    if (!status)
        status = YK__HOST_TENSORS(yk_broadcast(*flat, src, group));
    return status || root ? status : unpack_tensors(count, tensors, *flat, written);
}

yk_status yk__model_broadcast(int count, yk_tensor *const *tensors, int src, bool written, yk_process_group *group,
                              yk_tensor **flat)
{
    yk_tensor *own = NULL, **at = flat ? flat : &own;
    yk_status status = YK_OK;
    for (int begin = 0, end = 0; begin < count && !status; begin = end) {
        size_t bytes = 0;
        while (end < count && (end == begin || bytes + padded_bytes(tensors[end]) <= PIECE))
            bytes += padded_bytes(tensors[end++]);
        status = broadcast_piece(end - begin, tensors + begin, bytes, src, written, group, at);
    }
    yk_tensor_release(own);
    return status;
}

yk_status yk__model_broadcast_all(yk__reducer *r, int src)
{
    yk_tensor **all = yk__calloc((size_t)(r->count + r->n_buffers) + 1, sizeof(yk_tensor *));
    if (!all)
        return YK_ERR_MEMORY;
    for (int i = 0; i < r->count; i++)
        all[i] = r->parameters[i].x;
    for (int i = 0; i < r->n_buffers; i++)
        all[r->count + i] = r->buffers[i];
    yk_status status = yk__model_broadcast(r->count + r->n_buffers, all, src, true, r->group, NULL);
    for (int i = 0; i < r->count; i++) /* on rank src, too */
        yk__note_exchanged(all[i]);
    free(all);
    return status;
}

/*
 * The versions stay. What the broadcast changes somebody has written since the last one, and counted there: the model
 * of rank src, or of this rank. Where nobody has, it writes what is there, between two forwards that have one backward,
 * too; a version that went on would make that backward fail on the ranks that receive. PyTorch's do not go on either.
 */
yk_status yk__model_broadcast_buffers(yk__reducer *r, int src)
{
    return yk__model_broadcast(r->n_buffers, r->buffers, src, false, r->group, &r->buffer_flat);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

typedef struct tensor_list {
    yk_tensor **items;
    int count;
} tensor_list;

static yk_status add_buffers(yk_module *m, void *user)
{
    tensor_list *list = user;
    for (int64_t i = 0; i < m->buffers.count; i++) {
        yk_tensor *x = m->buffers.items[i].object;
        bool listed = false;
        for (int j = 0; j < list->count; j++)
            listed = listed || list->items[j] == x;
        if (listed)
            continue;
        yk_tensor **grown = yk__realloc(list->items, sizeof(*grown) * (size_t)(list->count + 1));
        if (!grown)
            return YK_ERR_MEMORY;
        list->items = grown;
        grown[list->count++] = yk_tensor_retain(x);
    }
    return YK_OK;
}

yk_status yk__model_buffers(yk_module *m, yk_tensor ***list, int *count)
{
    tensor_list found = {0};
    yk_status status = yk_module_apply(m, add_buffers, &found);
    *list = found.items;
    *count = found.count;
    return status;
}
