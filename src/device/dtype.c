/*
 * dtype.c - names, sizes and promotion of element types. Layer: device.
 */
#include <string.h>
#include <strings.h>

#include "device/table.h"

static const struct {
    const char *name, *brief;
    size_t size;
    bool floating;
} types[YK__DTYPES] = {
    [YK_F32] = {"float32", "f32", 4, true}, [YK_F64] = {"float64", "f64", 8, true},
    [YK_F16] = {"float16", "f16", 2, true}, [YK_BF16] = {"bfloat16", "bf16", 2, true},
    [YK_I64] = {"int64", "i64", 8, false},  [YK_I32] = {"int32", "i32", 4, false},
    [YK_U8] = {"uint8", "u8", 1, false},    [YK_BOOL] = {"bool", "bool", 1, false},
};

size_t yk_dtype_size(yk_dtype dtype)
{
    return (unsigned)dtype < YK__DTYPES ? types[dtype].size : 0;
}

const char *yk_dtype_name(yk_dtype dtype)
{
    return (unsigned)dtype < YK__DTYPES ? types[dtype].name : "unknown";
}

bool yk_dtype_is_floating(yk_dtype dtype)
{
    return (unsigned)dtype < YK__DTYPES && types[dtype].floating;
}

yk_status yk_dtype_parse(const char *text, yk_dtype *dtype)
{
    if (!yk__is_there("dtype_parse", "result", dtype))
        return YK_ERR_ARGUMENT;
    *dtype = YK_F32;
    if (!text)
        return yk__fail(YK_ERR_ARGUMENT, "dtype: the name is NULL");
    for (int i = 0; i < YK__DTYPES; i++) {
        if (strcasecmp(text, types[i].name) == 0 || strcasecmp(text, types[i].brief) == 0) {
            *dtype = (yk_dtype)i;
            return YK_OK;
        }
    }
    return yk__fail(YK_ERR_ARGUMENT, "unknown dtype '%s': expected f32, f64, f16, bf16, i64, i32, u8 or bool", text);
}

yk_dtype yk_dtype_promote(yk_dtype a, yk_dtype b)
{
    if (a == b || (unsigned)b >= YK__DTYPES)
        return a;
    if ((unsigned)a >= YK__DTYPES)
        return b;
    bool fa = yk_dtype_is_floating(a), fb = yk_dtype_is_floating(b);
    if (fa != fb)
        return fa ? a : b;
    if (fa) {
        if (a == YK_F64 || b == YK_F64)
            return YK_F64;
        return YK_F32; /* two different ones below f64: f16 and bf16 meet in f32 */
    }
    static const int rank[YK__DTYPES] = {[YK_BOOL] = 0, [YK_U8] = 1, [YK_I32] = 2, [YK_I64] = 3};
    return rank[a] > rank[b] ? a : b;
}
