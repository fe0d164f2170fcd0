/*
 * summary.c - the writer of event files. Layer: observe.
 *
 * Who gives something makes an item and pushes it onto a list, by an exchange that nobody else can hold up; the
 * writer's thread takes the whole list, turns it round, and makes records of it. Invariants: the file ends with a whole
 * record, unless the process was killed in a write; after a failure it is not written any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <yoke/ops.h>
#include <yoke/summary.h>

#include "base/log.h"
#include "base/thread.h"
#include "observe/event_record.h"
#include "observe/module_graph.h"
#include "tensor/host_tensor.h"

enum {
    LEAST_QUEUE = 1 << 20,
    MOST_SIDE = 1 << 14 /* of an image */,
    ITEM_BYTES = 160 /* that one takes besides its data */
};

typedef enum item_kind { ITEM_SCALAR, ITEM_HISTOGRAM, ITEM_IMAGE, ITEM_TEXT, ITEM_MESSAGE, ITEM_GRAPH } item_kind;

typedef struct item {
    struct item *next;
    item_kind kind;
    double time, number;
    int64_t step;
    size_t size; /* of data */
    int height, width, channels;
    char *tag;
    void *data; /* numbers, pixels, text, or a message */
} item;

struct yk_summary_writer {
    yk__object object;
    char *path;
    int fd;
    pthread_t thread;
    double flush_seconds;
    int64_t queue_bytes;
    item *_Atomic queue;     /* the newest first */
    _Atomic int64_t waiting; /* bytes of what is queued */
    _Atomic int64_t left_out;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint64_t asked, flushed; /* flushes that were asked for, and that are done */
    bool ends;
    yk_error failed; /* of the file; code YK_OK: none */
    bool graph_given;
};

/* ---- the thread -------------------------------------------------------------------------------------------------- */
static void item_free(item *i)
{
    free(i->tag);
    free(i->data);
    free(i);
}

/* Appends the records of an item; without memory it is left out. */
static void item_record(const item *i, yk__proto *to)
{
    yk__proto event = {0}, value = {0};
    bool there = true;
    switch (i->kind) {
    case ITEM_SCALAR: yk__board_scalar(&value, i->tag, i->number); break;
    case ITEM_HISTOGRAM: there = yk__board_histogram(&value, i->tag, i->data, i->size / sizeof(float)); break;
    case ITEM_IMAGE: there = yk__board_image(&value, i->tag, i->data, i->height, i->width, i->channels); break;
    case ITEM_TEXT: yk__board_text(&value, i->tag, i->data); break;
    case ITEM_MESSAGE:
    case ITEM_GRAPH: yk__proto_raw(&value, i->data, i->size); break;
    }
    if (i->kind == ITEM_MESSAGE) {
        yk__proto content = value;
        value = (yk__proto){0};
        yk__board_hparams(&value, i->tag, &content);
    }
    if (!there) {
        free(value.data);
        return;
    }
    if (i->kind == ITEM_GRAPH)
        yk__record_graph(&event, i->time, &value);
    else
        yk__record_summary(&event, i->time, i->step, &value);
    yk__record_add(to, &event);
}

/* After a failure the file is as long as it was before. */
static void file_fail(yk_summary_writer *w, off_t whole)
{
    YK__QUESTION;
    yk__fail_errno("%s: the summaries cannot be written, and what comes is left out", w->path);
    if (ftruncate(w->fd, whole))
        errno = 0; /* a reader stops at the record that is cut */
    yk__log(YK_LOG_WARN, "%s", yk_last_error()->message);
    pthread_mutex_lock(&w->lock);
    w->failed = *yk_last_error();
    pthread_mutex_unlock(&w->lock);
}

static void file_write(yk_summary_writer *w, const yk__proto *records, off_t *whole)
{
    size_t at = 0;
    while (at < records->size) {
        ssize_t size = write(w->fd, records->data + at, records->size - at);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0) {
            file_fail(w, *whole);
            return;
        }
        at += (size_t)size;
    }
    *whole += (off_t)records->size;
}

/* Takes what is queued, the oldest first, and writes it. */
static void queue_write(yk_summary_writer *w, off_t *whole)
{
    item *taken = atomic_exchange(&w->queue, NULL), *list = NULL;
    yk__proto records = {0};
    while (taken) {
        item *next = taken->next;
        taken->next = list;
        list = taken;
        taken = next;
    }
    while (list) {
        item *next = list->next;
        if (!w->failed.code)
            item_record(list, &records);
        if (!w->failed.code && (records.size > 1 << 20 || !next)) {
            file_write(w, &records, whole);
            records.size = 0;
        }
        atomic_fetch_sub(&w->waiting, (int64_t)list->size + ITEM_BYTES);
        item_free(list);
        list = next;
    }
    free(records.data);
}

static void *writer_run(void *argument)
{
    yk_summary_writer *w = argument;
    off_t whole = lseek(w->fd, 0, SEEK_END);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        double until = yk__now() + w->flush_seconds;
        bool late = false;
        while (w->flushed == w->asked && !w->ends && !late)
            late = !yk__condition_wait(&w->changed, &w->lock, until);
        uint64_t asked = w->asked;
        bool ends = w->ends;
        pthread_mutex_unlock(&w->lock);
        queue_write(w, &whole);
        pthread_mutex_lock(&w->lock);
        w->flushed = asked;
        pthread_cond_broadcast(&w->changed);
        if (ends)
            break;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */
static void writer_destroy(void *object)
{
    yk_summary_writer *w = object;
    if (w->flush_seconds > 0) { /* the thread runs */
        pthread_mutex_lock(&w->lock);
        w->ends = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->changed);
    }
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    yk__object_free(w);
}

static const yk__type writer_type = {"summary writer", writer_destroy};

/* Makes the folder, and those around it. */
static bool folder_make(const char *dir)
{
    char *path = yk__strdup(dir);
    bool fine = path;
    for (char *slash = path ? strchr(path + 1, '/') : NULL; slash && fine; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        fine = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
    }
    fine = fine && (mkdir(path, 0777) == 0 || errno == EEXIST);
    free(path);
    return fine;
}

/* A new file; -1 and an error. */
static int file_make(const char *dir, char **path)
{
    static atomic_int number;
    char host[65] = "localhost";
    if (!folder_make(dir)) {
        yk__fail_errno("summary_create: %s", dir);
        return -1;
    }
    gethostname(host, sizeof(host) - 1);
    *path = yk__format("%s/events.out.tfevents.%010lld.%s.%d.%d", dir, (long long)time(NULL), host, (int)getpid(),
                       atomic_fetch_add(&number, 1));
    int fd = *path ? open(*path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    if (fd < 0 && *path)
        yk__fail_errno("summary_create: %s", *path);
    return fd;
}

static double time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Begins the file and the thread. */
static yk_status writer_begin(yk_summary_writer *w, const yk_summary_options *o)
{
    yk__proto event = {0}, record = {0};
    yk__record_version(&event, time_now());
    yk__record_add(&record, &event);
    bool written = !record.failed && write(w->fd, record.data, record.size) == (ssize_t)record.size;
    free(record.data);
    if (!written)
        return yk__fail_errno("summary_create: %s", w->path);
    w->queue_bytes = o->queue_bytes;
    pthread_mutex_init(&w->lock, NULL);
    yk__condition_init(&w->changed);
    w->flush_seconds = o->flush_seconds;
    if ((errno = yk__thread_create(&w->thread, writer_run, w))) {
        w->flush_seconds = 0;
        return yk__fail_errno("summary_create: no thread can be started");
    }
    return YK_OK;
}

yk_summary_writer *yk_summary_create(const char *dir, const yk_summary_options *options)
{
    YK__OWN_RECORD;
    yk_summary_options o;
    if (!yk__is_there("summary_create", "folder", dir) ||
        YK__OPTIONS_TAKE("summary_create", yk_summary_options, options, &o) ||
        yk__check_positive("summary_create", "flush_seconds", o.flush_seconds) ||
        yk__check_integer("summary_create", "queue_bytes", o.queue_bytes, LEAST_QUEUE, INT64_MAX) ||
        !yk__scope_check("summary_create"))
        return NULL;
    if (!*dir) {
        yk__fail(YK_ERR_ARGUMENT, "summary_create: the name of the folder is empty");
        return NULL;
    }
    yk_summary_writer *w = yk__object_new(&writer_type, sizeof(*w));
    if (!w)
        return NULL;
    w->fd = file_make(dir, &w->path);
    if (w->fd < 0 || writer_begin(w, &o)) {
        yk_object_release(w);
        return NULL;
    }
    return yk__scope_own(w);
}

yk_summary_writer *yk_summary_retain(yk_summary_writer *writer)
{
    return yk_object_retain(writer);
}

void yk_summary_release(yk_summary_writer *writer)
{
    yk_object_release(writer);
}

const char *yk_summary_path(const yk_summary_writer *writer)
{
    YK__LIVE(writer);
    return writer ? writer->path : NULL;
}

yk_status yk_summary_flush(yk_summary_writer *writer)
{
    YK__OWN_RECORD;
    YK__LIVE(writer);
    if (!yk__is_there("summary_flush", "writer", writer))
        return yk__error_code();
    pthread_mutex_lock(&writer->lock);
    uint64_t mine = ++writer->asked;
    pthread_cond_broadcast(&writer->changed);
    while (writer->flushed < mine)
        pthread_cond_wait(&writer->changed, &writer->lock);
    yk_error failed = writer->failed;
    pthread_mutex_unlock(&writer->lock);
    int64_t left_out = atomic_load(&writer->left_out);
    if (failed.code)
        yk__error_put(&failed);
    else if (left_out)
        yk__fail(YK_ERR_MEMORY, "%s: %lld summaries were left out, because %lld bytes waited for the disk",
                 writer->path, (long long)left_out, (long long)writer->queue_bytes);
    return yk__error_code();
}

/* ---- items ------------------------------------------------------------------------------------------------------- */
/* True if there is a writer and a tag. */
static bool call_is_right(const char *what, yk_summary_writer *w, const char *tag)
{
    if (!yk__is_there(what, "writer", w) || !yk__is_there(what, "tag", tag))
        return false;
    if (*tag)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: the tag is empty", what);
    return false;
}

/* Queues an item, whose data it takes over; what the queue has no room for is left out, which is no failure. */
static yk_status item_push(yk_summary_writer *w, const char *tag, item *of)
{
    int64_t bytes = (int64_t)of->size + ITEM_BYTES;
    item *i = NULL;
    if (atomic_fetch_add(&w->waiting, bytes) + bytes <= w->queue_bytes && (i = malloc(sizeof(*i)))) {
        *i = *of;
        i->tag = strdup(tag);
        i->time = time_now();
    }
    if (!i || !i->tag) {
        atomic_fetch_sub(&w->waiting, bytes);
        atomic_fetch_add(&w->left_out, 1);
        free(i);
        free(of->data);
        return YK_OK;
    }
    i->next = atomic_load_explicit(&w->queue, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&w->queue, &i->next, i, memory_order_release, memory_order_relaxed))
        continue;
    return YK_OK;
}

yk_status yk_summary_scalar(yk_summary_writer *writer, const char *tag, double value, int64_t step)
{
    YK__LIVE(writer);
    if (!call_is_right("summary_scalar", writer, tag))
        return yk__error_code();
    return item_push(writer, tag, &(item){.kind = ITEM_SCALAR, .number = value, .step = step});
}

yk_status yk_summary_text(yk_summary_writer *writer, const char *tag, const char *text, int64_t step)
{
    YK__LIVE(writer);
    if (!call_is_right("summary_text", writer, tag) || !yk__is_there("summary_text", "text", text))
        return yk__error_code();
    char *copy = yk__strdup(text), *name = copy ? yk__format("%s/text_summary", tag) : NULL;
    yk_status status =
        name ? item_push(writer, name, &(item){.kind = ITEM_TEXT, .step = step, .data = copy, .size = strlen(text)})
             : yk__error_code();
    if (!name)
        free(copy);
    free(name);
    return status;
}

/* The elements of x in C order, in the host's memory; floats, or as they are where `bytes`. NULL and an error. */
static void *elements_copy(yk_tensor *x, bool bytes, size_t *size)
{
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_tensor *plain = yk_to(x, (yk_device){.type = YK_CPU});
    plain = bytes ? plain : yk_cast(plain, YK_F32);
    plain = yk_contiguous(plain);
    *size = plain ? (size_t)yk_numel(plain) * (bytes ? 1 : sizeof(float)) : 0;
    void *copy = plain ? yk__calloc(*size + 1, 1) : NULL;
    if (copy && *size)
        memcpy(copy, yk_tensor_data(plain), *size);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    return copy;
}

yk_status yk_summary_histogram(yk_summary_writer *writer, const char *tag, yk_tensor *x, int64_t step)
{
    YK__OWN_RECORD;
    YK__LIVE(writer);
    YK__LIVE(x);
    if (!call_is_right("summary_histogram", writer, tag) || !yk__is_there("summary_histogram", "tensor", x))
        return yk__error_code();
    item of = {.kind = ITEM_HISTOGRAM, .step = step};
    of.data = elements_copy(x, false, &of.size);
    return of.data ? item_push(writer, tag, &of) : yk__error_code();
}

/* Pixels (H, W, C) of elements (C, H, W). */
static unsigned char *pixels_of(const void *elements, bool bytes, int channels, int64_t pixels)
{
    unsigned char *out = yk__calloc((size_t)pixels + 1, (size_t)channels);
    for (int64_t p = 0; out && p < pixels; p++) {
        for (int c = 0; c < channels; c++) {
            int64_t from = c * pixels + p;
            double x = bytes ? ((const unsigned char *)elements)[from] : 255.0 * ((const float *)elements)[from];
            out[p * channels + c] = (unsigned char)(x > 0 ? (x < 255 ? x : 255) : 0); /* NaN is 0 */
        }
    }
    return out;
}

yk_status yk_summary_image(yk_summary_writer *writer, const char *tag, yk_tensor *x, int64_t step)
{
    YK__OWN_RECORD;
    YK__LIVE(writer);
    YK__LIVE(x);
    if (!call_is_right("summary_image", writer, tag) || !yk__is_there("summary_image", "tensor", x))
        return yk__error_code();
    char text[200];
    int64_t channels = x->ndim == 3 ? x->shape[0] : 0;
    bool bytes = x->dtype == YK_U8;
    if ((channels != 1 && channels != 3 && channels != 4) || x->shape[1] < 1 || x->shape[2] < 1 ||
        x->shape[1] > MOST_SIDE || x->shape[2] > MOST_SIDE)
        return yk__fail(
            YK_ERR_SHAPE,
            "summary_image: x has shape %s, expected (C, H, W) with 1, 3 or 4 channels, and sides of 1 to %d",
            yk_shape_format(x, text, sizeof(text)), MOST_SIDE);
    if (!bytes && !yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk__fail(YK_ERR_DTYPE, "summary_image: x is %s, expected uint8, or floating in [0, 1]",
                        yk_dtype_name((yk_dtype)x->dtype));
    size_t size;
    void *elements = elements_copy(x, bytes, &size);
    unsigned char *pixels = elements ? pixels_of(elements, bytes, (int)channels, x->shape[1] * x->shape[2]) : NULL;
    free(elements);
    if (!pixels)
        return yk__error_code();
    return item_push(writer, tag,
                     &(item){.kind = ITEM_IMAGE,
                             .step = step,
                             .data = pixels,
                             .size = (size_t)x->numel,
                             .height = (int)x->shape[1],
                             .width = (int)x->shape[2],
                             .channels = (int)channels});
}

/* ---- hyperparameters, modules ------------------------------------------------------------------------------------ */
static yk_status message_push(yk_summary_writer *w, const char *tag, item_kind kind, yk__proto *message)
{
    if (!message->failed)
        return item_push(w, tag, &(item){.kind = kind, .data = message->data, .size = message->size});
    free(message->data);
    return yk__fail_memory(message->room);
}

/* HParamsPluginData with one of its messages. */
static yk_status hparams_push(yk_summary_writer *w, const char *tag, int field, yk__proto *inner)
{
    yk__proto message = {0};
    yk__proto_message(&message, field, inner);
    return message_push(w, tag, ITEM_MESSAGE, &message);
}

yk_status yk_summary_hparams(yk_summary_writer *writer, const yk_summary_hparam *hparams, int count,
                             const char *const *metrics, int metric_count)
{
    enum { TEXT = 1, FLOAT64 = 3, SUCCESS = 1 };
    YK__OWN_RECORD;
    YK__LIVE(writer);
    if (!yk__is_there("summary_hparams", "writer", writer) ||
        (count > 0 && !yk__is_there("summary_hparams", "array of hyperparameters", hparams)) ||
        (metric_count > 0 && !yk__is_there("summary_hparams", "array of metrics", metrics)))
        return yk__error_code();
    yk__proto experiment = {0}, begin = {0}, end = {0}, inner = {0}, name = {0};
    for (int i = 0; i < count; i++) {
        if (!hparams[i].name || !*hparams[i].name) {
            free(experiment.data);
            free(begin.data);
            return yk__fail(YK_ERR_ARGUMENT, "summary_hparams: hyperparameter %d has no name", i);
        }
        yk__proto_text(&inner, 1, hparams[i].name);
        yk__proto_int(&inner, 4, hparams[i].text ? TEXT : FLOAT64);
        yk__proto_message(&experiment, 4, &inner);
        if (hparams[i].text)
            yk__proto_text(&name, 3, hparams[i].text);
        else
            yk__proto_double(&name, 2, hparams[i].number);
        yk__proto_text(&inner, 1, hparams[i].name);
        yk__proto_message(&inner, 2, &name);
        yk__proto_message(&begin, 1, &inner);
    }
    for (int i = 0; i < metric_count; i++) {
        yk__proto_text(&name, 2, metrics[i] ? metrics[i] : "");
        yk__proto_message(&inner, 1, &name);
        yk__proto_message(&experiment, 5, &inner);
    }
    yk__proto_double(&begin, 5, time_now());
    yk__proto_int(&end, 1, SUCCESS);
    yk_status status = hparams_push(writer, "_hparams_/experiment", 2, &experiment);
    yk_status begun = hparams_push(writer, "_hparams_/session_start_info", 3, &begin);
    yk_status ended = hparams_push(writer, "_hparams_/session_end_info", 4, &end);
    return status ? status : begun ? begun : ended;
}

yk_status yk_summary_graph(yk_summary_writer *writer, yk_module *model, yk_tensor *const *inputs, int n_inputs)
{
    YK__OWN_RECORD;
    YK__LIVE(writer);
    YK__LIVE(model);
    if (!yk__is_there("summary_graph", "writer", writer) || !yk__is_there("summary_graph", "module", model))
        return yk__error_code();
    if (n_inputs < 0 || n_inputs > YK__GRAPH_INPUTS || (n_inputs && !inputs))
        return yk__fail(YK_ERR_ARGUMENT, "summary_graph: %d inputs%s, expected 0 to %d", n_inputs,
                        n_inputs && !inputs ? " at NULL" : "", YK__GRAPH_INPUTS);
    for (int i = 0; i < n_inputs; i++) {
        yk_tensor *x = inputs[i];
        YK__LIVE(x);
        if (!yk__is_there("summary_graph", "input", x))
            return yk__error_code();
    }
    pthread_mutex_lock(&writer->lock);
    bool again = writer->graph_given;
    writer->graph_given = true;
    pthread_mutex_unlock(&writer->lock);
    if (again)
        return yk__fail(YK_ERR_STATE, "summary_graph: %s has a graph already, and TensorBoard shows one", writer->path);
    yk__proto graph = {0}, version = {0};
    yk_scope scope = yk_scope_begin();
    yk_status status = yk__module_graph(model, inputs, n_inputs, &graph);
    yk_scope_end(scope);
    if (status) {
        free(graph.data);
        yk__error_prefix("summary_graph");
        return status;
    }
    yk__proto_int(&version, 1, 22); /* the producer of graphs that TensorBoard has read since TensorFlow 1 */
    yk__proto_message(&graph, 4, &version);
    return yk__error_code() ? yk__error_code() : message_push(writer, "graph", ITEM_GRAPH, &graph);
}
