/*
 * rpc_loan.c - tensors in memory files, on the side that lends and on the side that maps. Layer: rpc.
 *
 * Invariants: a file in the pool is in no message and no tensor; a loan is in the list of its connection from when the
 * message came until it is returned, or the connection ended. `lock` is taken inside the agent's, never the other way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rpc/rpc_agent.h"
#include "tensor/host_tensor.h"

/* LEND_LEAST: bytes of a tensor from which on a file is named; below, two copies take less than a mapping. MOST_LENT
 * and MOST_LENT_BYTES: copies that receivers hold, from which on tensors are sent as they are: each takes a descriptor
 * here and a mapping there, and its memory counts as this process's. MOST_POOL and MOST_POOL_BYTES: files that are
 * kept. OPEN: descriptors of others' files that are kept open; PARKED: mappings that are kept. MOST_FILES: in a
 * message, where each takes FILE_SIZE. */
enum {
    LEND_LEAST = 64 << 10,
    MOST_LENT = 256,
    MOST_POOL = 32,
    OPEN = 256,
    PARKED = 8,
    MOST_FILES = 256,
    FILE_SIZE = 20,
    PAGE = 4096
};
static const size_t MOST_LENT_BYTES = (size_t)512 << 20, MOST_POOL_BYTES = (size_t)256 << 20;

struct yk__lent_file {
    yk__shared_file file;
    char *memory; /* NULL: other memory of this process is at the place of its own */
    int references;
    bool is_copy, given_up;
    yk__lent_file *next; /* in the pool, or in the list of those that receivers are to forget */
};

struct yk__rpc_loan {
    atomic_int references;
    yk__rpc_link *link; /* NULL: it has ended */
    uint64_t number;
    int pid; /* of the lender */
    bool returned;
    unsigned count; /* of files */
    struct lent {
        uint64_t bytes, inode;
        int fd;         /* -1: it could not be opened */
    } * files;          /* until it is settled */
    yk__rpc_loan *next; /* of the connection */
};

/* A file of a lender that is kept open. */
typedef struct opened {
    const yk__rpc_link *link;
    yk__shared_file file;
    int fd;
} opened;

/* The memory of a tensor of yk_rpc_alloc. */
typedef struct allocated {
    char *memory;
    size_t bytes;
    yk__lent_file *file; /* whose bytes are there now */
} allocated;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static yk__lent_file *pool, *gone;
static size_t pool_bytes, lent_bytes;
static int pool_count, lent_count, returned_count;
static opened files_open[OPEN];
static int next_opened;
static atomic_bool waiting;
static _Thread_local yk__lender *lender;
static _Thread_local yk__rpc_loan *borrower;
static _Thread_local bool gathering;

/* ---- lending ----------------------------------------------------------------------------------------------------- */

/* Sends what is to be returned or forgotten, from the I/O thread. With `lock`. */
static void messages_wait(void)
{
    bool already = atomic_exchange(&waiting, true);
    if (!already && !gathering && yk__rpc.wake >= 0)
        eventfd_write(yk__rpc.wake, 1);
}

static yk__lent_file *file_new(size_t bytes)
{
    yk__lent_file *f = calloc(1, sizeof(*f));
    if (f)
        f->memory = yk__shared_create(bytes, &f->file);
    if (f && f->memory) {
        f->references = 1;
        return f;
    }
    free(f);
    return NULL;
}

/* The system's memory is free once the receivers have closed the file, too. With `lock`. */
static void file_destroy(yk__lent_file *f)
{
    if (f->memory)
        munmap(f->memory, f->file.bytes);
    f->memory = NULL;
    close(f->file.fd);
    f->next = gone;
    gone = f;
    messages_wait();
}

/* With `lock`. */
static void file_release(yk__lent_file *f)
{
    if (--f->references > 0)
        return;
    if (f->is_copy) {
        lent_count--;
        lent_bytes -= f->file.bytes;
    }
    if (!f->is_copy || f->given_up || pool_count == MOST_POOL || pool_bytes + f->file.bytes > MOST_POOL_BYTES) {
        file_destroy(f);
        return;
    }
    f->next = pool;
    pool = f;
    pool_count++;
    pool_bytes += f->file.bytes;
}

/* Sizes of files: eight of them for each power of two, so that one that came back fits again. */
static size_t file_bytes(size_t bytes)
{
    size_t step = PAGE;
    while (step * 16 < bytes)
        step *= 2;
    return (bytes + step - 1) & ~(step - 1);
}

/* A file for a copy of so many bytes, or NULL. */
static yk__lent_file *file_take(size_t bytes)
{
    size_t whole = file_bytes(bytes);
    pthread_mutex_lock(&lock);
    bool allowed = lent_count < MOST_LENT && (lent_count == 0 || lent_bytes + whole <= MOST_LENT_BYTES);
    yk__lent_file **at = &pool, *f = NULL;
    while (allowed && *at && (*at)->file.bytes != whole)
        at = &(*at)->next;
    if (allowed && *at) {
        f = *at;
        *at = f->next;
        pool_count--;
        pool_bytes -= whole;
        f->references = 1;
    }
    if (allowed) {
        lent_count++;
        lent_bytes += whole;
    }
    pthread_mutex_unlock(&lock);
    if (!allowed || f)
        return f;
    f = file_new(whole);
    if (f) {
        f->is_copy = true;
        return f;
    }
    pthread_mutex_lock(&lock);
    lent_count--;
    lent_bytes -= whole;
    pthread_mutex_unlock(&lock);
    return NULL;
}

void yk__lender_use(yk__lender *used)
{
    lender = used;
}

void yk__lender_clear(yk__lender *l, bool ended)
{
    if (!l->count)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < l->count; i++) {
        l->files[i]->given_up = l->files[i]->given_up || ended;
        file_release(l->files[i]);
    }
    pthread_mutex_unlock(&lock);
    free(l->files);
    *l = (yk__lender){0};
}

void yk__lender_drop(void)
{
    if (lender)
        yk__lender_clear(lender, false);
}

static void allocated_release(void *context)
{
    allocated *a = context;
    pthread_mutex_lock(&lock);
    file_release(a->file);
    pthread_mutex_unlock(&lock);
    munmap(a->memory, a->bytes);
    free(a);
}

/* The memory of yk_rpc_alloc that the tensor is in, or NULL. */
static allocated *allocated_of(const yk_tensor *x)
{
    return x->storage->foreign_release == allocated_release ? x->storage->foreign_context : NULL;
}

bool yk__lend(yk_tensor *x, unsigned *index, uint64_t *offset)
{
    size_t bytes = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
    if (!lender || bytes < LEND_LEAST || lender->count == MOST_FILES)
        return false;
    yk__lent_file **grown = realloc(lender->files, (lender->count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    lender->files = grown;
    allocated *a = allocated_of(x);
    yk__lent_file *f = a ? a->file : file_take(bytes);
    if (!f)
        return false;
    if (a) {
        pthread_mutex_lock(&lock);
        f->references++;
        pthread_mutex_unlock(&lock);
    } else {
        memcpy(f->memory, x->data, bytes);
        lender->copied += bytes;
    }
    lender->bytes += bytes;
    *index = (unsigned)lender->count;
    *offset = a ? (uint64_t)((char *)x->data - a->memory) : 0;
    lender->files[lender->count++] = f;
    return true;
}

void yk__lender_put(const yk__lender *l, yk__wire *out)
{
    for (size_t i = 0; i < l->count; i++) {
        const yk__shared_file *file = &l->files[i]->file;
        yk__wire_put_u32(out, (uint32_t)file->fd);
        yk__wire_put_u64(out, file->inode);
        yk__wire_put_u64(out, file->bytes);
    }
    if (l->count)
        yk__wire_put_u16(out, (unsigned)l->count);
}

/* ---- borrowing --------------------------------------------------------------------------------------------------- */

static int file_open(const yk__rpc_link *link, const yk__shared_file *file);

yk__rpc_loan *yk__loan_new(yk__rpc_link *link, uint64_t number, yk__reader *payload)
{
    enum { COUNT = 2 };
    size_t there = (size_t)(payload->end - payload->at);
    yk__reader r = {payload->end - (there < COUNT ? there : COUNT), payload->end, false};
    unsigned count = yk__read_u16(&r);
    size_t size = COUNT + (size_t)count * FILE_SIZE;
    if (r.bad || count == 0 || count > MOST_FILES || size > there || !link->pair)
        return NULL;
    payload->end -= size;
    r = (yk__reader){payload->end, payload->end + size, false};
    yk__rpc_loan *loan = calloc(1, sizeof(*loan));
    struct lent *files = calloc(count, sizeof(*files));
    if (!loan || !files) {
        free(loan);
        free(files);
        return NULL;
    }
    *loan = (yk__rpc_loan){.link = link, .number = number, .count = count, .files = files};
    loan->pid = (int)link->channel.handshake.peer.pid;
    atomic_init(&loan->references, 1);
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++) {
        yk__shared_file file = {.fd = (int32_t)yk__read_u32(&r)};
        file.inode = yk__read_u64(&r);
        file.bytes = yk__read_u64(&r);
        int fd = file_open(link, &file);
        files[i] = (struct lent){file.bytes, file.inode, fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    }
    loan->next = link->loans;
    link->loans = loan;
    pthread_mutex_unlock(&lock);
    return loan;
}

static void loan_release(yk__rpc_loan *loan)
{
    if (atomic_fetch_sub(&loan->references, 1) > 1)
        return;
    pthread_mutex_lock(&lock);
    bool ended = !loan->link;
    if (!ended) {
        loan->returned = true;
        returned_count++;
        messages_wait();
    }
    pthread_mutex_unlock(&lock);
    if (ended)
        free(loan);
}

void yk__loan_settle(yk__rpc_loan *loan)
{
    if (!loan)
        return;
    for (unsigned i = 0; i < loan->count; i++)
        if (loan->files[i].fd >= 0)
            close(loan->files[i].fd);
    free(loan->files);
    loan->files = NULL;
    loan->count = 0;
    loan_release(loan);
}

yk__rpc_loan *yk__loan_use(yk__rpc_loan *loan)
{
    yk__rpc_loan *before = borrower;
    borrower = loan;
    return before;
}

/* The descriptor of the lender's file, kept open for the next time. With `lock`. */
static int file_open(const yk__rpc_link *link, const yk__shared_file *file)
{
    static int last; /* most messages lend the file that the one before did */
    opened *unused = NULL;
    for (int n = 0; n < OPEN; n++) {
        int i = (last + n) % OPEN;
        opened *o = &files_open[i];
        if (o->link == link && o->file.inode == file->inode && o->file.fd == file->fd && o->file.bytes == file->bytes) {
            last = i;
            return o->fd;
        }
        unused = o->link ? unused : o;
    }
    int fd = yk__shared_open((int)link->channel.handshake.peer.pid, file);
    if (fd < 0)
        return -1;
    opened *o = unused ? unused : &files_open[next_opened++ % OPEN];
    if (o->link)
        close(o->fd);
    *o = (opened){link, *file, fd};
    return fd;
}

typedef struct mapped {
    char *memory;
    size_t bytes;
    uint64_t inode, offset; /* of the file: where the mapping begins */
    yk__rpc_loan *loan;
} mapped;

/* Mappings without a tensor, of files that are likely to be lent again: to map one anew takes longer than to forget
 * what was written there. */
static struct parked {
    const yk__rpc_link *link; /* NULL: none */
    mapped m;
} parked[PARKED];
static int next_parked;

/* With `lock`. */
static void parked_drop(struct parked *p)
{
    if (p->link)
        munmap(p->m.memory, p->m.bytes);
    p->link = NULL;
}

/* Takes the memory of a mapping like *m that is parked; false where there is none. */
static bool parked_take(const yk__rpc_loan *loan, mapped *m)
{
    pthread_mutex_lock(&lock);
    struct parked *found = NULL;
    for (int i = 0; i < PARKED && loan->link && !found; i++) {
        struct parked *p = &parked[i];
        if (p->link == loan->link && p->m.inode == m->inode && p->m.offset == m->offset && p->m.bytes == m->bytes)
            found = p;
    }
    m->memory = found ? found->m.memory : NULL;
    if (found)
        found->link = NULL;
    pthread_mutex_unlock(&lock);
    if (!found || madvise(m->memory, m->bytes, MADV_DONTNEED) == 0) /* what it shows is the file's again */
        return found;
    munmap(m->memory, m->bytes);
    return false;
}

static void mapped_release(void *context)
{
    mapped *m = context;
    pthread_mutex_lock(&lock);
    if (m->loan->link) {
        struct parked *p = &parked[next_parked++ % PARKED];
        parked_drop(p);
        *p = (struct parked){m->loan->link, *m};
    } else {
        munmap(m->memory, m->bytes);
    }
    pthread_mutex_unlock(&lock);
    loan_release(m->loan);
    free(m);
}

yk__storage *yk__loan_map(unsigned index, uint64_t offset, size_t bytes)
{
    const struct lent *file = borrower && index < borrower->count ? &borrower->files[index] : NULL;
    if (!file || offset > file->bytes || bytes > file->bytes - offset || !bytes) {
        yk__fail(YK_ERR_FORMAT, "a message with a tensor outside of its memory, which no yoke of this version sends");
        return NULL;
    }
    size_t before = offset % PAGE;
    mapped *m = yk__calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->bytes = before + bytes;
    m->inode = file->inode;
    m->offset = offset - before;
    if (!parked_take(borrower, m))
        m->memory = file->fd < 0 ? MAP_FAILED
                                 : mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file->fd,
                                        (off_t)(offset - before));
    if (m->memory == MAP_FAILED) {
        if (file->fd < 0)
            yk__fail(YK_ERR_CONNECTION, "a tensor of %zu bytes is in memory of process %d that is not there any more",
                     bytes, borrower->pid);
        else
            yk__fail_errno("a tensor of %zu bytes in shared memory cannot be mapped", bytes);
        free(m);
        return NULL;
    }
    yk__progress_count(yk__rpc.counters.received, (int64_t)bytes);
    m->loan = borrower;
    atomic_fetch_add(&borrower->references, 1);
    yk__storage *storage = yk__storage_wrap((yk_device){YK_CPU, 0}, m->memory + before, bytes, mapped_release, m);
    if (!storage)
        mapped_release(m);
    return storage;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

bool yk__loans_waiting(void)
{
    return atomic_load_explicit(&waiting, memory_order_relaxed) && atomic_exchange(&waiting, false);
}

void yk__loans_gather(bool gathers)
{
    gathering = gathers;
}

yk__rpc_link *yk__loan_next_returned(uint64_t *number)
{
    yk__rpc_link *link = NULL;
    yk__rpc_loan *found = NULL;
    pthread_mutex_lock(&lock);
    for (yk__rpc_link *l = returned_count ? yk__rpc.links : NULL; l && !found; l = l->next)
        for (yk__rpc_loan **at = &l->loans; *at; at = &(*at)->next)
            if ((*at)->returned) {
                found = *at;
                *at = found->next;
                link = l;
                *number = found->number;
                returned_count--;
                break;
            }
    pthread_mutex_unlock(&lock);
    free(found);
    return link;
}

bool yk__lent_next_forgotten(uint64_t *inode)
{
    pthread_mutex_lock(&lock);
    yk__lent_file *f = gone;
    if (f)
        gone = f->next;
    pthread_mutex_unlock(&lock);
    if (f)
        *inode = f->file.inode;
    free(f);
    return f != NULL;
}

void yk__loans_orphan(yk__rpc_link *link)
{
    pthread_mutex_lock(&lock);
    for (yk__rpc_loan *next; link->loans;) {
        yk__rpc_loan *loan = link->loans;
        next = loan->next;
        loan->link = NULL;
        returned_count -= loan->returned;
        if (loan->returned)
            free(loan);
        link->loans = next;
    }
    pthread_mutex_unlock(&lock);
    yk__loans_forget(link, 0);
}

void yk__loans_forget(yk__rpc_link *link, uint64_t inode)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PARKED; i++)
        if (parked[i].link == link && (inode == 0 || parked[i].m.inode == inode))
            parked_drop(&parked[i]);
    for (int i = 0; i < OPEN; i++)
        if (files_open[i].link == link && (inode == 0 || files_open[i].file.inode == inode)) {
            close(files_open[i].fd);
            files_open[i].link = NULL;
        }
    pthread_mutex_unlock(&lock);
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

yk_tensor *yk_rpc_alloc(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    if (!options || options->device.index < 0)
        o.device = (yk_device){YK_CPU, 0}; /* not named: this memory is the host's, whatever else tensors default to */
    if (!yk__scope_check("rpc_alloc") || yk__tensor_check("rpc_alloc", ndim, shape, &o))
        return NULL;
    if (o.device.type != YK_CPU) {
        char name[16];
        yk__fail(YK_ERR_UNSUPPORTED, "rpc_alloc: memory of %s is not shared between processes; cpu:0 is",
                 yk_device_format(o.device, name));
        return NULL;
    }
    size_t bytes = yk_dtype_size(o.dtype);
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)shape[d];
    allocated *a = yk__calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->bytes = bytes ? (bytes + PAGE - 1) & ~(size_t)(PAGE - 1) : PAGE;
    a->file = file_new(a->bytes);
    if (!a->file) {
        yk__fail_errno("rpc_alloc: %zu bytes of shared memory could not be had", bytes);
        free(a);
        return NULL;
    }
    a->memory = a->file->memory;
    a->file->memory = NULL; /* the tensor unmaps it */
    madvise(a->memory, a->bytes, MADV_HUGEPAGE);
    yk__storage *storage = yk__storage_wrap(o.device, a->memory, bytes, allocated_release, a);
    if (!storage)
        allocated_release(a);
    yk_tensor *x = yk__tensor_over(storage, ndim, shape, o.dtype);
    if (x && o.requires_grad && yk__tensor_require_grad(x)) {
        yk_tensor_release(x);
        return NULL;
    }
    return yk__scope_own(x);
}

yk__alloc_use yk__alloc_used(const yk_tensor *x)
{
    const allocated *a = allocated_of(x);
    pthread_mutex_lock(&lock);
    yk__alloc_use use = !a                        ? YK__ALLOC_FREE
                        : a->file->given_up       ? YK__ALLOC_GIVEN_UP
                        : a->file->references > 1 ? YK__ALLOC_HELD
                                                  : YK__ALLOC_FREE;
    pthread_mutex_unlock(&lock);
    return use;
}

/* A mapping of this process's own file. */
typedef struct snapshot {
    char *memory;
    size_t bytes;
    yk__lent_file *file;
} snapshot;

static void snapshot_release(void *context)
{
    snapshot *s = context;
    munmap(s->memory, s->bytes);
    pthread_mutex_lock(&lock);
    file_release(s->file);
    pthread_mutex_unlock(&lock);
    free(s);
}

yk_tensor *yk__alloc_snapshot(const yk_tensor *x)
{
    const allocated *a = allocated_of(x);
    snapshot *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    pthread_mutex_lock(&lock);
    *s = (snapshot){NULL, a->bytes, a->file};
    s->file->references++;
    pthread_mutex_unlock(&lock);
    s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, s->file->file.fd, 0);
    if (s->memory == MAP_FAILED) {
        yk__fail_errno("%zu bytes of shared memory cannot be mapped", s->bytes);
        pthread_mutex_lock(&lock);
        file_release(s->file);
        pthread_mutex_unlock(&lock);
        free(s);
        return NULL;
    }
    size_t bytes = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
    yk__storage *storage = yk__storage_wrap((yk_device){YK_CPU, 0}, s->memory, bytes, snapshot_release, s);
    if (!storage)
        snapshot_release(s);
    return yk__tensor_over(storage, x->ndim, x->shape, (yk_dtype)x->dtype);
}

yk_status yk_rpc_make_writable(yk_tensor *x)
{
    YK__LIVE(x);
    if (!yk__is_there("rpc_make_writable", "tensor", x))
        return yk__error_code();
    allocated *a = allocated_of(x);
    if (!a || yk__alloc_used(x) == YK__ALLOC_FREE)
        return YK_OK;
    yk__lent_file *fresh = file_new(a->bytes);
    bool done = fresh != NULL;
    if (done) {
        memcpy(fresh->memory, a->memory, a->bytes);
        munmap(fresh->memory, a->bytes);
        fresh->memory = NULL;
        done =
            mmap(a->memory, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fresh->file.fd, 0) != MAP_FAILED;
    }
    if (!done) {
        yk__fail_errno("rpc_make_writable: %zu bytes that other workers hold could not be copied", a->bytes);
        if (fresh) {
            close(fresh->file.fd);
            free(fresh);
        }
        return yk__error_code();
    }
    madvise(a->memory, a->bytes, MADV_HUGEPAGE);
    pthread_mutex_lock(&lock);
    file_release(a->file);
    a->file = fresh;
    pthread_mutex_unlock(&lock);
    return YK_OK;
}
