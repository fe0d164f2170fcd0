/*
 * comm_plugin.h - backends of collectives that are shared objects of their own (host/plugin.h), and what of yoke they
 * are given. Layer: comm.
 */
#ifndef YOKE_COMM_COMM_PLUGIN_H
#define YOKE_COMM_COMM_PLUGIN_H

#include "comm/backend.h"
#include "host/plugin.h"

/* The services that a plug-in of collectives gets beside those of base. The object's `start` returns its
 * yk__comm_backend. */
typedef struct yk__comm_services {
    const char *(*describe)(const yk__comm_op *op, char *buffer, size_t size);
    size_t (*dtype_size)(yk_dtype dtype);
    yk_status (*combine)(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                         const char *const *in, int64_t count, bool stream);
    yk_status (*store_set)(yk_store *store, const char *key, const void *value, size_t size);
    yk_status (*store_get)(yk_store *store, const char *key, void **value, size_t *size, double timeout);
    const char *(*store_name)(const yk_store *store);
    const char *(*kind_name)(yk__comm_kind kind);
    /* For a backend with a group of native beside its own: `state` is that group's. */
    const yk__comm_backend *native;
    yk_status (*native_agree)(void *state, const yk__comm_op *op);
    yk_status (*native_watch)(void *state, double waited, int *ended, int *stopped);
    const char *(*native_rank_name)(const void *state, int rank, char *buffer, size_t size);
    /* For one that works in the memory of GPUs. */
    void *(*workspace_get)(yk_device device, size_t bytes, yk__storage **handle);
    void (*storage_release)(yk__storage *storage);
    yk__queue (*queue_begin)(yk__queue queue);
    void (*queue_end)(yk__queue previous);
} yk__comm_services;

#define YK__COMM_PLUGIN_INTERFACE "comm"
#define YK__COMM_PLUGIN_SIZES                                                                                          \
    {                                                                                                                  \
        sizeof(yk__base_services), sizeof(yk__comm_services), sizeof(yk__comm_backend), sizeof(yk__comm_join_args),    \
            sizeof(yk__comm_op), sizeof(yk__comm_carrier)                                                              \
    }

/* ---- comm_plugin.c ---- */
/* The plug-in to ask for by the name of a backend; NULL where no plug-in of collectives has that name. */
const yk__plugin_request *yk__comm_plugin_request(const char *name);
/* Loads the object of this name, once; NULL and an error that says where it was looked for, and what to install. */
const yk__comm_backend *yk__comm_plugin(const char *name);

#endif
