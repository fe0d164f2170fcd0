/*
 * value.h - the functions that readers and writers of values use beyond the public ones. Layer: value.
 *
 * Functions that return a value return one reference that the caller releases; no scope is needed.
 */
#ifndef YOKE_VALUE_VALUE_H
#define YOKE_VALUE_VALUE_H

#include <yoke/value.h>

#include "base/core.h"
#include "base/name_table.h"

/* Containers inside one another; deeper ones are refused by every reader, so that recursion is bounded. */
enum { YK__VALUE_DEPTH = 200 };

/*
 * Note [Names are bounded]
 * The leaves of nested state have dotted names: "optimizer.state.0.exp_avg". A short file can stand for endless ones: a
 * container that several others hold, or one long key above many leaves, is repeated in every name. So a name has at
 * most YK__VALUE_NAME bytes, and all of a file together, with the texts among the leaves, at most yk__value_text_most.
 * What an honest file has is far below both: a name is seldom longer than a hundred bytes, and a leaf takes some.
 */
enum { YK__VALUE_NAME = 1 << 16 };
/* The names of one value, wherever it is from. */
static const uint64_t YK__VALUE_NAMES = (uint64_t)1 << 30;
/* 1 MiB and 256 times the bytes of the description (the pickle, the JSON), at most YK__VALUE_NAMES. */
uint64_t yk__value_text_most(uint64_t bytes);

/* The type of Python's that it was, where several are one kind here: it is written to a .pt as that type again. */
typedef enum yk__python_type {
    YK__PYTHON_PLAIN,
    YK__PYTHON_ORDERED,  /* a dict: OrderedDict */
    YK__PYTHON_COUNTER,  /* a dict: collections.Counter */
    YK__PYTHON_SIZE,     /* a tuple of integers: torch.Size */
    YK__PYTHON_DTYPE,    /* a string that yk__pickle_is_dtype knows */
    YK__PYTHON_DEVICE,   /* a string: "cuda:0" */
    YK__PYTHON_BYTEARRAY /* bytes: bytearray */
} yk__python_type;

typedef struct yk__value_key {
    char *text; /* NULL: the key is the number */
    int64_t number;
} yk__value_key;

struct yk_value {
    yk__object object;
    yk_value_kind kind;
    yk__python_type python_type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            char *data; /* `size` bytes and a zero; of what was left out, what it was */
            size_t size;
        } bytes;
        yk_tensor *tensor;
        void *reference; /* a counted object of another layer; that layer alone looks into it */
        struct {
            yk_value **items;
            yk__value_key *keys; /* of a dict */
            int64_t count, capacity;
            yk__name_table names; /* of a dict */
        } list;
    } as;
    /* For an OrderedDict, a dict of what Python kept in its __dict__, or NULL. For a tensor, a dict of its attributes'
     * names, all left out. */
    yk_value *attributes;
};

yk_value *yk__value_new(yk_value_kind kind);
/* A value of kind YK_VALUE_REFERENCE; retains the object. */
yk_value *yk__value_reference(void *object);
/* A string or bytes, copied; text is not checked. */
yk_value *yk__value_text(yk_value_kind kind, const char *data, size_t size);
/* The same as append, set and set_int, for any size of text, without looking for a cycle. The item's reference is taken
 * over, on failure too. */
yk_status yk__value_push(yk_value *list, yk_value *item);
yk_status yk__value_put(yk_value *dict, const char *key, size_t length, int64_t number, yk_value *item);

/*
 * Calls fn for every value that holds no others (tensors, numbers, empty lists), in order, with its dotted name, which
 * lasts for the call; a failure ends it.
 */
typedef yk_status (*yk__leaf_fn)(const char *name, yk_value *leaf, void *user);
yk_status yk__value_walk(const yk_value *value, yk__leaf_fn fn, void *user);

/* Fails if a name of a value that holds nothing twice is too long, or all its names and texts together are for the
 * `bytes` bytes that describe it; `path` is for messages. */
yk_status yk__value_check_names(const char *path, const yk_value *value, uint64_t bytes);
/* The length of key i in the name of a leaf below it. */
size_t yk__value_digits(int64_t number);

/* The dict inside it in which yk_value_weights finds the weights; the value itself where there is none. */
const yk_value *yk__value_weights_in(const yk_value *value);

/* One reference to the value without what was left out of it: dicts and sets lose it, in lists and tuples None stands
 * in its position. The value itself where there is none; NULL and an error where it is all that there is. */
yk_value *yk__value_without_left_out(yk_value *value);

bool yk__utf8_valid(const char *text, size_t size);

#endif
