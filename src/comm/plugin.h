/*
 * plugin.h - backends of collectives that are shared objects of their own, and what of yoke they are given. Layer:
 * comm.
 *
 * Such an object, "yoke-NAME.so", links the heavy library and nothing of yoke: it exports one function, which gets a
 * table of what it needs and gives the backend's. So it works alike with the program, which has libyoke inside, and
 * with programs that share it.
 */
#ifndef YOKE_COMM_PLUGIN_H
#define YOKE_COMM_PLUGIN_H

#include "comm/backend.h"

typedef struct yk__comm_services {
    /* Both sides must have been compiled from the same declarations. */
    const char *version; /* YK_VERSION */
    size_t sizes[4];     /* of this table, yk__comm_backend, yk__comm_place and yk__comm_op */

    yk_status (*fail_at)(yk_status code, const char *file, int line, const char *format, ...) YK_PRINTF(4, 5);
    yk_status (*error_code)(void);
    void (*error_take)(yk_error *record);
    void (*error_put)(const yk_error *record);
    double (*now)(void);
    void *(*allocate)(size_t count, size_t size); /* zeroed; freed by free */
    const char *(*describe)(const yk__comm_op *op, char *buffer, size_t size);
    size_t (*dtype_size)(yk_dtype dtype);
    yk_status (*combine)(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                         const char *const *in, int64_t count, bool stream);
    yk_status (*store_set)(yk_store *store, const char *key, const void *value, size_t size);
    yk_status (*store_get)(yk_store *store, const char *key, void **value, size_t *size, double timeout);
    const char *(*store_name)(const yk_store *store);
} yk__comm_services;
#define YK__COMM_SERVICES_SIZES                                                                                        \
    {                                                                                                                  \
        sizeof(yk__comm_services), sizeof(yk__comm_backend), sizeof(yk__comm_place), sizeof(yk__comm_op)               \
    }

/* What the object exports, as "yk__comm_plugin_entry": the backend, or NULL if the services are of another version. */
typedef const yk__comm_backend *(*yk__comm_plugin_fn)(const yk__comm_services *services);

/* ---- plugin.c ---- */
/* Loads the object of this name, once; NULL and an error that says where it was looked for, and what to install. */
const yk__comm_backend *yk__comm_plugin(const char *name);

#endif
