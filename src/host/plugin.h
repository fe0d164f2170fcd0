/*
 * plugin.h - backends that are shared objects of their own. Layer: host.
 *
 * Such an object, "yoke-NAME.so", links the heavy library (Open MPI, CUDA) and nothing of yoke: it exports one
 * description, whose `start` gets tables of the functions that it needs and gives its own table. So it works alike with
 * a program that has libyoke inside and with programs that share it. The layer that owns the table says in a request
 * what it must look like; plugin.c compares, so that a mixture of two builds is an error that names both.
 */
#ifndef YOKE_HOST_PLUGIN_H
#define YOKE_HOST_PLUGIN_H

#include <yoke/base.h>

enum {
    YK__PLUGIN_FORMAT = 1, /* of yk__plugin itself; it goes up when the struct changes */
    YK__PLUGIN_SIZES = 8,
};

/* The functions of base that every plug-in may use. */
typedef struct yk__base_services {
    yk_status (*fail_at)(yk_status code, const char *file, int line, const char *format, ...) YK_PRINTF(4, 5);
    yk_status (*error_code)(void);
    void (*error_take)(yk_error *record);
    void (*error_put)(const yk_error *record);
    double (*now)(void);
    void *(*allocate)(size_t count, size_t size); /* zeroed; freed by free */
    yk_status (*env_int)(const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *value);
    bool (*library_path)(const char *file, int i, char *path, size_t size); /* host/library_path.h */
    void (*warn)(const char *format, ...) YK_PRINTF(1, 2);                  /* in the log */
    void (*debug)(const char *format, ...) YK_PRINTF(1, 2);
} yk__base_services;

/* The description that the object exports as yk__plugin_description. Strings are static. */
typedef struct yk__plugin {
    int format;            /* YK__PLUGIN_FORMAT; the fields below are read only where it is equal */
    const char *name;      /* "mpi", of yoke-mpi.so */
    const char *version;   /* YK_VERSION of its build */
    const char *interface; /* "comm", "device": whose table it gives */
    /* Sizes of the structs that both sides must have been compiled with alike; unused ones are 0. */
    size_t sizes[YK__PLUGIN_SIZES];
    const char *built_with; /* the library and its version: "Open MPI 4.1.4" */
    /* Called once. The table that the interface describes, valid for good; NULL with the error record set. */
    const void *(*start)(const yk__base_services *base, const void *services);
} yk__plugin;
YK_API extern const yk__plugin yk__plugin_description; /* defined in each plug-in, and not in the library */

/* A layer's request for a plug-in. */
typedef struct yk__plugin_request {
    const char *name, *interface;
    const char *what; /* for errors: "the 'mpi' backend of collectives" */
    size_t sizes[YK__PLUGIN_SIZES];
    const void *services; /* given to start */
    const char *to_build; /* for errors: how one gets the object, and how its libraries */
    const char *to_load;
    bool global_symbols; /* plug-ins of the plug-in's own library look for its symbols */
} yk__plugin_request;

/* The plug-in's table: found, compared, loaded and started at the first call for its name; it stays loaded. NULL and an
 * error that says where it was looked for and what to install, or which version it is of. A failure is not kept: the
 * next call tries again. Any thread. */
const void *yk__plugin_load(const yk__plugin_request *request);

/* Its description and, in `path`, its file, without starting it; the same errors. */
const yk__plugin *yk__plugin_describe(const yk__plugin_request *request, char *path, size_t size);

/* The folder into which `make install` puts plug-ins; "" in a build folder. (plugin_folder.c) */
extern const char yk__plugin_folder[];

#endif
