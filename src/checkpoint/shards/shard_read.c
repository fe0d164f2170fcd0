/*
 * shard_read.c - parts of tensors out of files that other ranks wrote, by any number of ranks. Layer: checkpoint.
 *
 * A file is read in blocks of YK__SHARD_BLOCK bytes, those that hold something wanted; each is compared with its
 * checksum before it counts. Jobs are sorted by file and offset, so one block in memory is enough and most files are
 * read from front to back, once.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/xxh3.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/shards/shards.h"
#include "nn/module.h"

/* ---- one file, by blocks ---------------------------------------------------------------------------------------- */

typedef struct reader {
    const yk__shard_file *file;
    int fd;
    unsigned char *block;
    uint64_t at; /* the number of the block in memory, plus one; 0: none */
    yk__safetensors header;
    yk__name_table names; /* of the header's tensors */
    uint64_t data;        /* the offset of the tensors */
    uint64_t hashed;      /* blocks, from the first on, that went into `whole` */
    XXH3_state_t whole;
} reader;

static size_t block_size(const reader *r, uint64_t number)
{
    uint64_t left = r->file->bytes - number * YK__SHARD_BLOCK;
    return left < YK__SHARD_BLOCK ? (size_t)left : YK__SHARD_BLOCK;
}

/* Reads a block and compares it with its checksum. */
static yk_status fetch_block(reader *r, uint64_t number, unsigned char *to)
{
    uint64_t begin = number * YK__SHARD_BLOCK;
    size_t size = block_size(r, number), have = 0;
    while (have < size) {
        ssize_t got = pread(r->fd, to + have, size - have, (off_t)(begin + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return yk__fail_errno("%s", r->file->path);
        if (got == 0)
            return yk__fail(YK_ERR_FORMAT, "%s: the file ended at byte %" PRIu64 " while it was read", r->file->path,
                            begin + have);
        have += (size_t)got;
    }
    char own[17];
    const char *saved = r->file->blocks + 16 * number;
    snprintf(own, sizeof(own), "%016" PRIx64, yk__xxh3_64(to, size));
    if (memcmp(own, saved, 16) == 0) {
        if (number == r->hashed) {
            yk__xxh3_update(&r->whole, to, size);
            r->hashed++;
        }
        return YK_OK;
    }
    return yk__fail(YK_ERR_FORMAT,
                    "%s: checksum %s of bytes %" PRIu64 " to %" PRIu64 ", but %.16s was saved: the file was damaged",
                    r->file->path, own, begin, begin + size, saved);
}

/* The bytes of all blocks, if all were read, must give the file's checksum, too. */
static yk_status check_whole(const reader *r)
{
    char own[17];
    if (r->hashed * YK__SHARD_BLOCK < r->file->bytes)
        return YK_OK;
    snprintf(own, sizeof(own), "%016" PRIx64, (uint64_t)XXH3_64bits_digest(&r->whole));
    if (strcmp(own, r->file->whole) == 0)
        return YK_OK;
    return yk__fail(YK_ERR_FORMAT,
                    "%s: checksum %s of the whole file, but %s was saved: the index or the file was damaged",
                    r->file->path, own, r->file->whole);
}

/* The same to r->block, unless it is there. */
static yk_status load_block(reader *r, uint64_t number)
{
    if (r->at == number + 1)
        return YK_OK;
    r->at = 0;
    yk_status status = fetch_block(r, number, r->block);
    if (!status)
        r->at = number + 1;
    return status;
}

/* The bytes must lie inside the file. Whole blocks go straight to where they are wanted. */
static yk_status read_bytes(reader *r, uint64_t begin, void *to, uint64_t size)
{
    char *offset = to;
    while (size) {
        uint64_t number = begin / YK__SHARD_BLOCK, inside = begin % YK__SHARD_BLOCK;
        size_t all = block_size(r, number), piece = size < all - inside ? (size_t)size : all - (size_t)inside;
        bool whole = piece == all;
        yk_status status = whole ? fetch_block(r, number, (unsigned char *)offset) : load_block(r, number);
        if (status)
            return status;
        if (!whole)
            memcpy(offset, r->block + inside, piece);
        offset += piece;
        begin += piece;
        size -= piece;
    }
    return YK_OK;
}

static void reader_close(reader *r)
{
    yk__safetensors_clear(&r->header);
    yk__name_clear(&r->names);
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    r->at = 0;
}

static yk_status read_header(reader *r)
{
    const char *path = r->file->path;
    unsigned char prefix[YK__SAFETENSORS_PREFIX] = {0};
    size_t size;
    yk_status status = YK_OK;
    if (r->file->bytes >= sizeof(prefix))
        status = read_bytes(r, 0, prefix, sizeof(prefix));
    if (!status)
        status = yk__safetensors_length(path, prefix, r->file->bytes, &size);
    char *text = status ? NULL : yk__calloc(size, 1);
    if (!text)
        return yk__error_code();
    r->data = sizeof(prefix) + size;
    status = read_bytes(r, sizeof(prefix), text, size);
    if (!status)
        status = yk__safetensors_parse(path, text, size, r->file->bytes - r->data, &r->header);
    free(text);
    for (size_t i = 0; i < r->header.count && !status; i++) {
        const yk__safetensor *t = &r->header.tensors[i];
        status = t->foreign ? yk__fail(YK_ERR_DTYPE, "%s: tensor '%s' is of dtype %s, which no checkpoint has", path,
                                       t->name, t->foreign)
                            : yk__name_add(&r->names, yk__name_hash(t->name, strlen(t->name)), (uint32_t)i);
    }
    return status;
}

static bool same_name(const void *owner, uint32_t index, const void *key)
{
    const yk__safetensors *header = owner;
    return strcmp(header->tensors[index].name, key) == 0;
}

/* Opens the file and reads its header. Closed in any case by reader_close. */
static yk_status reader_open(reader *r, const yk__shard_file *file)
{
    r->file = file;
    r->hashed = 0;
    XXH3_64bits_reset(&r->whole);
    r->fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (r->fd < 0)
        return yk__fail_errno("%s", file->path);
    struct stat info;
    if (fstat(r->fd, &info) < 0)
        return yk__fail_errno("%s", file->path);
    if (!S_ISREG(info.st_mode))
        return yk__fail(YK_ERR_IO, "%s: not a regular file", file->path);
    if ((uint64_t)info.st_size != file->bytes)
        return yk__fail(YK_ERR_FORMAT, "%s: %lld bytes, but %llu were saved", file->path, (long long)info.st_size,
                        (unsigned long long)file->bytes);
    return read_header(r);
}

/* Finds the offset of a tensor's part in the file by the file's own header, which must agree with the index. */
static yk_status find_part(const reader *r, const yk__whole *t, const yk__part *part, uint64_t *begin)
{
    uint32_t at = yk__name_find(&r->names, yk__name_hash(t->name, strlen(t->name)), same_name, &r->header, t->name);
    const yk__safetensor *entry = at == UINT32_MAX ? NULL : &r->header.tensors[at];
    if (!entry)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s' is not in it, but the index says so", r->file->path, t->name);
    if (entry->dtype != t->dtype || entry->ndim != t->ndim ||
        memcmp(entry->shape, part->box.shape, (size_t)t->ndim * sizeof(*entry->shape)) != 0)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s' has another shape or dtype in it than in the index",
                        r->file->path, t->name);
    *begin = r->data + entry->begin;
    return YK_OK;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------- */

/* The part of one tensor that is wanted, in C order. */
typedef struct wanted {
    const yk__whole *tensor;
    yk__box box;
    yk_tensor *to; /* the caller's, or one of its own that is copied there at the end */
} wanted;

/* A copy from one part of a file to one wanted tensor. */
typedef struct job {
    const wanted *want;
    const yk__part *part;
    size_t order; /* tensors in the order of their file */
    uint64_t begin;
} job;

/* Copies the elements that both boxes have, run by run: a run spans as many trailing dimensions as are complete in
 * both. */
static yk_status copy_box(reader *r, const job *j)
{
    const yk__whole *t = j->want->tensor;
    const yk__box *from = &j->part->box, *to = &j->want->box;
    yk__box both = {0};
    if (!yk__box_cut(t->ndim, from, to, &both))
        return YK_OK;
    int64_t size = (int64_t)yk_dtype_size(t->dtype), run = 1;
    int outer = t->ndim;
    for (bool whole = true; outer > 0 && whole;) {
        outer--;
        run *= both.shape[outer];
        whole = both.shape[outer] == from->shape[outer] && both.shape[outer] == to->shape[outer];
    }
    int64_t at[YK_MAX_DIMS] = {0};
    for (;;) {
        int64_t source = 0, target = 0;
        for (int d = 0; d < t->ndim; d++) {
            int64_t offset = both.offset[d] + (d < outer ? at[d] : 0);
            source = source * from->shape[d] + offset - from->offset[d];
            target = target * to->shape[d] + offset - to->offset[d];
        }
        yk_status status = read_bytes(r, j->begin + (uint64_t)(source * size),
                                      (char *)j->want->to->data + target * size, (uint64_t)(run * size));
        if (status)
            return status;
        int d = outer - 1;
        while (d >= 0 && ++at[d] == both.shape[d])
            at[d--] = 0;
        if (d < 0)
            return YK_OK;
    }
}

static int by_file(const void *a, const void *b)
{
    const job *x = a, *y = b;
    if (x->part->holder != y->part->holder)
        return x->part->holder < y->part->holder ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_begin(const void *a, const void *b)
{
    const job *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* All jobs of one file. */
static yk_status run_file(reader *r, const yk__shard_file *file, job *jobs, size_t count)
{
    yk_status status = reader_open(r, file);
    for (size_t i = 0; i < count && !status; i++)
        status = find_part(r, jobs[i].want->tensor, jobs[i].part, &jobs[i].begin);
    if (!status)
        qsort(jobs, count, sizeof(*jobs), by_begin);
    for (size_t i = 0; i < count && !status; i++) {
        status = copy_box(r, &jobs[i]);
        if (status)
            yk__error_prefix("tensor '%s', saved by rank %d", jobs[i].want->tensor->name, jobs[i].part->holder);
    }
    if (!status)
        status = check_whole(r);
    reader_close(r);
    return status;
}

static yk_status run_jobs(const yk__shard_index *index, job *jobs, size_t count)
{
    reader r = {.fd = -1, .block = yk__calloc(1, YK__SHARD_BLOCK)};
    yk_status status = r.block ? YK_OK : YK_ERR_MEMORY;
    if (count)
        qsort(jobs, count, sizeof(*jobs), by_file);
    for (size_t i = 0, next; i < count && !status; i = next) {
        for (next = i + 1; next < count && jobs[next].part->holder == jobs[i].part->holder;)
            next++;
        status = run_file(&r, &index->files[jobs[i].part->holder], jobs + i, next - i);
    }
    free(r.block);
    return status;
}

/* ---- reading parts of tensors ----------------------------------------------------------------------------------- */

static yk_status shape_differs(const char *dir, const yk__whole *t, const yk_shard *s)
{
    char saved[200], asked[200];
    yk__box a = {0}, b = {0};
    memcpy(a.shape, t->shape, sizeof(a.shape));
    memcpy(b.shape, s->shape ? s->shape : s->part->shape, (size_t)s->part->ndim * sizeof(*b.shape));
    return yk__fail(YK_ERR_SHAPE, "%s: tensor '%s' was saved as %s %s, but is %s %s here", dir, s->name,
                    yk_dtype_name(t->dtype), yk__box_format(t->ndim, &a, saved, sizeof(saved)),
                    yk_dtype_name((yk_dtype)s->part->dtype), yk__box_format(s->part->ndim, &b, asked, sizeof(asked)));
}

/* Compares a shard with the saved tensor. */
static yk_status want_shard(const char *dir, const yk__shard_index *index, const yk_shard *s, wanted *w)
{
    if (!s->name || !s->part)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "sharded_load: a shard has no %s", s->name ? "tensor" : "name");
    yk_tensor *x = s->part;
    w->tensor = yk__layout_find(&index->layout, s->name);
    if (!w->tensor)
        return yk__fail(YK_ERR_NOT_FOUND, "%s: there is no tensor '%s' in it", dir, s->name);
    const yk__whole *t = w->tensor;
    bool same = (yk_dtype)x->dtype == t->dtype && x->ndim == t->ndim;
    for (int d = 0; d < x->ndim && same; d++)
        same = (s->shape ? s->shape[d] : x->shape[d]) == t->shape[d];
    if (!same)
        return shape_differs(dir, t, s);
    for (int d = 0; d < x->ndim; d++) {
        int64_t offset = s->offset ? s->offset[d] : 0;
        if (offset < 0 || offset > t->shape[d] - x->shape[d])
            return yk__fail(YK_ERR_SHAPE,
                            "sharded_load: tensor '%s': the part begins at %" PRId64 " in dimension %d and has %" PRId64
                            " of %" PRId64,
                            s->name, offset, d, x->shape[d], t->shape[d]);
        w->box.offset[d] = offset;
        w->box.shape[d] = x->shape[d];
    }
    const yk__backend *backend = yk__backend_for(x);
    if (!backend)
        return yk__error_code();
    if (backend->host_memory && yk_is_contiguous(x))
        w->to = yk_tensor_retain(x);
    else
        w->to = yk__tensor_new(x->ndim, x->shape, NULL, t->dtype, (yk_device){0});
    return w->to ? YK_OK : yk__error_code();
}

/* The jobs that fill one wanted tensor. */
static yk_status add_jobs(const yk__shard_index *index, const wanted *w, job **jobs, size_t *count, size_t *room)
{
    yk__box both;
    for (size_t p = 0; p < w->tensor->count; p++) {
        const yk__part *part = &w->tensor->parts[p];
        if (w->to->numel == 0 || !yk__box_cut(w->tensor->ndim, &part->box, &w->box, &both))
            continue;
        if (*count == *room) {
            size_t more = *room ? 2 * *room : 64;
            job *grown = yk__realloc(*jobs, more * sizeof(**jobs));
            if (!grown)
                return YK_ERR_MEMORY;
            *jobs = grown;
            *room = more;
        }
        (*jobs)[(*count)++] = (job){.want = w, .part = part, .order = (size_t)(w->tensor - index->layout.tensors)};
    }
    return YK_OK;
}

/* Makes the checks that the bytes alone do not, and copies to the caller's tensors. */
static yk_status deliver(const char *dir, const yk_shard *s, const wanted *w)
{
    const unsigned char *bytes = w->to->data;
    for (int64_t i = 0; w->tensor->dtype == YK_BOOL && i < w->to->numel; i++) {
        if (bytes[i] > 1)
            return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': element %" PRId64 " of the part is %d, not a BOOL", dir,
                            s->name, i, bytes[i]);
    }
    yk_status status = w->to == s->part ? YK_OK : yk__raw_copy(s->part, w->to);
    yk__bump_version(s->part);
    return status;
}

yk_status yk__shards_read(const char *dir, const yk__shard_index *index, const yk_shard *shards, int64_t count)
{
    wanted *wants = yk__calloc((size_t)count + 1, sizeof(*wants));
    yk_status status = wants ? YK_OK : YK_ERR_MEMORY;
    job *jobs = NULL;
    size_t job_count = 0, room = 0;
    for (int64_t i = 0; i < count && !status; i++)
        status = want_shard(dir, index, &shards[i], &wants[i]);
    for (int64_t i = 0; i < count && !status; i++)
        status = add_jobs(index, &wants[i], &jobs, &job_count, &room);
    if (!status)
        status = run_jobs(index, jobs, job_count);
    for (int64_t i = 0; i < count && !status; i++)
        status = deliver(dir, &shards[i], &wants[i]);
    for (int64_t i = 0; wants && i < count; i++)
        yk_tensor_release(wants[i].to);
    free(wants);
    free(jobs);
    return status;
}

/* ---- whole folders ---------------------------------------------------------------------------------------------- */

/* New tensors of the saved shapes, as shards; one reference in `dict`. */
static yk_status make_whole(const yk__layout *layout, yk_device device, yk_shard *shards, yk_state_dict *dict)
{
    yk_status status = YK_OK;
    for (size_t i = 0; i < layout->count && !status; i++) {
        const yk__whole *t = &layout->tensors[i];
        yk_tensor *x = yk__tensor_new(t->ndim, t->shape, NULL, t->dtype, device);
        status = yk_state_dict_add(dict, t->name, x);
        shards[i] = (yk_shard){.name = t->name, .part = x};
        yk_tensor_release(x);
    }
    return status;
}

yk_state_dict *yk__shards_read_whole(const char *dir, const char *stem, yk_device device)
{
    yk__shard_index index;
    if (yk__shard_index_open(dir, stem, &index))
        return NULL;
    yk_state_dict *dict = yk__state_dict_new();
    yk_shard *shards = yk__calloc(index.layout.count + 1, sizeof(*shards));
    yk_status status = dict && shards ? make_whole(&index.layout, device, shards, dict) : YK_ERR_MEMORY;
    if (!status)
        status = yk__shards_read(dir, &index, shards, (int64_t)index.layout.count);
    free(shards);
    yk__shard_index_clear(&index);
    if (!status)
        return dict;
    yk_state_dict_release(dict);
    return NULL;
}

yk_status yk__shards_verify(const char *dir, const char *stem)
{
    yk__shard_index index;
    yk_status status = yk__shard_index_open(dir, stem, &index);
    if (status)
        return status;
    reader r = {.fd = -1, .block = yk__calloc(1, YK__SHARD_BLOCK)};
    status = r.block ? YK_OK : YK_ERR_MEMORY;
    for (int f = 0; f < index.file_count && !status; f++) {
        status = reader_open(&r, &index.files[f]);
        for (uint64_t b = 0; b * YK__SHARD_BLOCK < index.files[f].bytes && !status; b++)
            status = load_block(&r, b);
        if (!status)
            status = check_whole(&r);
        for (size_t i = 0; i < index.layout.count && !status; i++) {
            const yk__whole *t = &index.layout.tensors[i];
            uint64_t begin;
            for (size_t p = 0; p < t->count && !status; p++)
                if (t->parts[p].holder == f)
                    status = find_part(&r, t, &t->parts[p], &begin);
        }
        reader_close(&r);
    }
    free(r.block);
    yk__shard_index_clear(&index);
    return status;
}

yk_status yk_sharded_verify(const char *dir)
{
    YK__OWN_RECORD;
    if (!dir)
        return yk__fail(YK_ERR_ARGUMENT, "sharded_verify: no path");
    yk__folder_reading reading = {0};
    yk_status status;
    do {
        yk__folder_reading_begin(&reading, dir);
        status = yk__shards_verify(dir, "model");
    } while (yk__folder_reading_again(&reading, dir, status));
    return status;
}

yk_state_dict *yk_sharded_load_whole(const char *dir, yk_device device)
{
    YK__OWN_RECORD;
    if (!dir)
        yk__fail(YK_ERR_ARGUMENT, "sharded_load_whole: no path");
    if (!dir || !yk__scope_check("sharded_load_whole") || yk__device_check(device))
        return NULL;
    yk__folder_reading reading = {0};
    yk_state_dict *dict;
    do {
        yk__folder_reading_begin(&reading, dir);
        dict = yk__shards_read_whole(dir, "model", device);
    } while (yk__folder_reading_again(&reading, dir, dict ? YK_OK : yk__error_code()));
    return yk__scope_own(dict);
}

static yk_status load_once(const char *dir, const yk_shard *shards, int64_t count, int64_t *digest)
{
    yk__shard_index index = {0};
    yk_status status = yk__shard_index_open(dir, "model", &index);
    if (!status)
        status = yk__shards_read(dir, &index, shards, count);
    *digest = index.digest;
    yk__shard_index_clear(&index);
    return status;
}

yk_status yk_sharded_load(const char *dir, const yk_shard *shards, int64_t count, yk_process_group *group)
{
    YK__OWN_RECORD;
    yk_status status = YK_OK;
    if (yk__is_freed(group))
        status = yk__fail_freed(__func__, group);
    else if (!dir || count < 0 || (count && !shards))
        status = yk__fail(YK_ERR_ARGUMENT, "sharded_load: no %s", dir ? "shards" : "path");
    for (int64_t i = 0; i < count && !status; i++) {
        if (yk__is_freed(shards[i].part))
            status = yk__fail_freed(__func__, shards[i].part);
    }
    yk__folder_reading reading = {0};
    int64_t digest = 0;
    bool again = !status;
    while (again) {
        yk__folder_reading_begin(&reading, dir);
        status = load_once(dir, shards, count, &digest);
        again = yk__folder_reading_again(&reading, dir, status);
    }
    return group ? yk__ranks_agree_checksum(group, dir, digest) : status;
}
