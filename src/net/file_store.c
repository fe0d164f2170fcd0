/*
 * file_store.c - a store in a file that all processes of a job see. Layer: net.
 *
 * The file is a log: "yokekv1\n" and 8 random bytes that tell it from its successor, then records of u32 size and u32
 * checksum of the body, and the body: u8 kind, key, value. Whoever writes holds the exclusive lock and has read
 * everything before; whoever reads holds the shared lock. Invariants: only whole records are believed; one that a
 * process left half when it was killed stands at the end, and the next writer cuts it off. Locks belong to the open
 * file and not to the process, and each operation opens the file anew, so threads and forked children exclude each
 * other as other processes do, and a network file system looks at the server's copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "net/store_table.h"
#include "net/wire.h"

/* Constants of the file's format. BODY_LIMIT: a key, a value and what precedes them. */
enum { FILE_HEAD = 16, RECORD_HEAD = 8, BODY_LIMIT = YK_STORE_MAX_VALUE + YK_STORE_MAX_KEY + 16, SET = 1, REMOVE = 2 };
static const char magic[8] = {'y', 'o', 'k', 'e', 'k', 'v', '1', '\n'};

typedef struct file_store {
    yk_store store;
    pthread_mutex_t lock;
    char *path;
    yk__keyspace space; /* the content of the file up to `position` */
    off_t position;
    unsigned char head[FILE_HEAD]; /* of the file that was read; position 0: none yet */
} file_store;

static uint32_t checksum(const unsigned char *body, size_t size) /* FNV-1a */
{
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ body[i]) * 0x01000193u;
    return hash;
}

static void sleep_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static void space_forget(file_store *f)
{
    yk__keyspace_clear(&f->space);
    f->position = 0;
}

/* ---- opening, locking, reading --------------------------------------------------------------------------------- */
static int open_file(file_store *f, struct stat *info)
{
    int fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        yk__fail_errno("file_store: %s", f->path);
        return -1;
    }
    unsigned char head[FILE_HEAD];
    bool known = f->position > 0;
    if (fstat(fd, info) < 0 || (known && pread(fd, head, FILE_HEAD, 0) < 0)) {
        yk__fail_errno("file_store: %s", f->path);
    } else if (!S_ISREG(info->st_mode)) {
        yk__fail(YK_ERR_IO, "file_store: %s: not a regular file", f->path);
    } else if (known && (info->st_size < f->position || memcmp(head, f->head, FILE_HEAD) != 0)) {
        yk__fail(YK_ERR_STATE, "file_store: %s: the file was replaced or cut since this store first read it", f->path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

static yk_status lock_file(const file_store *f, int fd, bool exclusive, yk__until until)
{
    struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
    for (double pause = 5e-5;; pause = pause < 4e-3 ? 1.5 * pause : 4e-3) {
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
            return YK_OK;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return yk__fail_errno("file_store: %s: cannot be locked", f->path);
        if (yk__now() >= until.deadline)
            return yk__fail(YK_ERR_TIMEOUT, "file_store: %s: another process held its lock for %g s", f->path,
                            until.timeout);
        sleep_for(pause);
    }
}

static yk_status damaged(const file_store *f, off_t at, const char *how)
{
    return yk__fail(YK_ERR_FORMAT, "file_store: %s: the record at byte %lld %s", f->path, (long long)at, how);
}

static yk_status record_apply(file_store *f, const unsigned char *body, size_t size, off_t at)
{
    yk__reader reader = {body, body + size, false};
    unsigned kind = yk__read_u8(&reader);
    yk__bytes key, value;
    key.size = yk__read_u16(&reader);
    key.data = yk__read_bytes(&reader, key.size);
    value.size = yk__read_u32(&reader);
    value.data = yk__read_bytes(&reader, value.size);
    if (!yk__read_finished(&reader) || (kind != SET && kind != REMOVE))
        return damaged(f, at, "is malformed");
    if (kind == SET)
        return yk__keyspace_set(&f->space, key, value);
    yk__keyspace_delete(&f->space, key);
    return YK_OK;
}

/* Reads what is new of the first `size` bytes; f->position ends after the last complete record. */
static yk_status read_new(file_store *f, int fd, off_t size)
{
    if (size <= f->position)
        return YK_OK;
    size_t count = (size_t)(size - f->position), have = 0;
    unsigned char *bytes = yk__calloc(count, 1);
    if (!bytes)
        return YK_ERR_MEMORY;
    while (have < count) {
        ssize_t got = pread(fd, bytes + have, count - have, f->position + (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            yk__fail_errno("file_store: %s", f->path);
            free(bytes);
            return YK_ERR_IO;
        }
        if (got == 0)
            break;
        have += (size_t)got;
    }
    yk_status status = YK_OK;
    size_t at = 0;
    off_t start = f->position;
    if (start == 0 && have) {
        size_t compared = have < sizeof(magic) ? have : sizeof(magic);
        if (memcmp(bytes, magic, compared) != 0)
            status = yk__fail(YK_ERR_FORMAT, "file_store: %s: there is something else in this file", f->path);
        at = have < FILE_HEAD ? have : FILE_HEAD;
        if (!status && at == FILE_HEAD) {
            memcpy(f->head, bytes, FILE_HEAD);
            f->position = FILE_HEAD;
        }
    }
    while (!status && have - at >= RECORD_HEAD) {
        size_t length = yk__load_u32(bytes + at);
        const unsigned char *body = bytes + at + RECORD_HEAD;
        if (length > BODY_LIMIT)
            status = damaged(f, start + (off_t)at, "claims more than a record can have");
        if (status || have - at - RECORD_HEAD < length)
            break;
        if (checksum(body, length) != yk__load_u32(bytes + at + 4))
            status = damaged(f, start + (off_t)at, "has a wrong checksum");
        else
            status = record_apply(f, body, length, start + (off_t)at);
        at += RECORD_HEAD + length;
        if (!status)
            f->position = start + (off_t)at;
    }
    free(bytes);
    if (status)
        space_forget(f); /* to be read from the start, and found damaged again */
    return status;
}

/* Opens, locks and reads: a descriptor whose closing unlocks, or -1 and the error. */
static int file_lock_begin(file_store *f, bool exclusive, yk__until until)
{
    struct stat info;
    int fd = open_file(f, &info);
    if (fd < 0)
        return -1;
    yk_status status = lock_file(f, fd, exclusive, until);
    if (!status && fstat(fd, &info) < 0)
        status = yk__fail_errno("file_store: %s", f->path);
    if (!status)
        status = read_new(f, fd, info.st_size);
    if (!status)
        return fd;
    close(fd);
    return -1;
}

/* Appends a record after the last complete one. The memory's copy already has the change: it is given up on failure. */
static yk_status record_append(file_store *f, int fd, unsigned kind, yk__bytes key, yk__bytes value)
{
    yk__wire wire = {0};
    if (f->position == 0) {
        memcpy(f->head, magic, sizeof(magic));
        if (getrandom(f->head + sizeof(magic), FILE_HEAD - sizeof(magic), 0) < 0) {
            space_forget(f);
            return yk__fail_errno("file_store: %s: random bytes", f->path);
        }
        yk__wire_put(&wire, f->head, FILE_HEAD);
    }
    size_t head = wire.size;
    yk__wire_put_u64(&wire, 0);
    yk__wire_put_u8(&wire, kind);
    yk__wire_put_key(&wire, (const char *)key.data, key.size);
    yk__wire_put_value(&wire, value.data, value.size);
    yk_status status = wire.failed ? yk__fail_memory(value.size) : YK_OK;
    if (!status) {
        size_t length = wire.size - head - RECORD_HEAD;
        uint32_t numbers[2] = {(uint32_t)length, checksum(wire.data + head + RECORD_HEAD, length)};
        for (size_t i = 0; i < RECORD_HEAD; i++)
            wire.data[head + i] = (unsigned char)(numbers[i / 4] >> (8 * (i % 4)));
        if (ftruncate(fd, f->position) < 0) /* cuts off a record that a killed process left half written */
            status = yk__fail_errno("file_store: %s", f->path);
    }
    size_t done = 0;
    while (!status && done < wire.size) {
        ssize_t put = pwrite(fd, wire.data + done, wire.size - done, f->position + (off_t)done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            status = yk__fail_errno("file_store: %s", f->path);
    }
    if (status) {
        if (ftruncate(fd, f->position) < 0)
            yk__fail_errno("file_store: %s", f->path);
        space_forget(f);
    } else {
        f->position += (off_t)wire.size;
    }
    yk__wire_clear(&wire);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */
static file_store *store_enter(yk_store *store, bool exclusive, yk__until until, int *fd)
{
    file_store *f = (file_store *)store;
    pthread_mutex_lock(&f->lock);
    *fd = file_lock_begin(f, exclusive, until);
    if (*fd >= 0)
        return f;
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void store_leave(file_store *f, int fd)
{
    close(fd);
    pthread_mutex_unlock(&f->lock);
}

static yk_status file_set(yk_store *store, yk__bytes key, yk__bytes value, yk__until until)
{
    int fd;
    file_store *f = store_enter(store, true, until, &fd);
    if (!f)
        return yk__error_code();
    yk_status status = yk__keyspace_set(&f->space, key, value);
    if (!status)
        status = record_append(f, fd, SET, key, value);
    store_leave(f, fd);
    return status;
}

/* The keys, or the value, that a poll of a waiting call looks for. */
typedef struct wanted {
    const yk__bytes *keys;
    size_t count;
    const yk__bytes *old; /* watch */
} wanted;

static bool is_there(const file_store *f, const wanted *w)
{
    if (w->old) {
        const yk__bytes *now = yk__keyspace_get(&f->space, w->keys[0]);
        if (!now || !w->old->data)
            return (now != NULL) != (w->old->data != NULL);
        return now->size != w->old->size || (now->size && memcmp(now->data, w->old->data, now->size) != 0);
    }
    for (size_t i = 0; i < w->count; i++)
        if (!yk__keyspace_get(&f->space, w->keys[i]))
            return false;
    return true;
}

/*
 * Polls until it is there; then, or at the deadline, returns with the mutex held and *met set. Without news in the
 * file's length it is not locked.
 */
static yk_status poll_until(file_store *f, const wanted *w, yk__until until, bool *met)
{
    *met = false;
    for (double pause = 5e-4;; pause = pause < 2e-2 ? 1.3 * pause : 2e-2) {
        pthread_mutex_lock(&f->lock);
        struct stat info;
        int fd = open_file(f, &info);
        yk_status status = fd >= 0 ? YK_OK : yk__error_code();
        bool last = yk__now() >= until.deadline;
        if (!status && info.st_size != f->position && !(status = lock_file(f, fd, false, until))) {
            if (fstat(fd, &info) < 0)
                status = yk__fail_errno("file_store: %s", f->path);
            else
                status = read_new(f, fd, info.st_size);
        }
        if (fd >= 0)
            close(fd);
        *met = !status && is_there(f, w);
        if (*met || status || last)
            return status;
        pthread_mutex_unlock(&f->lock);
        double left = until.deadline - yk__now();
        sleep_for(left < pause ? (left > 0 ? left : 0) : pause);
    }
}

static yk_status file_get(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until)
{
    file_store *f = (file_store *)store;
    bool met;
    yk_status status = poll_until(f, &(wanted){&key, 1, NULL}, until, &met);
    if (!status)
        status = met ? yk__store_copy(*yk__keyspace_get(&f->space, key), value)
                     : yk__store_key_timeout(store, "get", key, "was not set", until.timeout);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static yk_status file_add(yk_store *store, yk__bytes key, int64_t amount, int64_t *sum, yk__until until)
{
    int fd;
    char why[YK__ADD_WHY];
    file_store *f = store_enter(store, true, until, &fd);
    if (!f)
        return yk__error_code();
    yk_status status = yk__keyspace_add(&f->space, key, amount, sum, why);
    if (status == YK_ERR_ARGUMENT)
        status = yk__store_add_failed(store, key, why);
    else if (!status)
        status = record_append(f, fd, SET, key, *yk__keyspace_get(&f->space, key));
    store_leave(f, fd);
    return status;
}

static yk_status file_wait(yk_store *store, const yk__bytes *keys, size_t count, yk__until until)
{
    file_store *f = (file_store *)store;
    bool met;
    yk_status status = poll_until(f, &(wanted){keys, count, NULL}, until, &met);
    if (!status && !met) {
        uint32_t missing[YK__MISSING_SHOWN];
        size_t missing_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (yk__keyspace_get(&f->space, keys[i]))
                continue;
            if (missing_count < YK__MISSING_SHOWN)
                missing[missing_count] = (uint32_t)i;
            missing_count++;
        }
        status = yk__store_wait_timeout(store, keys, count, missing, missing_count, until.timeout);
    }
    pthread_mutex_unlock(&f->lock);
    return status;
}

static yk_status file_check(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until)
{
    int fd;
    file_store *f = store_enter(store, false, until, &fd);
    if (!f)
        return yk__error_code();
    *there = is_there(f, &(wanted){keys, count, NULL});
    store_leave(f, fd);
    return YK_OK;
}

static yk_status file_compare_set(yk_store *store, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                  yk__store_value *value, bool *swapped, yk__until until)
{
    int fd;
    file_store *f = store_enter(store, true, until, &fd);
    if (!f)
        return yk__error_code();
    yk_status status = yk__keyspace_compare_set(&f->space, key, expected, desired, swapped);
    if (!status && *swapped)
        status = record_append(f, fd, SET, key, desired);
    const yk__bytes *now = status ? NULL : yk__keyspace_get(&f->space, key);
    if (now)
        status = yk__store_copy(*now, value);
    store_leave(f, fd);
    return status;
}

static yk_status file_remove(yk_store *store, yk__bytes key, bool *deleted, yk__until until)
{
    int fd;
    file_store *f = store_enter(store, true, until, &fd);
    if (!f)
        return yk__error_code();
    *deleted = yk__keyspace_delete(&f->space, key);
    yk_status status = *deleted ? record_append(f, fd, REMOVE, key, (yk__bytes){0}) : YK_OK;
    store_leave(f, fd);
    return status;
}

static yk_status file_watch(yk_store *store, yk__bytes key, yk__bytes old, yk__store_value *value, yk__until until)
{
    file_store *f = (file_store *)store;
    bool met;
    yk_status status = poll_until(f, &(wanted){&key, 1, &old}, until, &met);
    const yk__bytes *now = status ? NULL : yk__keyspace_get(&f->space, key);
    if (!status && !met)
        status = yk__store_key_timeout(store, "watch", key, "did not change", until.timeout);
    else if (now)
        status = yk__store_copy(*now, value);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static yk_status file_count(yk_store *store, yk__bytes prefix, int64_t *count, yk__until until)
{
    int fd;
    file_store *f = store_enter(store, false, until, &fd);
    if (!f)
        return yk__error_code();
    *count = yk__keyspace_count(&f->space, prefix);
    store_leave(f, fd);
    return YK_OK;
}

static void file_destroy(yk_store *store)
{
    file_store *f = (file_store *)store;
    yk__keyspace_clear(&f->space);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
}

static const yk__store_table file_table = {
    .set = file_set,
    .get = file_get,
    .add = file_add,
    .wait = file_wait,
    .check = file_check,
    .compare_set = file_compare_set,
    .remove = file_remove,
    .watch = file_watch,
    .count = file_count,
    .destroy = file_destroy,
};

yk_store *yk_file_store(const char *path)
{
    if (!yk__scope_check("file_store"))
        return NULL;
    if (!path || !*path) {
        yk__fail(YK_ERR_ARGUMENT, "file_store: the path is %s", path ? "empty" : "NULL");
        return NULL;
    }
    char *name = yk__format("file://%s", path);
    yk_store *store = name ? yk__store_new(&file_table, sizeof(file_store), name) : NULL;
    free(name);
    if (!store)
        return NULL;
    file_store *f = (file_store *)store;
    pthread_mutex_init(&f->lock, NULL);
    f->path = yk__strdup(path);
    /* A path that cannot be used, or holds something else, is an error here and not at the first call. */
    int fd = f->path ? file_lock_begin(f, false, (yk__until){yk__now() + store->timeout, store->timeout}) : -1;
    if (fd < 0) {
        yk_store_release(store);
        return NULL;
    }
    close(fd);
    return yk__scope_own(store);
}
