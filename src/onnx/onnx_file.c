/*
 * onnx_file.c - a graph as a file of ONNX, a ModelProto, and where it is asked for or needed another file with the
 * weights. Layer: onnx.
 *
 * The graph is the file's last field, so that its size, which comes before it, can be told without a copy of the
 * weights. No message of Protocol Buffers is larger than 2 GiB; weights in a file of their own have no such bound, and
 * can be mapped, as each begins a page.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/file.h"
#include "onnx/onnx_graph.h"

enum { LEAST_EXTERNAL = 1024, PAGE = 4096 }; /* shapes and the like are read before the weights are there */

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value > 127; value >>= 7)
        size++;
    return size;
}

/* The size of a constant's message: its head, and field 9 with the bytes. */
static size_t constant_size(const yk__onnx_constant *c)
{
    return c->head.size + (c->external ? 0 : 1 + varint_size(c->size) + c->size);
}

/* The size of the graph's message. */
static size_t graph_size(const yk__onnx *g)
{
    size_t size = g->nodes.size;
    for (int i = 0; i < g->n_constants; i++)
        size += 1 + varint_size(constant_size(&g->constants[i])) + constant_size(&g->constants[i]);
    return size;
}

static void entry_write(yk__proto *head, const char *key, const char *value)
{
    yk__proto entry = {0};
    yk__proto_text(&entry, 1, key);
    yk__proto_text(&entry, 2, value);
    yk__proto_message(head, 13, &entry);
}

/* Gives each weight its place in the file of data, whose name is `name`. */
static yk_status weights_place(yk__onnx *g, const char *name)
{
    size_t end = 0;
    for (int i = 0; i < g->n_constants; i++) {
        yk__onnx_constant *c = &g->constants[i];
        char text[24];
        if (!c->tensor || c->size < LEAST_EXTERNAL)
            continue;
        c->external = true;
        c->offset = (end + PAGE - 1) / PAGE * PAGE;
        end = c->offset + c->size;
        entry_write(&c->head, "location", name);
        snprintf(text, sizeof(text), "%zu", c->offset);
        entry_write(&c->head, "offset", text);
        snprintf(text, sizeof(text), "%zu", c->size);
        entry_write(&c->head, "length", text);
        yk__proto_int(&c->head, 14, 1); /* data_location: EXTERNAL */
        if (c->head.failed)
            return yk__fail_memory(c->head.size);
    }
    return YK_OK;
}

static yk_status bytes_write(yk__file_writer *file, const yk__onnx_constant *c)
{
    if (c->bytes || !c->size)
        return c->size ? yk__file_write(file, c->bytes, c->size) : YK_OK;
    void *data = yk__calloc(1, c->size);
    yk_status status = data ? yk_tensor_read(c->tensor, data, c->size) : yk__error_code();
    if (!status)
        status = yk__file_write(file, data, c->size);
    free(data);
    return status;
}

static yk_status message_write(yk__file_writer *file, yk__proto *message)
{
    yk_status status =
        message->failed ? yk__fail_memory(message->size) : yk__file_write(file, message->data, message->size);
    free(message->data);
    *message = (yk__proto){0};
    return status;
}

static yk_status model_write(const yk__onnx *g, yk__file_writer *file)
{
    yk__proto head = {0}, opset = {0};
    size_t size = graph_size(g);
    if (size > INT32_MAX)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "onnx_export: the graph without its weights takes %zu bytes, and a file of ONNX at most 2 GiB",
                        size);
    yk__proto_int(&head, 1, 9); /* the version of the format, to which opset 20 belongs */
    yk__proto_text(&head, 2, "yoke");
    yk__proto_int(&opset, 2, YK__ONNX_OPSET);
    yk__proto_message(&head, 8, &opset);
    yk__proto_key(&head, 7, 2);
    yk__proto_varint(&head, size);
    yk__proto_raw(&head, g->nodes.data, g->nodes.size);
    yk_status status = message_write(file, &head);
    for (int i = 0; i < g->n_constants && !status; i++) {
        const yk__onnx_constant *c = &g->constants[i];
        yk__proto_key(&head, 5, 2);
        yk__proto_varint(&head, constant_size(c));
        yk__proto_raw(&head, c->head.data, c->head.size);
        if (!c->external) {
            yk__proto_key(&head, 9, 2);
            yk__proto_varint(&head, c->size);
        }
        status = message_write(file, &head);
        if (!status && !c->external)
            status = bytes_write(file, c);
    }
    return status;
}

static yk_status weights_write(const yk__onnx *g, yk__file_writer *file)
{
    static const char zeros[PAGE];
    size_t at = 0;
    yk_status status = YK_OK;
    for (int i = 0; i < g->n_constants && !status; i++) {
        const yk__onnx_constant *c = &g->constants[i];
        if (!c->external)
            continue;
        status = yk__file_write(file, zeros, c->offset - at);
        if (!status)
            status = bytes_write(file, c);
        at = c->offset + c->size;
    }
    return status;
}

/* Ends both files, that of the weights first: the model is there only with them. */
static yk_status files_end(yk__file_writer *model, yk__file_writer *weights, yk_status status)
{
    if (weights && !status)
        status = yk__file_commit(weights);
    else if (weights)
        yk__file_abort(weights);
    if (model && !status)
        return yk__file_commit(model);
    if (model)
        yk__file_abort(model);
    return status;
}

yk_status yk__onnx_write(yk__onnx *g, const char *path, bool external_data)
{
    const char *slash = strrchr(path, '/');
    char *data_path = NULL;
    bool separate = external_data || graph_size(g) > INT32_MAX;
    if (separate) {
        data_path = yk__format("%s.data", path);
        yk_status status = data_path ? weights_place(g, data_path + (slash ? slash + 1 - path : 0)) : YK_ERR_MEMORY;
        if (status) {
            free(data_path);
            return status;
        }
    }
    yk__file_writer *model = yk__file_create(path), *weights = model && separate ? yk__file_create(data_path) : NULL;
    yk_status status = model && (weights || !separate) ? model_write(g, model) : yk__error_code();
    if (!status && weights)
        status = weights_write(g, weights);
    status = files_end(model, weights, status);
    free(data_path);
    return status;
}
