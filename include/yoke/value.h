/*
 * yoke/value.h - values: trees of numbers, text, containers and tensors, as checkpoints hold them and calls pass them.
 */
#ifndef YOKE_VALUE_H
#define YOKE_VALUE_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A tree of objects as a Python checkpoint holds them: {"model": {...tensors}, "optimizer": {...}, "epoch": 3}.
 * Counted; a value made by a function here is owned by the current scope, and containers retain their items. A value
 * may stand in several positions, but not inside itself.
 */
typedef struct yk_value yk_value;
typedef enum yk_value_kind {
    YK_VALUE_NONE,
    YK_VALUE_BOOL,
    YK_VALUE_INT, /* 64 bits */
    YK_VALUE_REAL,
    YK_VALUE_STRING, /* UTF-8, also torch.dtype ("torch.float16") and torch.device ("cuda:0") */
    YK_VALUE_BYTES,
    YK_VALUE_LIST,
    YK_VALUE_TUPLE, /* torch.Size too */
    YK_VALUE_SET,
    YK_VALUE_DICT, /* in order of adding; the keys are strings or integers */
    YK_VALUE_TENSOR,
    YK_VALUE_LEFT_OUT,  /* an object of a file for which yoke has no kind: yk_value_left_out describes it */
    YK_VALUE_REFERENCE, /* a reference to an object of another process (yk_value_ref of yoke/rpc.h); for calls alone */
    YK__VALUE_KINDS
} yk_value_kind;

/* New values; NULL and an error on failure, or for a NULL tensor or text. Text must be UTF-8. */
YK_API yk_value *yk_value_none(void);
YK_API yk_value *yk_value_bool(bool value);
YK_API yk_value *yk_value_int(int64_t value);
YK_API yk_value *yk_value_real(double value);
YK_API yk_value *yk_value_string(const char *text);
YK_API yk_value *yk_value_bytes(const void *data, size_t size);
YK_API yk_value *yk_value_tensor(yk_tensor *x);
YK_API yk_value *yk_value_list(void);
YK_API yk_value *yk_value_tuple(void);
YK_API yk_value *yk_value_dict(void);
/* A dict of the tensors under their names, undotted, as torch.save(model.state_dict()) writes it. */
YK_API yk_value *yk_value_from_state_dict(const yk_state_dict *dict);

/* Adds to a list or tuple; puts into a dict, in place of the key's former item. NULL item: fails, leaving an earlier
 * error. */
YK_API yk_status yk_value_append(yk_value *list, yk_value *item) YK_MUST_CHECK;
YK_API yk_status yk_value_set(yk_value *dict, const char *key, yk_value *item) YK_MUST_CHECK;
YK_API yk_status yk_value_set_int(yk_value *dict, int64_t key, yk_value *item) YK_MUST_CHECK;

/* The kind of a value. NULL is of kind none, has 0 items, and is not an error. */
YK_API yk_value_kind yk_value_kind_of(const yk_value *value) YK_QUESTION;
YK_API const char *yk_value_kind_name(yk_value_kind kind) YK_QUESTION; /* "dict"; static */
/* Items of a list, tuple, set or dict; 0 for others. The i-th, borrowed; NULL outside. */
YK_API int64_t yk_value_count(const yk_value *value) YK_QUESTION;
YK_API yk_value *yk_value_at(const yk_value *value, int64_t i) YK_QUESTION;
/* The i-th key of a dict: the text, or NULL and the number in *number (which may be NULL) for an integer. */
YK_API const char *yk_value_key(const yk_value *dict, int64_t i, int64_t *number) YK_QUESTION;
/* The item of a dict under a key, borrowed; NULL, and no error, where it is not there or `dict` is no dict. */
YK_API yk_value *yk_value_get(const yk_value *dict, const char *key) YK_QUESTION;
YK_API yk_value *yk_value_get_int(const yk_value *dict, int64_t key) YK_QUESTION;
/* The value as a C value. Another kind is an error that names both, and 0, NAN or NULL; as_real takes integers too,
 * as_string and as_bytes each other's kind. The bytes end with a zero beyond `size`, which may be NULL. */
YK_API bool yk_value_as_bool(const yk_value *value);
YK_API int64_t yk_value_as_int(const yk_value *value);
YK_API double yk_value_as_real(const yk_value *value);
YK_API const char *yk_value_as_string(const yk_value *value);
YK_API const void *yk_value_as_bytes(const yk_value *value, size_t *size);
YK_API yk_tensor *yk_value_as_tensor(const yk_value *value); /* borrowed */
/* A description of the object that was left out here when a file was read: "int8 tensor of shape (2, 3)"; NULL for any
 * other kind. Borrowed. */
YK_API const char *yk_value_left_out(const yk_value *value) YK_QUESTION;
/*
 * The objects that were left out of a value: a dict of such texts under dotted names, empty where nothing was. A
 * tensor's Python attributes are in it as "NAME.attribute".
 */
YK_API yk_value *yk_value_left_out_list(const yk_value *value);
YK_API yk_value *yk_value_retain(yk_value *value);
YK_API void yk_value_release(yk_value *value);

/* All tensors under dotted names: "model.fc1.weight", "optimizer.state.0.exp_avg"; items of lists by number. A lone
 * tensor is named "tensor". Two of one name are an error. */
YK_API yk_state_dict *yk_value_flatten(const yk_value *value);

typedef struct yk_weights_options {
    /* Takes "module." (DataParallel, DistributedDataParallel) off the names. */
    bool strip_module YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_weights_options;
#define yk_weights_options_DEFAULTS .yk__mark = YK__MARK
/*
 * The model's parameters and buffers in a checkpoint: the tensors that a dict holds under "model", "state_dict",
 * "model_state_dict", "model_state", "net", "network", "module", "params" or "weights", the first of these in which
 * there are tensors; otherwise the tensors of the dict itself. A module that was pickled (torch.save(model)) gives the
 * tensors of its state_dict(). None at all is an error that lists the keys. Weights that were left out when the file
 * was read are no tensors of the dict: yk_state_dict_left_out describes them, and so does load_state_dict where it
 * misses it.
 */
YK_API yk_state_dict *yk_value_weights(const yk_value *value, const yk_weights_options *options);

#ifdef __cplusplus
}
#endif

#endif
