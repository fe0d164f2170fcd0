/*
 * value_wire.c - values as bytes between processes. Layer: rpc.
 *
 * Invariants: the reader never passes its end; memory that is asked for is at most a small multiple of the bytes that
 * arrived; recursion ends at YK__VALUE_DEPTH.
 */
#include <string.h>

#include "rpc/dist_autograd.h"
#include "rpc/rpc_devices.h"
#include "rpc/rpc_loan.h"
#include "rpc/value_wire.h"
#include "tensor/host_tensor.h"
#include "tensor/tensor.h"
#include "value/value.h"

/* Numbers of the protocol: they stay as they are when enums of the library change. */
enum kind_on_wire {
    WIRE_NONE = 1,
    WIRE_BOOL,
    WIRE_INT = YK__VALUE_WIRE_INT,
    WIRE_REAL,
    WIRE_STRING,
    WIRE_BYTES,
    WIRE_LIST,
    WIRE_TUPLE,
    WIRE_SET,
    WIRE_DICT,
    WIRE_TENSOR,
    WIRE_REFERENCE,
    WIRE_LENT = 32 /* a tensor whose elements are in a memory file: Note [Loans] */
};

static const struct {
    yk_value_kind kind;
    enum kind_on_wire wire;
} kinds[] = {
    {YK_VALUE_NONE, WIRE_NONE}, {YK_VALUE_BOOL, WIRE_BOOL},     {YK_VALUE_INT, WIRE_INT},
    {YK_VALUE_REAL, WIRE_REAL}, {YK_VALUE_STRING, WIRE_STRING}, {YK_VALUE_BYTES, WIRE_BYTES},
    {YK_VALUE_LIST, WIRE_LIST}, {YK_VALUE_TUPLE, WIRE_TUPLE},   {YK_VALUE_SET, WIRE_SET},
    {YK_VALUE_DICT, WIRE_DICT}, {YK_VALUE_TENSOR, WIRE_TENSOR}, {YK_VALUE_REFERENCE, WIRE_REFERENCE},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* The position is the number on the wire. */
static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
enum {
    DTYPES = sizeof(dtypes) / sizeof(dtypes[0]),
    GRAPH = 0x80,
    ORDERED = 0x40,
    ON_DEVICE = 0x20 /* bits of the dtype on the wire */
};

unsigned yk__dtype_to_wire(yk_dtype dtype)
{
    unsigned at = 0;
    while (at < DTYPES && dtypes[at] != dtype)
        at++;
    return at;
}

bool yk__dtype_from_wire(unsigned wire, yk_dtype *dtype)
{
    if (wire >= DTYPES)
        return false;
    *dtype = dtypes[wire];
    return true;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* Fills order[], the dimensions as they lie in memory, the one with the largest stride first; false where a dense
 * tensor is in C order, or one is not dense. */
static bool dims_order(const yk_tensor *x, int order[YK_MAX_DIMS])
{
    if (!x || yk__in_c_order(x) || !yk__is_dense(x))
        return false;
    for (int d = 0; d < x->ndim; d++) {
        int at = d;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    return true;
}

/* A new tensor whose dimensions are those of another in that order gets the other's. */
static void dims_order_undo(yk_tensor *x, const unsigned char *order)
{
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        shape[order[d]] = x->shape[d];
        stride[order[d]] = x->stride[d];
    }
    memcpy(x->shape, shape, sizeof(*shape) * (size_t)x->ndim);
    memcpy(x->stride, stride, sizeof(*stride) * (size_t)x->ndim);
}

/* True if `count` numbers are 0 to count - 1 in any order. */
static bool is_order(const unsigned char *order, unsigned count)
{
    unsigned seen = 0;
    for (unsigned i = 0; order && i < count; i++)
        seen |= order[i] < count ? 1u << order[i] : 0;
    return order && seen == (1u << count) - 1;
}

static yk_status tensor_encode(yk_tensor *x, yk__wire *out, yk__rpc_carried *carried)
{
    bool graph = carried->context && yk__wants_grad(x);
    yk_device device;
    if (yk__devices_find(carried->devices, x, &device) || (graph && yk__dist_carry(carried, x)))
        return yk__error_code();
    bool on_device = !yk_device_equal(device, (yk_device){YK_CPU, 0});
    YK__OWN_RECORD;
    size_t kind = out->size - 1;
    yk_scope scope = yk_scope_begin();
    int order[YK_MAX_DIMS];
    yk_tensor *host = yk_to(yk_detach(x), (yk_device){YK_CPU, 0});
    bool ordered = dims_order(host, order); /* kernels go on in the order that they chose: the bits depend on it */
    host = yk_contiguous(ordered ? yk_permute(host, order) : host);
    const void *data = yk_numel(host) ? yk_tensor_data(host) : "";
    yk_status status = data ? YK_OK : yk__error_code();
    if (!status) {
        unsigned dtype = 0;
        while (dtype < DTYPES && dtypes[dtype] != yk_tensor_dtype(host))
            dtype++;
        yk__wire_put_u8(out, dtype | (graph ? GRAPH : 0) | (ordered ? ORDERED : 0) | (on_device ? ON_DEVICE : 0));
        yk__wire_put_u8(out, (unsigned)yk_ndim(host));
        if (on_device)
            yk__device_put(out, device);
        for (int d = 0; d < yk_ndim(host) && ordered; d++)
            yk__wire_put_u8(out, (unsigned)order[d]);
        for (int d = 0; d < yk_ndim(host); d++)
            yk__wire_put_u64(out, (uint64_t)yk_size(host, d));
        unsigned file = 0;
        uint64_t offset = 0;
        if (yk_numel(host) && yk__lend(host, &file, &offset)) {
            if (!out->failed)
                out->data[kind] = WIRE_LENT;
            yk__wire_put_u16(out, file);
            yk__wire_put_u64(out, offset);
        } else {
            yk__wire_put(out, data, (size_t)yk_numel(host) * yk_dtype_size(yk_tensor_dtype(host)));
        }
    }
    yk_scope_end(scope);
    return status;
}

static yk_status value_encode_at(const yk_value *value, yk__wire *out, yk__rpc_carried *carried, int depth)
{
    if (depth > YK__VALUE_DEPTH)
        return yk__fail(YK_ERR_ARGUMENT, "a value of more than %d containers inside one another", YK__VALUE_DEPTH);
    yk_value_kind kind = yk_value_kind_of(value);
    int known = 0;
    while (kinds[known].kind != kind)
        if (++known == KINDS)
            return yk__fail(YK_ERR_UNSUPPORTED, "a %s cannot be sent to another process", yk_value_kind_name(kind));
    yk__wire_put_u8(out, kinds[known].wire);
    uint64_t bits = 0;
    switch (kinds[known].wire) {
    case WIRE_NONE: return YK_OK;
    case WIRE_BOOL: yk__wire_put_u8(out, value->as.boolean); return YK_OK;
    case WIRE_INT: yk__wire_put_u64(out, (uint64_t)value->as.integer); return YK_OK;
    case WIRE_REAL:
        memcpy(&bits, &value->as.real, sizeof(bits));
        yk__wire_put_u64(out, bits);
        return YK_OK;
    case WIRE_STRING:
    case WIRE_BYTES:
        yk__wire_put_u64(out, value->as.bytes.size);
        yk__wire_put(out, value->as.bytes.data, value->as.bytes.size);
        return YK_OK;
    case WIRE_TENSOR: return tensor_encode(value->as.tensor, out, carried);
    case WIRE_REFERENCE: return yk__rpc_ref_encode(value->as.reference, carried, out);
    default: break;
    }
    yk__wire_put_u32(out, (uint32_t)value->as.list.count);
    for (int64_t i = 0; i < value->as.list.count; i++) {
        if (kind == YK_VALUE_DICT) {
            const yk__value_key *key = &value->as.list.keys[i];
            yk__wire_put_u8(out, key->text != NULL);
            if (key->text)
                yk__wire_put_value(out, key->text, strlen(key->text));
            else
                yk__wire_put_u64(out, (uint64_t)key->number);
        }
        yk_status status = value_encode_at(value->as.list.items[i], out, carried, depth + 1);
        if (status)
            return status;
    }
    return YK_OK;
}

yk_status yk__value_encode(const yk_value *value, yk__wire *out, yk__rpc_carried *carried)
{
    yk_status status = value_encode_at(value, out, carried, 0);
    return !status && out->failed ? yk__fail_memory(out->size) : status;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static yk_value *value_malformed(const char *what)
{
    yk__fail(YK_ERR_FORMAT, "a message with %s, which no yoke of this version sends", what);
    return NULL;
}

/* The value takes over the tensor, and NULL is passed through; it gets the order of its dimensions (NULL: it has it),
 * and is brought to its device; a tensor of a graph is noted. */
static yk_value *tensor_value(yk_tensor *x, const unsigned char *order, yk_device device, yk__rpc_arrived *arrived)
{
    if (x && order)
        dims_order_undo(x, order);
    x = yk__devices_bring(x, device);
    yk_value *value = x ? yk__value_new(YK_VALUE_TENSOR) : NULL;
    if (!value) {
        yk_tensor_release(x);
        return NULL;
    }
    value->as.tensor = x;
    if (arrived && yk__dist_arrive(arrived, x)) {
        yk_value_release(value);
        return NULL;
    }
    return value;
}

static yk_value *tensor_decode(yk__reader *r, yk__rpc_arrived *arrived, bool lent)
{
    unsigned dtype = yk__read_u8(r), ndim = yk__read_u8(r);
    bool graph = dtype & GRAPH, ordered = dtype & ORDERED;
    yk_device device = dtype & ON_DEVICE ? yk__device_read(r) : (yk_device){YK_CPU, 0};
    dtype &= ON_DEVICE - 1;
    if (r->bad || dtype >= DTYPES || ndim > YK_MAX_DIMS)
        return value_malformed("a tensor of an unknown dtype or device, or of too many dimensions");
    const unsigned char *order = ordered ? yk__read_bytes(r, ndim) : NULL;
    if (ordered && !is_order(order, ndim))
        return value_malformed("a tensor whose order of dimensions is none");
    int64_t shape[YK_MAX_DIMS];
    size_t bytes = yk_dtype_size(dtypes[dtype]), most = (size_t)(r->end - r->at);
    bool empty = false;
    for (unsigned d = 0; d < ndim; d++) {
        shape[d] = (int64_t)yk__read_u64(r);
        empty = empty || shape[d] == 0;
        if (shape[d] < 0 || (shape[d] > 0 && __builtin_mul_overflow(bytes, (size_t)shape[d], &bytes)))
            return value_malformed("a tensor of a size that is none");
    }
    bytes = empty ? 0 : bytes;
    if (lent) {
        unsigned file = yk__read_u16(r);
        uint64_t offset = yk__read_u64(r);
        if (r->bad || offset % yk_dtype_size(dtypes[dtype]))
            return value_malformed("a tensor that is cut short");
        yk__storage *storage = yk__loan_map(file, offset, bytes);
        return storage ? tensor_value(yk__tensor_over(storage, (int)ndim, shape, dtypes[dtype]), order, device,
                                      graph ? arrived : NULL)
                       : NULL;
    }
    const unsigned char *data = bytes > most ? NULL : yk__read_bytes(r, bytes);
    if (r->bad || !data)
        return value_malformed("a tensor that is larger than the message");
    yk_tensor *x = yk__host_zeros((int)ndim, shape, dtypes[dtype]);
    if (x && bytes)
        memcpy(yk_tensor_data(x), data, bytes);
    return tensor_value(x, order, device, graph ? arrived : NULL);
}

static yk_value *value_decode_at(yk__reader *r, yk__rpc_arrived *arrived, int depth);

static yk_status dict_item_decode(yk__reader *r, yk__rpc_arrived *arrived, yk_value *dict, int depth)
{
    bool text = yk__read_u8(r);
    size_t size = text ? yk__read_u32(r) : 0;
    const char *key = text ? (const char *)yk__read_bytes(r, size) : NULL;
    int64_t number = text ? 0 : (int64_t)yk__read_u64(r);
    if (r->bad || (text && (!key || !yk__utf8_valid(key, size) || memchr(key, 0, size)))) {
        value_malformed("a key that is no text");
        return YK_ERR_FORMAT;
    }
    yk_value *item = value_decode_at(r, arrived, depth);
    return item ? yk__value_put(dict, key, size, number, item) : yk__error_code();
}

static yk_value *container_decode(yk__reader *r, yk__rpc_arrived *arrived, yk_value_kind kind, int depth)
{
    uint32_t count = yk__read_u32(r);
    if (r->bad || count > (size_t)(r->end - r->at)) /* an item takes a byte at least */
        return value_malformed("a container that is larger than the message");
    yk_value *value = yk__value_new(kind);
    yk_status status = value ? YK_OK : YK_ERR_MEMORY;
    for (uint32_t i = 0; i < count && !status; i++) {
        if (kind == YK_VALUE_DICT) {
            status = dict_item_decode(r, arrived, value, depth + 1);
        } else {
            yk_value *item = value_decode_at(r, arrived, depth + 1);
            status = item ? yk__value_push(value, item) : yk__error_code();
        }
    }
    if (status) {
        yk_value_release(value);
        return NULL;
    }
    return value;
}

static yk_value *value_decode_at(yk__reader *r, yk__rpc_arrived *arrived, int depth)
{
    unsigned wire = yk__read_u8(r);
    int known = 0;
    if (wire == WIRE_LENT)
        return tensor_decode(r, arrived, true);
    while (known < KINDS && (unsigned)kinds[known].wire != wire)
        known++;
    if (r->bad || known == KINDS)
        return value_malformed("a value of an unknown kind");
    if (depth > YK__VALUE_DEPTH)
        return value_malformed("containers that are nested too deep");
    yk_value_kind kind = kinds[known].kind;
    if (wire == WIRE_TENSOR)
        return tensor_decode(r, arrived, false);
    if (wire == WIRE_REFERENCE) {
        yk_ref *ref = yk__rpc_ref_decode(r);
        yk_value *value = ref ? yk__value_reference(ref) : NULL;
        yk_ref_release(ref);
        return value;
    }
    if (wire == WIRE_LIST || wire == WIRE_TUPLE || wire == WIRE_SET || wire == WIRE_DICT)
        return container_decode(r, arrived, kind, depth);
    if (wire == WIRE_STRING || wire == WIRE_BYTES) {
        uint64_t size = yk__read_u64(r);
        const unsigned char *data = size > (size_t)(r->end - r->at) ? NULL : yk__read_bytes(r, (size_t)size);
        if (r->bad || !data)
            return value_malformed("a text that is longer than the message");
        if (wire == WIRE_STRING && (!yk__utf8_valid((const char *)data, size)))
            return value_malformed("a text that is not UTF-8");
        return yk__value_text(kind, (const char *)data, size);
    }
    uint64_t bits = wire == WIRE_NONE ? 0 : wire == WIRE_BOOL ? yk__read_u8(r) : yk__read_u64(r);
    if (r->bad)
        return value_malformed("a value that is cut short");
    yk_value *value = yk__value_new(kind);
    if (!value)
        return NULL;
    if (wire == WIRE_BOOL)
        value->as.boolean = bits != 0;
    else if (wire == WIRE_INT)
        value->as.integer = (int64_t)bits;
    else if (wire == WIRE_REAL)
        memcpy(&value->as.real, &bits, sizeof(bits));
    return value;
}

yk_value *yk__value_decode(yk__reader *reader, yk__rpc_arrived *arrived)
{
    return value_decode_at(reader, arrived, 0);
}
