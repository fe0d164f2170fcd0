/*
 * cifar.c - CIFAR-10's binary version. Layer: data.
 *
 * The files are mapped and samples point into the maps, so opening costs a few system calls and a sample costs
 * nothing until it is transformed. Invariant: every map holds a whole number of records; labels are checked by the
 * caller of get, when a record is touched, since reading 50,000 of them here would touch every page of the files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "data/dataset.h"

/* Bytes of a record: a label, and one for each color of each pixel. TRAIN_FILES: data_batch_1.bin to 5. */
enum { RECORD = 1 + 3 * 32 * 32, TRAIN_FILES = 5 };

static const char *const class_names[10] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck"};

typedef struct cifar {
    int count; /* files */
    char *paths[TRAIN_FILES];
    yk__mapping maps[TRAIN_FILES];
    int64_t ends[TRAIN_FILES]; /* samples in this file and those before */
} cifar;

static void cifar_destroy(void *context)
{
    cifar *c = context;
    for (int i = 0; i < c->count; i++) {
        yk__unmap_file(&c->maps[i]);
        free(c->paths[i]);
    }
    free(c);
}

/* The file of a sample; *record is its number there. */
static int file_of(const cifar *c, int64_t index, int64_t *record)
{
    int file = 0;
    while (index >= c->ends[file])
        file++;
    *record = index - (file ? c->ends[file - 1] : 0);
    return file;
}

static yk_status cifar_get(void *context, int64_t index, yk_sample *sample)
{
    const cifar *c = context;
    int64_t record;
    int file = file_of(c, index, &record);
    const unsigned char *data = c->maps[file].data + record * RECORD;
    yk_sample_label(sample, data[0]);
    yk_sample_view(sample, data + 1, YK_U8, 3, (int64_t[]){3, 32, 32});
    return YK_OK;
}

static void cifar_describe(void *context, int64_t index, char *text, size_t size)
{
    const cifar *c = context;
    int64_t record;
    int file = file_of(c, index, &record);
    snprintf(text, size, "%s record %lld", c->paths[file], (long long)record);
}

static yk_status cifar_add(cifar *c, const char *folder, const char *name)
{
    char *path = yk__format("%s/%s", folder, name);
    if (!path)
        return YK_ERR_MEMORY;
    int file = c->count++;
    c->paths[file] = path;
    yk_status status = yk__map_file(path, &c->maps[file]);
    if (status) {
        yk__error_prefix("cifar10");
        return status;
    }
    size_t size = c->maps[file].size;
    if (size == 0 || size % RECORD)
        return yk__fail(YK_ERR_FORMAT,
                        "cifar10: %s: %zu bytes are not a whole number of records of %d bytes: record %zu is %s", path,
                        size, RECORD, size / RECORD, size ? "cut short" : "missing");
    /* Reads come in random order; without this each would wait for the disk by itself. */
    madvise((void *)c->maps[file].data, size, MADV_WILLNEED);
    c->ends[file] = (int64_t)(size / RECORD) + (file ? c->ends[file - 1] : 0);
    return YK_OK;
}

/* The folder under root that holds `name`; the caller frees. */
static char *find_folder(const char *root, const char *name)
{
    for (int i = 0; i < 2; i++) {
        char *folder = i ? yk__format("%s/cifar-10-batches-bin", root) : yk__strdup(root);
        char *path = folder ? yk__format("%s/%s", folder, name) : NULL;
        bool found = path && yk__is_file(path);
        free(path);
        if (found)
            return folder;
        free(folder);
    }
    yk__fail(YK_ERR_NOT_FOUND, "cifar10: no %s in %s or %s/cifar-10-batches-bin%s", name, root, root,
             yk__is_directory(root) ? "" : ", and no such directory");
    return NULL;
}

yk_dataset *yk_cifar10(const char *root, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    if (yk__transform_lost(transform) || !yk__scope_check("cifar10"))
        return NULL;
    YK__OWN_RECORD;
    if (!root) {
        yk__fail(YK_ERR_ARGUMENT, "cifar10: root is NULL");
        return NULL;
    }
    char *folder = find_folder(root, split == YK_TEST ? "test_batch.bin" : "data_batch_1.bin");
    cifar *c = folder ? yk__calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        free(folder);
        return NULL;
    }
    yk_status status = YK_OK;
    if (split == YK_TEST)
        status = cifar_add(c, folder, "test_batch.bin");
    for (int i = 1; split != YK_TEST && i <= TRAIN_FILES && !status; i++) {
        char name[32];
        snprintf(name, sizeof(name), "data_batch_%d.bin", i);
        status = cifar_add(c, folder, name);
    }
    free(folder);
    if (status) {
        cifar_destroy(c);
        return NULL;
    }
    yk_dataset_table table = {.name = "cifar10",
                              .length = c->ends[c->count - 1],
                              .classes = 10,
                              .class_names = class_names,
                              .get = cifar_get,
                              .describe = cifar_describe,
                              .destroy = cifar_destroy};
    return yk__dataset_of_images(&table, c, transform);
}
