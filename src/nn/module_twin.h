/*
 * module_twin.h - another tree of modules like one that is there. Layer: nn.
 */
#ifndef YOKE_NN_MODULE_TWIN_H
#define YOKE_NN_MODULE_TWIN_H

#include "nn/module.h"

typedef struct yk__twin {
    void *original, *object; /* `object`: one reference */
} yk__twin;

typedef struct yk__twins yk__twins;
/* Makes the twin of a parameter or a buffer: one reference, NULL on failure. */
typedef yk_tensor *(*yk__twin_of_tensor)(const yk__twins *t, yk_tensor *x);

/* Modules, parameters and buffers of a tree, each once; the module itself comes first. */
struct yk__twins {
    yk__twin *items;
    int64_t count, capacity;
    yk__twin_of_tensor parameter, buffer;
    bool copies; /* the twins are modules of their own: yk_module.kept */
};

/* Makes the twins of m and of all below it, with their data, hooks and modes; the twin of m, borrowed, NULL on failure.
 * To be cleared in both cases. */
yk_module *yk__twins_make(yk__twins *t, yk_module *m);
/* The twin of a part, borrowed; NULL where there is none. A yk__counterpart. */
void *yk__twin_find(const void *twins, const void *original);
/* Releases the twins. */
void yk__twins_clear(yk__twins *t);

#endif
