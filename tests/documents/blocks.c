/*
 * blocks.c - every block of C in README.md and docs/, as it stands there, in a function that makes what it speaks of
 * and looks at what came of it. tests/cli/documents.sh writes block N of FILE.md to FILE.md.N and builds this beside
 * them.
 *
 * Blocks that name a file are whole programs, which tests/cli/transcripts.sh builds and runs; docs/adding-an-op.md is
 * about code of the library, of an operation that is not there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);                              \
            yk_report_error(stderr);                                                                                   \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* ---- README.md ---- */
static int readme_ranks(void)
{
    yk_module *net = yk_lenet(NULL);
    yk_dataset *set = yk_glyphs(YK_TRAIN, NULL, 0);
#include "README.md.1"
    CHECK(model && yk_is_ddp(model) && yk_loader_length(loader) == 12000 / 64 + 1);
    return 0;
}

/* ---- docs/autograd.md ---- */
#include "autograd.md.1"

static int autograd_penalty(void)
{
    yk_module *critic = yk_linear_create(3, 1, NULL);
    yk_tensor *between = yk_rand(YK_SHAPE(4, 3), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_tensor *loss = penalty(critic, between), *weight = yk_module_get(critic, "weight");
    CHECK(loss && !yk_backward(loss) && yk_grad(weight) && !yk_grad(between));
    double norm = yk_item(yk_norm(weight, 2, NULL, 0, false));
    CHECK(fabs(yk_item(loss) - (norm - 1) * (norm - 1)) < 1e-5);
    return 0;
}

/* ---- docs/checkpoints.md ---- */
static int checkpoints_group(void)
{
    yk_module *net = yk_linear_create(3, 2, NULL);
    yk_checkpoint_state state = {.model = net, .step = 5};
    CHECK(!yk_init_process_group(NULL));
    yk_scope scope = yk_scope_begin();
    CHECK(!yk_checkpoint_manager_save(yk_checkpoint_manager_create("run1", NULL), &state));
    yk_scope_end(scope);
    state.step = 0;
    yk_status status;
#include "checkpoints.md.1"
    CHECK(m && status == YK_OK && state.step == 5);
    yk_destroy_process_group();
    return 0;
}

static int checkpoints_sharded(void)
{
    int64_t first = 0;
    yk_tensor *rows = yk_rand(YK_SHAPE(50000, 512), NULL);
    double sum = yk_item(yk_sum(rows));
    yk_process_group *group = yk_process_group_create(NULL, 0, 1, NULL);
    yk_status status;
#include "checkpoints.md.2"
    CHECK(status == YK_OK && yk_item(yk_sum(rows)) == sum);
    return 0;
}

/* ---- docs/collectives.md ---- */
static yk_status four_ranks(int rank, void *arg)
{
    yk_scope scope = yk_scope_begin();
    yk_store *store = yk_file_store(arg);
#include "collectives.md.1"
    if (!status)
        status = yk_work_wait(work);
    yk_scope_end(scope);
    return status;
}

static int collectives(void)
{
    CHECK(!yk_spawn(four_ranks, "ranks.store", 4, NULL));
    return 0;
}

/* ---- docs/data.md ---- */
static int steps;

static void step(yk_tensor *input, yk_tensor *target)
{
    steps += yk_size(input, 0) == yk_size(target, 0) && yk_size(input, 1) == 3;
}

static int data_loader(void)
{
    static unsigned char record[1 + 3 * 32 * 32];
    static const char *const files[] = {"data/data_batch_1.bin", "data/data_batch_2.bin", "data/data_batch_3.bin",
                                        "data/data_batch_4.bin", "data/data_batch_5.bin"};
    CHECK(system("mkdir data") == 0);
    for (int f = 0; f < 5; f++) {
        FILE *to = fopen(files[f], "wb");
        CHECK(to && fwrite(record, sizeof(record), 1, to) == 1 && fclose(to) == 0);
    }
#include "data.md.1"
    CHECK(steps == 10); /* five records: a batch in each of ten epochs */
    return 0;
}

static int data_tensors(void)
{
    static unsigned char pixels[600 * 3 * 32 * 32];
    static int64_t classes[600];
    for (int i = 0; i < 600; i++)
        classes[i] = i % 3, pixels[i * 3 * 32 * 32] = (unsigned char)(i % 3);
#include "data.md.2"
    CHECK(yk_dataset_length(train) == 540 && yk_dataset_length(test) == 60);
    int64_t label = -1;
    yk_tensor *first = yk_dataset_get(test, 9, YK_F32, &label);
    CHECK(first && yk_get(first, (int64_t[]){0, 0, 0}) == (double)((float)label / 255));
    return 0;
}

struct rows {
    float values[20 * 1000];
    int64_t labels[1000];
};
#include "data.md.3"

static yk_status length_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *values = yk_sample_allocate(sample, YK_F32, YK_SHAPE(index % 7 + 1));
    for (int64_t i = 0; values && i <= index % 7; i++)
        values[i] = (float)index;
    return values ? YK_OK : YK_ERR_MEMORY;
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "data.md.5"
#include "data.md.8"
#pragma GCC diagnostic pop

static int data_rows(void)
{
    static struct rows rows;
    rows.values[20 * 7 + 3] = 5;
    rows.labels[7] = 4;
#include "data.md.4"
    int64_t label;
    yk_tensor *x = yk_dataset_get(set, 7, YK_F32, &label);
    CHECK(x && label == 4 && yk_get(x, (int64_t[]){3}) == 5);
    return 0;
}

static int data_collate(void)
{
    yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "s", .length = 64, .get = length_get}, NULL, NULL);
#include "data.md.6"
    yk_batch batch;
    CHECK(yk_loader_next(sequences, &batch) && batch.n_tensors == 2 && yk_size(batch.tensors[0], 1) == 7);
    CHECK(yk_get(batch.tensors[0], (int64_t[]){9, 2}) == 9 && yk_get(batch.tensors[0], (int64_t[]){9, 3}) == 0);
    CHECK(yk_get(batch.tensors[1], (int64_t[]){9, 2}) == 1 && yk_get(batch.tensors[1], (int64_t[]){9, 3}) == 0);
    return 0;
}

static int data_shards(void)
{
    CHECK(system("echo 'not looked at' > a.jpg; for i in 0 1 2 3; do echo $i > a.cls; "
                 "tar -cf train-00$i.tar a.jpg a.cls || exit 1; done") == 0);
    yk_transform *transform = NULL;
#include "data.md.7"
    CHECK(list && yk_dataset_length(list) == 4 && yk_dataset_classes(list) == 4 && yk_dataset_label(list, 2) == 2);
    CHECK(stream && yk_dataset_length(stream) == -1);
    return 0;
}

static yk_status black_get(void *context, int64_t index, yk_sample *sample)
{
    static const unsigned char pixels[3 * 8 * 8];
    (void)context, (void)index;
    yk_sample_view(sample, pixels, YK_U8, YK_SHAPE(3, 8, 8));
    return YK_OK;
}

static int data_transform(void)
{
#include "data.md.9"
    yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "b", .length = 1, .get = black_get}, NULL, t);
    yk_tensor *x = yk_dataset_get(set, 0, YK_F32, NULL);
    CHECK(yk_size(x, 1) == 64 && yk_item(yk_min(x)) == 1); /* black, inverted */
    return 0;
}

/* An image, a mask of its size, two boxes, of which one is empty, and their classes. */
static yk_status boxes_get(void *context, int64_t index, yk_sample *sample)
{
    static const unsigned char mask[8 * 8];
    static const float boxes[8] = {0, 0, 8, 8, 3, 3, 3, 3};
    static const int64_t classes[2] = {4, 5};
    yk_status status = black_get(context, index, sample);
    if (!status)
        status = yk_sample_view_at(sample, 1, mask, YK_U8, YK_SHAPE(8, 8));
    if (!status)
        status = yk_sample_view_at(sample, 2, boxes, YK_F32, YK_SHAPE(2, 4));
    return status ? status : yk_sample_view_at(sample, 3, classes, YK_I64, YK_SHAPE(2));
}

static int data_targets(void)
{
#include "data.md.10"
    yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "b", .length = 1, .get = boxes_get}, NULL, both);
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    CHECK(!yk_dataset_get_list(set, 0, YK_F32, tensors, &count) && count == 4);
    CHECK(yk_size(tensors[0], 1) == 224 && yk_size(tensors[1], 1) == 224);
    CHECK(yk_size(tensors[2], 0) == 1 && yk_get(tensors[2], (int64_t[]){0, 3}) == 224);
    CHECK(yk_size(tensors[3], 0) == 1 && yk_get(tensors[3], (int64_t[]){0}) == 4);
    return 0;
}

static int data_mix(void)
{
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 0);
#include "data.md.11"
    yk_batch batch;
    CHECK(yk_loader_next(mixed, &batch) && yk_size(batch.target, 0) == 64 && yk_size(batch.target, 1) == 10);
    return 0;
}

static int data_test(void)
{
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 0);
    yk_tensor *counts = yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    CHECK(!yk_init_process_group(NULL));
#include "data.md.12"
    CHECK(!status && yk_loader_samples(test) == 2000);
    yk_destroy_process_group();
    return 0;
}

/* ---- docs/data_parallel.md, on four devices ---- */
static int data_parallel(void)
{
    yk_tensor *x = yk_rand(YK_SHAPE(6, 1, 28, 28), NULL), *y = yk_randint(0, 10, YK_SHAPE(6), NULL);
#include "data_parallel.md.1"
    CHECK(yk_data_parallel_count(model) == 4);
    CHECK(yk_optimizer_state_step(sgd, yk_parameters_at(yk_module_parameters(model), 0)) == 1);
    return 0;
}

static yk_tensor *cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static int data_parallel_balance(void)
{
    yk_module *net = yk_lenet(NULL);
    yk_tensor *x = yk_rand(YK_SHAPE(6, 1, 28, 28), NULL), *y = yk_randint(0, 10, YK_SHAPE(6), NULL);
#include "data_parallel.md.2"
    CHECK(loss && fabs(yk_item(loss) - yk_item(yk_cross_entropy(yk_forward(net, x), y, NULL))) < 1e-5);
    return 0;
}

/* ---- docs/pipeline.md ---- */
static int pipeline(void)
{
    yk_tensor *x = yk_rand(YK_SHAPE(20, 784), NULL), *y = yk_randint(0, 10, YK_SHAPE(20), NULL);
    double before = NAN;
    for (int step = 0; step < 2; step++) {
        yk_manual_seed(1);
#include "pipeline.md.1"
        CHECK(yk_pipeline_count(model) == 2 && (step == 0 || before == yk_item(loss)));
        before = yk_item(loss);
    }
    return 0;
}

static yk_module *make_stage(int s)
{
    return s ? yk_linear_create(64, 10, NULL) : yk_sequential(yk_linear_create(784, 64, NULL), yk_relu_create());
}

static yk_status pipeline_rank(int started_as, void *unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(1);
    yk_tensor *x = yk_rand(YK_SHAPE(16, 784), NULL), *y = yk_randint(0, 10, YK_SHAPE(16), NULL);
#include "pipeline.md.2"
    if (!loss || rank != started_as || yk_optimizer_step(sgd) || !(yk_item(loss) > 0))
        return yk_set_error(YK_ERR_STATE, "no step of a pipeline");
    yk_destroy_process_group();
    yk_scope_end(scope);
    return YK_OK;
}

static yk_status pipelines_rank(int rank, void *unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_rand(YK_SHAPE(8, 784), NULL), *y = yk_randint(0, 10, YK_SHAPE(8), NULL);
    yk_module *stages[2] = {NULL};
    if (yk_init_process_group(NULL))
        return yk_last_error()->code;
#include "pipeline.md.3"
    if (!loss || !(yk_item(loss) > 0))
        return yk_set_error(YK_ERR_STATE, "no step of two pipelines");
    yk_destroy_process_group();
    yk_scope_end(scope);
    return YK_OK;
}

static int pipeline_processes(void)
{
    CHECK(!yk_spawn(pipeline_rank, NULL, 2, NULL));
    CHECK(!yk_spawn(pipelines_rank, NULL, 4, NULL));
    return 0;
}

/* ---- docs/ddp.md ---- */
static int ddp(void)
{
    yk_tensor *x = yk_rand(YK_SHAPE(2, 3, 32, 32), NULL), *y = yk_randint(0, 10, YK_SHAPE(2), NULL);
#include "ddp.md.1"
    CHECK(yk_optimizer_state_step(sgd, yk_parameters_at(yk_module_parameters(model), 0)) == 1);
    yk_destroy_process_group();
    return 0;
}

/* ---- docs/errors.md ---- */
static int errors_step(yk_module *net, yk_batch batch)
{
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
#include "errors.md.1"
    return 0;
}

static int errors(void)
{
    yk_module *net = yk_linear_create(4, 3, NULL);
    yk_batch batch = {.input = yk_rand(YK_SHAPE(2, 4), NULL), .target = yk_randint(0, 3, YK_SHAPE(2), NULL)};
    CHECK(errors_step(net, batch) == 0);
    batch.input = yk_rand(YK_SHAPE(2, 5), NULL);
    CHECK(errors_step(net, batch) == 1 && !yk_last_error());
    return 0;
}

/* ---- docs/mixed_precision.md ---- */
static int mixed_precision(void)
{
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    yk_grad_scaler *scaler = yk_grad_scaler_create(NULL);
    yk_tensor *x = yk_rand(YK_SHAPE(4, 1, 28, 28), NULL), *target = yk_randint(0, 10, YK_SHAPE(4), NULL);
    yk_tensor *weight = yk_module_get(net, "conv1.weight");
#include "mixed_precision.md.1"
    CHECK(weight && yk_tensor_dtype(yk_grad(weight)) == YK_F32 && yk_tensor_dtype(loss) == YK_F32);
    loss = yk_cross_entropy(yk_forward(net, x), target, NULL);
#include "mixed_precision.md.2"
    CHECK(yk_grad_scaler_get_state(scaler).growth_tracker == 1);
    return 0;
}

/* ---- docs/modules.md ---- */
#include "modules.md.1"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "modules.md.2"
#pragma GCC diagnostic pop

static int modules_gate(void)
{
    yk_module *m = gate_create(4);
    CHECK(m && yk_parameters_count(yk_module_parameters(m)) == 3);
    CHECK(!yk_backward(yk_sum(yk_forward(m, yk_rand(YK_SHAPE(2, 4), NULL)))));
    CHECK(yk_grad(yk_module_get(m, "scale")));
    return 0;
}

static int modules_attention(void)
{
    static const yk_module_class attention_class = {.name = "Attention", .forward_list = attention_forward};
    yk_module *attention = yk_module_create(&attention_class);
    yk_tensor *q = yk_rand(YK_SHAPE(2, 3, 4), NULL), *k = yk_rand(YK_SHAPE(2, 3, 4), NULL),
              *v = yk_rand(YK_SHAPE(2, 3, 4), NULL);
    yk_tensor *mask = yk_cast(yk_from_data((float[]){1, 0, 0, 1, 1, 0, 1, 1, 1}, YK_SHAPE(3, 3), NULL), YK_BOOL);
#include "modules.md.3"
    yk_tensor *same = yk_scaled_dot_product_attention(q, k, v, YK_OPTIONS(yk_attention_options, .is_causal = true));
    CHECK(yk_item(yk_max(yk_abs(yk_sub(out[0], same)))) < 1e-6);
    CHECK(yk_get(out[1], (int64_t[]){0, 0, 0}) == 1);
    return 0;
}

static int modules_lstm(void)
{
    yk_tensor *x = yk_rand(YK_SHAPE(2, 3, 128), NULL), *h = yk_zeros(YK_SHAPE(2, 2, 256), NULL), *c = h;
#include "modules.md.4"
    CHECK(yk_size(out[0], 1) == 3 && yk_size(out[1], 0) == 2 && yk_size(out[2], 2) == 256);
    CHECK(yk_item(yk_max(yk_abs(yk_sub(last, yk_select(out[1], 0, 1))))) == 0);
    return 0;
}

static int modules_packed(void)
{
    yk_module *lstm =
        yk_lstm_create(128, 256, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .batch_first = true));
    yk_tensor *x = yk_rand(YK_SHAPE(2, 3, 128), NULL);
    yk_tensor *lengths = yk_from_data((int64_t[]){1, 3}, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
#include "modules.md.5"
    CHECK(yk_size(padded, 1) == 3 && yk_get(padded, (int64_t[]){0, 1, 0}) == 0);
    CHECK(yk_get(ends[0], (int64_t[]){1, 0, 7}) == yk_get(padded, (int64_t[]){0, 0, 7}));
    return 0;
}

static int modules_transformer(void)
{
    yk_tensor *tokens = yk_rand(YK_SHAPE(2, 3, 64), NULL), *padding = yk_cast(yk_zeros(YK_SHAPE(2, 3), NULL), YK_BOOL);
#include "modules.md.6"
    CHECK(yk_size(memory, 1) == 3 && yk_size(memory, 2) == 64);
    return 0;
}

static int modules_options(void)
{
#include "modules.md.7"
    CHECK(options.lr == 1e-3 && options.weight_decay == 0 && options.beta1 == YK_NOT_GIVEN);
    CHECK(yk_adamw(yk_module_parameters(yk_linear_create(2, 2, NULL)), &options));
    return 0;
}

static int modules_optimizers(void)
{
    yk_parameters *weights = yk_module_parameters(yk_linear_create(2, 2, NULL));
    yk_parameters *biases = yk_module_parameters(yk_linear_create(2, 1, NULL));
    yk_status status;
#include "modules.md.8"
    CHECK(!status && yk_optimizer_lr(optimizer, 1) == 1e-3);
    CHECK(yk_optimizer_option(optimizer, 0, "weight_decay") == 0.01);
    CHECK(yk_optimizer_option(optimizer, 1, "weight_decay") == 0);
    return 0;
}

static int modules_muon(void)
{
    yk_parameters *weights = yk_module_parameters(yk_mlp(NULL));
    yk_status status = YK_OK;
#include "modules.md.9"
    CHECK(!status && muon && adamw);
    CHECK(yk_parameters_count(yk_optimizer_group(muon, 0)) == yk_parameters_count(yk_optimizer_group(adamw, 0)));
    return 0;
}

typedef struct fit {
    yk_module *net;
    yk_optimizer *optimizer;
    yk_tensor *x, *y;
} fit;
#include "modules.md.10"

static int modules_lbfgs(void)
{
    fit f = {.net = yk_linear_create(2, 1, NULL), .x = yk_rand(YK_SHAPE(8, 2), NULL)};
    yk_parameters *weights = yk_module_parameters(f.net);
    yk_status status;
    double loss;
    f.y = yk_sum_dims(f.x, (int[]){1}, 1, true);
#include "modules.md.11"
    CHECK(!status && loss > 0);
    CHECK(yk_item(loss_of(&f)) < 1e-6);
    return 0;
}

/* ---- docs/ownership.md ---- */
static int ownership_sum(void)
{
    enum { steps = 3 };
    yk_module *net = yk_linear_create(2, 1, NULL);
    yk_tensor *x = yk_rand(YK_SHAPE(4, 2), NULL), *y = yk_rand(YK_SHAPE(4, 1), NULL), *losses[steps];
#include "ownership.md.1"
    CHECK(fabs(total - yk_item(running)) < 1e-5 && fabs(yk_item(losses[2]) - total / 3) < 1e-5);
    return 0;
}

static int ownership_scope(void)
{
    yk_tensor *x = yk_rand(YK_SHAPE(4, 2), NULL), *w = yk_rand(YK_SHAPE(2, 3), NULL), *b = yk_rand(YK_SHAPE(3), NULL);
#include "ownership.md.2"
    CHECK(!yk_neg(y) && yk_last_error()->code == YK_ERR_STATE);
    yk_clear_error();
    return 0;
}

#include "ownership.md.3"

static int ownership_return(void)
{
    CHECK(fabs(yk_item(yk_sum(yk_square(normalised(yk_rand(YK_SHAPE(9), NULL))))) - 1) < 1e-5);
    return 0;
}

/* ---- docs/rpc.md ---- */
static double trained;

static yk_status train(yk_call *call)
{
    trained = yk_item(yk_sum(yk_call_tensor(call, 0)));
    return YK_OK;
}

static void fill(yk_tensor *x)
{
    (void)!yk_fill_(x, trained + 1);
}

static int rpc_tensor(void)
{
    CHECK(!yk_rpc_register("train", train));
    CHECK(!yk_rpc_init("trainer0", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
#include "rpc.md.10"
    CHECK(trained == 256 * 3 * 64 * 64 && yk_get(batch, (int64_t[]){255, 2, 63, 63}) == trained + 1);
    return yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN);
}

static void gone(const yk_rpc_end *end, void *list)
{
    snprintf(list, 200, "%.150s", end->text);
}

/* trainer1 is a child that joins and leaves. */
static int rpc_watched(void)
{
    char list[200] = "", path[] = "/tmp/yoke-blocks-XXXXXX";
    int file = mkstemp(path), status = 1;
    pid_t child = fork();
    const char *name = child ? "trainer0" : "trainer1";
    CHECK(!yk_rpc_init(name, YK_OPTIONS(yk_rpc_init_options, .store = yk_file_store(path), .world_size = 2)));
    if (!child) {
        sleep(1);
        _exit(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN) != YK_OK);
    }
#include "rpc.md.8"
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 3000 && !list[0]; i++)
        usleep(10000);
    close(file);
    unlink(path);
    CHECK(!yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN) && strstr(list, "worker 'trainer1'") &&
          strstr(list, "has left"));
    return 0;
}

static yk_status add(yk_call *call)
{
    yk_tensor *a = yk_call_tensor(call, 0), *b = yk_call_tensor(call, 1);
    return yk_call_return(call, yk_value_tensor(yk_add(a, b)));
}

static yk_status episode(yk_call *call)
{
    return yk_call_return(call, yk_value_int(yk_call_int(call, 0) * 10 + yk_rpc_name()[strlen("observer")] - '0'));
}

#include "rpc.md.5"

/* A map is refused where there is no such device. */
static int rpc_device_maps(void)
{
    if (!yk_device_count(YK_CUDA))
        return 0;
#include "rpc.md.3"
    return yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN);
}

/* The observers are children that join and leave. */
static int rpc_several(void)
{
    char path[] = "/tmp/yoke-blocks-XXXXXX", name[20] = "agent";
    int file = mkstemp(path), status = 1, round = 7;
    double factor = 3;
    pid_t children[3] = {1, 1, 1};
    for (int i = 0; i < 3 && strcmp(name, "agent") == 0; i++)
        if (!(children[i] = fork()))
            snprintf(name, sizeof(name), "observer%d", i);
    CHECK(!yk_rpc_register("add", add) && !yk_rpc_register("episode", episode));
    CHECK(!yk_rpc_init(name, YK_OPTIONS(yk_rpc_init_options, .store = yk_file_store(path), .world_size = 4)));
    if (strcmp(name, "agent") != 0)
        _exit(yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN) != YK_OK);
    yk_value *x = yk_value_tensor(yk_ones(YK_SHAPE(2), NULL));
#include "rpc.md.6"
    CHECK(both && yk_item(yk_sum(yk_value_as_tensor(yk_value_at(both, 0)))) == 4 &&
          yk_item(yk_sum(yk_value_as_tensor(yk_value_at(both, 1)))) == 12);
#include "rpc.md.7"
    CHECK(rewards && yk_value_as_int(yk_value_at(rewards, 2)) == 72);
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN));
    for (int i = 0; i < 3; i++)
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    close(file);
    unlink(path);
    return 0;
}

static int rpc_servers(void)
{
    yk_module *net = yk_linear_create(64, 3, NULL);
    yk_tensor *words = yk_arange(5, 9, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    CHECK(!yk_rpc_init("ps0", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
#include "rpc.md.4"
    CHECK(yk_size(rows, 0) == 4 && yk_size(rows, 1) == 64 && yk_parameter_server_updates(ps) == 1);
    return yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN);
}

static int rpc_published(void)
{
    yk_module *net = yk_linear_create(3, 2, NULL), *copy = yk_linear_create(3, 2, NULL);
    CHECK(!yk_rpc_init("trainer0", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
#include "rpc.md.11"
    CHECK(version == 1 && yk_get(yk_state_dict_get(yk_module_state_dict(copy), "bias"), (int64_t[]){1}) ==
                              yk_get(yk_state_dict_get(yk_module_state_dict(net), "bias"), (int64_t[]){1}));
    return yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN);
}

typedef struct counter {
    int64_t sum;
} counter;

static yk_status counter_create(yk_call *call)
{
    yk_call_set_object(call, calloc(1, sizeof(counter)));
    return YK_OK;
}

static yk_status counter_add(yk_call *call)
{
    counter *c = yk_call_object(call);
    return yk_call_return(call, yk_value_int(c->sum += yk_call_int(call, 0)));
}

#include "rpc.md.9"

static int64_t kept_sum(int64_t more)
{
    CHECK(!yk_rpc_init("keeper", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .snapshots = "kept")));
    yk_ref *there = yk_rpc_remote("keeper", "kept_counter", NULL, YK_OPTIONS(yk_rpc_options, .shared_name = "all"));
    yk_value *sum = yk_ref_call(there, "add", yk_args(yk_value_int(more)), NULL);
    CHECK(sum && !yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN));
    return yk_value_as_int(sum);
}

static int rpc_kept(void)
{
    CHECK(!yk_rpc_register_class(&kept_counter));
    return !(kept_sum(5) == 5 && kept_sum(3) == 8);
}

static yk_status use(yk_call *call)
{
    return yk_call_return(call, yk_ref_call(yk_call_ref(call, 0), "add", yk_args(yk_value_int(5)), NULL));
}

static const yk_rpc_class counter_class = {
    .name = "counter",
    .create = counter_create,
    .destroy = free,
    .methods = (const yk_rpc_method[]){{"add", counter_add}, {NULL, NULL}},
};

static int rpc_references(void)
{
    const char *server = "alone", *trainer = "alone";
    CHECK(!yk_rpc_register_class(&counter_class) && !yk_rpc_register("use", use));
    CHECK(!yk_rpc_init("alone", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
#include "rpc.md.1"
    CHECK(sum && yk_value_as_int(sum) == 5);
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN));
    return 0;
}

static yk_module *encoder_make(yk_call *call)
{
    return yk_linear_create(yk_call_int(call, 0), 3, NULL);
}

static int rpc_modules(void)
{
    const char *server = "alone";
    CHECK(!yk_rpc_register_module("encoder", encoder_make));
    CHECK(!yk_rpc_init("alone", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    yk_tensor *x = yk_ones(YK_SHAPE(2, 16), NULL);
#include "rpc.md.2"
    CHECK(count == 2 && yk_item(loss) > yk_item(yk_mean(yk_square(yk_forward(encoder, x)))));
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN));
    return 0;
}

/* ---- docs/sparse.md ---- */
static int sparse_step(void)
{
    yk_tensor *words = yk_arange(5, 9, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), *indices, *rows;
#include "sparse.md.1"
    CHECK(!yk_grad_rows(yk_module_get(table, "weight"), &indices, &rows) && yk_numel(rows) == 4 * 64);
    return 0;
}

/* ---- docs/text.md ---- */
static int text_tokenizer(void)
{
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2}", merges[] = "#version: 0.2\na b\n", text[] = "abba";
    CHECK(mkdir("gpt2", 0777) == 0);
    FILE *file = fopen("gpt2/vocab.json", "w");
    CHECK(file && fputs(vocab, file) >= 0 && !fclose(file) && (file = fopen("gpt2/merges.txt", "w")) &&
          fputs(merges, file) >= 0 && !fclose(file));
#include "text.md.1"
    CHECK(status == YK_OK && yk_numel(ids) == 3 && strcmp(back, text) == 0);
    free(back);
    return 0;
}

static int text_tokens(void)
{
    yk_tokenizer *tokenizer = yk_tokenizer_bytes();
    FILE *file = fopen("story.txt", "w");
    CHECK(file);
    for (int i = 0; i < 64 * 9 + 1; i++)
        fputc('a' + i % 26, file);
    CHECK(!fclose(file));
#include "text.md.2"
    yk_batch batch;
    CHECK(yk_dataset_length(train) == 9 && yk_loader_next(loader, &batch) && yk_size(batch.input, 1) == 64);
    return 0;
}

static int text_gpt2(void)
{
    yk_module *first = yk_gpt2(
        YK_OPTIONS(yk_gpt2_options, .vocab_size = 9, .n_positions = 8, .n_embd = 64, .n_layer = 2, .n_head = 1));
    yk_tensor *prompt = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    CHECK(first && mkdir("published", 0777) == 0 &&
          !yk_safetensors_save("published/model.safetensors", yk_module_state_dict(first), NULL));
#include "text.md.3"
    CHECK(status == YK_OK && size.n_layer == 2 && size.n_head == 1 && yk_numel(longer) == 22);
    return 0;
}

static int text_checkpoint(void)
{
    yk_module *blocks[12];
    for (int i = 0; i < 12; i++)
        blocks[i] = yk_linear_create(3, 3, NULL);
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3), NULL);
#include "text.md.4"
    CHECK(y && !yk_backward(yk_sum(y)) && yk_grad(yk_module_get(blocks[0], "weight")));
    return 0;
}

/* ---- docs/stores.md ---- */
static int stores_rank(int rank, const char *mine)
{
#include "stores.md.1"
    int same = strcmp(address, "one") == 0;
    free(address);
    CHECK(rank == 0 && same);
    return 0;
}

static int stores(void)
{
    CHECK(stores_rank(0, "one") == 0);
    return 0;
}

/* ---- docs/monitoring.md, onnx.md ---- */
static yk_tensor *augment(yk_tensor *x)
{
    return yk_mul_scalar(x, 2);
}

static int monitoring(void)
{
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL);
    yk_status status;
#include "monitoring.md.1"
    CHECK(status == YK_OK && x && !yk_profiler_enabled());
    return 0;
}

static int onnx(void)
{
    yk_module *net = yk_linear_create(3, 2, NULL);
    yk_tensor *x = yk_ones(YK_SHAPE(4, 3), NULL);
#include "onnx.md.1"
    CHECK(status == YK_OK);
    return 0;
}

static int onnx_lstm(void)
{
    yk_module *lstm = yk_lstm_create(3, 2, NULL);
    yk_tensor *sequence = yk_ones(YK_SHAPE(5, 4, 3), NULL);
    yk_tensor *h_0 = yk_zeros(YK_SHAPE(1, 4, 2), NULL), *c_0 = yk_zeros(YK_SHAPE(1, 4, 2), NULL);
#include "onnx.md.2"
    CHECK(status == YK_OK);
    return 0;
}

static int monitoring_board(void)
{
    yk_tensor *loss = yk_scalar(0.5, NULL), *weight = yk_ones(YK_SHAPE(3, 4), NULL);
    yk_tensor *picture = yk_ones(YK_SHAPE(3, 8, 8), NULL);
    int64_t step = 1;
    yk_status status;
#include "monitoring.md.2"
    CHECK(status == YK_OK && strstr(yk_summary_path(board), "runs/mine/events.out.tfevents."));
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        {"README.md: ranks", readme_ranks},
        {"autograd.md", autograd_penalty},
        {"checkpoints.md: of several ranks", checkpoints_group},
        {"checkpoints.md: sharded", checkpoints_sharded},
        {"collectives.md", collectives},
        {"data.md: a loader", data_loader},
        {"data.md: tensors", data_tensors},
        {"data.md: a data set", data_rows},
        {"data.md: collate", data_collate},
        {"data.md: shards", data_shards},
        {"data.md: a transform", data_transform},
        {"data.md: masks and boxes", data_targets},
        {"data.md: mixed batches", data_mix},
        {"data.md: a test", data_test},
        {"data_parallel.md", data_parallel},
        {"data_parallel.md: balance", data_parallel_balance},
        {"pipeline.md", pipeline},
        {"pipeline.md: processes", pipeline_processes},
        {"ddp.md", ddp},
        {"errors.md", errors},
        {"mixed_precision.md", mixed_precision},
        {"modules.md: a module", modules_gate},
        {"modules.md: several tensors", modules_attention},
        {"modules.md: an LSTM", modules_lstm},
        {"modules.md: packed sequences", modules_packed},
        {"modules.md: a transformer", modules_transformer},
        {"modules.md: options", modules_options},
        {"modules.md: optimizers", modules_optimizers},
        {"modules.md: Muon", modules_muon},
        {"modules.md: LBFGS", modules_lbfgs},
        {"monitoring.md: a trace", monitoring},
        {"monitoring.md: TensorBoard", monitoring_board},
        {"onnx.md: a network", onnx},
        {"onnx.md: an LSTM", onnx_lstm},
        {"ownership.md: sums", ownership_sum},
        {"ownership.md: scopes", ownership_scope},
        {"ownership.md: a helper", ownership_return},
        {"rpc.md: references", rpc_references},
        {"rpc.md: modules", rpc_modules},
        {"rpc.md: watched workers", rpc_watched},
        {"rpc.md: several futures", rpc_several},
        {"rpc.md: maps of devices", rpc_device_maps},
        {"rpc.md: objects that come back", rpc_kept},
        {"rpc.md: tensors", rpc_tensor},
        {"rpc.md: parameter servers", rpc_servers},
        {"rpc.md: published tensors", rpc_published},
        {"sparse.md: a step", sparse_step},
        {"stores.md", stores},
        {"text.md: a tokenizer", text_tokenizer},
        {"text.md: tokens", text_tokens},
        {"text.md: GPT-2", text_gpt2},
        {"text.md: less memory", text_checkpoint},
    };
    int bad = setenv("YOKE_CPU_DEVICES", "4", 1);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        yk_scope scope = yk_scope_begin();
        int failed = all[i].run() | yk_report_error(stderr);
        yk_scope_end(scope);
        printf("%s: %s\n", all[i].name, failed ? "failed" : "passed");
        bad |= failed;
    }
    return bad;
}
