/*
 * pickle.h - the part of Python's pickle format that holds tensors and plain data. Layer: checkpoint.
 *
 * A pickle is a program for a stack machine. Running it here makes nodes in one array, which know each other by
 * number, and notes which storages and tensors they need; no memory is taken for tensors yet. yk__pickle_value makes
 * values of the nodes when the storages are there.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_PICKLE_H
#define YOKE_CHECKPOINT_FORMATS_PICKLE_H

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "base/name_table.h"
#include "device/table.h"

/* The limits of one pickle. */
enum {
    YK__PICKLE_BYTES = 1 << 27,
    YK__PICKLE_NODES = 1 << 22,
    YK__PICKLE_ITEMS = 1 << 24 /* in all containers and on the stack; and of the tree, shared parts counted each time */
};

typedef enum yk__node_kind {
    YK__NODE_NONE,
    YK__NODE_BOOL,
    YK__NODE_INT,
    YK__NODE_REAL,
    YK__NODE_STRING,
    YK__NODE_BYTES,
    YK__NODE_LIST,
    YK__NODE_TUPLE,
    YK__NODE_SET,
    YK__NODE_DICT,     /* items: key, value, key, value, ...; a later key overrides */
    YK__NODE_GLOBAL,   /* one of the names that are allowed, by its number */
    YK__NODE_STORAGE,  /* by the number of its record */
    YK__NODE_TENSOR,   /* by the number of its record */
    YK__NODE_LEFT_OUT, /* its description, in as.text */
    YK__NODE_CLASS,    /* a name that is not among those, in as.text */
    YK__NODE_OBJECT    /* of the class in node as.index; a module becomes a dict */
} yk__node_kind;

typedef struct yk__node {
    uint8_t kind, python_type; /* yk__python_type */
    bool owned;                /* of text: not in the pickle's bytes */
    /* For an OrderedDict and a tensor: the node of their attributes' dict plus one; for a class: the byte where it
     * was. */
    uint32_t attributes;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const char *data;
            uint32_t size;
        } text;
        struct {
            uint32_t *items, count, capacity;
        } list;
        uint32_t index;
    } as;
} yk__node;

typedef struct yk__storage_record {
    const char *key; /* in the pickle's bytes */
    uint32_t key_size;
    const char *location; /* "cuda:0", likewise */
    uint32_t location_size;
    yk_dtype dtype;      /* u8 where the storage has no type, or one that yoke has not */
    const char *foreign; /* that one: "int8"; else NULL */
    uint32_t element;    /* bytes of one */
    bool booleans;       /* a tensor takes it for booleans: each byte must be 0 or 1 */
    uint64_t bytes;
    yk__storage *storage; /* filled in by the file's reader */
} yk__storage_record;

typedef struct yk__tensor_record {
    uint32_t storage;
    yk_dtype dtype;
    int ndim;
    int64_t offset; /* in elements */
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
} yk__tensor_record;

typedef struct yk__pickle {
    const char *path, *part; /* "data.pkl", for messages */
    const unsigned char *bytes;
    size_t size, at, op; /* at: the next byte; op: where the running instruction begins */
    bool ended_early;    /* the bytes ran out: more of them might help */
    yk__node *nodes;
    uint32_t *stack, *marks, *memo; /* of nodes; marks hold heights of the stack; memo holds node plus one, 0: unset */
    yk__storage_record *storages;
    yk__tensor_record *tensors;
    size_t node_count, node_room, stack_count, stack_room, mark_count, mark_room, memo_room;
    size_t storage_count, storage_room, tensor_count, tensor_room, item_count;
    uint64_t tensor_bytes, storage_bytes; /* of all tensors, as if none were shared; of all storages */
    yk__name_table keys;                  /* of storages */
    uint32_t root;
} yk__pickle;

/*
 * Runs the pickle that begins at byte `at` of `bytes`, up to its end; p->at is then the byte after it. The bytes must
 * outlive the pickle. Its result is in p->root: a tree without cycles, at most YK__VALUE_DEPTH deep. Cleared in any
 * case by yk__pickle_clear.
 */
yk_status yk__pickle_run(yk__pickle *p, const char *path, const char *part, const unsigned char *bytes, size_t size,
                         size_t at);
void yk__pickle_clear(yk__pickle *p);

/* One reference to the root as a value. All storages are there. */
yk_value *yk__pickle_value(yk__pickle *p);

/* ---- between the parts of it ---- */
/* Fails with "PATH: PART, byte N: ..." */
yk_status yk__pickle_fail(const yk__pickle *p, yk_status code, const char *format, ...) YK_PRINTF(3, 4);
/* A new node, pushed. NULL and an error where there are too many. Moves the nodes. */
yk__node *yk__pickle_push(yk__pickle *p, yk__node_kind kind);
yk_status yk__pickle_append(yk__pickle *p, uint32_t list, uint32_t item);
/* Makes room for one more of `size` bytes in an array of `count`. */
yk_status yk__pickle_room(void **array, size_t size, size_t count, size_t *room);
const char *yk__node_kind_name(const yk__node *node);
/* Says whether a node is this text. */
bool yk__pickle_is_text(const yk__node *node, const char *text);
/* "TEXT" of at most 79 printable bytes. */
const char *yk__pickle_describe(const char *text, size_t size, char buffer[80]);

/* ---- pickle_names.c ---- */
/* Pushes the number of an allowed name. */
yk_status yk__pickle_global(yk__pickle *p, const char *module, size_t module_size, const char *name, size_t name_size);
/* The text of an allowed name ("torch.float16"), and whether it is a value of its own, a dtype. */
const char *yk__pickle_global_name(uint32_t index, bool *is_dtype);
/* True if `name` is the name of a dtype, "torch.float16", that a pickle may have. */
bool yk__pickle_is_dtype(const char *name);

/* ---- pickle_reduce.c ---- */
/* Replaces function and arguments on the stack by what the function of that name stands for. */
yk_status yk__pickle_reduce(yk__pickle *p, uint32_t function, uint32_t arguments);
yk_status yk__pickle_build(yk__pickle *p, uint32_t object, uint32_t state);
/* Pushes the storage that a persistent id describes. */
yk_status yk__pickle_persistent(yk__pickle *p, uint32_t id);

/* ---- pickle_foreign.c: what PyTorch has and yoke has not ---- */
/* Pushes a node for what is left out: "int8 tensor of shape (2, 3)". */
yk_status yk__pickle_leave_out(yk__pickle *p, const char *format, ...) YK_PRINTF(2, 3);
/* The same for a tensor with this node for its size. */
yk_status yk__pickle_leave_out_tensor(yk__pickle *p, const char *what, uint32_t size);
/* Notes a dict of Python attributes for the tensor on the stack's top, whose values nobody looks at. */
void yk__pickle_note_attributes(yk__pickle *p, uint32_t state);
/* The name that a value gets in a dict whose key is no text and no integer: "(0, 1)". */
const char *yk__pickle_key_name(const yk__pickle *p, uint32_t key, char text[80]);

/* ---- pickle_module.c: classes and objects, which are in the tree in the end as dicts of modules or not at all ---- */
yk_status yk__pickle_class(yk__pickle *p, const char *name); /* pushes it */
/* An object takes the place of class and arguments on the stack. */
yk_status yk__pickle_new_object(yk__pickle *p, uint32_t cls, uint32_t args);
yk_status yk__pickle_build_object(yk__pickle *p, uint32_t object, uint32_t state);
/* The error for a class, or an object of one. */
yk_status yk__pickle_refuse(const yk__pickle *p, uint32_t index);

/* ---- pickle_tree.c ---- */
/* Looks for cycles below the root, and measures what it stands for; the pickle has so many bytes. */
yk_status yk__pickle_survey(yk__pickle *p, uint64_t bytes);

#endif
