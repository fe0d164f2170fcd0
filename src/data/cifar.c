/*
 * cifar.c - the binary versions of CIFAR-10 and CIFAR-100. Layer: data.
 *
 * The files are mapped and samples point into the maps, so opening costs a few system calls and a sample costs
 * nothing until it is transformed. Invariant: every map holds a whole number of records; labels are checked by the
 * caller of get, when a record is touched, since reading 50,000 of them here would touch every page of the files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "data/dataset.h"

enum { PIXELS = 3 * 32 * 32, MOST_FILES = 5 };

static const char *const names_10[10] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};

static const char *const names_100[100] = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

/* The differences between the two. A record is labels, the last of which counts, and a byte for each color of each
 * pixel.
 */
typedef struct cifar_form {
    const char *name, *folder;
    int labels, classes;
    const char *const *class_names;
    const char *files[2][MOST_FILES]; /* of YK_TRAIN and YK_TEST */
} cifar_form;

static const cifar_form cifar_10 = {
    .name = "cifar10",
    .folder = "cifar-10-batches-bin",
    .labels = 1,
    .classes = 10,
    .class_names = names_10,
    .files = {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
              {"test_batch.bin"}}};
/* The first label of a record is one of 20 coarse ones. */
static const cifar_form cifar_100 = {.name = "cifar100",
                                     .folder = "cifar-100-binary",
                                     .labels = 2,
                                     .classes = 100,
                                     .class_names = names_100,
                                     .files = {{"train.bin"}, {"test.bin"}}};

typedef struct cifar {
    const cifar_form *form;
    int64_t record; /* bytes of one */
    int count;      /* files */
    char *paths[MOST_FILES];
    yk__mapping maps[MOST_FILES];
    int64_t ends[MOST_FILES]; /* samples in this file and those before */
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
    const unsigned char *data = c->maps[file].data + record * c->record;
    yk_sample_label(sample, data[c->form->labels - 1]);
    yk_sample_view(sample, data + c->form->labels, YK_U8, 3, (int64_t[]){3, 32, 32});
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
        yk__error_prefix("%s", c->form->name);
        return status;
    }
    size_t size = c->maps[file].size, record = (size_t)c->record;
    if (size == 0 || size % record)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: %s: %zu bytes are not a whole number of records of %zu bytes: record %zu is %s",
                        c->form->name, path, size, record, size / record, size ? "cut short" : "missing");
    /* Reads come in random order; without this each would wait for the disk by itself. */
    madvise((void *)c->maps[file].data, size, MADV_WILLNEED);
    c->ends[file] = (int64_t)(size / record) + (file ? c->ends[file - 1] : 0);
    return YK_OK;
}

/* The folder under root that holds `name`; the caller frees. */
static char *find_folder(const cifar_form *form, const char *root, const char *name)
{
    for (int i = 0; i < 2; i++) {
        char *folder = i ? yk__format("%s/%s", root, form->folder) : yk__strdup(root);
        char *path = folder ? yk__format("%s/%s", folder, name) : NULL;
        bool found = path && yk__is_file(path);
        free(path);
        if (found)
            return folder;
        free(folder);
    }
    yk__fail(YK_ERR_NOT_FOUND, "%s: no %s in %s or %s/%s%s", form->name, name, root, root, form->folder,
             yk__is_directory(root) ? "" : ", and no such directory");
    return NULL;
}

static yk_dataset *cifar_open(const cifar_form *form, const char *root, yk_data_split split, yk_transform *transform)
{
    if (yk__transform_lost(transform) || !yk__scope_check(form->name))
        return NULL;
    YK__OWN_RECORD;
    if (!root) {
        yk__fail(YK_ERR_ARGUMENT, "%s: root is NULL", form->name);
        return NULL;
    }
    const char *const *files = form->files[split == YK_TEST];
    char *folder = find_folder(form, root, files[0]);
    cifar *c = folder ? yk__calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        free(folder);
        return NULL;
    }
    c->form = form;
    c->record = form->labels + PIXELS;
    yk_status status = YK_OK;
    for (int i = 0; i < MOST_FILES && files[i] && !status; i++)
        status = cifar_add(c, folder, files[i]);
    free(folder);
    if (status) {
        cifar_destroy(c);
        return NULL;
    }
    yk_dataset_table table = {.name = form->name,
                              .length = c->ends[c->count - 1],
                              .classes = form->classes,
                              .class_names = form->class_names,
                              .get = cifar_get,
                              .describe = cifar_describe,
                              .destroy = cifar_destroy};
    return yk__dataset_of_images(&table, c, transform);
}

yk_dataset *yk_cifar10(const char *root, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    return cifar_open(&cifar_10, root, split, transform);
}

yk_dataset *yk_cifar100(const char *root, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    return cifar_open(&cifar_100, root, split, transform);
}
