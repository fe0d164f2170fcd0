/*
 * group_checkpoint_test.c - training checkpoints of several processes: all save or none, all load the same, errors that
 * name the rank, and the same bits with any number of processes. Kills are in group_kills_test.c.
 */
#include "tests/comm/ranks.h"

#include "tests/checkpoint/folders.h"

#include <errno.h>
#include <sys/resource.h>

#include <yoke/checkpoint.h>

#include "tensor/tensor.h"

enum { SAMPLES = 103, BATCH = 4 };

typedef struct run {
    yk_module *model;
    yk_loader *loader;
    double loss;
    yk_checkpoint_value values[2];
    yk_checkpoint_state state;
} run;

static yk_status sample_get(void *context, int64_t index, yk_sample *sample)
{
    static const unsigned char pixel;
    (void)context;
    yk_sample_label(sample, index % 3);
    yk_sample_view(sample, &pixel, YK_U8, 3, (int64_t[]){1, 1, 1});
    return YK_OK;
}

/* Every rank has equal weights and state of Adam; buffers and random generators differ. */
static void run_make(run *r, int rank, int size, uint64_t seed)
{
    *r = (run){.loss = NAN};
    yk_manual_seed(seed);
    r->model = yk_sequential(yk_conv2d_create(1, 5, 3, NULL), yk_batch_norm2d_create(5, NULL));
    yk_optimizer *adam = yk_adam(yk_module_parameters(r->model), YK_OPTIONS(yk_adam_options, .lr = 0.01));
    yk_dataset *set = yk_dataset_create(
        &(yk_dataset_table){.name = "numbers", .length = SAMPLES, .classes = 3, .get = sample_get}, NULL, NULL);
    r->loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true, .seed = 5,
                                                 .rank = rank, .world_size = size, .padding = false));
    yk_loader_start(r->loader, 0);
    r->values[0] = (yk_checkpoint_value){"loss", &r->loss};
    r->state = (yk_checkpoint_state){.model = r->model, .optimizer = adam, .loader = r->loader, .values = r->values};
    yk_manual_seed(seed * 1000 + (uint64_t)rank);
}

/* A step of the optimizer with gradients that are functions of the step alone: equal on all ranks. */
static yk_status run_step(run *r)
{
    yk_scope scope = yk_scope_begin();
    r->state.step++;
    yk_parameters *parameters = yk_module_parameters(r->model);
    yk_optimizer_zero_grad(r->state.optimizer);
    yk_tensor *loss = NULL;
    for (int64_t i = 0; i < yk_parameters_count(parameters); i++) {
        yk_tensor *x = yk_parameters_at(parameters, i);
        yk_tensor *term = yk_sum(yk_mul(x, yk_mul_scalar(x, 1.0 + (double)r->state.step * (double)(i + 1))));
        loss = loss ? yk_add(loss, term) : term;
    }
    r->loss = yk_item(loss);
    yk_status status = yk_backward(loss);
    if (!status)
        status = yk_optimizer_step(r->state.optimizer);
    yk_scope_end(scope);
    return status;
}

static yk_status set_buffers(run *r, double value)
{
    return yk_init_constant(yk_module_get(r->model, "1.running_mean"), value);
}

static float first_of(run *r, const char *name)
{
    float values[64] = {0};
    yk_tensor *x = yk_module_get(r->model, name);
    return x && !yk_tensor_read(x, values, (size_t)yk_numel(x) * sizeof(float)) ? values[0] : NAN;
}

static float draw(void)
{
    yk_scope scope = yk_scope_begin();
    float x = (float)yk_item(yk_rand(0, NULL, NULL));
    yk_scope_end(scope);
    return x;
}

typedef struct how {
    bool sharded, async, broadcast, known; /* known: the manager is told the state */
    int steps;
} how;

static yk_checkpoint_manager *manage(rank_context *c, const how *h, const run *r)
{
    return yk_checkpoint_manager_create("root", YK_OPTIONS(yk_checkpoint_manager_options, .sharded = h->sharded,
                                                           .async = h->async, .group = c->group,
                                                           .state = h->known ? &r->state : NULL));
}

/* Trains, saves at every step, and notes what comes next in a file of this rank. */
static void train_and_save(rank_context *c)
{
    const how *h = c->arg;
    run r;
    run_make(&r, c->rank, c->size, 7);
    CHECK_OK(set_buffers(&r, c->rank + 1));
    yk_checkpoint_manager *m = manage(c, h, &r);
    CHECK(m, "%s", yk_last_error()->message);
    for (int i = 0; i < h->steps; i++) {
        CHECK_OK(run_step(&r));
        draw();
        yk_batch batch;
        CHECK(yk_loader_next(r.loader, &batch), "no batch");
        CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    }
    CHECK_OK(yk_checkpoint_manager_wait(m));
    char name[32];
    snprintf(name, sizeof(name), "next.%d", c->rank);
    FILE *f = fopen(name, "w");
    CHECK(f, "%s", strerror(errno));
    yk_batch batch;
    CHECK(yk_loader_next(r.loader, &batch), "no batch");
    fprintf(f, "%.9g %.9g %lld", (double)draw(), (double)first_of(&r, "0.weight"), (long long)batch.samples[0]);
    fclose(f);
}

/* A new process of the same number of ranks goes on with the same numbers, whatever it had before. */
static void go_on(rank_context *c)
{
    const how *h = c->arg;
    run r;
    run_make(&r, c->rank, c->size, 1234);
    yk_checkpoint_found found;
    if (h->broadcast && c->rank)
        CHECK(mkdir("elsewhere", 0777) == 0 || errno == EEXIST, "%s", strerror(errno));
    if (h->broadcast && c->rank)
        CHECK(chdir("elsewhere") == 0, "%s", strerror(errno));
    CHECK_OK(yk_checkpoint_load_latest(
        "root", &r.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group, .broadcast = h->broadcast), &found));
    if (h->broadcast && c->rank)
        CHECK(chdir("..") == 0, "%s", strerror(errno));
    CHECK(r.state.step == h->steps && found.step == h->steps, "step %lld", (long long)r.state.step);
    CHECK(isfinite(r.loss), "no loss");
    CHECK(first_of(&r, "1.running_mean") == 1, "buffers are %g, not rank 0's", (double)first_of(&r, "1.running_mean"));
    char name[32], text[100] = "", wanted[100];
    snprintf(name, sizeof(name), "next.%d", c->rank);
    FILE *f = fopen(name, "r");
    CHECK(f && fgets(text, sizeof(text), f), "%s", strerror(errno));
    fclose(f);
    yk_batch batch;
    CHECK(yk_loader_next(r.loader, &batch), "no batch");
    snprintf(wanted, sizeof(wanted), "%.9g %.9g %lld", (double)draw(), (double)first_of(&r, "0.weight"),
             (long long)batch.samples[0]);
    CHECK(strcmp(text, wanted) == 0, "%s, not %s", wanted, text);
}

static void goes_on_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        how h = {.sharded = i & 1, .async = i & 2, .known = i & 4, .steps = 4};
        run_ranks(PROCESSES, 3, train_and_save, &h, patience(20), true);
        struct stat info;
        assert_int_equal(stat("root/step-00000004/optimizer-00003-of-00003.safetensors", &info) == 0, h.sharded);
        assert_int_equal(stat("root/step-00000004/optimizer.safetensors", &info) == 0, !h.sharded);
        assert_int_not_equal(stat("root/step-00000001", &info), 0); /* three are kept */
        assert_int_equal(stat("root/step-00000002", &info), 0);
        expect_ok(yk_checkpoint_verify("root/step-00000003"));
        run_ranks(PROCESSES, 3, go_on, &h, patience(20), true);
        h.broadcast = true;
        run_ranks(PROCESSES, 3, go_on, &h, patience(20), true);
        assert_int_equal(nftw("root", remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* ---- other numbers of processes --------------------------------------------------------------------------------- */

typedef struct leg {
    int size;
    bool sharded, last;
} leg;

/* Loads the newest, takes so many batches as a leg has, notes their samples, and saves. */
static void next_leg(rank_context *c)
{
    const leg *l = c->arg;
    run r;
    run_make(&r, c->rank, c->size, 99);
    yk_status status =
        yk_checkpoint_load_latest("root", &r.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group), NULL);
    if (status == YK_ERR_NOT_FOUND) {
        yk_clear_error();
        run_make(&r, c->rank, c->size, 7);
        for (int i = 0; i < 3; i++)
            CHECK_OK(run_step(&r));
    } else {
        CHECK_OK(status);
        r.state.step++;
    }
    char name[64];
    snprintf(name, sizeof(name), "samples.%d.%lld", c->rank, (long long)r.state.step);
    FILE *f = fopen(name, "w");
    CHECK(f, "%s", strerror(errno));
    yk_batch batch;
    for (int i = 0; (l->last || i < 1) && yk_loader_next(r.loader, &batch); i++) {
        for (int64_t k = 0; k < batch.count; k++)
            fprintf(f, "%lld\n", (long long)batch.samples[k]);
    }
    fclose(f);
    yk_checkpoint_manager *m = manage(c, &(how){.sharded = l->sharded}, &r);
    CHECK(m, "%s", yk_last_error()->message);
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
}

static yk_state_dict *weights_of(int64_t step)
{
    char dir[64];
    snprintf(dir, sizeof(dir), "root/step-%08lld", (long long)step);
    yk_state_dict *dict = yk_checkpoint_load_weights(dir, (yk_device){0});
    if (!dict)
        fail_msg("%s", yk_last_error()->message);
    return dict;
}

/* 8, 4, 1, 3 and 8 processes, sharded or not by turns: the same bits at the end, and an epoch whose samples were each
 * given once. */
static void any_number_of_processes(void **state)
{
    (void)state;
    const leg legs[] = {{8, true, false}, {4, false, false}, {1, true, false}, {3, true, false}, {8, true, true}};
    for (size_t i = 0; i < sizeof(legs) / sizeof(legs[0]); i++)
        run_ranks(PROCESSES, legs[i].size, next_leg, &legs[i], patience(20), true);
    yk_state_dict *first = weights_of(5), *last = weights_of(7); /* three are kept: 5, 6 and 7 */
    run r;
    run_make(&r, 0, 1, 7);
    for (int i = 0; i < 3; i++)
        expect_ok(run_step(&r));
    yk_state_dict *own = yk_module_state_dict(r.model);
    for (int64_t i = 0; i < yk_state_dict_count(own); i++) {
        const char *name = yk_state_dict_name(own, i);
        size_t bytes =
            (size_t)yk_numel(yk_state_dict_at(own, i)) * yk_dtype_size(yk_tensor_dtype(yk_state_dict_at(own, i)));
        assert_memory_equal(host_data(yk_state_dict_get(first, name)), host_data(yk_state_dict_at(own, i)), bytes);
        assert_memory_equal(host_data(yk_state_dict_get(last, name)), host_data(yk_state_dict_at(own, i)), bytes);
    }
    /* The optimizer too: one more step from there and from the run that was never stopped. */
    run other;
    run_make(&other, 0, 1, 44);
    expect_ok(yk_checkpoint_load_latest("root", &other.state, NULL, NULL));
    other.state.step = 3;
    expect_ok(run_step(&other));
    expect_ok(run_step(&r));
    yk_tensor *a = yk_module_get(r.model, "0.weight"), *b = yk_module_get(other.model, "0.weight");
    assert_memory_equal(host_data(a), host_data(b), (size_t)yk_numel(a) * sizeof(float));

    int seen[SAMPLES] = {0}, files = 0;
    for (int rank = 0; rank < 8; rank++) {
        for (int step = 3; step <= 7; step++) {
            char name[64], line[32];
            snprintf(name, sizeof(name), "samples.%d.%d", rank, step);
            FILE *f = fopen(name, "r");
            for (files += f != NULL; f && fgets(line, sizeof(line), f);)
                seen[atoi(line)]++;
            if (f)
                fclose(f);
        }
    }
    assert_int_equal(files, 8 + 4 + 1 + 3 + 8);
    for (int i = 0; i < SAMPLES; i++)
        if (seen[i] != 1)
            fail_msg("sample %d was given %d times", i, seen[i]);
}

static void other_streams(rank_context *c)
{
    run r;
    run_make(&r, c->rank, c->size, 1);
    CHECK_OK(yk_checkpoint_load_latest("root", &r.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group), NULL));
    yk_random_state mine = yk_random_get_state();
    yk_tensor *all = yk_zeros(1, (int64_t[]){c->size}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *one = yk_full(1, (int64_t[]){1}, 0, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    host_write(one, 0, &mine.seed, sizeof(int64_t));
    CHECK_OK(yk_all_gather(all, one, c->group));
    const int64_t *seeds = host_data(all);
    for (int i = 0; i < c->size; i++) {
        CHECK(i >= 2 || seeds[i] == 7000 + i, "rank %d has seed %lld", i, (long long)seeds[i]);
        for (int j = 0; j < i; j++)
            CHECK(seeds[i] != seeds[j], "ranks %d and %d draw the same numbers", i, j);
    }
    CHECK(mine.calls == 2, "%u calls", mine.calls);
}

static void new_ranks_get_random_numbers_of_their_own(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, train_and_save, &(how){.steps = 2}, patience(20), true);
    run_ranks(PROCESSES, 4, other_streams, NULL, patience(20), true);
    run_ranks(PROCESSES, 1, other_streams, NULL, patience(20), true);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

/* Rank 0's disk is full, or with `sharded` rank 1's: the error of all, and then all goes on. */
static void full_disk(rank_context *c)
{
    const how *h = c->arg;
    int bad = h->sharded;
    run r;
    run_make(&r, c->rank, c->size, 7);
    yk_checkpoint_manager *m = manage(c, h, &r);
    CHECK(m, "%s", yk_last_error()->message);
    r.state.step = 1;
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    CHECK_OK(yk_checkpoint_manager_wait(m));
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){100, old.rlim_max};
    if (c->rank == bad)
        setrlimit(RLIMIT_FSIZE, &small);
    r.state.step = 2;
    char rank[32];
    snprintf(rank, sizeof(rank), "rank %d (host ", bad);
    if (h->async) {
        CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
        CHECK_FAILS(yk_checkpoint_manager_save(m, &r.state), YK_ERR_IO, rank, "root/step-00000002.", "File too large");
    } else {
        CHECK_FAILS(yk_checkpoint_manager_save(m, &r.state), YK_ERR_IO, rank, "root/step-00000002.", "File too large");
    }
    CHECK_OK(yk_barrier(c->group));
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK(access("root/step-00000002", F_OK) != 0 && !any_path("root/step-00000002.*"), "something is left");
    CHECK_OK(yk_barrier(c->group));
    CHECK_OK(yk_checkpoint_load_latest("root", &r.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group), NULL));
    CHECK(r.state.step == 1, "step %lld", (long long)r.state.step);
    r.state.step = 3;
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    CHECK_OK(yk_checkpoint_manager_wait(m));
    r.state.step = 4 + (c->rank == 1);
    CHECK_FAILS(yk_checkpoint_manager_save(m, &r.state), YK_ERR_MISMATCH, "rank 1 (host ",
                "saves step 5, but rank 0 step 4");
    CHECK_FAILS(yk_checkpoint_manager_save(m, c->rank ? &r.state : NULL), YK_ERR_MISMATCH, "saves step");
    r.state.step = 0;
    CHECK_FAILS(yk_checkpoint_manager_save(m, c->rank ? &r.state : NULL), YK_ERR_ARGUMENT, "rank 0 (host ",
                "the state is NULL");
}

static void a_full_disk_is_everybodys_error(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        run_ranks(PROCESSES, 2, full_disk, &(how){.sharded = i & 1, .async = i & 2}, patience(20), true);
        expect_ok(yk_checkpoint_verify("root/step-00000003"));
        assert_int_equal(nftw("root", remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* The newest that every rank can read, or an error of all. */
static void not_the_same(rank_context *c)
{
    run r;
    run_make(&r, 0, 1, 7); /* so that all save the same bytes */
    char folder[] = "in0";
    folder[2] = (char)('0' + c->rank);
    CHECK(mkdir(folder, 0777) == 0 && chdir(folder) == 0, "%s", strerror(errno));
    yk_checkpoint_options o = *YK_OPTIONS(yk_checkpoint_options, .group = c->group);
    yk_checkpoint_found found;
    CHECK_FAILS(yk_checkpoint_load_latest("root", &r.state, &o, &found), YK_ERR_NOT_FOUND, "root: no checkpoint");
    CHECK(found.broken == 0 && !found.path[0], "something was found");
    yk_checkpoint_manager *own = yk_checkpoint_manager_create("root", NULL);
    CHECK(own, "%s", yk_last_error()->message);
    for (r.state.step = 10; r.state.step <= 30; r.state.step += 10)
        if (r.state.step < 30 || c->rank == 1) /* rank 0 does not see the newest */
            CHECK_OK(yk_checkpoint_manager_save(own, &r.state));
    CHECK_OK(yk_checkpoint_load_latest("root", &r.state, &o, &found));
    CHECK(r.state.step == 20 && found.step == 20 && found.broken == 1, "step %lld, %d broken", (long long)r.state.step,
          found.broken);
    CHECK(strstr(found.message, "rank 0 (host ") && strstr(found.message, "root/step-00000030/state.json: No such"),
          "%s", found.message);
    if (c->rank == 2) /* and rank 2 has a broken one */
        CHECK(truncate("root/step-00000020/model.safetensors", 30) == 0, "%s", strerror(errno));
    CHECK_OK(yk_checkpoint_load_latest("root", &r.state, &o, &found));
    CHECK(r.state.step == 10 && found.broken == 2, "step %lld", (long long)r.state.step);
    CHECK_FAILS(yk_checkpoint_load("root/step-00000020", &r.state, &o, NULL), YK_ERR_FORMAT, "rank 2 (host ",
                "root/step-00000020/model.safetensors: 30 bytes");
    if (c->rank == 1) { /* of another run */
        r.state.epoch = 77;
        CHECK_OK(yk_checkpoint_manager_save(own, &r.state));
    }
    r.state.epoch = 0;
    CHECK_FAILS(yk_checkpoint_load_latest("root", &r.state, &o, &found), YK_ERR_MISMATCH, "rank 1 (host ",
                "root/step-00000010: ", "see different checkpoints of this name");
    /* One rank cannot use it: its model is another. */
    if (c->rank == 2)
        r.state.model = yk_linear_create(2, 2, NULL);
    CHECK_FAILS(yk_checkpoint_load("root/step-00000010", &r.state,
                                   YK_OPTIONS(yk_checkpoint_options, .group = c->group, .broadcast = true), NULL),
                YK_ERR_NOT_FOUND, "rank 2 (host ", "root/step-00000010");
    for (int step = 10; step <= 30; step += 10) {
        char path[64];
        snprintf(path, sizeof(path), "root/step-%08d/state.json", step);
        if (access(path, F_OK) == 0)
            CHECK(truncate(path, 20) == 0, "%s", strerror(errno));
    }
    r.state.model = r.model;
    CHECK_FAILS(yk_checkpoint_load_latest("root", &r.state, &o, &found), YK_ERR_NOT_FOUND,
                "root: no valid checkpoint; 3 are broken: rank 0 (host ");
    CHECK_FAILS(yk_checkpoint_load_latest(
                    "root", &r.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group, .broadcast = true), &found),
                YK_ERR_NOT_FOUND, "root: no valid checkpoint; 2 are broken: rank 0 (host ");
}

/* ---- the memory of the first asynchronous save ------------------------------------------------------------------ */

static size_t allocated(void)
{
    yk_memory_info info = {0};
    return yk_device_memory((yk_device){0}, &info) ? 0 : info.allocated;
}

/* Their weights are about as large, and none is small. */
enum { LAYERS = 9, SIDE = 250 };

/* Two averages of every weight come with the first step. */
static void run_make_large(run *r)
{
    yk_manual_seed(3);
    *r = (run){.model = yk_sequential(yk_identity_create())};
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "fc%d", i);
        yk_module_add(r->model, name,
                      i % 2 ? yk_linear_create(SIDE, SIDE, YK_OPTIONS(yk_linear_options, .bias = false))
                            : yk_conv2d_create(SIDE, SIDE / 9, 3, YK_OPTIONS(yk_conv2d_module_options, .bias = false)));
    }
    r->state = (yk_checkpoint_state){
        .model = r->model,
        .optimizer = yk_adam(yk_module_parameters(r->model), YK_OPTIONS(yk_adam_options, .lr = 0.01))};
}

/* This rank's share is copied to the memory that a manager that knows the state has allocated, though the optimizer had
 * no state then; the shares of all ranks are the state, once. */
static void memory_of_a_share(rank_context *c)
{
    const how *h = c->arg;
    run r;
    run_make_large(&r);
    size_t bytes = 0, before = allocated();
    yk_parameters *params = yk_module_parameters(r.model);
    for (int64_t i = 0; i < yk_parameters_count(params); i++)
        bytes += 3 * sizeof(float) * (size_t)yk_numel(yk_parameters_at(params, i));
    yk_checkpoint_manager *m = manage(c, h, &r);
    CHECK(m, "%s", yk_last_error()->message);
    size_t room = allocated() - before, least = bytes / (size_t)c->size * 3 / 4, most = bytes / (size_t)c->size * 3 / 2;
    CHECK(h->known ? room >= least && room <= most : room == 0, "%zu bytes of %zu by %d ranks", room, bytes, c->size);
    CHECK_OK(run_step(&r));
    before = allocated();
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    size_t more = allocated() - before;
    CHECK(h->known ? more < least / 8 : more >= least, "%zu bytes more of a share of %zu", more, least);
    CHECK_OK(yk_checkpoint_manager_wait(m));
    run other;
    run_make_large(&other);
    CHECK_OK(
        yk_checkpoint_load_latest("root", &other.state, YK_OPTIONS(yk_checkpoint_options, .group = c->group), NULL));
    CHECK(other.state.step == 1, "step %lld", (long long)other.state.step);
    CHECK_OK(run_step(&r));
    CHECK_OK(run_step(&other));
    for (int64_t i = 0; i < yk_parameters_count(params); i++) {
        yk_tensor *a = yk_parameters_at(params, i), *b = yk_module_get(other.model, yk_parameters_name(params, i));
        CHECK(memcmp(host_data(a), host_data(b), sizeof(float) * (size_t)yk_numel(a)) == 0, "%s differs",
              yk_parameters_name(params, i));
    }
}

static void the_first_share_finds_its_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        how h = {.sharded = true, .async = true, .known = i & 1};
        run_ranks(PROCESSES, (const int[]){4, 3, 1}[i / 2], memory_of_a_share, &h, patience(20), true);
        assert_int_equal(nftw("root", remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* All ranks lay out their shares, or none. */
static void some_know_the_state(rank_context *c)
{
    run r;
    run_make(&r, c->rank, c->size, 7);
    how h = {.sharded = true, .async = true, .known = c->rank == 1};
    CHECK_FAILS(manage(c, &h, &r), YK_ERR_MISMATCH, "rank 1 (host ",
                "has a state, but rank 0 has none: all of a sharded one give theirs, or none");
    h.known = c->rank != 1;
    CHECK_FAILS(manage(c, &h, &r), YK_ERR_MISMATCH, "rank 1 (host ", "has no state, but rank 0 has one");
    h.known = true;
    r.state.model = c->rank == 1 ? NULL : r.model;
    CHECK_FAILS(manage(c, &h, &r), YK_ERR_ARGUMENT, "rank 1 (host ", "the state's model is NULL");
    r.state.model = c->rank == 1 ? yk_linear_create(5, 2, NULL) : yk_linear_create(5, 3, NULL);
    CHECK_FAILS(manage(c, &h, &r), YK_ERR_SHAPE, "weight");
    /* The others' states are not looked at where rank 0 alone writes. */
    r.state.model = r.model;
    yk_checkpoint_manager *m = manage(c, &(how){.async = true, .known = c->rank == 0}, &r);
    CHECK(m, "%s", yk_last_error()->message);
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    CHECK_OK(yk_checkpoint_manager_wait(m));
}

static void ranks_agree_on_the_state(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, some_know_the_state, NULL, patience(20), true);
}

static void all_pick_the_same(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, not_the_same, NULL, patience(20), true);
}

static void managers(rank_context *c)
{
    run r;
    run_make(&r, c->rank, c->size, 7);
    CHECK_FAILS(yk_checkpoint_manager_create(
                    "root", YK_OPTIONS(yk_checkpoint_manager_options, .keep = 2 + c->rank, .group = c->group)),
                YK_ERR_MISMATCH, "rank 1 (host ", "has keep 3, async 0, sharded 0, but rank 0 has 2, 0, 0");
    CHECK_FAILS(yk_checkpoint_manager_create(c->rank ? "" : "root",
                                             YK_OPTIONS(yk_checkpoint_manager_options, .group = c->group)),
                YK_ERR_ARGUMENT, "rank 1 (host ", "no path");
    CHECK_FAILS(yk_checkpoint_manager_create("no/where", YK_OPTIONS(yk_checkpoint_manager_options, .group = c->group)),
                YK_ERR_IO, "rank 0 (host ", "no/where: No such file");
    yk_scope scope = yk_scope_begin();
    yk_checkpoint_manager *m = manage(c, &(how){0}, &r);
    CHECK(m, "%s", yk_last_error()->message);
    CHECK_FAILS(manage(c, &(how){0}, &r), YK_ERR_STATE, "rank 0 (host ", "another process saves its checkpoints here");
    yk_scope_end(scope);
    /* Ranks that do not save must not need the folder: rank 1 is somewhere else. */
    if (c->rank)
        CHECK(mkdir("elsewhere", 0777) == 0 && chdir("elsewhere") == 0, "%s", strerror(errno));
    m = manage(c, &(how){0}, &r);
    CHECK(m, "%s", yk_last_error()->message);
    r.state.step = 5;
    CHECK_OK(yk_checkpoint_manager_save(m, &r.state));
    /* Sharded, it cannot: that is the error of all, and nothing is left. */
    yk_checkpoint_manager_retain(m);
    m = yk_checkpoint_manager_create(c->rank ? "root" : "root2",
                                     YK_OPTIONS(yk_checkpoint_manager_options, .group = c->group, .sharded = true));
    CHECK(m, "%s", yk_last_error()->message);
    CHECK_FAILS(yk_checkpoint_manager_save(m, &r.state), YK_ERR_IO, "rank 1 (host ",
                "root/step-00000005: No such file");
    CHECK(c->rank || !any_path("root2/step-00000005.*"), "something is left");
}

static void managers_agree(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, managers, NULL, patience(20), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(goes_on_to_the_bit),
        data_test(new_ranks_get_random_numbers_of_their_own),
        data_test(a_full_disk_is_everybodys_error),
        data_test(all_pick_the_same),
        data_test(managers_agree),
        data_test(the_first_share_finds_its_memory),
        data_test(ranks_agree_on_the_state),
        data_test(
            any_number_of_processes), /* the last: it makes tensors here, after which CUDA cannot be used in a fork */
    };
    return cmocka_run_group_tests_name("group_checkpoint", tests, NULL, NULL);
}
