/*
 * dnn_plan.c - see dnn_plan.h. Layer: device/cuda.
 *
 * The graph of a form is one operation, or, with a bias, two, and with ReLU three: the sum goes on in f32 (f64) through
 * tensors that have no memory ("virtual") and is rounded once. The library's heuristics name engines and their
 * settings, the fastest first by their estimate; the first is taken that the form allows (deterministic, no factor
 * rounded to fewer bits than it may be, sums in f32) and whose plan is made within the workspace. Source: cuDNN's
 * backend API, "Graph API".
 *
 * Note [Tensor cores come first]
 * For some forms cuDNN 9.19 puts engines without tensor cores first: for the 1x1 convolution with stride 2 from 64 to
 * 128 channels in ResNet-18, halves in batches of 512, one that brings its operands to another order of channels, in
 * 100 MB of workspace. Another of its modes, and cuDNN 9.26, have one with tensor cores there, which takes them as they
 * lie. So where tensor cores take the operands, engines that do not use them are passed over for one that does, but not
 * for one whose workspace has room for a copy of an operand: such stay where the heuristics put them.
 *
 * A descriptor's attributes are set, then it is finalised; the first call that fails ends the making, and is what `why`
 * is about. All descriptors but the plan's are destroyed at the end: the library keeps what it needs of them.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/dnn_plan.h"

#ifdef HAS_DNN

/* MOST_PROPOSALS: of one mode of the heuristics. MOST_MADE: descriptors of one graph, with room. MOST_NOTES: of an
 * engine; a library that is newer than the headers has kinds that these do not count. */
enum { MOST_PROPOSALS = 100, MOST_MADE = 32, MOST_NOTES = 64 };
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

/* ---- descriptors ---- */
typedef struct builder {
    cudnnStatus_t code; /* of the first call that failed */
    const char *failed; /* what it was about */
    int count;
    cudnnBackendDescriptor_t made[MOST_MADE];
} builder;

static bool took(builder *b, cudnnStatus_t code, const char *what)
{
    if (code && !b->code)
        b->code = code, b->failed = what;
    return !b->code;
}

static cudnnBackendDescriptor_t create(builder *b, cudnnBackendDescriptorType_t type, const char *what)
{
    cudnnBackendDescriptor_t made = NULL;
    if (!b->code && b->count < MOST_MADE && took(b, dnn.descriptor_create(type, &made), what))
        b->made[b->count++] = made;
    return made;
}

static void set(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values, const char *what)
{
    if (!b->code)
        took(b, dnn.attribute_set(d, name, type, count, values), what);
}

static void set_descriptor(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value, const char *what)
{
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static cudnnBackendDescriptor_t finalized(builder *b, cudnnBackendDescriptor_t d, const char *what)
{
    if (!b->code)
        took(b, dnn.finalize(d), what);
    return b->code ? NULL : d;
}

static void release_all(builder *b)
{
    while (b->count)
        dnn.descriptor_destroy(b->made[--b->count]);
}

/* ---- the graph ---- */
static cudnnDataType_t type_of(int64_t dtype)
{
    return dtype == YK_F64    ? CUDNN_DATA_DOUBLE
           : dtype == YK_F16  ? CUDNN_DATA_HALF
           : dtype == YK_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_FLOAT;
}

/* What is computed with: never a half. */
static cudnnDataType_t compute_type(const dnn_form *f)
{
    return f->dtype == YK_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

static cudnnBackendDescriptor_t tensor(builder *b, const dnn_form *f, int64_t id, cudnnDataType_t type,
                                       const int64_t s[4], int64_t alignment, bool is_virtual)
{
    static const char what[] = "a tensor";
    int64_t c = s[1], h = s[2], w = s[3];
    const int64_t first[] = {c * h * w, h * w, w, 1}, last[] = {c * h * w, 1, w * c, c};
    cudnnBackendDescriptor_t t = create(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    set(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, what);
    set(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s, what);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, f->last ? last : first, what);
    set(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, what);
    set(b, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, what);
    return finalized(b, t, what);
}

static cudnnBackendDescriptor_t convolution(builder *b, const dnn_form *f, cudnnBackendDescriptor_t x,
                                            cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t out)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, out, alpha, beta;
    } operations[CUDA_WORKS] = {
        [CUDA_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [CUDA_CONV_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [CUDA_CONV_WEIGHT] = {
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    static const char what[] = "a convolution";
    const int64_t dimensions = 2;
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnDataType_t compute = compute_type(f);
    bool wide = compute == CUDNN_DATA_DOUBLE;
    cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    cudnnBackendDescriptor_t c = create(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, f->stride, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, f->padding, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, f->padding, what);
    set(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, f->dilation, what);
    c = finalized(b, c, what);
    cudnnBackendDescriptor_t o = create(b, operations[f->work].type, what);
    set_descriptor(b, o, operations[f->work].conv, c, what);
    set_descriptor(b, o, operations[f->work].x, x, what);
    set_descriptor(b, o, operations[f->work].w, w, what);
    set_descriptor(b, o, operations[f->work].out, out, what);
    set(b, o, operations[f->work].alpha, scale, 1, wide ? (const void *)&one : &one_f32, what);
    set(b, o, operations[f->work].beta, scale, 1, wide ? (const void *)&zero : &zero_f32, what);
    return finalized(b, o, what);
}

/* out = x + other, or ReLU of x, where other is NULL. That ReLU keeps NaN is no attribute of it any more. */
static cudnnBackendDescriptor_t pointwise(builder *b, const dnn_form *f, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                                          cudnnBackendDescriptor_t out)
{
    static const char what[] = "what follows a convolution";
    cudnnDataType_t compute = compute_type(f);
    cudnnBackendDescriptor_t p = create(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(b, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set(b, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    p = finalized(b, p, what);
    cudnnBackendDescriptor_t o = create(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, what);
    set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    if (other)
        set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other, what);
    set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out, what);
    return finalized(b, o, what);
}

static cudnnBackendDescriptor_t graph(builder *b, const dnn_form *f, cudnnHandle_t handle)
{
    static const char what[] = "an operation graph";
    enum { SUM = DNN_BIAS + 1, BIASED };
    cudnnDataType_t type = type_of(f->dtype);
    cudnnBackendDescriptor_t operations[3] = {NULL, NULL, NULL};
    int64_t count = f->bias ? 2 + f->relu : 1, channels[4] = {1, f->w[0], 1, 1};
    cudnnBackendDescriptor_t x = tensor(b, f, DNN_X, type, f->x, f->alignment[0], false);
    cudnnBackendDescriptor_t w = tensor(b, f, DNN_W, type, f->w, f->alignment[1], false);
    cudnnBackendDescriptor_t out = tensor(b, f, DNN_OUT, type, f->out, f->alignment[2], false);
    if (f->bias) {
        cudnnBackendDescriptor_t sum = tensor(b, f, SUM, compute_type(f), f->out, 16, true);
        cudnnBackendDescriptor_t bias = tensor(b, f, DNN_BIAS, type, channels, f->alignment[3], false);
        operations[0] = convolution(b, f, x, w, sum);
        if (f->relu) {
            cudnnBackendDescriptor_t biased = tensor(b, f, BIASED, compute_type(f), f->out, 16, true);
            operations[1] = pointwise(b, f, CUDNN_POINTWISE_ADD, sum, bias, biased);
            operations[2] = pointwise(b, f, CUDNN_POINTWISE_RELU_FWD, biased, NULL, out);
        } else {
            operations[1] = pointwise(b, f, CUDNN_POINTWISE_ADD, sum, bias, out);
        }
    } else {
        operations[0] = convolution(b, f, x, w, out);
    }
    cudnnBackendDescriptor_t g = create(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    set(b, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations, what);
    if (handle)
        set(b, g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle, what);
    return finalized(b, g, what);
}

/* ---- engines ---- */
/* Whether the engine of a proposal, whose number and use of tensor cores go to *p, computes as the form allows. The
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
    if (count > MOST_NOTES) /* that it has: so many were written */
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

/* What was tried, and why it gave no plan. */
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

/* Tries what one mode of the heuristics proposes, behind the `*number` candidates that came before. `first` is NULL in
 * a round that takes what comes. */
static bool try_mode(const dnn_form *f, cudnnBackendDescriptor_t g, cudnnBackendHeurMode_t mode, preference *first,
                     cudnnHandle_t handle, cudnnBackendDescriptor_t properties, int64_t from,
                     const dnn_engines *without, int64_t *number, dnn_plan *made, tally *t)
{
    static const char what[] = "heuristics";
    builder b = {.code = CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t proposals[MOST_PROPOSALS];
    int64_t count = 0, made_descriptors = 0;
    cudnnBackendDescriptor_t h = create(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    set_descriptor(&b, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g, what);
    set(&b, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
#if CUDNN_VERSION >= 90800
    if (properties)
        set_descriptor(&b, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties, what);
#else
    (void)properties;
#endif
    finalized(&b, h, what);
    if (!b.code)
        took(&b, dnn.attribute_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
             what);
    if (count > MOST_PROPOSALS)
        count = MOST_PROPOSALS;
    for (; !b.code && made_descriptors < count; made_descriptors++)
        if (!took(&b, dnn.descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &proposals[made_descriptors]), what))
            break;
    int64_t got = 0;
    if (!b.code && made_descriptors)
        took(&b,
             dnn.attribute_get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made_descriptors, &got,
                               proposals),
             what);
    if (b.code)
        got = 0, t->code = b.code;
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
    release_all(&b);
    return made->plan != NULL;
}

bool dnn_plan_make(const dnn_form *f, cudnnHandle_t handle, cudnnBackendDescriptor_t properties, int64_t from,
                   const dnn_engines *without, dnn_plan *made, char *why)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    builder b = {.code = CUDNN_STATUS_SUCCESS};
    tally t = {.code = CUDNN_STATUS_SUCCESS};
    int64_t number = 0;
    *made = (dnn_plan){.plan = NULL, .engine = -1};
    *why = '\0';
    cudnnBackendDescriptor_t g = graph(&b, f, handle);
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
    release_all(&b);
    return made->plan != NULL;
}

bool yk__cuda_dnn_plan(const dnn_form *f, const char *properties, char *why)
{
    *why = '\0';
#if CUDNN_VERSION >= 90800
    builder b = {.code = CUDNN_STATUS_SUCCESS};
    dnn_plan made;
    bool done = false;
    if (!dnn_open())
        return false;
    cudnnBackendDescriptor_t d = create(&b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a GPU's properties");
    set(&b, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(properties), properties,
        "a GPU's properties");
    finalized(&b, d, "a GPU's properties");
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
    release_all(&b);
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
