/*
 * pickle_names.h - what the names that a pickle may use stand for; between pickle_names.c and pickle_reduce.c.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_PICKLE_NAMES_H
#define YOKE_CHECKPOINT_FORMATS_PICKLE_NAMES_H

#include "checkpoint/formats/pickle.h"

typedef enum yk__pickle_role {
    YK__ROLE_ORDERED_DICT,
    YK__ROLE_COUNTER,
    YK__ROLE_SET,
    YK__ROLE_BYTES,
    YK__ROLE_ENCODE,
    YK__ROLE_SIZE,
    YK__ROLE_DEVICE,
    YK__ROLE_DTYPE,
    YK__ROLE_STORAGE,
    YK__ROLE_TENSOR_V1,
    YK__ROLE_TENSOR_V2,
    YK__ROLE_TENSOR_V3,
    YK__ROLE_PARAMETER,
    YK__ROLE_PARAMETER_WITH_STATE,
    YK__ROLE_TENSOR_OF_TYPE,
    YK__ROLE_TENSOR_TYPE,
    YK__ROLE_BYTEARRAY,
    YK__ROLE_COMPLEX,
    YK__ROLE_LAYOUT,
    YK__ROLE_SPARSE,
    YK__ROLE_META,
    YK__ROLE_QUANTIZED
} yk__pickle_role;

typedef struct yk__pickle_name {
    const char *name;
    yk__pickle_role role;
    yk_dtype dtype; /* YK__DTYPES: one that yoke has no tensors of */
} yk__pickle_name;

/* A node of kind YK__NODE_GLOBAL has an index of this table. */
extern const yk__pickle_name yk__pickle_names[];

/* The dtype's name and the bytes of an element of a storage whose dtype yoke has not; NULL for another name. */
const char *yk__pickle_foreign_storage(const char *name, uint32_t *element);

#endif
