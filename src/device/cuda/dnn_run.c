/*
 * dnn_run.c - choosing the plan of cuDNN's that computes a form of convolution, and carrying it out.
 * Layer: device/cuda.
 *
 * A form's plan is chosen when it first comes, and kept for good: the first that the heuristics propose, or, where the
 * user asked for it (yk_use_benchmark), the fastest of the first MOST_TIMED by the GPU's own clock, at most MOST_OF_ONE
 * of an engine. One that the library made and then says not to support, or that fails while the GPU is well, gives way
 * to the next; a form without a plan is our own kernel's.
 *
 * Note [Plans with ReLU]
 * cuDNN has no promise that a fused ReLU keeps NaN: the numerical note of engines that do (STRICT_NAN_PROP) is on none
 * of the fast ones. So each such plan is carried out once with a bias of NaN and infinities (nan_trial.c) before it is
 * taken, and the next one is tried where that comes out wrong. The heuristics propose one engine many times, with other
 * settings (with cuDNN 9.19 up to 32 times before any other), and what NaN becomes is the engine's doing: so after one
 * that failed all its plans are left out, for all forms of that dtype on the device. A form of which none passes is
 * computed without ReLU, and ReLU after it.
 *
 * Trials wait for the GPU, so there are none while the stream is captured: then a form that was not seen before gets
 * the heuristics' plan, or none with ReLU.
 *
 * A device's handle and plans are used by one thread at a time, under its lock; devices do not wait for one another.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/cuda/dnn_plan.h"

#ifdef HAS_DNN

/* BUCKETS: of a device's table of plans. MOST_TIMED: PyTorch's benchmark_limit. MOST_OF_ONE: of them, of one engine.
 * RUNS: that are timed of one plan. PACKS: sets of pointers that are kept of a form. MOST_ATTENDED: forms of attention
 * that are computed so: the library compiles each, which takes half a second, and sequences may come in any length.
 * REFUSED: plans that were given up while a step was recorded, at most. */
enum {
    MOST_DEVICES = 64,
    BUCKETS = 128,
    MOST_TIMED = 10,
    MOST_OF_ONE = 3,
    RUNS = 3,
    PACKS = 8,
    MOST_ATTENDED = 128,
    REFUSED = 64
};

/* Pointers as the library takes them, by the ids of dnn_plan.h: steps that are repeated bring the same ones. */
typedef struct pack {
    void *memory[DNN_TENSORS], *workspace;
    cudnnBackendDescriptor_t made;
} pack;

/* A form and its plan; without one (plan.plan is NULL) the form is not the library's. */
typedef struct entry {
    dnn_form of;
    dnn_plan plan;
    pack packs[PACKS];
    int next_pack; /* to be replaced */
    struct entry *next;
} entry;

typedef struct device_state {
    pthread_mutex_t lock;
    cudnnHandle_t handle;
    cudaStream_t stream;                 /* the handle's */
    dnn_engines swallow_nan[YK__DTYPES]; /* engines whose ReLU does not keep NaN */
    entry *entries[BUCKETS];
    int attended; /* forms of attention that have an entry */
    cudnnBackendDescriptor_t refused[REFUSED];
    int refusals; /* plans in `refused` */
} device_state;

static device_state devices[MOST_DEVICES] = {[0 ... MOST_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* A call of the library: the form, the memory, the device and the stream. */
typedef struct job {
    device_state *state;
    int device;
    cudaStream_t stream;
    void *memory[DNN_TENSORS]; /* NULL: the graph has no such tensor, or its value is the form's */
} job;

static bool is_short_of_memory(cudnnStatus_t code)
{
    return code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

static yk_status failed(int device, cudnnStatus_t code, const char *call)
{
    char last[300] = "";
    dnn.last_error(last, sizeof(last));
    return cuda_fail(
        is_short_of_memory(code) ? YK_ERR_MEMORY : YK_ERR_DEVICE,
        "cuda:%d: %s: %s (%d): %s; where it cannot start, the GPU's memory may be full, of this process or "
        "of another: yoke doctor says which",
        device, call, dnn.error_string(code), (int)code, last);
}

static entry **bucket_of(device_state *state, const dnn_form *f)
{
    return &state->entries[(yk__hash(YK__HASH_BASIS, f, sizeof(*f)) >> 32) % BUCKETS];
}

static entry *entry_find(device_state *state, const dnn_form *f)
{
    entry *e = *bucket_of(state, f);
    while (e && memcmp(&e->of, f, sizeof(*f)) != 0)
        e = e->next;
    return e;
}

/* ---- carrying a plan out ---- */

/* The pointers that a graph has, and to its values, which the library reads when the plan is queued. */
static int64_t pointers_of(const dnn_form *f, void *const memory[DNN_TENSORS], int64_t *ids, const void **pointers)
{
    static const float minus_infinity = -INFINITY, one = 1;
    const void *values[DNN_TENSORS] = {NULL};
    int64_t count = 0;
    if (dnn_is_attention(f)) {
        values[DNN_SCALE - 1] = &f->attention.scale;
        values[DNN_MINUS_INFINITY - 1] = f->attention.causal ? &minus_infinity : NULL;
        values[DNN_ONE - 1] = f->work == CUDA_ATTENTION_BACKWARD ? &one : NULL;
    }
    for (int i = 0; i < DNN_TENSORS; i++)
        if (memory[i] || values[i])
            ids[count] = i + 1, pointers[count++] = memory[i] ? memory[i] : values[i];
    return count;
}

/* Makes the library's description of the pointers; `f` is an entry's: its values stay where they are as long as the
 * pack. */
static cudnnStatus_t pack_make(pack *p, const dnn_form *f, void *const memory[DNN_TENSORS], void *workspace)
{
    int64_t ids[DNN_TENSORS];
    const void *pointers[DNN_TENSORS];
    int64_t count = pointers_of(f, memory, ids, pointers);
    cudnnStatus_t code = dnn.descriptor_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->made);
    if (code) {
        p->made = NULL;
        return code;
    }
    code = dnn.attribute_set(p->made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (!code)
        code = dnn.attribute_set(p->made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    if (!code)
        code = dnn.attribute_set(p->made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!code)
        code = dnn.finalize(p->made);
    if (code) {
        dnn.descriptor_destroy(p->made);
        p->made = NULL;
        return code;
    }
    memcpy(p->memory, memory, sizeof(p->memory));
    p->workspace = workspace;
    return code;
}

/* The library's description of these pointers: one that is kept, or a new one in place of the oldest. */
static cudnnStatus_t pack_of(entry *e, void *const memory[DNN_TENSORS], void *workspace,
                             cudnnBackendDescriptor_t *found)
{
    for (int i = 0; i < PACKS; i++) {
        const pack *p = &e->packs[i];
        if (p->made && p->workspace == workspace && memcmp(p->memory, memory, sizeof(p->memory)) == 0) {
            *found = p->made;
            return CUDNN_STATUS_SUCCESS;
        }
    }
    pack *p = &e->packs[e->next_pack];
    e->next_pack = (e->next_pack + 1) % PACKS;
    if (p->made)
        dnn.descriptor_destroy(p->made);
    cudnnStatus_t code = pack_make(p, &e->of, memory, workspace);
    *found = p->made;
    return code;
}

/* Queues the plan; *code is the library's answer. */
static yk_status execute(entry *e, const dnn_plan *p, const job *j, cudnnStatus_t *code)
{
    yk__storage *memory = NULL;
    cudnnBackendDescriptor_t pointers;
    void *workspace = p->workspace ? cuda_workspace(j->device, p->workspace, &memory) : NULL;
    if (p->workspace && !workspace)
        return YK_ERR_MEMORY;
    *code = pack_of(e, j->memory, workspace, &pointers);
    if (!*code)
        *code = dnn.execute(j->state->handle, p->plan, pointers);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return YK_OK;
}

/* True if a plan that answered with this code may be replaced by the next: one engine's failure is not the step's. */
static bool gives_way(const job *j, const dnn_plan *p, cudnnStatus_t code)
{
    char call[100];
    int category = CUDNN_STATUS_CATEGORY(code);
    if (category == CUDNN_STATUS_NOT_SUPPORTED)
        return true;
    if ((category != CUDNN_STATUS_INTERNAL_ERROR || is_short_of_memory(code)) &&
        category != CUDNN_STATUS_EXECUTION_FAILED)
        return false;
    snprintf(call, sizeof(call), "cudnnBackendExecute, engine %lld", (long long)p->engine);
    return cuda_note_replaced(j->device, j->stream, call, (int)code, dnn.error_string(code));
}

/* ---- trials ---- */

/* Keeps the stream while the runs are queued: short ones would be timed as fast as the host queues them. */
static void hold(void *unused)
{
    enum { MICROSECONDS = 300 };
    (void)unused;
    usleep(MICROSECONDS);
}

/* Milliseconds of one run, the mean of RUNS after one that is not timed. */
static yk_status time_of(entry *e, const dnn_plan *p, const job *j, cudnnStatus_t *code, float *milliseconds)
{
    cudaEvent_t begin = NULL, end = NULL;
    const char *call = "cudaEventCreateWithFlags";
    cudaError_t error = cudaEventCreateWithFlags(&begin, cudaEventDefault);
    if (!error)
        error = cudaEventCreateWithFlags(&end, cudaEventDefault);
    yk_status status = error ? YK_OK : execute(e, p, j, code);
    if (!error && !status && !*code) {
        call = "cudaLaunchHostFunc";
        error = cudaLaunchHostFunc(j->stream, hold, NULL);
        if (!error) {
            call = "cudaEventRecord";
            error = cudaEventRecord(begin, j->stream);
        }
        for (int i = 0; i < RUNS && !error && !status && !*code; i++)
            status = execute(e, p, j, code);
        if (!error)
            error = cudaEventRecord(end, j->stream);
        if (!error) {
            call = "cudaEventSynchronize";
            error = cudaEventSynchronize(end);
        }
        if (!error)
            error = cudaEventElapsedTime(milliseconds, begin, end);
    }
    if (begin)
        (void)cudaEventDestroy(begin);
    if (end)
        (void)cudaEventDestroy(end);
    return error ? cuda_failed(j->device, error, call) : status;
}

/* Finds out whether the plan keeps NaN: Note [Plans with ReLU]. A refusal is in *code. Writes out. */
static yk_status keeps_nan(entry *e, const dnn_plan *p, const job *j, cudnnStatus_t *code, bool *good)
{
    const int64_t *shape = e->of.out;
    yk_dtype dtype = (yk_dtype)e->of.dtype;
    yk__storage *memory = NULL;
    *good = true;
    if (!e->of.relu)
        return YK_OK;
    job trial = *j;
    trial.memory[DNN_BIAS - 1] = cuda_workspace(j->device, (size_t)shape[1] * yk__size_of(dtype), &memory);
    if (!trial.memory[DNN_BIAS - 1])
        return YK_ERR_MEMORY;
    yk_status status = cuda_nan_trial_bias(j->device, j->stream, dtype, trial.memory[DNN_BIAS - 1], shape[1]);
    if (!status)
        status = execute(e, p, &trial, code);
    if (!status && !*code)
        status = cuda_nan_trial_passed(j->device, j->stream, dtype, j->memory[DNN_OUT - 1],
                                       shape[0] * shape[1] * shape[2] * shape[3], e->of.last ? 1 : shape[2] * shape[3],
                                       shape[1], good);
    cuda_yoke->storage_release(memory);
    return status;
}

/* ---- choosing ---- */

/* The first plan, from candidate `from` on, of an engine that is not in `without`, that keeps NaN where the form has
 * ReLU; *p has none where there is none. */
static yk_status next_plan(entry *e, const job *j, int64_t from, const dnn_engines *without, dnn_plan *p, char *why)
{
    dnn_engines left_out = *without, *swallow = &j->state->swallow_nan[e->of.dtype];
    for (int i = 0; i < DNN_ENGINES / 64 && e->of.relu; i++)
        left_out.bits[i] |= swallow->bits[i];
    for (int tried = 0; tried < MOST_TIMED; tried++) {
        cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
        bool good = true;
        if (!dnn_plan_make(&e->of, j->state->handle, NULL, from, &left_out, p, why))
            return YK_OK;
        yk_status status = keeps_nan(e, p, j, &code, &good);
        bool short_of_memory = status == YK_ERR_MEMORY; /* for the workspace of the trial: another may do with less */
        if (short_of_memory) {
            yk_error ignored;
            cuda_base->error_take(&ignored);
            snprintf(why, DNN_WHY, "there is no memory to try engine %lld", (long long)p->engine);
            status = YK_OK;
        }
        if (!status && code && !gives_way(j, p, code))
            status = failed(j->device, code, "cudnnBackendExecute");
        if (!status && good && !code && !short_of_memory)
            return YK_OK;
        if (!good) {
            snprintf(why, DNN_WHY, "engine %lld does not keep NaN and infinities", (long long)p->engine);
            dnn_engines_add(swallow, p->engine);
        }
        dnn_engines_add(&left_out, p->engine); /* also where it was refused or failed: others come first */
        from = p->candidate + 1;
        dnn.descriptor_destroy(p->plan);
        *p = (dnn_plan){.plan = NULL};
        if (status)
            return status;
    }
    return YK_OK;
}

/* The fastest of the first plans. One whose workspace there is no memory for is left out. */
static yk_status fastest_plan(entry *e, const job *j, dnn_plan *best, char *why)
{
    float least = INFINITY;
    int64_t from = 0;
    int of_engine[DNN_ENGINES] = {0};
    dnn_engines without = {{0}};
    *best = (dnn_plan){.plan = NULL};
    for (int timed = 0; timed < MOST_TIMED; timed++) {
        dnn_plan p;
        float taken = INFINITY;
        cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
        yk_status status = next_plan(e, j, from, &without, &p, why);
        if (!status && !p.plan)
            break;
        from = p.candidate + 1;
        if (p.engine >= 0 && p.engine < DNN_ENGINES && ++of_engine[p.engine] == MOST_OF_ONE)
            dnn_engines_add(&without, p.engine);
        if (!status)
            status = time_of(e, &p, j, &code, &taken);
        bool short_of_memory = status == YK_ERR_MEMORY;
        if (short_of_memory) {
            yk_error ignored;
            cuda_base->error_take(&ignored);
            status = YK_OK;
        }
        if (!status && code && !gives_way(j, &p, code))
            status = failed(j->device, code, "cudnnBackendExecute");
        bool better = !status && !code && !short_of_memory && taken < least;
        cudnnBackendDescriptor_t unused = better ? best->plan : p.plan;
        if (better)
            *best = p, least = taken;
        if (unused)
            dnn.descriptor_destroy(unused);
        if (status)
            return status;
    }
    cuda_count_timed();
    return YK_OK;
}

/* Writes the form as text, for reports and warnings. */
static void describe(const dnn_form *f, char *text, size_t size)
{
    const char *work = cuda_work_names[f->work];
    const dnn_attention *a = &f->attention;
    if (dnn_is_attention(f))
        snprintf(text, size, "%s of (%lld,%lld,%lld,%lld) to %lld keys of %lld values, of %s%s%s", work,
                 (long long)a->batch, (long long)a->heads, (long long)a->queries, (long long)a->width,
                 (long long)a->keys, (long long)a->values, cuda_yoke->dtype_name((yk_dtype)f->dtype),
                 a->causal ? ", causal" : "", f->deterministic ? ", deterministic" : "");
    else
        snprintf(text, size,
                 "%s of (%lld,%lld,%lld,%lld) by (%lld,%lld,%lld,%lld), stride %lld x %lld, of %s%s%s, channels %s",
                 work, (long long)f->x[0], (long long)f->x[1], (long long)f->x[2], (long long)f->x[3],
                 (long long)f->w[0], (long long)f->w[1], (long long)f->w[2], (long long)f->w[3],
                 (long long)f->stride[0], (long long)f->stride[1], cuda_yoke->dtype_name((yk_dtype)f->dtype),
                 f->tf32 ? " as TF32" : "",
                 f->relu   ? " with bias and ReLU"
                 : f->bias ? " with a bias"
                           : "",
                 f->last ? "last" : "first");
}

/* Logs the engine that computes the form, for reports of what a GPU did, and how. */
static void say_chosen(const job *j, const entry *e)
{
    char text[300];
    const dnn_plan *p = &e->plan;
    describe(&e->of, text, sizeof(text));
    cuda_base->debug("cuda:%d: cuDNN: %s: engine %lld%s, %zu bytes of workspace, candidate %lld", j->device, text,
                     (long long)p->engine, p->tensor_cores ? " with tensor cores" : "", p->workspace,
                     (long long)p->candidate);
}

static void say_refused(const job *j, const entry *e, const char *why)
{
    char text[300];
    describe(&e->of, text, sizeof(text));
    cuda_base->warn("cuda:%d: cuDNN makes no plan of %s%s: %s", j->device, text,
                    e->of.relu ? ", so ReLU is computed apart" : "", why);
}

static yk_status first_plan(entry *e, const job *j, char *why)
{
    yk_status status = e->of.benchmark ? fastest_plan(e, j, &e->plan, why) : YK_OK;
    if (!status && !e->plan.plan) /* or none could be timed */
        status = next_plan(e, j, 0, &(dnn_engines){{0}}, &e->plan, why);
    return status;
}

/* Makes the form's entry, with the plan that is to compute it, in the mode in which a recording allows what the library
 * may do then: load kernels, allocate. */
static yk_status choose(const dnn_form *f, const job *j, entry **made)
{
    char why[DNN_WHY] = "";
    entry *e = cuda_base->allocate(1, sizeof(*e));
    if (!e)
        return YK_ERR_MEMORY;
    e->of = *f;
    enum cudaStreamCaptureMode before = cuda_relaxed_begin();
    yk_status status = first_plan(e, j, why);
    cuda_relaxed_end(before);
    if (status) {
        for (int i = 0; i < PACKS; i++)
            if (e->packs[i].made)
                dnn.descriptor_destroy(e->packs[i].made);
        free(e);
        return status;
    }
    if (!e->plan.plan)
        say_refused(j, e, why);
    else
        say_chosen(j, e);
    entry **bucket = bucket_of(j->state, f);
    e->next = *bucket;
    *made = *bucket = e;
    return YK_OK;
}

/* Counts one more form of attention; false where there is no room for it, of which the first is logged. */
static bool attention_admit(device_state *state, int device)
{
    bool room = state->attended < MOST_ATTENDED;
    if (state->attended == MOST_ATTENDED)
        cuda_base->warn("cuda:%d: attention came in %d forms, for each of which cuDNN compiled a kernel: others are "
                        "computed by matrix products, more slowly",
                        device, MOST_ATTENDED);
    if (state->attended <= MOST_ATTENDED)
        state->attended++;
    return room;
}

/* The entry of the form; NULL where there is none, and none can be made while the stream is captured, or of attention
 * there are enough. */
static yk_status entry_of(const dnn_form *f, const job *j, entry **found)
{
    *found = entry_find(j->state, f);
    if (!*found && dnn_is_attention(f) && !attention_admit(j->state, j->device))
        return YK_OK;
    if (*found || (!f->benchmark && !f->relu))
        return *found ? YK_OK : choose(f, j, found);
    if (!cuda_is_captured(j->stream))
        return choose(f, j, found);
    if (f->relu)
        return YK_OK;
    dnn_form plain = *f;
    plain.benchmark = 0;
    *found = entry_find(j->state, &plain);
    return *found ? YK_OK : choose(&plain, j, found);
}

/* The library's own memory is not the cache's: where there is none for it, cached memory goes back. */
static cudnnStatus_t create_handle(const job *j)
{
    cudnnStatus_t code = dnn.create(&j->state->handle);
    if (!is_short_of_memory(code) && code != CUDNN_STATUS_NOT_INITIALIZED)
        return code;
    cuda_yoke->empty_cache((yk_device){YK_CUDA, j->device});
    return dnn.create(&j->state->handle);
}

/* Makes the device's handle, if there is none, and puts it on the stream. */
static yk_status get_ready(const job *j)
{
    device_state *s = j->state;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (!s->handle) {
        enum cudaStreamCaptureMode before = cuda_relaxed_begin();
        code = create_handle(j);
        cuda_relaxed_end(before);
        if (code) {
            s->handle = NULL;
            return failed(j->device, code, "cudnnCreate");
        }
        s->stream = NULL;
    }
    if (s->stream == j->stream)
        return YK_OK;
    code = dnn.set_stream(s->handle, j->stream);
    s->stream = code ? NULL : j->stream;
    return code ? failed(j->device, code, "cudnnSetStream") : YK_OK;
}

/* Destroys the plans that were given up; not in a recording, which would end when a plan's kernel is unloaded: plans
 * that were given up in one are destroyed by the first call after it. */
static void destroy_refused(device_state *s)
{
    while (s->refusals)
        dnn.descriptor_destroy(s->refused[--s->refusals]);
}

static void give_up_plan(const job *j, cudnnBackendDescriptor_t plan)
{
    device_state *s = j->state;
    if (s->refusals < REFUSED && cuda_is_captured(j->stream))
        s->refused[s->refusals++] = plan;
    else
        dnn.descriptor_destroy(plan);
}

static yk_status form_run(const dnn_form *f, const job *j, bool *taken)
{
    entry *e = NULL;
    char why[DNN_WHY];
    if (j->state->refusals && !cuda_is_captured(j->stream))
        destroy_refused(j->state);
    yk_status status = get_ready(j);
    if (!status)
        status = entry_of(f, j, &e);
    while (!status && e && e->plan.plan) {
        cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
        status = execute(e, &e->plan, j, &code);
        *taken = !status && code == CUDNN_STATUS_SUCCESS;
        if (status || *taken)
            return status;
        if (!gives_way(j, &e->plan, code))
            return failed(j->device, code, "cudnnBackendExecute");
        int64_t refused = e->plan.candidate;
        give_up_plan(j, e->plan.plan);
        e->plan.plan = NULL;
        if (!e->of.relu) {
            enum cudaStreamCaptureMode before = cuda_relaxed_begin();
            bool made = dnn_plan_make(&e->of, j->state->handle, NULL, refused + 1, NULL, &e->plan, why);
            cuda_relaxed_end(before);
            if (made)
                say_chosen(j, e);
        }
    }
    return status;
}

yk_status dnn_run(const dnn_form *f, cudaStream_t stream, void *const memory[DNN_TENSORS], bool *taken)
{
    job j = {.state = &devices[f->device], .device = (int)f->device, .stream = stream};
    memcpy(j.memory, memory, sizeof(j.memory));
    pthread_mutex_lock(&j.state->lock);
    yk_status status = form_run(f, &j, taken);
    pthread_mutex_unlock(&j.state->lock);
    return status;
}

#endif
