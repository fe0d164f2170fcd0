/*
 * image_folder.c - a folder of classes with JPEG and PNG files. Layer: data.
 *
 * The folder is listed once, when the set is opened; files are read and decoded when a sample is asked for. Order is
 * torchvision's: classes by name, then by directory, then by file name, all byte by byte.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset.h"

/* MOST_DEPTH: folders inside one another; bounds the recursion. MOST_FILE: bytes of an image that is read whole into
 * memory. */
enum { MOST_DEPTH = 16, MOST_FILE = 1 << 28 };

typedef struct entry {
    char *path;     /* below root: CLASS/.../NAME */
    int name;       /* where NAME begins */
    int32_t class_; /* index into classes */
} entry;

typedef struct image_folder {
    char *root;
    int root_fd;
    char **classes;
    int64_t class_count;
    entry *entries;
    int64_t count, capacity;
    const yk__folder_report *report; /* while it is opened; NULL: nobody asks */
} image_folder;

static void folder_destroy(void *context)
{
    image_folder *f = context;
    for (int64_t i = 0; i < f->count; i++)
        free(f->entries[i].path);
    for (int64_t i = 0; i < f->class_count; i++)
        free(f->classes[i]);
    free(f->entries);
    free(f->classes);
    free(f->root);
    if (f->root_fd >= 0)
        close(f->root_fd);
    free(f);
}

bool yk__is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    static const char *const ends[] = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"};
    bool found = false;
    for (size_t i = 0; dot && i < sizeof(ends) / sizeof(*ends); i++)
        found |= !strcasecmp(dot, ends[i]);
    return found;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->class_ != y->class_)
        return x->class_ < y->class_ ? -1 : 1;
    int shared = x->name < y->name ? x->name : y->name;
    int order = memcmp(x->path, y->path, (size_t)(shared - 1)); /* the directories, without the slash behind */
    if (order)
        return order;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return strcmp(x->path + x->name, y->path + y->name);
}

/* DT_DIR or DT_REG, links followed; DT_UNKNOWN for anything else. */
static int kind_of(int directory, const struct dirent *item)
{
    if (item->d_type == DT_DIR || item->d_type == DT_REG)
        return item->d_type;
    struct stat info;
    if (fstatat(directory, item->d_name, &info, 0) < 0)
        return DT_UNKNOWN;
    return S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG : DT_UNKNOWN;
}

static yk_status add_entry(image_folder *f, const char *directory, const char *name, int64_t class_)
{
    if (f->count == f->capacity) {
        int64_t capacity = f->capacity ? 2 * f->capacity : 1024;
        entry *grown = yk__realloc(f->entries, (size_t)capacity * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        f->entries = grown;
        f->capacity = capacity;
    }
    size_t before = strlen(directory), length = strlen(name);
    char *path = yk__calloc(before + length + 2, 1);
    if (!path)
        return YK_ERR_MEMORY;
    memcpy(path, directory, before);
    path[before] = '/';
    memcpy(path + before + 1, name, length + 1);
    f->entries[f->count++] = (entry){.path = path, .name = (int)before + 1, .class_ = (int32_t)class_};
    return YK_OK;
}

static DIR *open_below(const image_folder *f, const char *path)
{
    int fd = openat(f->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        yk__fail_errno("%s/%s", f->root, path);
        if (fd >= 0)
            close(fd);
    }
    return directory;
}

/* Tells what is no sample of the set. `directory` is below root, "." for root. */
static void tell_left_out(const image_folder *f, const char *directory, const char *name, const char *why)
{
    if (!f->report)
        return;
    bool top = strcmp(directory, ".") == 0;
    char *path = yk__format("%s/%s%s%s", f->root, top ? "" : directory, top ? "" : "/", name);
    if (path)
        f->report->left_out(f->report->user, path, why);
    free(path);
}

/* Lists the pictures in and below a class's folder. */
static yk_status list_pictures(image_folder *f, const char *path, int64_t class_, int depth)
{
    if (depth > MOST_DEPTH)
        return yk__fail(YK_ERR_FORMAT, "%s/%s: folders more than %d deep; is there a link to a folder above?", f->root,
                        path, MOST_DEPTH);
    DIR *directory = open_below(f, path);
    if (!directory)
        return YK_ERR_IO;
    yk_status status = YK_OK;
    struct dirent *item;
    while (!status && (item = readdir(directory))) {
        if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
            continue;
        int kind = kind_of(dirfd(directory), item);
        if (kind == DT_REG && yk__is_picture(item->d_name)) {
            status = add_entry(f, path, item->d_name, class_);
        } else if (kind == DT_DIR) {
            char *below = yk__format("%s/%s", path, item->d_name);
            status = below ? list_pictures(f, below, class_, depth + 1) : YK_ERR_MEMORY;
            free(below);
        } else {
            tell_left_out(f, path, item->d_name,
                          kind == DT_REG
                              ? "its name does not end in .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm"
                              : "it is neither a file nor a folder, or a link to nothing");
        }
    }
    closedir(directory);
    return status;
}

static yk_status list_classes(image_folder *f)
{
    DIR *directory = open_below(f, ".");
    if (!directory)
        return YK_ERR_IO;
    yk_status status = YK_OK;
    int64_t capacity = 0;
    struct dirent *item;
    while (!status && (item = readdir(directory))) {
        if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
            continue;
        if (kind_of(dirfd(directory), item) != DT_DIR) {
            tell_left_out(f, ".", item->d_name, "it is in no class's folder");
            continue;
        }
        if (f->class_count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            char **grown = yk__realloc(f->classes, (size_t)capacity * sizeof(*grown));
            if (!grown) {
                status = YK_ERR_MEMORY;
                break;
            }
            f->classes = grown;
        }
        char *name = yk__strdup(item->d_name);
        if (name)
            f->classes[f->class_count++] = name;
        else
            status = YK_ERR_MEMORY;
    }
    closedir(directory);
    if (!status && f->class_count == 0)
        status = yk__fail(
            YK_ERR_FORMAT,
            "%s: no class folders in it; expected %s/CLASS/*.jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm",
            f->root, f->root);
    if (!status)
        qsort(f->classes, (size_t)f->class_count, sizeof(*f->classes), compare_names);
    return status;
}

/* Fails with the class that has no images, or gives it to the report, if there is one. */
static yk_status class_report_empty(const image_folder *f, int64_t class_)
{
    yk_status status =
        yk__fail(YK_ERR_FORMAT,
                 "%s/%s: no .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm file in this class's folder",
                 f->root, f->classes[class_]);
    if (!f->report)
        return status;
    char *path = yk__format("%s/%s", f->root, f->classes[class_]);
    yk_clear_error();
    if (path)
        f->report->broken(f->report->user, path,
                          "no .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm file in this class's folder");
    free(path);
    return path ? YK_OK : YK_ERR_MEMORY;
}

/* Lists root: all of it, or the first `most` classes only. */
static image_folder *folder_open(const char *root, int64_t most, const yk__folder_report *report)
{
    image_folder *f = yk__calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->root_fd = -1;
    f->report = report;
    f->root = yk__strdup(root);
    yk_status status = f->root ? YK_OK : YK_ERR_MEMORY;
    if (!status) {
        f->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (f->root_fd < 0)
            status = yk__fail_errno("%s", root);
    }
    if (!status)
        status = list_classes(f);
    for (int64_t i = 0; !status && i < f->class_count && i < most; i++) {
        int64_t before = f->count;
        status = list_pictures(f, f->classes[i], i, 0);
        if (!status && f->count == before)
            status = class_report_empty(f, i);
    }
    if (status) {
        yk__error_prefix("image-folder");
        folder_destroy(f);
        return NULL;
    }
    if (f->count)
        qsort(f->entries, (size_t)f->count, sizeof(*f->entries), compare_entries);
    f->report = NULL;
    return f;
}

/* Reads a file, of a path from the folder `below` on, into the worker's buffer. */
static yk_status read_file(int below, const char *path, yk__data_worker *worker, size_t *size)
{
    int fd = openat(below, path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return yk__fail_errno("cannot be opened");
    yk_status status = YK_OK;
    unsigned char *to = NULL;
    if (fstat(fd, &info) < 0)
        status = yk__fail_errno("cannot be read");
    else if (info.st_size > MOST_FILE)
        status = yk__fail(YK_ERR_FORMAT, "%lld bytes, too large for a picture", (long long)info.st_size);
    else if (!(to = yk__buffer_get(&worker->file, (size_t)info.st_size)))
        status = YK_ERR_MEMORY;
    while (!status && *size < (size_t)info.st_size) {
        ssize_t got = read(fd, to + *size, (size_t)info.st_size - *size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = yk__fail_errno("cannot be read");
        if (got <= 0)
            break;
        *size += (size_t)got;
    }
    close(fd);
    return status;
}

static yk_status folder_get(void *context, int64_t index, yk_sample *sample)
{
    const image_folder *f = context;
    const entry *e = &f->entries[index];
    size_t size = 0;
    yk_sample_label(sample, e->class_);
    yk_status status = read_file(f->root_fd, e->path, sample->worker, &size);
    if (!status)
        status = yk__image_decode(sample->worker->file.data, size, sample);
    return status;
}

static int64_t folder_label(void *context, int64_t index)
{
    const image_folder *f = context;
    return f->entries[index].class_;
}

static void folder_describe(void *context, int64_t index, char *text, size_t size)
{
    const image_folder *f = context;
    snprintf(text, size, "%s/%s", f->root, f->entries[index].path);
}

yk_status yk__image_read(const char *path, yk_sample *sample)
{
    size_t size = 0;
    yk_status status = read_file(AT_FDCWD, path, sample->worker, &size);
    return status ? status : yk__image_decode(sample->worker->file.data, size, sample);
}

yk_dataset *yk_image_folder(const char *root, yk_transform *transform)
{
    return yk__image_folder_open(root, NULL, transform);
}

yk_dataset *yk__image_folder_open(const char *root, const yk__folder_report *report, yk_transform *transform)
{
    YK__LIVE(transform);
    if (yk__transform_lost(transform) || !yk__scope_check("image_folder"))
        return NULL;
    YK__OWN_RECORD;
    if (!root) {
        yk__fail(YK_ERR_ARGUMENT, "image-folder: root is NULL");
        return NULL;
    }
    image_folder *f = folder_open(root, INT32_MAX, report);
    if (!f)
        return NULL;
    yk_dataset_table table = {.name = "image-folder",
                              .length = f->count,
                              .classes = f->class_count,
                              .class_names = (const char *const *)f->classes,
                              .get = folder_get,
                              .label = folder_label,
                              .describe = folder_describe,
                              .destroy = folder_destroy};
    return yk__dataset_of_images(&table, f, transform);
}

yk_status yk__image_folder_first(const char *root, int64_t *height, int64_t *width)
{
    image_folder *f = folder_open(root, 1, NULL);
    if (!f)
        return yk__error_code();
    enum { MOST_TRIES = 1000 };
    yk__data_worker worker = {0};
    yk_sample sample = {.worker = &worker};
    yk_status status = folder_get(f, 0, &sample);
    if (status) {
        char text[320];
        folder_describe(f, 0, text, sizeof(text));
        yk__error_prefix("image-folder: %s", text);
    }
    /* A damaged first one is for the loader to refuse or to skip. */
    for (int64_t i = 1; status && status != YK_ERR_MEMORY && i < f->count && i < MOST_TRIES; i++) {
        yk_error before;
        yk__error_take(&before);
        if (!folder_get(f, i, &sample)) {
            status = YK_OK;
        } else {
            yk_clear_error();
            yk__error_put(&before);
        }
    }
    if (!status) {
        *height = sample.shape[1];
        *width = sample.shape[2];
    }
    yk__data_worker_clear(&worker);
    folder_destroy(f);
    return status;
}
