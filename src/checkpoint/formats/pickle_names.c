/*
 * pickle_names.c - the table of names that a pickle may use. Layer: checkpoint.
 *
 * A name that is not in it may be that of a class (pickle_module.c).
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/formats/pickle_names.h"
#include "value/value.h"

const yk__pickle_name yk__pickle_names[] = {
    {"collections.OrderedDict", YK__ROLE_ORDERED_DICT, 0},
    {"collections.Counter", YK__ROLE_COUNTER, 0},
    {"builtins.set", YK__ROLE_SET, 0},
    {"builtins.frozenset", YK__ROLE_SET, 0},
    {"builtins.bytes", YK__ROLE_BYTES, 0},
    {"_codecs.encode", YK__ROLE_ENCODE, 0},
    {"torch.Size", YK__ROLE_SIZE, 0},
    {"torch.device", YK__ROLE_DEVICE, 0},
    {"torch._utils._rebuild_tensor", YK__ROLE_TENSOR_V1, 0},
    {"torch._utils._rebuild_tensor_v2", YK__ROLE_TENSOR_V2, 0},
    {"torch._utils._rebuild_tensor_v3", YK__ROLE_TENSOR_V3, 0},
    {"torch._utils._rebuild_parameter", YK__ROLE_PARAMETER, 0},
    {"torch._utils._rebuild_parameter_with_state", YK__ROLE_PARAMETER_WITH_STATE, 0},
    {"torch._tensor._rebuild_from_type_v2", YK__ROLE_TENSOR_OF_TYPE, 0},
    {"torch.Tensor", YK__ROLE_TENSOR_TYPE, 0},
    {"torch.nn.parameter.Parameter", YK__ROLE_TENSOR_TYPE, 0},
    {"torch.nn.parameter.Buffer", YK__ROLE_TENSOR_TYPE, 0},
    {"builtins.bytearray", YK__ROLE_BYTEARRAY, 0},
    {"builtins.complex", YK__ROLE_COMPLEX, 0},
    {"torch.serialization._get_layout", YK__ROLE_LAYOUT, 0},
    {"torch._utils._rebuild_sparse_tensor", YK__ROLE_SPARSE, 0},
    {"torch._utils._rebuild_meta_tensor_no_storage", YK__ROLE_META, 0},
    {"torch._utils._rebuild_qtensor", YK__ROLE_QUANTIZED, 0},
    {"torch.FloatStorage", YK__ROLE_STORAGE, YK_F32},
    {"torch.DoubleStorage", YK__ROLE_STORAGE, YK_F64},
    {"torch.HalfStorage", YK__ROLE_STORAGE, YK_F16},
    {"torch.BFloat16Storage", YK__ROLE_STORAGE, YK_BF16},
    {"torch.LongStorage", YK__ROLE_STORAGE, YK_I64},
    {"torch.IntStorage", YK__ROLE_STORAGE, YK_I32},
    {"torch.ByteStorage", YK__ROLE_STORAGE, YK_U8},
    {"torch.BoolStorage", YK__ROLE_STORAGE, YK_BOOL},
    {"torch.CharStorage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.ShortStorage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.ComplexFloatStorage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.ComplexDoubleStorage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.QInt8Storage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.QUInt8Storage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.QInt32Storage", YK__ROLE_STORAGE, YK__DTYPES},
    {"torch.UntypedStorage", YK__ROLE_STORAGE, YK_U8},
    {"torch.storage.UntypedStorage", YK__ROLE_STORAGE, YK_U8},
    {"torch.float32", YK__ROLE_DTYPE, YK_F32},
    {"torch.float64", YK__ROLE_DTYPE, YK_F64},
    {"torch.float16", YK__ROLE_DTYPE, YK_F16},
    {"torch.bfloat16", YK__ROLE_DTYPE, YK_BF16},
    {"torch.int64", YK__ROLE_DTYPE, YK_I64},
    {"torch.int32", YK__ROLE_DTYPE, YK_I32},
    {"torch.uint8", YK__ROLE_DTYPE, YK_U8},
    {"torch.bool", YK__ROLE_DTYPE, YK_BOOL},
    {"torch.int8", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.int16", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.uint16", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.uint32", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.uint64", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.complex64", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.complex128", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float8_e4m3fn", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float8_e5m2", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float8_e4m3fnuz", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float8_e5m2fnuz", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float8_e8m0fnu", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.float4_e2m1fn_x2", YK__ROLE_DTYPE, YK__DTYPES},
    {"torch.complex32", YK__ROLE_DTYPE, YK__DTYPES},
};
enum { NAMES = sizeof(yk__pickle_names) / sizeof(*yk__pickle_names) };

/* The storages whose dtype yoke has not; a tensor of them is left out by the dtype's name. */
static const struct {
    const char *name, *dtype;
    uint32_t element; /* bytes */
} foreign_storages[] = {
    {"torch.CharStorage", "int8", 1},
    {"torch.ShortStorage", "int16", 2},
    {"torch.ComplexFloatStorage", "complex64", 8},
    {"torch.ComplexDoubleStorage", "complex128", 16},
    {"torch.QInt8Storage", "qint8", 1},
    {"torch.QUInt8Storage", "quint8", 1},
    {"torch.QInt32Storage", "qint32", 4},
};

const char *yk__pickle_global_name(uint32_t index, bool *is_dtype)
{
    *is_dtype = yk__pickle_names[index].role == YK__ROLE_DTYPE;
    return yk__pickle_names[index].name;
}

bool yk__pickle_is_dtype(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        if (yk__pickle_names[i].role == YK__ROLE_DTYPE && strcmp(yk__pickle_names[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Python 2's and CUDA's names for the same things. */
static void put_alias(char *module, size_t size)
{
    if (strcmp(module, "__builtin__") == 0)
        snprintf(module, size, "builtins");
    else if (strcmp(module, "torch.cuda") == 0)
        snprintf(module, size, "torch");
}

yk_status yk__pickle_global(yk__pickle *p, const char *module, size_t module_size, const char *name, size_t name_size)
{
    char full[200], alias[80], text[80];
    yk__pickle_describe(module, module_size, alias);
    put_alias(alias, sizeof(alias));
    snprintf(full, sizeof(full), "%s.%s", alias, yk__pickle_describe(name, name_size, text));
    bool whole = module_size < 79 && name_size < 79;
    for (uint32_t i = 0; whole && i < NAMES; i++) {
        if (strcmp(full, yk__pickle_names[i].name) != 0)
            continue;
        yk__node *node = yk__pickle_push(p, YK__NODE_GLOBAL);
        if (!node)
            return yk__error_code();
        node->as.index = i;
        return YK_OK;
    }
    size_t length = strlen(full);
    if (strncmp(full, "torch.", 6) == 0 && length > 7 && strcmp(full + length - 7, "Storage") == 0)
        return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "%s is refused: there are no tensors of that dtype", full);
    return yk__pickle_class(p, full);
}

const char *yk__pickle_foreign_storage(const char *name, uint32_t *element)
{
    for (size_t i = 0; i < sizeof(foreign_storages) / sizeof(*foreign_storages); i++) {
        if (strcmp(foreign_storages[i].name, name) != 0)
            continue;
        *element = foreign_storages[i].element;
        return foreign_storages[i].dtype;
    }
    return NULL;
}
