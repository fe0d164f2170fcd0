/*
 * idx.c - IDX files, plain and gzip: MNIST, FashionMNIST and their like. Layer: data.
 *
 * A file is a header (0, 0, 8 for u8, the number of dimensions; then each dimension as a big-endian u32) and the
 * elements. Invariant: nothing is allocated on the header's word. The claimed size must equal what a plain file holds,
 * and may not exceed what its gzip form can hold (deflate expands at most 1032-fold).
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "data/dataset.h"

/* EXPANSION: deflate makes at most 1,032 bytes of one, so that a header cannot claim memory that the file does not
 * hold. UNSIGNED_BYTE: the format's code. MOST_SIDE: any number beyond images of this kind. */
enum { EXPANSION = 1032, UNSIGNED_BYTE = 8, MOST_SIDE = 1 << 15 };

static uint32_t read_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Checks a header of 4 + 4 ndim bytes; *claimed is the number of elements. */
static yk_status parse_header(const char *path, const unsigned char *header, int ndim, yk__idx *idx, uint64_t *claimed)
{
    uint32_t magic = read_u32(header), expected = (uint32_t)UNSIGNED_BYTE << 8 | (uint32_t)ndim;
    if (magic != expected)
        return yk__fail(YK_ERR_FORMAT, "%s: wrong magic number 0x%08x; an IDX file of %s has 0x%08x", path, magic,
                        ndim == 1 ? "labels" : "images", expected);
    *claimed = 1;
    for (int d = 0; d < ndim; d++) {
        idx->shape[d] = read_u32(header + 4 + 4 * d);
        if (idx->shape[d] == 0 || (d > 0 && idx->shape[d] > MOST_SIDE))
            return yk__fail(YK_ERR_FORMAT, "%s: dimension %d of the header is %lld; expected 1 to %lld", path, d,
                            (long long)idx->shape[d], d ? (long long)MOST_SIDE : (long long)UINT32_MAX);
        *claimed *= (uint64_t)idx->shape[d]; /* below 2^62 */
    }
    return YK_OK;
}

static uint64_t element_size(const yk__idx *idx, int ndim)
{
    return ndim == 3 ? (uint64_t)(idx->shape[1] * idx->shape[2]) : 1;
}

static yk_status short_file(const char *path, const yk__idx *idx, int ndim, uint64_t have)
{
    return yk__fail(YK_ERR_FORMAT, "%s: short file: record %llu of %lld is cut short or missing", path,
                    (unsigned long long)(have / element_size(idx, ndim)), (long long)idx->shape[0]);
}

static yk_status parse_plain(const char *path, const unsigned char *bytes, size_t size, int ndim, yk__idx *idx)
{
    size_t header = 4 + 4 * (size_t)ndim;
    uint64_t claimed;
    if (size < header)
        return yk__fail(YK_ERR_FORMAT, "%s: short file: %zu bytes do not hold the header of %zu", path, size, header);
    yk_status status = parse_header(path, bytes, ndim, idx, &claimed);
    if (status)
        return status;
    if (size - header < claimed)
        return short_file(path, idx, ndim, size - header);
    if (size - header > claimed)
        return yk__fail(YK_ERR_FORMAT, "%s: %llu bytes behind the %lld records that the header claims", path,
                        (unsigned long long)(size - header - claimed), (long long)idx->shape[0]);
    idx->data = bytes + header;
    return YK_OK;
}

/*
 * Expands `size` bytes into `to`; *have says how many there were before the compressed data ended, in the middle of a
 * member or, with *ended, behind the last one. A file of several gzip members is one content, and zero bytes may follow
 * each: padding, which gzip and Python's gzip module skip likewise.
 */
static yk_status expand(const char *path, z_stream *z, unsigned char *to, size_t size, size_t *have, bool *ended)
{
    *have = 0;
    *ended = false;
    while (*have < size) {
        uInt room = size - *have > 1u << 30 ? 1u << 30 : (uInt)(size - *have);
        z->next_out = to + *have;
        z->avail_out = room;
        int code = inflate(z, Z_NO_FLUSH);
        *have += room - z->avail_out;
        if (code == Z_STREAM_END) {
            for (; z->avail_in && !*z->next_in; z->avail_in--)
                z->next_in++;
            *ended = z->avail_in == 0;
            if (*ended)
                return YK_OK;
            code = inflateReset(z);
        }
        if (code == Z_BUF_ERROR)
            return YK_OK;
        if (code == Z_MEM_ERROR)
            return yk__fail(YK_ERR_MEMORY, "%s: out of memory while expanding", path);
        if (code != Z_OK)
            return yk__fail(YK_ERR_FORMAT, "%s: corrupt gzip data behind %lu bytes of content: %s", path, z->total_out,
                            z->msg ? z->msg : zError(code));
    }
    return YK_OK;
}

static yk_status expand_all(const char *path, z_stream *z, size_t compressed, int ndim, yk__idx *idx)
{
    unsigned char header[16], beyond;
    size_t wanted = 4 + 4 * (size_t)ndim, have;
    uint64_t claimed;
    bool ended;
    yk_status status = expand(path, z, header, wanted, &have, &ended);
    if (!status && have < wanted)
        status = yk__fail(YK_ERR_FORMAT, "%s: short file: %zu bytes do not hold the header of %zu", path, have, wanted);
    if (!status)
        status = parse_header(path, header, ndim, idx, &claimed);
    if (status)
        return status;
    if (claimed / EXPANSION > compressed)
        return yk__fail(YK_ERR_FORMAT, "%s: the header claims %llu bytes, more than %zu bytes of gzip can hold", path,
                        (unsigned long long)claimed, compressed);
    idx->owned = malloc(claimed);
    if (!idx->owned)
        return yk__fail_memory(claimed);
    status = expand(path, z, idx->owned, claimed, &have, &ended);
    if (!status && have < claimed)
        return short_file(path, idx, ndim, have);
    /* One byte more than there should be: the try also reads the checksum at the end. */
    if (!status && !ended)
        status = expand(path, z, &beyond, 1, &have, &ended);
    else
        have = 0;
    if (!status && have)
        status = yk__fail(YK_ERR_FORMAT, "%s: more data behind the %lld records that the header claims", path,
                          (long long)idx->shape[0]);
    else if (!status && !ended)
        status = yk__fail(YK_ERR_FORMAT, "%s: short file: the gzip data has no end", path);
    idx->data = idx->owned;
    return status;
}

yk_status yk__idx_parse(const char *path, const unsigned char *bytes, size_t size, int ndim, yk__idx *idx)
{
    *idx = (yk__idx){0};
    if (size < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b)
        return parse_plain(path, bytes, size, ndim, idx);
    if (size > UINT32_MAX)
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: gzip files of 4 GiB and more are not read", path);
    z_stream z = {.next_in = (unsigned char *)bytes, .avail_in = (uInt)size};
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return yk__fail(YK_ERR_MEMORY, "%s: out of memory while expanding", path);
    yk_status status = expand_all(path, &z, size, ndim, idx);
    inflateEnd(&z);
    if (status) {
        free(idx->owned);
        *idx = (yk__idx){0};
    }
    return status;
}

/* ---- the data set ---------------------------------------------------------------------------------------- */
typedef struct idx_set {
    char *images_path;
    yk__mapping maps[2]; /* images, labels; kept mapped only where the content lies in them */
    yk__idx images, labels;
} idx_set;

static void idx_destroy(void *context)
{
    idx_set *s = context;
    yk__unmap_file(&s->maps[0]);
    yk__unmap_file(&s->maps[1]);
    free(s->images.owned);
    free(s->labels.owned);
    free(s->images_path);
    free(s);
}

static yk_status idx_get(void *context, int64_t index, yk_sample *sample)
{
    const idx_set *s = context;
    int64_t height = s->images.shape[1], width = s->images.shape[2];
    yk_sample_label(sample, s->labels.data[index]);
    yk_sample_view(sample, s->images.data + index * height * width, YK_U8, 3, (int64_t[]){1, height, width});
    return YK_OK;
}

static void idx_describe(void *context, int64_t index, char *text, size_t size)
{
    const idx_set *s = context;
    snprintf(text, size, "%s record %lld", s->images_path, (long long)index);
}

static yk_status idx_open(const char *path, int ndim, yk__mapping *map, yk__idx *idx)
{
    yk_status status = yk__map_file(path, map);
    if (!status)
        status = yk__idx_parse(path, map->data, map->size, ndim, idx);
    if (!status && idx->owned)
        yk__unmap_file(map);
    return status;
}

/* `classes` 0: as many as the largest label says. */
static yk_dataset *idx_create(const char *name, const char *images_path, const char *labels_path, int64_t classes,
                              const char *const *class_names, yk_transform *transform)
{
    idx_set *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->images_path = yk__strdup(images_path);
    yk_status status = s->images_path ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        status = idx_open(images_path, 3, &s->maps[0], &s->images);
    if (!status)
        status = idx_open(labels_path, 1, &s->maps[1], &s->labels);
    int64_t length = s->images.shape[0], largest = 0;
    if (!status && length != s->labels.shape[0])
        status = yk__fail(YK_ERR_FORMAT, "%s holds %lld images but %s holds %lld labels", images_path,
                          (long long)length, labels_path, (long long)s->labels.shape[0]);
    for (int64_t i = 0; !status && i < length; i++) {
        if (classes && s->labels.data[i] >= classes)
            status = yk__fail(YK_ERR_FORMAT, "%s: record %lld: label %d is outside [0, %lld)", labels_path,
                              (long long)i, s->labels.data[i], (long long)classes);
        if (s->labels.data[i] > largest)
            largest = s->labels.data[i];
    }
    if (status) {
        yk__error_prefix("%s", name);
        idx_destroy(s);
        return NULL;
    }
    yk_dataset_table table = {.name = name,
                              .length = length,
                              .classes = classes ? classes : largest + 1,
                              .class_names = class_names,
                              .get = idx_get,
                              .describe = idx_describe,
                              .destroy = idx_destroy};
    return yk__dataset_of_images(&table, s, transform);
}

yk_dataset *yk_idx(const char *images_path, const char *labels_path, yk_transform *transform)
{
    YK__LIVE(transform);
    if (yk__transform_lost(transform) || !yk__scope_check("idx"))
        return NULL;
    YK__OWN_RECORD;
    if (!images_path || !labels_path) {
        yk__fail(YK_ERR_ARGUMENT, "idx: the path of the %s is NULL", images_path ? "labels" : "images");
        return NULL;
    }
    return idx_create("idx", images_path, labels_path, 0, NULL, transform);
}

/* ---- MNIST and FashionMNIST: the same files in folders of other names --------------------------------- */
/* root[/subfolder]/name or the same with .gz, whichever is there; NULL without an error when neither is. */
static char *find_one(const char *root, const char *subfolder, const char *name)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        char *path = yk__format("%s%s%s/%s%s", root, *subfolder ? "/" : "", subfolder, name, gzip ? ".gz" : "");
        if (!path || yk__is_file(path))
            return path;
        free(path);
    }
    return NULL;
}

static yk_dataset *open_by_root(const char *name, const char *const folders_tried[3], const char *const *class_names,
                                const char *root, yk_data_split split, yk_transform *transform)
{
    if (yk__transform_lost(transform) || !yk__scope_check(name))
        return NULL;
    YK__OWN_RECORD;
    if (!root) {
        yk__fail(YK_ERR_ARGUMENT, "%s: root is NULL", name);
        return NULL;
    }
    const char *part = split == YK_TEST ? "t10k" : "train";
    char images_name[40], labels_name[40];
    snprintf(images_name, sizeof(images_name), "%s-images-idx3-ubyte", part);
    snprintf(labels_name, sizeof(labels_name), "%s-labels-idx1-ubyte", part);
    for (int i = 0; i < 3; i++) {
        char *images = find_one(root, folders_tried[i], images_name);
        if (!images && yk__error_code())
            return NULL;
        if (!images)
            continue;
        yk_dataset *dataset = NULL;
        char *labels = find_one(root, folders_tried[i], labels_name);
        if (labels)
            dataset = idx_create(name, images, labels, 10, class_names, transform);
        else
            yk__fail(YK_ERR_NOT_FOUND, "%s: %s is there, but no %s[.gz] beside it", name, images, labels_name);
        free(images);
        free(labels);
        return dataset;
    }
    yk__fail(YK_ERR_NOT_FOUND, "%s: no %s[.gz] in %s, %s/%s or %s/%s%s", name, images_name, root, root,
             folders_tried[1], root, folders_tried[2], yk__is_directory(root) ? "" : ", and no such directory");
    return NULL;
}

yk_dataset *yk_mnist(const char *root, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    static const char *const folders_tried[3] = {"", "mnist", "MNIST/raw"};
    static const char *const names[10] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return open_by_root("mnist", folders_tried, names, root, split, transform);
}

yk_dataset *yk_fashion_mnist(const char *root, yk_data_split split, yk_transform *transform)
{
    YK__LIVE(transform);
    static const char *const folders_tried[3] = {"", "fashion-mnist", "FashionMNIST/raw"};
    static const char *const names[10] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
    return open_by_root("fashion-mnist", folders_tried, names, root, split, transform);
}
