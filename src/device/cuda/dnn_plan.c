/*
 * dnn_plan.c - see dnn_plan.h. Layer: device/cuda.
 *
 * The library's heuristics name engines and their settings for a graph, the fastest first by their estimate; the first
 * is taken that the form allows (deterministic, no factor rounded to fewer bits than it may be, sums in f32) and whose
 * plan is made within the workspace. Source: cuDNN's backend API, "Graph API".
 *
 * Note [Tensor cores come first]
 * For some forms cuDNN 9.19 puts engines without tensor cores first: for the 1x1 convolution with stride 2 from 64 to
 * 128 channels in ResNet-18, halves in batches of 512, one that brings its operands to another order of channels, in
 * 100 MB of workspace. Another of its modes, and cuDNN 9.26, have one with tensor cores there, which takes them as they
 * lie. So where tensor cores take the operands, engines that do not use them are passed over for one that does, but not
 * for one whose workspace has room for a copy of an operand: such stay where the heuristics put them.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/dnn_graph.h"

#ifdef HAS_DNN

/* MOST_PROPOSALS: of one mode of the heuristics. MOST_NOTES: of an engine; a library that is newer than the headers has
 * kinds that these do not count. */
enum { MOST_PROPOSALS = 100, MOST_NOTES = 64 };
/* Bytes: a plan that wants more is not taken. */
static const int64_t MOST_WORKSPACE = (int64_t)1 << 30;

dnn_functions dnn;
static char opened[CUDA_WHY];
static bool there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    const cuda_symbol symbols[] = {
        {"cudnnGetVersion", (void **)&dnn.version},
        {"cudnnGetErrorString", (void **)&dnn.error_string},
        {"cudnnGetLastErrorString", (void **)&dnn.last_error},
        {"cudnnCreate", (void **)&dnn.create},
        {"cudnnSetStream", (void **)&dnn.set_stream},
        {"cudnnBackendCreateDescriptor", (void **)&dnn.descriptor_create},
        {"cudnnBackendDestroyDescriptor", (void **)&dnn.descriptor_destroy},
        {"cudnnBackendSetAttribute", (void **)&dnn.attribute_set},
        {"cudnnBackendGetAttribute", (void **)&dnn.attribute_get},
        {"cudnnBackendFinalize", (void **)&dnn.finalize},
        {"cudnnBackendExecute", (void **)&dnn.execute},
    };
    there = cuda_library_open("libcudnn.so.9", symbols, sizeof(symbols) / sizeof(symbols[0]), opened);
    if (there)
        snprintf(opened, sizeof(opened), "cuDNN %zu", dnn.version());
}

bool dnn_open(void)
{
    pthread_once(&once, open_library);
    return there;
}

const char *cuda_dnn_described(void)
{
    dnn_open();
    return opened;
}

/* ---- engines ---- */
/* True if the engine of a proposal, whose number and use of tensor cores go to *p, computes as the form allows. The
 * library's engine REFERENCE takes any graph, slowly: with ReLU apart another one may take the rest. */
static bool allowed(const dnn_form *f, cudnnBackendDescriptor_t proposal, dnn_plan *p)
{
    enum { REFERENCE = 0 };
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    bool half = f->dtype == YK_F16 || f->dtype == YK_BF16;
    cudnnStatus_t code = dnn.descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (code)
        return false;
    code = dnn.attribute_get(proposal, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (!code)
        code = dnn.attribute_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &p->engine);
    if (!code)
        code = dnn.attribute_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES,
                                 &count, notes);
    dnn.descriptor_destroy(engine);
    bool good = !code && !(f->relu && p->engine == REFERENCE);
    p->tensor_cores = false;
    if (count > MOST_NOTES) /* the count is of the notes that it has: MOST_NOTES were written */
        count = MOST_NOTES;
    for (int64_t i = 0; i < count && good; i++)
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: good = !f->deterministic; break;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: good = half; break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            good = half || f->tf32;
            p->tensor_cores = true;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: good = false; break;
        default: break;
        }
    return good;
}

/* The plan of a proposal; NULL where the library does not make it, or it wants more than `most` bytes of workspace. */
static cudnnBackendDescriptor_t plan_of(cudnnBackendDescriptor_t proposal, cudnnHandle_t handle, int64_t most,
                                        int64_t *workspace, cudnnStatus_t *code)
{
    cudnnBackendDescriptor_t made = NULL;
    int64_t count = 0;
    *code = dnn.descriptor_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made);
    if (*code)
        return NULL;
    if (handle)
        *code = dnn.attribute_set(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    if (!*code)
        *code = dnn.attribute_set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &proposal);
    if (!*code)
        *code = dnn.finalize(made);
    if (!*code)
        *code =
            dnn.attribute_get(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, workspace);
    if (!*code && *workspace >= 0 && *workspace <= most)
        return made;
    dnn.descriptor_destroy(made);
    return NULL;
}

/* The count of proposals that were tried, and of the reasons why they gave no plan. */
typedef struct tally {
    int64_t proposed, forbidden, left_out /* in the set `without` */, refused;
    cudnnStatus_t code; /* of the last that was refused */
} tally;

/* The first of two rounds, where there are two: Note [Tensor cores come first]. */
typedef struct preference {
    bool wanted, passed; /* tensor cores; an engine without them was passed over */
    int64_t most;        /* bytes of workspace, of an engine that others are passed over for */
} preference;

static preference preference_of(const dnn_form *f)
{
    enum { CHANNELS = 8, BYTES = 16 }; /* of which there must be a multiple */
    if (dnn_is_attention(f))
        return (preference){.wanted = false};
    bool half = f->dtype == YK_F16 || f->dtype == YK_BF16, aligned = true;
    int64_t x = half ? 2 : 4, out = x; /* bytes */
    for (int d = 0; d < 4; d++)
        x *= f->x[d], out *= f->out[d];
    for (int i = 0; i < 3; i++)
        aligned = aligned && f->alignment[i] >= BYTES;
    return (preference){.wanted = (half || f->tf32) && f->last && aligned && f->x[1] == f->w[1] &&
                                  f->x[1] % CHANNELS == 0 && f->w[0] % CHANNELS == 0,
                        .most = (x < out ? x : out) - 1};
}

/* Tries what one mode of the heuristics proposes, after the `*number` candidates that came before. `first` is NULL in a
 * round that takes what comes. */
static bool try_mode(const dnn_form *f, cudnnBackendDescriptor_t g, cudnnBackendHeurMode_t mode, preference *first,
                     cudnnHandle_t handle, cudnnBackendDescriptor_t properties, int64_t from,
                     const dnn_engines *without, int64_t *number, dnn_plan *made, tally *t)
{
    static const char what[] = "heuristics";
    dnn_builder b = {.code = CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t proposals[MOST_PROPOSALS];
    int64_t count = 0, made_descriptors = 0;
    cudnnBackendDescriptor_t h = dnn_create(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    dnn_set_descriptor(&b, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g, what);
    dnn_set(&b, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
#if CUDNN_VERSION >= 90800
    if (properties)
        dnn_set_descriptor(&b, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties, what);
#else
    (void)properties;
#endif
    dnn_finalized(&b, h, what);
    if (!b.code)
        dnn_took(&b,
                 dnn.attribute_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
                 what);
    if (count > MOST_PROPOSALS)
        count = MOST_PROPOSALS;
    for (; !b.code && made_descriptors < count; made_descriptors++)
        if (!dnn_took(&b, dnn.descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &proposals[made_descriptors]),
                      what))
            break;
    int64_t got = 0;
    if (!b.code && made_descriptors)
        dnn_took(&b,
                 dnn.attribute_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made_descriptors,
                                   &got, proposals),
                 what);
    if (b.code)
        got = 0, t->code = b.code;
    if (got > made_descriptors) /* the count is of the proposals that there are: made_descriptors were written */
        got = made_descriptors;
    for (int64_t i = 0; i < got && !made->plan; i++) {
        int64_t candidate = (*number)++, workspace = 0, most = MOST_WORKSPACE;
        cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
        bool good = allowed(f, proposals[i], made), left_out = without && dnn_engines_have(without, made->engine);
        if (first && good && !left_out && !made->tensor_cores) {
            first->passed = true;
            continue;
        }
        if (candidate < from)
            continue;
        t->proposed++;
        if (!good) {
            t->forbidden++;
            continue;
        }
        if (left_out) {
            t->left_out++;
            continue;
        }
        if (first && first->passed && first->most < most)
            most = first->most;
        made->plan = plan_of(proposals[i], handle, most, &workspace, &code);
        made->workspace = (size_t)workspace;
        made->candidate = candidate;
        if (!made->plan)
            t->refused++, t->code = code;
    }
    for (int64_t i = 0; i < made_descriptors; i++)
        dnn.descriptor_destroy(proposals[i]);
    dnn_release_all(&b);
    return made->plan != NULL;
}

bool dnn_plan_make(const dnn_form *f, cudnnHandle_t handle, cudnnBackendDescriptor_t properties, int64_t from,
                   const dnn_engines *without, dnn_plan *made, char *why)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    dnn_builder b = {.code = CUDNN_STATUS_SUCCESS};
    tally t = {.code = CUDNN_STATUS_SUCCESS};
    int64_t number = 0;
    *made = (dnn_plan){.plan = NULL, .engine = -1};
    *why = '\0';
    cudnnBackendDescriptor_t g = dnn_graph_make(&b, f, handle);
    preference first = preference_of(f);
    for (int round = first.wanted ? 0 : 1; round < 2 && g && !made->plan; round++) {
        t = (tally){.code = CUDNN_STATUS_SUCCESS};
        for (int i = 0; i < 2 && !made->plan; i++)
            try_mode(f, g, modes[i], round ? NULL : &first, handle, properties, from, without, &number, made, &t);
    }
    if (!made->plan) {
        char last[300] = "";
        dnn.last_error(last, sizeof(last));
        if (b.code)
            snprintf(why, DNN_WHY, "%s: %s (%d); %s", b.failed, dnn.error_string(b.code), (int)b.code, last);
        else
            snprintf(why, DNN_WHY,
                     "%lld engines proposed, %lld not allowed, %lld of those that failed, %lld not made; %s (%d); %s",
                     (long long)t.proposed, (long long)t.forbidden, (long long)t.left_out, (long long)t.refused,
                     dnn.error_string(t.code), (int)t.code, last);
    }
    dnn_release_all(&b);
    return made->plan != NULL;
}

bool yk__cuda_dnn_plan(const dnn_form *f, const char *properties, char *why)
{
    *why = '\0';
#if CUDNN_VERSION >= 90800
    dnn_builder b = {.code = CUDNN_STATUS_SUCCESS};
    dnn_plan made;
    bool done = false;
    if (!dnn_open())
        return false;
    cudnnBackendDescriptor_t d = dnn_create(&b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a GPU's properties");
    dnn_set(&b, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(properties), properties,
            "a GPU's properties");
    dnn_finalized(&b, d, "a GPU's properties");
    if (b.code) {
        char last[300] = "";
        dnn.last_error(last, sizeof(last));
        snprintf(why, DNN_WHY, "%s: %s (%d); %s", b.failed, dnn.error_string(b.code), (int)b.code, last);
    } else {
        done = dnn_plan_make(f, NULL, d, 0, NULL, &made, why);
        if (done) {
            snprintf(why, DNN_WHY, "candidate %lld, engine %lld,%s workspace of %zu bytes", (long long)made.candidate,
                     (long long)made.engine, made.tensor_cores ? " tensor cores," : "", made.workspace);
            dnn.descriptor_destroy(made.plan);
        }
    }
    dnn_release_all(&b);
    return done;
#else
    (void)f, (void)properties;
    return false;
#endif
}

#else /* built without its headers */

bool yk__cuda_dnn_plan(const dnn_form *f, const char *properties, char *why)
{
    (void)f, (void)properties;
    *why = '\0';
    return false;
}

const char *cuda_dnn_described(void)
{
    return "built without cuDNN's headers";
}

#endif
