/*
 * param_server_test.c - parameter servers: asynchronous, synchronous and bounded-stale updates of dense parameters and
 * of rows, against one process; trainers and servers that are killed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/rpc/workers.h"

enum { WIDTH = 5, ROWS = 4, STEPS = 4, TRAINERS = 3, TABLE_ROWS = 11, DIM = 3 };

/* The servers of a job are the first ranks: worker0, worker1, ... */
static const char *const server_names[] = {"worker0", "worker1", "worker2", "worker3"};

typedef struct plan {
    int servers, trainers;
    yk_status (*train)(const struct plan *plan, int trainer);
    yk_server_mode mode;
    int kind; /* of the optimizer: kinds[] */
} plan;

static yk_status run_worker(int rank, void *arg)
{
    const plan *p = arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_rpc_init(NULL, NULL);
    if (!status && rank >= p->servers)
        status = p->train(p, rank - p->servers);
    if (!status)
        status = yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void run_plan(plan p)
{
    if (yk_spawn(run_worker, &p, p.servers + p.trainers, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

/* Two layers in f64, from a seed: of 5 x 5 + 5 + 5 + 1 elements. */
static yk_module *net_make(uint64_t seed)
{
    yk_manual_seed(seed);
    yk_module *first = yk_linear_create(WIDTH, WIDTH, NULL), *last = yk_linear_create(WIDTH, 1, NULL);
    return yk_module_to_dtype(yk_sequential(first, yk_tanh_create(), last), YK_F64);
}

static yk_tensor *input_of(int step, int trainer)
{
    yk_manual_seed(1000 + (uint64_t)(step * TRAINERS + trainer));
    return yk_randn(YK_SHAPE(ROWS, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static atomic_bool go_on; /* trainer 0 of test_stale has waited in vain */

static yk_tensor *loss_of(yk_module *net, int step, int trainer)
{
    return yk_mean(yk_square(yk_forward(net, input_of(step, trainer))));
}

/* True if they have the same bits; those of a GPU to 1e-12, since servers compute on their host. */
static bool same_bits(yk_tensor *a, yk_tensor *b)
{
    bool on_gpu = (a && yk_tensor_device(a).type != YK_CPU) || (b && yk_tensor_device(b).type != YK_CPU);
    a = a ? yk_contiguous(yk_to(yk_detach(a), (yk_device){YK_CPU, 0})) : NULL;
    b = b ? yk_contiguous(yk_to(yk_detach(b), (yk_device){YK_CPU, 0})) : NULL;
    return a && b && yk_same_shape(a, b) && yk_tensor_dtype(a) == YK_F64 && yk_tensor_dtype(b) == YK_F64 &&
           (on_gpu ? yk_item(yk_max(yk_abs(yk_sub(a, b)))) < 1e-12
                   : memcmp(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * sizeof(double)) == 0);
}

static bool same_weights(yk_module *a, yk_module *b)
{
    yk_parameters *x = yk_module_parameters(a), *y = yk_module_parameters(b);
    for (int64_t i = 0; i < yk_parameters_count(x); i++)
        if (!same_bits(yk_parameters_at(x, i), yk_parameters_at(y, i)))
            return false;
    return true;
}

/* ---- asynchronous ------------------------------------------------------------------------------------------------ */

/* The gradient is the same at every point, so the order of the pushes does not matter. */
static yk_status train_async(const plan *p, int trainer)
{
    enum { PUSHES = 10 };
    yk_module *net = net_make(trainer == 0 ? 1 : 2);
    yk_parameter_server *ps = yk_parameter_server_join(
        server_names, p->servers, yk_module_parameters(net),
        YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = p->trainers, .mode = p->mode,
                   .staleness = 3, .sgd = YK_OPTIONS(yk_sgd_options, .lr = 0.5)));
    CHECK(ps);
    for (int i = 0; i < PUSHES; i++) {
        yk_scope step = yk_scope_begin();
        yk_module_zero_grad(net);
        yk_tensor *loss = NULL;
        yk_parameters *all = yk_module_parameters(net);
        for (int64_t k = 0; k < yk_parameters_count(all); k++) {
            yk_tensor *sum = yk_sum(yk_parameters_at(all, k));
            loss = loss ? yk_add(loss, sum) : sum;
        }
        CHECK(!yk_backward(loss));
        CHECK(i % 2 ? !yk_parameter_server_step(ps) : !yk_parameter_server_push(ps));
        yk_scope_end(step);
    }
    /* All have pushed when all updates are there. */
    for (time_t end = time(NULL) + (time_t)patience(20);
         yk_parameter_server_updates(ps) < (int64_t)PUSHES * p->trainers;) {
        CHECK(time(NULL) < end);
        CHECK(!yk_parameter_server_pull(ps));
    }
    CHECK(yk_parameter_server_updates(ps) == (int64_t)PUSHES * p->trainers);
    double moved = 0.5 * PUSHES * p->trainers;
    /* Trainer 0's numbers are where it began. */
    yk_module *one = net_make(1);
    double off = 0;
    for (int64_t k = 0; k < yk_parameters_count(yk_module_parameters(net)); k++) {
        yk_tensor *start = yk_parameters_at(yk_module_parameters(one), k);
        yk_tensor *now = yk_parameters_at(yk_module_parameters(net), k);
        off += yk_item(yk_sum(yk_abs(yk_sub(yk_add_scalar(yk_detach(now), moved), yk_detach(start)))));
    }
    CHECK(off < 1e-9);
    return YK_OK;
}

static void test_async(void **state)
{
    (void)state;
    run_plan((plan){.servers = 1, .trainers = 2, .train = train_async, .mode = YK_SERVER_ASYNC});
    run_plan((plan){.servers = 2, .trainers = 2, .train = train_async, .mode = YK_SERVER_STALE});
}

/* ---- synchronous: one process, bit for bit ----------------------------------------------------------------------- */

enum { KINDS = 3 };
static const yk_sgd_options *const sgd_dense =
    YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true);
static const yk_sgd_options *const sgd_rows = YK_OPTIONS(yk_sgd_options, .lr = 0.3);
static const yk_adagrad_options *const adagrad = YK_OPTIONS(yk_adagrad_options, .lr = 0.2, .lr_decay = 0.01);
static const yk_adam_options *const adam = YK_OPTIONS(yk_adam_options, .lr = 0.05, .beta1 = 0.8);

static yk_parameter_server_options *options_of(const plan *p, int trainer, bool rows)
{
    static yk_parameter_server_options o;
    o = *YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = p->trainers, .mode = p->mode);
    if (p->kind == 0)
        o.sgd = rows ? sgd_rows : sgd_dense;
    else if (p->kind == 1)
        o.adagrad = adagrad;
    else
        o.adam = adam;
    return &o;
}

static yk_optimizer *alone_optimizer(int kind, yk_parameters *all)
{
    return kind == 0 ? yk_sgd(all, sgd_dense) : kind == 1 ? yk_adagrad(all, adagrad) : yk_adam(all, adam);
}

/* All trainers' batches in one process: their gradients add up in the order of ranks, and the mean is taken. */
static yk_status step_alone(yk_module *net, yk_optimizer *o, int step, int trainers, bool mean)
{
    yk_module_zero_grad(net);
    for (int i = 0; i < trainers; i++)
        CHECK(!yk_backward(loss_of(net, step, i)));
    bool recording = yk_no_grad_begin();
    for (int64_t k = 0; k < yk_parameters_count(yk_module_parameters(net)) && mean; k++) {
        yk_tensor *x = yk_parameters_at(yk_module_parameters(net), k);
        CHECK(!yk_set_grad(x, yk_mul_scalar(yk_grad(x), 1.0 / trainers)));
    }
    yk_no_grad_end(recording);
    CHECK(!yk_optimizer_step(o));
    return YK_OK;
}

static yk_status train_sync(const plan *p, int trainer)
{
    yk_module *net = net_make(10 + (uint64_t)trainer);
    yk_parameter_server_options *options = options_of(p, trainer, false);
    options->sum = p->servers == 2;
    yk_parameter_server *ps = yk_parameter_server_join(server_names, p->servers, yk_module_parameters(net), options);
    CHECK(ps);
    yk_module *alone = net_make(0);
    CHECK(!yk_module_load_state_dict(alone, yk_module_state_dict(net), NULL, NULL));
    yk_optimizer *o = alone_optimizer(p->kind, yk_module_parameters(alone));
    for (int i = 0; i < STEPS; i++) {
        yk_scope step = yk_scope_begin();
        yk_module_zero_grad(net);
        CHECK(!yk_backward(loss_of(net, i, trainer)));
        CHECK(!yk_parameter_server_step(ps));
        CHECK(yk_parameter_server_updates(ps) == i + 1);
        CHECK(!step_alone(alone, o, i, p->trainers, !options->sum));
        CHECK(same_weights(net, alone));
        yk_scope_end(step);
    }
    /* Another rate, of all servers: trainer 0 sets it before anybody's next push is done. */
    if (trainer == 0)
        CHECK(!yk_parameter_server_set_lr(ps, 0.02));
    CHECK(!yk_optimizer_set_lr(o, -1, 0.02));
    yk_module_zero_grad(net);
    CHECK(!yk_backward(loss_of(net, STEPS, trainer)));
    CHECK(!yk_parameter_server_step(ps) && !step_alone(alone, o, STEPS, p->trainers, !options->sum));
    CHECK(same_weights(net, alone));
    /* The joined batch as one: the same but for the order of additions. */
    yk_tensor *joined = NULL;
    for (int i = 0; i < p->trainers; i++)
        joined = joined ? yk_cat((yk_tensor *[]){joined, input_of(0, i)}, 2, 0) : input_of(0, i);
    yk_module_zero_grad(alone);
    CHECK(!yk_backward(yk_mean(yk_square(yk_forward(alone, joined)))));
    yk_module_zero_grad(net);
    CHECK(!yk_backward(loss_of(net, 0, trainer)));
    CHECK(!yk_parameter_server_step(ps));
    if (!options->sum && !yk_optimizer_step(o))
        for (int64_t k = 0; k < yk_parameters_count(yk_module_parameters(net)); k++) {
            yk_tensor *x = yk_parameters_at(yk_module_parameters(net), k);
            yk_tensor *y = yk_parameters_at(yk_module_parameters(alone), k);
            CHECK(yk_item(yk_max(yk_abs(yk_sub(yk_detach(x), yk_detach(y))))) < 1e-12);
        }
    return YK_OK;
}

static void test_sync(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        run_plan((plan){
            .servers = kind + 1, .trainers = TRAINERS, .train = train_sync, .mode = YK_SERVER_SYNC, .kind = kind});
}

/* ---- tables of rows ---------------------------------------------------------------------------------------------- */

/* The rows that a trainer looks up: none twice in one step, some by several trainers, some by none. */
static yk_tensor *words_of(int step, int trainer)
{
    int64_t words[4];
    for (int i = 0; i < 4; i++)
        words[i] = (3 * step + 2 * trainer + 5 * i) % TABLE_ROWS;
    return yk_from_data(words, YK_SHAPE(2, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static yk_tensor *word_loss(yk_tensor *rows, yk_tensor *scale, int step, int trainer)
{
    yk_manual_seed(500 + (uint64_t)(step * TRAINERS + trainer));
    yk_tensor *aim = yk_randn(YK_SHAPE(2, 2, DIM), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_mean(yk_square(yk_sub(yk_mul(rows, scale), aim)));
}

static yk_tensor *all_rows(yk_parameter_server *ps, const char *name, int64_t count)
{
    bool recording = yk_no_grad_begin();
    yk_tensor *index = yk_arange(0, (double)count, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *rows = yk_parameter_server_lookup(ps, name, index);
    yk_no_grad_end(recording);
    return rows;
}

static const yk_server_table tables[] = {{.name = "words", .rows = TABLE_ROWS, .dim = DIM, .std = 1, .dtype = YK_F64},
                                         {.name = "zeros", .rows = 2, .dim = 1, .dtype = YK_F32},
                                         {.name = NULL}};

static yk_optimizer *alone_row_optimizer(int kind, yk_parameters *all)
{
    return kind == 0   ? yk_sgd(all, sgd_rows)
           : kind == 1 ? yk_adagrad(all, adagrad)
                       : yk_sparse_adam(all, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.05, .beta1 = 0.8));
}

static yk_status train_rows(const plan *p, int trainer)
{
    yk_tensor *scale =
        yk_full(YK_SHAPE(DIM), 1.5, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_parameters *dense = yk_parameters_create(), *alone_dense = yk_parameters_create();
    CHECK(!yk_parameters_add(dense, "scale", scale));
    yk_parameter_server_options *options = options_of(p, trainer, true);
    options->tables = tables;
    options->seed = 7;
    options->sum = true;
    yk_parameter_server *ps = yk_parameter_server_join(server_names, p->servers, dense, options);
    CHECK(ps);
    yk_tensor *start = all_rows(ps, "words", TABLE_ROWS);
    CHECK(start && yk_size(start, 0) == TABLE_ROWS && yk_size(start, 1) == DIM && !yk_requires_grad(start));
    CHECK(yk_item(yk_sum(yk_abs(all_rows(ps, "zeros", 2)))) == 0);
    /* Normal numbers, by the seed, and not by the number of servers. */
    double square = yk_item(yk_mean(yk_square(start)));
    CHECK(square > 0.3 && square < 3);
    options->name = "one";
    CHECK(same_bits(all_rows(yk_parameter_server_join(server_names, 1, dense, options), "words", TABLE_ROWS), start));
    options->name = "two";
    options->seed = 8;
    CHECK(!same_bits(all_rows(yk_parameter_server_join(server_names, 1, dense, options), "words", TABLE_ROWS), start));
    /* The same in one process. */
    yk_parameters *alone_rows = yk_parameters_create();
    yk_tensor *table = yk_clone(start), *alone_scale = yk_clone(yk_detach(scale));
    CHECK(!yk_set_requires_grad(table, true) && !yk_set_requires_grad(alone_scale, true));
    CHECK(!yk_parameters_add(alone_rows, "words", table) && !yk_parameters_add(alone_dense, "scale", alone_scale));
    yk_optimizer *o = alone_row_optimizer(p->kind, alone_rows);
    yk_optimizer *dense_steps = p->kind == 0   ? yk_sgd(alone_dense, sgd_rows)
                                : p->kind == 1 ? yk_adagrad(alone_dense, adagrad)
                                               : yk_adam(alone_dense, adam);
    for (int i = 0; i < STEPS; i++) {
        yk_scope step = yk_scope_begin();
        CHECK(!yk_set_grad(scale, NULL));
        CHECK(
            !yk_backward(word_loss(yk_parameter_server_lookup(ps, "words", words_of(i, trainer)), scale, i, trainer)));
        CHECK(!yk_parameter_server_step(ps));
        yk_optimizer_zero_grad(o);
        yk_optimizer_zero_grad(dense_steps);
        for (int k = 0; k < p->trainers; k++)
            CHECK(!yk_backward(word_loss(yk_embedding_sparse(words_of(i, k), table, -1), alone_scale, i, k)));
        CHECK(!yk_optimizer_step(o) && !yk_optimizer_step(dense_steps));
        CHECK(same_bits(all_rows(ps, "words", TABLE_ROWS), table) && same_bits(scale, alone_scale));
        yk_scope_end(step);
    }
    return YK_OK;
}

static void test_rows(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        run_plan((plan){
            .servers = 3 - kind, .trainers = TRAINERS, .train = train_rows, .mode = YK_SERVER_SYNC, .kind = kind});
}

/* Rows that one lookup has several times, two lookups before a push, and rows that nobody asks for. */
static yk_status train_repeated(const plan *p, int trainer)
{
    yk_parameter_server *ps = yk_parameter_server_join(
        server_names, p->servers, NULL,
        YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = 1, .tables = tables, .sgd = sgd_rows));
    CHECK(ps && yk_parameter_server_retain(ps) == ps);
    yk_parameter_server_release(ps);
    const int64_t index[] = {3, 1, 3, 8, 3}, again[] = {1, 10};
    const double times[TABLE_ROWS] = {0, 2, 0, 3, 0, 0, 0, 0, 1, 0, 1};
    yk_tensor *before = all_rows(ps, "words", TABLE_ROWS);
    yk_tensor *a = yk_parameter_server_lookup(
        ps, "words", yk_from_data(index, YK_SHAPE(5), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    CHECK(same_bits(yk_narrow(a, 0, 2, 1), yk_narrow(before, 0, 3, 1)));
    yk_tensor *b = yk_parameter_server_lookup(
        ps, "words", yk_from_data(again, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    CHECK(!yk_backward(yk_add(yk_sum(a), yk_sum(b))));
    CHECK(!yk_parameter_server_push(ps) && yk_parameter_server_updates(ps) == 1);
    yk_tensor *after = all_rows(ps, "words", TABLE_ROWS);
    for (int i = 0; i < TABLE_ROWS; i++)
        CHECK(fabs(yk_get(before, (int64_t[]){i, 1}) - yk_get(after, (int64_t[]){i, 1}) - 0.3 * times[i]) < 1e-12);
    /* A second push has nothing of these. */
    CHECK(!yk_parameter_server_push(ps) && same_bits(all_rows(ps, "words", TABLE_ROWS), after));
    yk_tensor *none = yk_parameter_server_lookup(
        ps, "words", yk_zeros(YK_SHAPE(0, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    CHECK(none && yk_ndim(none) == 3 && yk_size(none, 2) == DIM);
    return YK_OK;
}

static void test_repeated_rows(void **state)
{
    (void)state;
    run_plan((plan){.servers = 2, .trainers = 1, .train = train_repeated});
}

/* ---- bounded staleness ------------------------------------------------------------------------------------------- */

static yk_status train_stale(const plan *p, int trainer)
{
    enum { AHEAD = 2 };
    yk_tensor *x = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_parameters *all = yk_parameters_create();
    CHECK(!yk_parameters_add(all, "x", x));
    yk_parameter_server *ps = yk_parameter_server_join(
        server_names, p->servers, all,
        YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = 2, .mode = YK_SERVER_STALE,
                   .staleness = AHEAD, .timeout = trainer ? patience(20) : 1, .sgd = sgd_rows));
    CHECK(ps && !yk_backward(yk_sum(x)));
    if (trainer == 1) {
        /* The other has come as far as it can; it waits for this one, and says so. */
        CHECK(yk_rpc_sync("worker1", "stuck", NULL, NULL));
        CHECK(!yk_parameter_server_push(ps));
        return YK_OK;
    }
    for (int i = 0; i < AHEAD; i++)
        CHECK(!yk_parameter_server_push(ps));
    CHECK(yk_parameter_server_push(ps));
    CHECK(failed_with(YK_ERR_TIMEOUT, "trainers are waited for: 1", "parameter_server_push"));
    /* It was an update all the same. When the other trainer has pushed, or has left, this one goes on. */
    CHECK(!yk_parameter_server_pull(ps) && yk_parameter_server_updates(ps) == AHEAD + 1);
    go_on = true;
    yk_status status = YK_OK;
    for (int i = 0; i < 20 && (status = yk_parameter_server_push(ps)) == YK_ERR_TIMEOUT; i++)
        yk_clear_error();
    CHECK(!status);
    return YK_OK;
}

/* Answers when trainer 0 has waited in vain. */
static yk_status serve_stuck(yk_call *call)
{
    for (int i = 0; i < 3000 && !go_on; i++)
        usleep(10000);
    return yk_call_return(call, yk_value_bool(go_on));
}

static void test_stale(void **state)
{
    (void)state;
    expect_ok(yk_rpc_register("stuck", serve_stuck));
    run_plan((plan){.servers = 1, .trainers = 2, .train = train_stale});
}

/* ---- trainers and servers that are killed ------------------------------------------------------------------------ */

static yk_status offer_nothing(void)
{
    return YK_OK;
}

static const char *const kept_names[] = {"s0", "s1"};
static char folder[300];

/* The snapshots, and what a server that was killed has not finished. */
static void folder_remove(void)
{
    DIR *all = opendir(folder);
    assert_non_null(all);
    for (const struct dirent *e; (e = readdir(all));)
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
            assert_int_equal(unlinkat(dirfd(all), e->d_name, 0), 0);
    closedir(all);
    assert_int_equal(rmdir(folder), 0);
}

/* The last of two trainers kills itself after two steps; the other goes on alone: in a synchronous run with the weights
 * of one process, in a bounded-stale one though it is soon more steps ahead than it may be. */
static yk_status killed_trainer(int rank, const char *path, yk_server_mode mode)
{
    enum { TOGETHER = 2 };
    const char *const names[] = {"s0", "t0", "t1"};
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(offer_nothing, path, names[rank], 3));
    if (rank > 0) {
        int trainer = rank - 1;
        yk_module *net = net_make(3), *alone = net_make(3);
        yk_optimizer *o = yk_sgd(yk_module_parameters(alone), sgd_dense);
        yk_parameter_server *ps =
            yk_parameter_server_join(kept_names, 1, yk_module_parameters(net),
                                     YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = 2,
                                                .mode = mode, .staleness = 1, .sgd = sgd_dense));
        CHECK(ps);
        for (int i = 0; i < 2 * STEPS; i++) {
            if (i == TOGETHER && trainer == 1)
                raise(SIGKILL);
            yk_module_zero_grad(net);
            CHECK(!yk_backward(loss_of(net, i, trainer)) && !yk_parameter_server_step(ps));
            if (mode == YK_SERVER_SYNC)
                CHECK(!step_alone(alone, o, i, i < TOGETHER ? 2 : 1, true) && same_weights(net, alone));
        }
        int64_t updates = yk_parameter_server_updates(ps);
        CHECK(updates == (mode == YK_SERVER_SYNC ? 2 * STEPS : 2 * STEPS + TOGETHER));
    }
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
    return YK_OK;
}

static yk_status killed_sync(int rank, const char *path)
{
    return killed_trainer(rank, path, YK_SERVER_SYNC);
}

static yk_status killed_stale(int rank, const char *path)
{
    return killed_trainer(rank, path, YK_SERVER_STALE);
}

static void test_a_trainer_that_dies(void **state)
{
    (void)state;
    for (int stale = 0; stale < 2; stale++) {
        char path[] = "/tmp/yoke-ps-XXXXXX";
        close(mkstemp(path));
        pid_t pids[3];
        fork_workers(stale ? killed_stale : killed_sync, path, 3, pids);
        expect_end(pids[2], SIGKILL);
        expect_end(pids[1], 0);
        expect_end(pids[0], 0);
        unlink(path);
    }
}

/* Two servers, ranks 0 and 1, and two trainers, which look at nothing but their own weights. */
static yk_status kept_worker(int rank, const char *path)
{
    enum { LONG = 60 };
    const char *const names[] = {"s0", "s1", "t0", "t1"};
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(offer_nothing, path, names[rank], 4));
    if (rank >= 2) {
        int trainer = rank - 2;
        yk_module *net = net_make(3), *alone = net_make(3);
        yk_optimizer *o = yk_adam(yk_module_parameters(alone), adam);
        yk_parameter_server *ps = yk_parameter_server_join(
            kept_names, 2, yk_module_parameters(net),
            YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = 2, .mode = YK_SERVER_SYNC,
                       .adam = adam, .snapshots = folder, .snapshot_every = 1));
        CHECK(ps);
        for (int i = 0; i < LONG; i++) {
            yk_scope step = yk_scope_begin();
            char key[20];
            snprintf(key, sizeof(key), "step%d", i);
            if (trainer == 0)
                CHECK(!yk_store_set(yk_file_store(path), key, "1", 1));
            yk_module_zero_grad(net);
            CHECK(!yk_backward(loss_of(net, i, trainer)) && !yk_parameter_server_step(ps));
            CHECK(!step_alone(alone, o, i, 2, true) && same_weights(net, alone));
            yk_scope_end(step);
        }
        CHECK(!yk_parameter_server_save(ps) && yk_parameter_server_updates(ps) == LONG);
    }
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
    return YK_OK;
}

static pid_t fork_again(int rank, const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        bool failed = kept_worker(rank, path);
        if (failed)
            yk_report_error(stderr);
        _exit(failed);
    }
    return pid;
}

/* The updates in a snapshot, below 255, which another process reads: this one is forked again, and so uses no GPU. */
static int updates_of(const char *file)
{
    int ended = 0;
    pid_t pid = fork();
    if (pid == 0) {
        yk_scope scope = yk_scope_begin();
        yk_value *saved = yk_pt_load(file, NULL);
        int64_t updates = saved ? yk_value_as_int(yk_value_get(saved, "updates")) : 255;
        yk_scope_end(scope);
        _exit(updates >= 0 && updates < 255 ? (int)updates : 255);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/* Servers that are killed in the midst of updates, and started again: nothing is lost, nothing is twice. */
static void test_servers_that_come_back(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-ps-XXXXXX";
    int fd = mkstemp(path);
    pid_t pids[4];
    snprintf(folder, sizeof(folder), "%s.kept", path);
    fork_workers(kept_worker, path, 4, pids);
    const char *const moments[] = {"step4", "step15", "step30", "step31", "step50"};
    for (int i = 0; i < 5; i++) {
        yk_scope scope = yk_scope_begin();
        expect_ok(await_key(path, moments[i]));
        kill(pids[i % 2], SIGKILL);
        expect_end(pids[i % 2], SIGKILL);
        pids[i % 2] = fork_again(i % 2, path);
        yk_scope_end(scope);
    }
    for (int i = 3; i >= 0; i--)
        expect_end(pids[i], 0);
    close(fd);
    unlink(path);
    for (int i = 1; i <= 2; i++) {
        char file[400];
        snprintf(file, sizeof(file), "%s/parameters.%d-of-2.pt", folder, i);
        assert_int_equal(updates_of(file), 60);
    }
    folder_remove();
}

/* A trainer that pushes a gradient of ones at a rate of 1 to a server that is killed after six pushes, of which the
 * snapshot has four: those behind it are lost, and the push that follows is in once. Without a folder the server's end
 * is the trainer's error. */
static yk_status lossy_worker(int rank, const char *path, const char *snapshots)
{
    enum { BEFORE = 6, SAVED = 4 };
    const char *const names[] = {"s0", "t0"};
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(offer_nothing, path, names[rank], 2));
    if (rank == 1) {
        yk_tensor *x = yk_zeros(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
        yk_parameters *all = yk_parameters_create();
        CHECK(!yk_parameters_add(all, "x", x));
        yk_parameter_server *ps = yk_parameter_server_join(
            kept_names, 1, all,
            YK_OPTIONS(yk_parameter_server_options, .rank = 0, .trainers = 1, .snapshots = snapshots,
                       .snapshot_every = SAVED, .timeout = patience(20), .sgd = YK_OPTIONS(yk_sgd_options, .lr = 1)));
        CHECK(ps && !yk_backward(yk_sum(x)));
        for (int i = 1; i <= BEFORE; i++)
            CHECK(!yk_parameter_server_step(ps) && yk_get(x, (int64_t[]){2}) == -i);
        CHECK(!yk_store_set(yk_file_store(path), "six", "1", 1) && !await_key(path, "killed"));
        yk_status status = yk_parameter_server_step(ps);
        if (snapshots)
            CHECK(!status && yk_parameter_server_updates(ps) == SAVED + 1 && yk_get(x, (int64_t[]){0}) == -SAVED - 1);
        else
            CHECK(status && failed_with(YK_ERR_CONNECTION, "parameter_server_step", "'s0'"));
    }
    CHECK(!yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30)));
    yk_scope_end(scope);
    return YK_OK;
}

static yk_status lossy_with_folder(int rank, const char *path)
{
    return lossy_worker(rank, path, folder);
}

static yk_status lossy_without_folder(int rank, const char *path)
{
    return lossy_worker(rank, path, NULL);
}

static void test_a_server_that_loses(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        char path[] = "/tmp/yoke-ps-XXXXXX";
        close(mkstemp(path));
        pid_t pids[2];
        snprintf(folder, sizeof(folder), "%s.kept", path);
        fork_workers(kept ? lossy_with_folder : lossy_without_folder, path, 2, pids);
        yk_scope scope = yk_scope_begin();
        expect_ok(await_key(path, "six"));
        kill(pids[0], SIGKILL);
        expect_end(pids[0], SIGKILL);
        if (kept && (pids[0] = fork()) == 0) {
            alarm(60);
            bool failed = lossy_with_folder(0, path);
            if (failed)
                yk_report_error(stderr);
            _exit(failed);
        }
        expect_ok(yk_store_set(yk_file_store(path), "killed", "1", 1));
        yk_scope_end(scope);
        expect_end(pids[1], 0);
        if (kept)
            expect_end(pids[0], 0);
        unlink(path);
        if (kept)
            folder_remove();
    }
}

/* A job that begins with the snapshot of one before, in which the second trainer had left; and one whose parameters are
 * others. */
static yk_status train_on(const plan *p, int trainer)
{
    yk_module *net = net_make(3 + (uint64_t)p->kind);
    yk_parameters *all = yk_module_parameters(net);
    yk_parameter_server_options *o =
        YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = 2, .mode = YK_SERVER_SYNC,
                   .snapshots = folder, .snapshot_every = 3, .adagrad = adagrad);
    yk_parameter_server *ps = yk_parameter_server_join(server_names, 1, all, o);
    CHECK(ps && yk_parameter_server_updates(ps) == (p->kind ? 3 : 0));
    yk_module *alone = net_make(3);
    yk_optimizer *steps = yk_adagrad(yk_module_parameters(alone), adagrad);
    for (int i = 0; i < 3 * p->kind; i++)
        CHECK(!step_alone(alone, steps, i, 2, true));
    CHECK(same_weights(net, alone));
    for (int i = 3 * p->kind; i < 3 * p->kind + 3; i++) {
        yk_module_zero_grad(net);
        CHECK(!yk_backward(loss_of(net, i, trainer)) && !yk_parameter_server_step(ps));
        CHECK(!step_alone(alone, steps, i, 2, true) && same_weights(net, alone));
    }
    return YK_OK;
}

static void test_a_job_that_goes_on(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-ps-XXXXXX";
    assert_non_null(mkdtemp(path));
    snprintf(folder, sizeof(folder), "%s", path);
    run_plan((plan){.servers = 1, .trainers = 2, .train = train_on, .kind = 0});
    run_plan((plan){.servers = 1, .trainers = 2, .train = train_on, .kind = 1});
    folder_remove();
}

/* ---- wrong arguments --------------------------------------------------------------------------------------------- */

static yk_parameter_server *join_wrong(yk_parameters *all, const yk_parameter_server_options *o)
{
    return yk_parameter_server_join(server_names, 1, all, o);
}

static yk_status train_wrong(const plan *p, int trainer)
{
    (void)p;
    (void)trainer;
    yk_module *net = net_make(1);
    yk_parameters *all = yk_module_parameters(net);
    const yk_sgd_options *sgd = sgd_rows;
    static const yk_server_table none_of_rows[] = {{.name = "words", .dim = 3}, {.name = NULL}};
    static const yk_server_table twice[] = {
        {.name = "a", .rows = 1, .dim = 3}, {.name = "a", .rows = 2, .dim = 3}, {.name = NULL}};
    static const yk_server_table whole[] = {{.name = "a", .rows = 1, .dim = 3, .dtype = YK_I64}, {.name = NULL}};
#define WRONG(code, text, ...)                                                                                         \
    CHECK(!join_wrong(all, YK_OPTIONS(yk_parameter_server_options, __VA_ARGS__)) &&                                    \
          failed_with(code, "parameter_server_join", text))
    WRONG(YK_ERR_ARGUMENT, "0 optimizers", .rank = 0, .trainers = 1);
    WRONG(YK_ERR_ARGUMENT, "2 optimizers", .sgd = sgd, .adam = adam);
    WRONG(YK_ERR_ARGUMENT, "rank and trainers go together", .sgd = sgd, .rank = 0);
    WRONG(YK_ERR_ARGUMENT, "rank", .sgd = sgd, .rank = 2, .trainers = 2);
    WRONG(YK_ERR_ARGUMENT, "no mode 7", .sgd = sgd, .mode = (yk_server_mode)7);
    WRONG(YK_ERR_ARGUMENT, "staleness", .sgd = sgd, .staleness = -1);
    WRONG(YK_ERR_ARGUMENT, "snapshot_every", .sgd = sgd, .snapshot_every = 0);
    WRONG(YK_ERR_ARGUMENT, "'/'", .sgd = sgd, .name = "a/b");
    WRONG(YK_ERR_ARGUMENT, "0 rows of 3", .sgd = sgd, .tables = none_of_rows);
    WRONG(YK_ERR_ARGUMENT, "two tables 'a'", .sgd = sgd, .tables = twice);
    WRONG(YK_ERR_DTYPE, "int64", .sgd = sgd, .tables = whole);
    WRONG(YK_ERR_UNSUPPORTED, "a momentum of sgd", .sgd = sgd_dense, .tables = tables);
    CHECK(!yk_parameter_server_join(NULL, 1, all, NULL) && failed_with(YK_ERR_ARGUMENT, "array of servers", "NULL"));
    CHECK(!yk_parameter_server_join(server_names, 0, all, NULL) && failed_with(YK_ERR_ARGUMENT, "count", "0"));
    CHECK(!yk_parameter_server_join((const char *const[]){"worker0", "worker0"}, 2, all,
                                    YK_OPTIONS(yk_parameter_server_options, .sgd = sgd)) &&
          failed_with(YK_ERR_ARGUMENT, "two servers", "worker0"));
    CHECK(!join_wrong(NULL, YK_OPTIONS(yk_parameter_server_options, .sgd = sgd)) &&
          failed_with(YK_ERR_ARGUMENT, "no parameter that requires a gradient", "no table"));
    /* A learning rate that the server refuses. */
    WRONG(YK_ERR_ARGUMENT, "lr", .name = "other", .rank = 0, .trainers = 1,
          .sgd = YK_OPTIONS(yk_sgd_options, .lr = -1));
    yk_parameter_server *ps = join_wrong(
        all, YK_OPTIONS(yk_parameter_server_options, .rank = 0, .trainers = 2, .sgd = sgd, .tables = tables));
    CHECK(ps);
    /* Another trainer that says it is the same one, or has other parameters. */
    WRONG(YK_ERR_ARGUMENT, "a trainer 0 already", .rank = 0, .trainers = 2, .sgd = sgd, .tables = tables);
    WRONG(YK_ERR_ARGUMENT, "2 trainers", .rank = 1, .trainers = 3, .sgd = sgd, .tables = tables);
    WRONG(YK_ERR_ARGUMENT, "'table words", .rank = 1, .trainers = 2, .sgd = sgd);
    WRONG(YK_ERR_ARGUMENT, "'optimizer sgd', and not 'optimizer adam'", .rank = 1, .trainers = 2, .adam = adam);
    yk_tensor *index = yk_full(YK_SHAPE(2), TABLE_ROWS, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    CHECK(!yk_parameter_server_lookup(ps, "word", index) && failed_with(YK_ERR_NOT_FOUND, "'word'", "mean 'words'"));
    CHECK(!yk_parameter_server_lookup(ps, "words", index) && failed_with(YK_ERR_ARGUMENT, "index[0] is 11", "11 rows"));
    CHECK(!yk_parameter_server_lookup(ps, "words", yk_zeros(YK_SHAPE(2), NULL)) &&
          failed_with(YK_ERR_DTYPE, "float32", "int64"));
    CHECK(!yk_parameter_server_lookup(ps, NULL, index) && failed_with(YK_ERR_ARGUMENT, "name of a table", "NULL"));
    CHECK(yk_parameter_server_save(ps) && failed_with(YK_ERR_STATE, "no folder of snapshots", "worker0"));
    CHECK(yk_parameter_server_set_lr(ps, -1) && failed_with(YK_ERR_ARGUMENT, "lr", "worker0"));
    CHECK(yk_parameter_server_step(NULL) && failed_with(YK_ERR_ARGUMENT, "parameter_server_step", "NULL"));
    CHECK(yk_parameter_server_updates(NULL) == 0);
    return YK_OK;
#undef WRONG
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    run_plan((plan){.servers = 1, .trainers = 1, .train = train_wrong});
    yk_scope scope = yk_scope_begin();
    assert_null(yk_parameter_server_join(server_names, 1, yk_module_parameters(net_make(1)),
                                         YK_OPTIONS(yk_parameter_server_options, .sgd = sgd_rows)));
    assert_true(failed_with(YK_ERR_STATE, "parameter_server_join", "rpc_init"));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_repeated_rows),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_a_trainer_that_dies),
        cmocka_unit_test(test_servers_that_come_back),
        cmocka_unit_test(test_a_server_that_loses),
        cmocka_unit_test(test_a_job_that_goes_on),
        cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
