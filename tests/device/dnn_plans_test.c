/*
 * dnn_plans_test.c - the real cuDNN makes a plan of every graph that the backend builds, for GPUs that are not here:
 * the library takes a GPU's properties in its stead. Convolutions of the networks that are measured, in every dtype, in
 * both orders of channels, forward with and without bias and both gradients, in turn deterministic and not; attention
 * and its backward, whose kernels the library compiles and loads, by a driver that is none (tests/emulator/libcuda.c).
 *
 * What it shows is that each graph is well formed and that an engine of the library supports it, with operands as
 * aligned as the caching allocator's and as little as can be, and one that uses tensor cores where they should be. It
 * shows neither numbers nor speed.
 */
#include <dlfcn.h>
#include <libgen.h>

#include "device/cuda/dnn_form.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* cuDNN and cuBLASLt keep memory that nothing points to when they are unloaded; descriptors of ours that are left over
 * are seen by the emulator's stand-in. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void); /* the leak checker's, of this name */
int __lsan_is_turned_off(void)
{
    return 1;
}

static bool (*make_plan)(const dnn_form *f, const char *properties, char *why);

/* As cuDNN writes them of such GPUs. */
#define PROPERTIES(name, version, processors, shared, memory, l2, clock, memory_clock)                                 \
    "{\"deviceVer\":" #version ",\"multiProcessorCount\":" #processors ",\"warpSize\":32,"                             \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared ","                                  \
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"                           \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"regsPerBlock\":65536,\"totalGlobalMem\":" #memory ","      \
    "\"smClockRateKHz\":" #clock ",\"l2CacheSize\":" #l2 ",\"maxBlockSize\":[1024,1024,64],"                           \
    "\"memClockRateKHz\":" #memory_clock ",\"maxGridSize\":[2147483647,65535,65535],\"supportCoopLaunch\":1,"          \
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000,\"deviceName\":\"" name "\"}"
static const char h200[] = PROPERTIES("NVIDIA H200", 900, 132, 232448, 150754820096, 62914560, 1980000, 3201000);
static const char a100[] =
    PROPERTIES("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85094825984, 41943040, 1410000, 1593000);

/* x (n,c,h,w), o filters of (c/groups,k,k). */
static const struct layer {
    const char *name;
    int64_t n, c, h, w, o, k, stride, padding, dilation, groups;
} layers[] = {
    {"lenet 1", 4, 1, 28, 28, 6, 5, 1, 0, 1, 1},
    {"lenet 2", 4, 6, 12, 12, 16, 5, 1, 0, 1, 1},
    {"resnet18@32 stem", 512, 3, 32, 32, 64, 3, 1, 1, 1, 1},
    {"resnet18@32 64", 512, 64, 32, 32, 64, 3, 1, 1, 1, 1},
    {"resnet18@32 128, stride 2", 32, 64, 32, 32, 128, 3, 2, 1, 1, 1},
    {"resnet18@32 shortcut", 32, 64, 32, 32, 128, 1, 2, 0, 1, 1},
    {"resnet18@32 shortcut, 512", 512, 64, 32, 32, 128, 1, 2, 0, 1, 1},
    {"resnet18@32 512", 4, 512, 4, 4, 512, 3, 1, 1, 1, 1},
    {"resnet50 stem", 32, 3, 224, 224, 64, 7, 2, 3, 1, 1},
    {"resnet50 1x1", 32, 64, 56, 56, 256, 1, 1, 0, 1, 1},
    {"mobilenet depthwise", 8, 96, 56, 56, 96, 3, 2, 1, 1, 96},
    {"groups", 8, 64, 16, 16, 64, 3, 1, 1, 1, 4},
    {"dilated", 2, 32, 33, 35, 48, 3, 1, 2, 2, 1},
    {"vit patches", 8, 3, 224, 224, 768, 16, 16, 0, 1, 1},
    {"odd sizes", 3, 5, 9, 8, 7, 3, 2, 1, 1, 1},
};
enum { LAYERS = sizeof(layers) / sizeof(layers[0]) };

static dnn_form form_of(const struct layer *l, enum cuda_work work, yk_dtype dtype, bool tf32)
{
    dnn_form f;
    memset(&f, 0, sizeof(f));
    f.work = work, f.dtype = dtype, f.tf32 = tf32;
    f.x[0] = l->n, f.x[1] = l->c, f.x[2] = l->h, f.x[3] = l->w;
    f.w[0] = l->o, f.w[1] = l->c / l->groups, f.w[2] = f.w[3] = l->k;
    f.out[0] = l->n, f.out[1] = l->o;
    for (int d = 0; d < 2; d++) {
        f.stride[d] = l->stride, f.padding[d] = l->padding, f.dilation[d] = l->dilation;
        f.out[2 + d] = (f.x[2 + d] + 2 * l->padding - l->dilation * (l->k - 1) - 1) / l->stride + 1;
    }
    return f;
}

static void plan_all(const char *gpu, const char *properties)
{
    static const struct {
        yk_dtype dtype;
        bool tf32;
    } kinds[] = {{YK_F32, false}, {YK_F32, true}, {YK_F64, false}, {YK_F16, false}, {YK_BF16, false}};
    int made = 0, refused = 0;
    for (int i = 0; i < LAYERS * 5 * 3; i++) {
        const struct layer *l = &layers[i % LAYERS];
        int kind = i / LAYERS % 5, work = CUDA_CONV + i / LAYERS / 5;
        dnn_form f = form_of(l, (enum cuda_work)work, kinds[kind].dtype, kinds[kind].tf32);
        for (int k = 0; k < 3; k++) {
            char why[DNN_WHY] = "";
            bool aligned = k < 2;
            f.last = k & 1, f.deterministic = (i + k) & 1;
            f.bias = work == CUDA_CONV && (i + k) % 3; /* two of three have one */
            f.relu = f.bias && (i + k) % 3 == 2;
            for (int t = 0; t < 4; t++)
                f.alignment[t] = aligned ? 16 : (int64_t)yk_dtype_size(kinds[kind].dtype);
            /* On tensor cores: halves and TF32 but for 1x1, for which an A100's copy their operands. */
            bool half = kinds[kind].dtype == YK_F16 || kinds[kind].dtype == YK_BF16;
            bool fast = (half || (f.tf32 && l->k > 1)) && f.last && aligned && l->c % 8 == 0 && l->groups == 1;
            if (make_plan(&f, properties, why)) {
                made++;
                if (!fast || strstr(why, "tensor cores"))
                    continue;
            }
            refused++;
            print_error("%s: %s, work %d, %s%s, channels %s%s%s, %s: %s\n", gpu, l->name, work,
                        yk_dtype_name(kinds[kind].dtype), kinds[kind].tf32 ? " as TF32" : "", f.last ? "last" : "first",
                        f.relu   ? ", bias, ReLU"
                        : f.bias ? ", bias"
                                 : "",
                        f.deterministic ? ", deterministic" : "", aligned ? "aligned" : "not aligned", why);
        }
    }
    assert_int_equal(refused, 0);
    assert_int_equal(made, LAYERS * 5 * 3 * 3);
}

static const struct attended {
    const char *name;
    int64_t batch, heads, queries, keys, width, values, causal;
} attentions[] = {
    {"gpt2", 8, 12, 1024, 1024, 64, 64, 1},   {"gpt2, last rows", 8, 12, 1000, 1000, 64, 64, 1},
    {"vit", 32, 12, 197, 197, 64, 64, 0},     {"llama", 1, 32, 2048, 2048, 128, 128, 1},
    {"more keys", 2, 4, 100, 300, 64, 64, 1}, {"more queries", 2, 4, 300, 100, 96, 96, 1},
    {"narrow", 2, 2, 33, 17, 8, 16, 0},       {"one query", 4, 8, 1, 512, 64, 64, 0},
};
enum { ATTENTIONS = sizeof(attentions) / sizeof(attentions[0]) };

/* Heads of a row of features beside each other: (N,L,H,E) in memory. */
static dnn_form attention_form(const struct attended *t, bool backward, yk_dtype dtype, bool deterministic)
{
    dnn_form f;
    memset(&f, 0, sizeof(f));
    f.work = backward ? CUDA_ATTENTION_BACKWARD : CUDA_ATTENTION, f.dtype = dtype, f.deterministic = deterministic;
    dnn_attention *a = &f.attention;
    a->batch = t->batch, a->heads = t->heads, a->queries = t->queries, a->keys = t->keys;
    a->width = t->width, a->values = t->values, a->causal = t->causal, a->scale = 0.125F;
    for (int i = 0; i < (backward ? DNN_STRIDED : DNN_STRIDES_GOUT); i++) {
        bool of_keys = i == DNN_STRIDES_K || i == DNN_STRIDES_V || i == DNN_STRIDES_GK || i == DNN_STRIDES_GV;
        bool of_values = i == DNN_STRIDES_V || i == DNN_STRIDES_OUT || i == DNN_STRIDES_GOUT || i == DNN_STRIDES_GV;
        int64_t row = of_values ? t->values : t->width;
        a->stride[i][0] = t->heads * row * (of_keys ? t->keys : t->queries);
        a->stride[i][1] = row, a->stride[i][2] = t->heads * row;
    }
    return f;
}

/* The first `count` of them, forward, backward, and deterministic. */
static void attend_all(const char *gpu, const char *properties, int count)
{
    int refused = 0;
    for (int i = 0; i < count * 3; i++) {
        const struct attended *t = &attentions[i % count];
        bool backward = i >= count, deterministic = i >= 2 * count;
        yk_dtype dtype = i % 2 ? YK_F16 : YK_BF16;
        dnn_form f = attention_form(t, backward, dtype, deterministic);
        char why[DNN_WHY] = "";
        if (make_plan(&f, properties, why) && strstr(why, "tensor cores"))
            continue;
        refused++;
        print_error("%s: %s, attention%s%s, %s: %s\n", gpu, t->name, backward ? "_backward" : "",
                    deterministic ? ", deterministic" : "", yk_dtype_name(dtype), why);
    }
    assert_int_equal(refused, 0);
}

/* The smallest of graphs tells whether the library is here. */
static bool can_plan(void)
{
    char why[DNN_WHY] = "";
    dnn_form f = form_of(&layers[1], CUDA_CONV, YK_F32, false);
    for (int t = 0; t < 4; t++)
        f.alignment[t] = 16;
    if (make_plan && (make_plan(&f, h200, why) || *why))
        return true;
    print_message("cuDNN 9.8 or later is not here\n");
    return false;
}

static void every_graph_has_a_plan_on_an_h200(void **state)
{
    (void)state;
    if (!can_plan())
        skip();
    plan_all("H200", h200);
}

static void every_graph_has_a_plan_on_an_a100(void **state)
{
    (void)state;
    if (!can_plan())
        skip();
    plan_all("A100", a100);
}

/* Runs after the tests of convolutions, which go without a driver. */
static void attention_has_a_plan(void **state)
{
    char program[4096], driver[4200];
    (void)state;
    if (!can_plan())
        skip();
    /* By the name that cuDNN looks for, which then finds this one also where there is another. */
    snprintf(program, sizeof(program), "%s", own_program());
    snprintf(driver, sizeof(driver), "%s/driver/libcuda.so.1", dirname(dirname(program)));
    if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL))
        fail_msg("%s", dlerror());
    attend_all("H200", h200, ATTENTIONS);
    attend_all("A100", a100, 2);
}

/* Impossible graphs are refused, so that the two tests above would notice a graph that is wrong. */
static void graphs_that_do_not_fit_together_are_refused(void **state)
{
    (void)state;
    if (!can_plan())
        skip();
    char why[DNN_WHY] = "";
    dnn_form f = form_of(&layers[3], CUDA_CONV, YK_BF16, false);
    for (int t = 0; t < 4; t++)
        f.alignment[t] = 16;
    f.last = 1;
    assert_true(make_plan(&f, h200, why));
    f.out[2]++;
    assert_false(make_plan(&f, h200, why));
    assert_true(strlen(why) > 10);
    f.out[2]--;
    assert_false(make_plan(&f, "{\"deviceVer\":900}", why));
    assert_non_null(strstr(why, "a GPU's properties"));
}

int main(void)
{
    char program[4096], plugin[4200];
    snprintf(program, sizeof(program), "%s", own_program());
    const char *folder = dirname(dirname(dirname(program)));
    snprintf(plugin, sizeof(plugin), "%s/yoke-cuda.so", folder);
    setenv("YOKE_BACKEND_PATH", folder, 1);
    (void)yk_device_count(YK_CUDA); /* starts it */
    void *opened = dlopen(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!opened) {
        printf("1..0 # SKIP this build has no yoke-cuda.so: it needs CUDA 12 or 13\n");
        return 0;
    }
    *(void **)&make_plan = dlsym(opened, "yk__cuda_dnn_plan");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_graph_has_a_plan_on_an_h200), cmocka_unit_test(every_graph_has_a_plan_on_an_a100),
        cmocka_unit_test(graphs_that_do_not_fit_together_are_refused), cmocka_unit_test(attention_has_a_plan)};
    return cmocka_run_group_tests_name("plans of cuDNN", tests, NULL, NULL);
}
