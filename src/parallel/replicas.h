/*
 * replicas.h - the types and functions that data_parallel.c and its building blocks share. Layer: parallel.
 */
#ifndef YOKE_PARALLEL_REPLICAS_H
#define YOKE_PARALLEL_REPLICAS_H

#include <yoke/parallel.h>

#include "autograd/tape.h"
#include "nn/module.h"

/* Size of arrays: as many as devices of one type there are at most. */
enum { YK__MOST_REPLICAS = 64 };

/* Checks that there is at least one device, that all exist, and none is named twice; errors in the name of `what`. */
yk_status yk__devices_check(const char *what, const yk_device *devices, int count);

/* ---- tensors (device_scatter.c) ---- */
/* x itself where it is there, else on `device`: the same memory where both devices have one, under one count of writes,
 * or a copy. Recorded as "to", owned by the scope. */
yk_tensor *yk__on_device(yk_tensor *x, yk_device device);
/* The same without gradients; one reference. */
yk_tensor *yk__raw_on_device(yk_tensor *x, yk_device device);
/* `x` recorded as "to" from `from`; takes over the reference to x, owned by the scope. */
yk_tensor *yk__record_on_device(yk_tensor *x, yk_tensor *from);
/* The list inputs[] split along dim: part i of input k is parts[i * n_inputs + k], on devices[i]. *used parts, the same
 * for all inputs. NULL inputs give NULL parts. Owned by the scope. */
yk_status yk__scatter_list(const char *what, yk_tensor *const *inputs, int n_inputs, const yk_device *devices,
                           int count, int dim, yk_tensor **parts, int *used);

/* ---- replicas that live long (replicate.c) ---- */
typedef struct yk__replicas yk__replicas;
/* Replicas of the module, borrowed, on the devices; nothing is copied yet. NULL and an error without memory. */
yk__replicas *yk__replicas_create(yk_module *m, const yk_device *devices, int count);
void yk__replicas_free(yk__replicas *r);
/* Brings the first `used` replicas up to date with the module, whose tensors must be on devices[0], and makes them part
 * of the graph where operations are recorded. Replica 0 is the module itself. */
yk_status yk__replicas_update(yk__replicas *r, const char *what, int used);
yk_module *yk__replicas_at(yk__replicas *r, int i); /* borrowed */

/* ---- running them (parallel_apply.c) ---- */
/* The device of a module's tensors: that of the first parameter or buffer of the tree; false where it has none. */
bool yk__module_device(const yk_module *m, yk_device *device);
typedef struct yk__parallel_work {
    const char *member; /* their name in errors: "replica" */
    int first;          /* the number of member 0: fn and errors have first to first + count - 1 */
    /* The state of the generator from which members but number 0 branch; NULL: the caller's. */
    const yk_random_state *random;
    /* Becomes true where a member but number 0 drew; the caller then looks after the generator. NULL: it moves on here,
     * so that the next branches differ. */
    bool *drew;
    /* The work for member `number`; tensors that it makes are owned by the scope that is open around it. */
    yk_status (*fn)(int number, void *user);
    /* One has failed, or has no thread: those that wait for it are to give up, without an error. NULL: none does. */
    void (*failed)(void *user);
    void *user;
} yk__parallel_work;
/* Calls fn for all `count` members at once, member i on a thread of devices[i], the first on this one, with the modes
 * of this thread and random numbers of their own; seconds[i], unless NULL, grows by the time. Returns when all are
 * done; the error is that of the first that failed, which it names. */
yk_status yk__parallel_run(const yk_device *devices, int count, const yk__parallel_work *work, double *seconds);
/* yk_parallel_apply that leaves what it gives to the caller: outputs[] are references. */
yk_status yk__parallel_apply(yk_module *const *replicas, const yk_device *devices, int count, yk_tensor *const *inputs,
                             int n_inputs, yk_tensor **outputs, int n_outputs, double *seconds);

#endif
