/*
 * handles.h - an object of every kind, and calls of every public function with them: handle_calls.h is made from the
 * headers by tests/support/make-handle-calls.
 */
#ifndef YOKE_TESTS_HANDLES_H
#define YOKE_TESTS_HANDLES_H

#include "tests/support/expect.h"

#include <stdio.h>

#include <yoke/yoke.h>

typedef struct handle_call {
    const char *name;
    void (*call)(yk_scope scope);
} handle_call;

/* The call gives 1 where it failed: it gave NULL or a status. */
typedef struct record_call {
    const char *name, *kind; /* "question" or "action" */
    int (*call)(yk_scope scope);
} record_call;

/* A program that includes this may use a part of it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-result"

static _Alignas(64) unsigned char room[4096]; /* for results */
static FILE *nowhere;

static int stub(void)
{
    return 0;
}

static yk_tensor *forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)n;
    return yk_neg(inputs[0]);
}

static yk_status backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)grad, (void)grads, (void)n;
    return YK_OK;
}

static yk_status get_sample(void *context, int64_t index, yk_sample *sample)
{
    static const float value[1];
    (void)context, (void)index;
    yk_sample_view(sample, value, YK_F32, 1, (int64_t[]){1});
    return YK_OK;
}

static void watch(void *arg, const char *key, const void *data, size_t size, const yk_error *error)
{
    (void)arg, (void)key, (void)data, (void)size, (void)error;
}

static const yk_custom_function some_custom_function = {.name = "custom", .forward = forward, .backward = backward};
static const yk_dataset_table some_dataset_table = {.name = "table", .length = 4, .get = get_sample};
static yk_shard some_shard = {.name = "x"};

static yk_tensor *make_yk_tensor(void)
{
    return yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
}
static yk_module *make_yk_module(void)
{
    return yk_linear_create(1, 1, NULL);
}
static yk_parameters *make_yk_parameters(void)
{
    return yk_module_parameters(make_yk_module());
}
static yk_optimizer *make_yk_optimizer(void)
{
    return yk_sgd(make_yk_parameters(), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
}
static yk_state_dict *make_yk_state_dict(void)
{
    return yk_module_state_dict(make_yk_module());
}
static yk_schedule *make_yk_schedule(void)
{
    return yk_exponential_lr(make_yk_optimizer(), 0.5);
}
static yk_grad_scaler *make_yk_grad_scaler(void)
{
    return yk_grad_scaler_create(NULL);
}
static yk_status run_step(void *user)
{
    (void)user;
    return YK_OK;
}
static yk_graph *make_yk_graph(void)
{
    return yk_graph_create((yk_device){0}, 1, run_step, NULL);
}
static yk_transform *make_yk_transform(void)
{
    return yk_to_tensor();
}
static yk_dataset *make_yk_dataset(void)
{
    return yk_dataset_create(&some_dataset_table, NULL, NULL);
}
static yk_tokenizer *make_yk_tokenizer(void)
{
    return yk_tokenizer_bytes();
}
static yk_tokens *make_yk_tokens(void)
{
    static const char path[] = "/tmp/yoke-handles-tokens";
    FILE *file = fopen(path, "w");
    yk_tokens *tokens = file && fputs("text", file) >= 0 && !fclose(file) ? yk_token_text(path, NULL) : NULL;
    remove(path);
    return tokens;
}
static yk_loader *make_yk_loader(void)
{
    return yk_loader_create(make_yk_dataset(), YK_OPTIONS(yk_loader_options, .batch_size = 2));
}
static yk_process_group *make_yk_process_group(void)
{
    return yk_process_group_create(NULL, 0, 1, NULL);
}
static yk_work *make_yk_work(void)
{
    return yk_barrier_async(make_yk_process_group());
}
static yk_store *make_yk_store(void)
{
    return yk_hash_store();
}
static yk_store_watcher *make_yk_store_watcher(void)
{
    return yk_store_watcher_create(make_yk_store(), "key", watch, NULL);
}
static yk_value *make_yk_value(void)
{
    return yk_value_dict();
}
static char folder[] = "/tmp/yoke-handles-XXXXXX";
static yk_checkpoint_manager *make_yk_checkpoint_manager(void)
{
    return yk_checkpoint_manager_create(folder, NULL);
}

static yk_status run_rank(int rank, void *arg)
{
    (void)rank, (void)arg;
    return YK_OK;
}
static yk_spawn_context *make_yk_spawn_context(void)
{
    return yk_spawn_start(run_rank, NULL, 1, NULL);
}

static yk_status answer(yk_call *call)
{
    return yk_call_return(call, yk_value_int(1));
}
/* This process alone is a worker. */
static bool is_worker(void)
{
    return yk_rpc_name() ||
           (!yk_rpc_register("answer", answer) &&
            !yk_rpc_init("handles", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .timeout = 5)));
}
static yk_elastic *make_yk_elastic(void)
{
    yk_module *model = make_yk_module();
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    return yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = model, .optimizer = sgd,
                                        .loader = make_yk_loader(), .virtual_ranks = 2));
}
static yk_future *make_yk_future(void)
{
    return is_worker() ? yk_rpc_async("handles", "answer", NULL, NULL) : NULL;
}
static yk_ref *make_yk_ref(void)
{
    return is_worker() ? yk_rpc_remote("handles", "answer", NULL, NULL) : NULL;
}
static yk_dist_optimizer *make_yk_dist_optimizer(void)
{
    yk_ref *parameter = is_worker() ? yk_ref_create(yk_value_tensor(make_yk_tensor())) : NULL;
    return parameter ? yk_dist_sgd(&parameter, 1, YK_OPTIONS(yk_sgd_options, .lr = 0.1)) : NULL;
}

#define KINDS(X)                                                                                                       \
    X(yk_graph)                                                                                                        \
    X(yk_tensor)                                                                                                       \
    X(yk_module)                                                                                                       \
    X(yk_parameters)                                                                                                   \
    X(yk_optimizer)                                                                                                    \
    X(yk_state_dict)                                                                                                   \
    X(yk_schedule)                                                                                                     \
    X(yk_grad_scaler)                                                                                                  \
    X(yk_transform)                                                                                                    \
    X(yk_dataset)                                                                                                      \
    X(yk_tokenizer)                                                                                                    \
    X(yk_tokens)                                                                                                       \
    X(yk_loader)                                                                                                       \
    X(yk_process_group)                                                                                                \
    X(yk_work)                                                                                                         \
    X(yk_store)                                                                                                        \
    X(yk_store_watcher)                                                                                                \
    X(yk_value)                                                                                                        \
    X(yk_checkpoint_manager)                                                                                           \
    X(yk_spawn_context)                                                                                                \
    X(yk_future)                                                                                                       \
    X(yk_elastic)                                                                                                      \
    X(yk_ref)                                                                                                          \
    X(yk_dist_optimizer)

#define DECLARE(type) static type *freed_##type, *some_##type;
KINDS(DECLARE)

#include "handle_calls.h"
#pragma GCC diagnostic pop

#endif
