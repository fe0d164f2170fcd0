/*
 * module.h - declarations that the files of nn/ share: the module itself. Layer: nn.
 */
#ifndef YOKE_NN_MODULE_H
#define YOKE_NN_MODULE_H

#include <yoke/nn.h>

#include "autograd/tape.h"
#include "nn/state_dict.h"

/* A named child (yk_module) or tensor (yk_tensor); holds one reference. */
typedef struct yk__entry {
    char *name;
    void *object;
    bool temporary; /* a buffer that is not part of the state dict */
} yk__entry;

typedef struct yk__entries {
    yk__entry *items;
    int64_t count;
} yk__entries;

typedef struct yk__module_hooks yk__module_hooks;

struct yk_module {
    yk__object object;
    const yk_module_class *cls;
    const char *shown_name; /* by which prints and errors call it: cls->name, but of a SyncBatchNorm */
    bool training;
    bool incomplete;   /* something could not be added: yk_module_check */
    bool parametrized; /* a weight is computed in each forward: parametrize.c */
    _Atomic(const void *)
        computing; /* of the thread whose forward has such weights, an address of its own; else NULL */
    yk__entries parameters, buffers, children;
    yk__module_hooks *hooks; /* NULL: none (forward.c) */
    void *data;              /* cls->data_size bytes */
    /* The module that this one is a replica of, retained; else NULL. A replica's data is a copy, and what else that
     * holds is the original's. */
    yk_module *original;
    yk_module *kept; /* the same of a copy, which is no replica: its tensors are its own (module_twin.c) */
};

/* A module like m without its parts: their names, with NULL in their places. One reference. */
yk_module *yk__module_replica_make(yk_module *m);
/* The counterpart of a module, parameter or buffer in a replica of the tree that it is in; NULL for anything else. */
typedef void *(*yk__counterpart)(const void *tree, const void *original);
/* Mode, hooks and data of m become those of its replica, and pointers in the data to parts of the tree those to their
 * counterparts. */
yk_status yk__module_replica_update(yk_module *replica, const yk_module *m, yk__counterpart find, const void *tree);
/* The hooks of m become those of its replica. */
yk_status yk__module_hooks_copy(yk_module *replica, const yk_module *m);

/* Pointers in the data of m that lead to `old` lead to `part` from here on. */
void yk__module_point(yk_module *m, const void *old, void *part);
/* Takes out the child of that name, if there is one. */
void yk__module_remove_child(yk_module *m, const char *name);
/* The weights of a module that is parametrized are computed, and its data leads to them, until end; in the scope of the
 * forward between the two. */
yk_status yk__parametrized_begin(yk_module *m);
void yk__parametrized_end(yk_module *m);
/* The name of computed weight i of m, and the weight itself in the forward; NULL after the last one. */
const char *yk__parametrized_weight(const yk_module *m, int64_t i, yk_tensor **weight);
/* True for a module whose forward finds its parameters, and those, by their names (recurrent_module.c). */
bool yk__finds_by_name(const yk_module *m);
/* True for the buffer that has the name of a weight that is computed, and no values. */
bool yk__is_stand_in(const yk_module *m, const char *name);

/* yk_module_data of a module that is known to be alive, or NULL. */
static inline void *yk__module_data(const yk_module *m)
{
    return m ? m->data : NULL;
}

/* The fault of a module's own parts, and of the whole tree, NULL for none (base/invariant.h): names, NULLs, freed
 * objects, parameters that are no leaves, a module inside itself. */
const char *yk__module_parts_check(const yk_module *m);
const char *yk__module_tree_check(const yk_module *m);

/* True if m can be used; an incomplete module is an error in the name of `what`, and so is NULL. */
bool yk__module_usable(const char *what, const yk_module *m);
/* yk_forward that returns a reference of the caller's: for containers, whose intermediate results die at once. */
yk_tensor *yk__forward(yk_module *m, yk_tensor *x);
/* yk_forward of a part, for the forward of its module: the door through which that was called has made the checks. */
yk_tensor *yk__forward_part(yk_module *part, yk_tensor *x);
/* yk_batch_norm2d_forward likewise. In one pass, unless a hook wants to see the normalisation alone. */
yk_tensor *yk__batch_norm_forward(yk_module *m, yk_tensor *x, yk_tensor *residual, bool relu);
/* Runs `body` as the forward of m: scope, hooks, error prefix. yk__forward is this with the class's forward. */
typedef yk_tensor *(*yk__module_body)(yk_module *m, yk_tensor *x, void *user);
yk_tensor *yk__module_run(yk_module *m, yk__module_body body, yk_tensor *x, void *user);
/* yk_relu of the module's forward, a reference of the caller's: one operation where there is one, and no hook wants to
 * see the module's result alone. */
yk_tensor *yk__forward_relu(yk_module *m, yk_tensor *x);
bool yk__fuses_relu(const yk_module *m);
/* The body that is both, or NULL. */
yk__module_body yk__conv2d_relu_body(const yk_module *m);
yk__module_body yk__linear_relu_body(const yk_module *m);

/* yk_conv2d_create without initial values: the caller sets them. */
yk_module *yk__conv2d_make(int64_t in_channels, int64_t out_channels, int64_t kernel,
                           const yk_conv2d_module_options *options);

bool yk__is_batch_norm(const yk_module *m);
/* Makes a batch norm a SyncBatchNorm in place: its tensors, its place in its parents and its hooks stay. In training it
 * calls fn instead of yk_batch_norm from here on. `user` is a counted object, retained. */
typedef yk_tensor *(*yk__batch_norm_fn)(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                        yk_tensor *running_var, const yk_batch_norm_options *options, void *user);
void yk__batch_norm_convert(yk_module *m, yk__batch_norm_fn fn, void *user);
/* Begins to average the running statistics of a batch norm, which are set back, over all batches from here on; or ends
 * it. Source: reset_running_stats, momentum=None. */
yk_status yk__batch_norm_cumulate(yk_module *m, bool cumulative);
bool yk__is_sync_batch_norm(const yk_module *m);
bool yk__is_relu(const yk_module *m);
bool yk__is_sequential(const yk_module *m);
bool yk__is_module_list(const yk_module *m);

/* A floating option as Python prints it, for describe: "0.1", "1.0", "1e-05"; returns `text`. */
const char *yk__module_number(double number, char text[YK__NUMBER_ROOM]);

/* A parameter or buffer in C order, f32 on the CPU; NULL and an error in the name of `what` for a bad shape. One
 * reference: yk__module_take_* hands it to the module. */
yk_tensor *yk__module_tensor(const char *what, int ndim, const int64_t *shape, yk_dtype dtype);
/* yk_module_add_parameter and add_buffer that take over the reference. */
yk_tensor *yk__module_take_parameter(yk_module *m, const char *name, yk_tensor *x);
yk_tensor *yk__module_take_buffer(yk_module *m, const char *name, yk_tensor *x);
/* A parameter and a buffer of one value; NULL and an incomplete module on failure. */
yk_tensor *yk__module_constant_parameter(yk_module *m, const char *name, int ndim, const int64_t *shape, double value);
yk_tensor *yk__module_constant_buffer(yk_module *m, const char *name, int ndim, const int64_t *shape, double value);
/* The buffer num_batches_tracked. */
yk_tensor *yk__module_add_batch_count(yk_module *m);

/* Appends all tensors of the tree below m; references are the dict's. */
typedef enum yk__collect { YK__PARAMETERS, YK__STATE } yk__collect;
yk_status yk__module_collect(yk_module *m, yk__collect what, yk_state_dict *dict);

/* The checks that yk_module_load_state_dict makes before it writes. */
yk_status yk__module_check_state_dict(yk_module *m, const yk_state_dict *dict, const yk_load_options *options);

#endif
