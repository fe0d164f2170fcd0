/*
 * catalog.c - data sets by name, where their files are, and the transforms that go with them. Layer: data.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

static const char *const names[] = {"glyphs", "fashion-mnist", "mnist", "cifar10", "cifar100", "image-folder"};
enum { GLYPHS, FASHION_MNIST, MNIST, CIFAR10, CIFAR100, IMAGE_FOLDER, NAMES };

/* Parts "NAME[:DIR]"; *directory is NULL without DIR. Gives the name's position in `names`, -1 and an error for none. A
 * folder's path stands for an image folder of that DIR. */
static int parse_spec(const char *spec, const char **directory)
{
    *directory = NULL;
    if (!spec) {
        yk__fail(YK_ERR_ARGUMENT, "dataset_open: the name is NULL");
        return -1;
    }
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    if (colon && colon[1])
        *directory = colon + 1;
    for (int i = 0; i < NAMES; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], spec, length) != 0)
            continue;
        if (i != GLYPHS || !*directory)
            return i;
        yk__fail(YK_ERR_ARGUMENT, "data set \"%s\": glyphs are built in, and read no directory", spec);
        return -1;
    }
    if (yk__is_directory(spec)) {
        *directory = spec;
        return IMAGE_FOLDER;
    }
    if (strchr(spec, '/') && !colon) {
        yk__fail(YK_ERR_NOT_FOUND, "data set \"%s\": there is no such folder", spec);
        return -1;
    }
    char *name = strndup(spec, length);
    const char *near = name ? yk__nearest(name, names, NAMES) : NULL;
    if (near)
        yk__fail(YK_ERR_NOT_FOUND, "unknown data set \"%s\"; did you mean \"%s\"?", name, near);
    else
        yk__fail(YK_ERR_NOT_FOUND,
                 "unknown data set \"%s\"; there are glyphs, fashion-mnist, mnist, cifar10, cifar100 and image-folder, "
                 "and no "
                 "folder of that name",
                 name ? name : spec);
    free(name);
    return -1;
}

/*
 * The directory to look in: DIR if it is there or there is no better; DIR under $YOKE_DATA if that is there; $YOKE_DATA
 * without DIR. The caller frees.
 */
static char *find_root(const char *name, const char *directory)
{
    const char *base = getenv("YOKE_DATA");
    if (base && !*base)
        base = NULL;
    if (!directory && !base) {
        yk__fail(YK_ERR_NOT_FOUND, "%s: no directory was given (%s:DIR) and YOKE_DATA is not set", name, name);
        return NULL;
    }
    if (!directory)
        return yk__strdup(base);
    if (base && directory[0] != '/' && !yk__is_directory(directory)) {
        char *below = yk__format("%s/%s", base, directory);
        if (!below || yk__is_directory(below))
            return below;
        free(below);
    }
    return yk__strdup(directory);
}

/* The folder of an image folder's split, the caller frees. */
static char *find_split(const char *root, bool given, yk_data_split split)
{
    static const char *const train[] = {"train"};
    static const char *const test[] = {"test", "val", "valid", "validation"};
    const char *const *folders = split == YK_TEST ? test : train;
    int count = split == YK_TEST ? 4 : 1;
    static const char *const folders_tried[] = {"", "/cifar10-images"};
    for (int subfolder = 0; subfolder < (given ? 1 : 2); subfolder++) {
        for (int i = 0; i < count; i++) {
            char *path = yk__format("%s%s/%s", root, folders_tried[subfolder], folders[i]);
            if (!path || yk__is_directory(path))
                return path;
            free(path);
        }
    }
    yk__fail(YK_ERR_NOT_FOUND, "image-folder: no %s folder in %s%s%s%s", split == YK_TEST ? "test or val" : "train",
             root, given ? "" : " or ", given ? "" : root,
             !given                   ? "/cifar10-images"
             : yk__is_directory(root) ? ""
                                      : ", and no such directory");
    return NULL;
}

char *yk__folder_split(const char *root, yk_data_split split)
{
    yk_error before;
    yk__error_take(&before);
    char *folder = find_split(root, true, split);
    if (!folder)
        yk_clear_error();
    yk__error_put(&before);
    return folder;
}

yk__data_kind yk__dataset_kind(const char *spec, char **root)
{
    const char *directory;
    *root = NULL;
    int which = parse_spec(spec, &directory);
    if (which < 0)
        return YK__DATA_UNKNOWN;
    if (which != IMAGE_FOLDER || !directory)
        return YK__DATA_NAMED;
    *root = find_root(names[which], directory);
    return *root ? YK__DATA_FOLDER : YK__DATA_UNKNOWN;
}

yk_dataset *yk_dataset_open(const char *spec, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    if (yk__transform_lost(transform) || !yk__scope_check("dataset_open"))
        return NULL;
    YK__OWN_RECORD;
    const char *directory;
    int which = parse_spec(spec, &directory);
    if (which < 0)
        return NULL;
    if (which == GLYPHS)
        return yk_glyphs(split, transform, 0);
    char *root = find_root(names[which], directory);
    if (!root)
        return NULL;
    yk_dataset *dataset = NULL;
    if (which == FASHION_MNIST) {
        dataset = yk_fashion_mnist(root, split, transform);
    } else if (which == MNIST) {
        dataset = yk_mnist(root, split, transform);
    } else if (which == CIFAR10) {
        dataset = yk_cifar10(root, split, transform);
    } else if (which == CIFAR100) {
        dataset = yk_cifar100(root, split, transform);
    } else {
        char *folder = find_split(root, directory != NULL, split);
        if (folder)
            dataset = yk_image_folder(folder, transform);
        free(folder);
    }
    free(root);
    return dataset;
}

/* The side that an image folder's pictures are brought to; 0 and an error when there are none. */
static int64_t folder_side(const char *directory)
{
    enum { MOST = 224 };
    int64_t height = 0, width = 0;
    char *root = find_root("image-folder", directory);
    char *folder = root ? find_split(root, directory != NULL, YK_TRAIN) : NULL;
    if (folder && yk__image_folder_first(folder, &height, &width))
        height = width = 0;
    free(folder);
    free(root);
    int64_t shorter = height < width ? height : width;
    return shorter < MOST ? shorter : MOST;
}

const double yk__folder_mean[3] = {0.485, 0.456, 0.406}, yk__folder_std[3] = {0.229, 0.224, 0.225};

yk_transform *yk__folder_transform(int64_t height, int64_t width, bool random)
{
    yk_transform *normalize = yk_normalize(yk__folder_mean, yk__folder_std, 3);
    if (height != width && random)
        return yk_compose(yk_resize_to(height, width), yk_random_horizontal_flip(0.5), yk_to_tensor(), normalize);
    if (height != width)
        return yk_compose(yk_resize_to(height, width), yk_to_tensor(), normalize);
    if (random)
        return yk_compose(yk_resize(height), yk_random_crop(height, height / 8), yk_random_horizontal_flip(0.5),
                          yk_to_tensor(), normalize);
    return yk_compose(yk_resize(height), yk_center_crop(height), yk_to_tensor(), normalize);
}

yk_transform *yk_default_transform(const char *spec, yk_data_split split, bool augment)
{
    YK__OWN_RECORD;
    yk__transform_asked();
    if (!yk__scope_check("default_transform"))
        return NULL;
    const char *directory;
    int which = parse_spec(spec, &directory);
    if (which < 0)
        return NULL;
    bool random = augment && split == YK_TRAIN;
    /* Transforms that only the composition keeps go with this scope. */
    yk_scope scope = yk_scope_begin();
    yk_transform *made = NULL;
    if (which == CIFAR10 || which == CIFAR100) {
        yk_transform *normalize =
            which == CIFAR10 ? yk_normalize((double[]){0.4914, 0.4822, 0.4465}, (double[]){0.2023, 0.1994, 0.2010}, 3)
                             : yk_normalize((double[]){0.5071, 0.4865, 0.4409}, (double[]){0.2673, 0.2564, 0.2762}, 3);
        if (random)
            made = yk_compose(yk_random_crop(32, 4), yk_random_horizontal_flip(0.5), yk_to_tensor(), normalize);
        else
            made = yk_compose(yk_to_tensor(), normalize);
    } else if (which == IMAGE_FOLDER) {
        int64_t side = folder_side(directory);
        if (side > 0) /* else the error is set */
            made = yk__folder_transform(side, side, random);
    } else {
        made = yk_compose(yk_to_tensor(), yk_normalize((double[]){0.5}, (double[]){0.5}, 1));
    }
    made = yk_scope_return_object(scope, made);
    yk_scope_end(scope);
    if (!made)
        yk__transform_asked();
    return made;
}
