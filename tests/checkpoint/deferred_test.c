/*
 * deferred_test.c - large tensors of a training checkpoint go straight from the file to where they belong: the same
 * values in every layout, nothing changed by a damaged file, no second copy in memory. And the memory that an
 * asynchronous save copies to.
 */
#include "tests/data/files.h"
#include "tests/support/test_device.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include <yoke/checkpoint.h>

#include "checkpoint/formats/safetensors.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

/* Above the limit, all of them: a matrix, a convolution, whose weight is kept in another order, and an f64 matrix. */
typedef struct run {
    yk_module *model;
    yk_optimizer *optimizer;
    yk_checkpoint_state state;
} run;

static yk_module *make_model(uint64_t seed, bool wide)
{
    yk_manual_seed(seed);
    yk_module *model = yk_sequential(yk_linear_create(512, 1024, NULL));
    yk_module_add(model, "conv", yk_conv2d_create(256, 256, 3, NULL));
    yk_module_add(model, "wide", yk_module_to_dtype(yk_linear_create(512, 512, NULL), wide ? YK_F64 : YK_F32));
    return yk_module_check(model);
}

static void run_step(run *r)
{
    yk_parameters *params = yk_module_parameters(r->model);
    for (int64_t i = 0; i < yk_parameters_count(params); i++) {
        yk_scope scope = yk_scope_begin();
        expect_ok(yk_set_grad(yk_parameters_at(params, i), yk_randn_like(yk_parameters_at(params, i))));
        yk_scope_end(scope);
    }
    expect_ok(yk_optimizer_step(r->optimizer));
    r->state.step++;
}

static run *run_begin(uint64_t seed, int steps)
{
    run *r = test_calloc(1, sizeof(*r));
    r->model = make_model(seed, true);
    r->optimizer = yk_adamw(yk_module_parameters(r->model), YK_OPTIONS(yk_adam_options, .lr = 0.01));
    r->state = (yk_checkpoint_state){.model = r->model, .optimizer = r->optimizer};
    while (r->state.step < steps)
        run_step(r);
    expect_ok(0);
    return r;
}

static void expect_same_bits(const yk_tensor *a, const yk_tensor *b, const char *name)
{
    assert_int_equal(a->dtype, b->dtype);
    yk_tensor *x = yk_contiguous((yk_tensor *)a), *y = yk_contiguous((yk_tensor *)b);
    if (memcmp(host_data(x), host_data(y), (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype)))
        fail_msg("%s differs", name);
}

static void expect_same_dict(const yk_state_dict *a, const yk_state_dict *b)
{
    assert_int_equal(yk_state_dict_count(a), yk_state_dict_count(b));
    for (int64_t i = 0; i < yk_state_dict_count(a); i++) {
        const char *name = yk_state_dict_name(a, i);
        expect_same_bits(yk_state_dict_at(a, i), yk_state_dict_get(b, name), name);
    }
}

static void expect_same_runs(run *a, run *b)
{
    yk_scope scope = yk_scope_begin();
    expect_same_dict(yk_module_state_dict(a->model), yk_module_state_dict(b->model));
    expect_same_dict(yk_optimizer_state_dict(a->optimizer), yk_optimizer_state_dict(b->optimizer));
    yk_scope_end(scope);
    assert_int_equal(a->state.step, b->state.step);
}

static void into_new_and_into_used_state(void **state)
{
    (void)state;
    run *saved = run_begin(1, 2), *fresh = run_begin(2, 0), *used = run_begin(3, 1);
    expect_ok(yk_checkpoint_save("c", &saved->state));
    expect_ok(yk_checkpoint_load("c", &fresh->state, NULL, NULL));
    expect_same_runs(saved, fresh);

    /* Memory that another tensor holds is not written; memory that nobody else holds is used again. */
    yk_tensor *matrix = yk_parameters_at(yk_module_parameters(used->model), 0);
    yk_tensor *held = yk_tensor_retain(yk_optimizer_state(used->optimizer, matrix, "exp_avg"));
    const yk_tensor *second = yk_optimizer_state(used->optimizer, matrix, "exp_avg_sq");
    yk_tensor *before = yk_clone(held);
    expect_ok(yk_checkpoint_load("c", &used->state, NULL, NULL));
    expect_same_runs(saved, used);
    expect_same_bits(held, before, "the state that the test holds");
    assert_ptr_not_equal(yk_optimizer_state(used->optimizer, matrix, "exp_avg"), held);
    assert_ptr_equal(yk_optimizer_state(used->optimizer, matrix, "exp_avg_sq"), second);
    expect_ok(yk_checkpoint_load("c", &used->state, YK_OPTIONS(yk_checkpoint_options, .mmap = true), NULL));
    expect_same_runs(saved, used);
    assert_ptr_equal(yk_optimizer_state(used->optimizer, matrix, "exp_avg_sq"), second);
    yk_tensor_release(held);
    test_free(saved);
    test_free(fresh);
    test_free(used);
}

static void other_dtype(void **state)
{
    (void)state;
    run *saved = run_begin(4, 0);
    saved->state.optimizer = NULL;
    expect_ok(yk_checkpoint_save("c", &saved->state));
    yk_module *narrow = make_model(5, false);
    expect_ok(yk_checkpoint_load("c", &(yk_checkpoint_state){.model = narrow},
                                 YK_OPTIONS(yk_checkpoint_options, .weights_only = true), NULL));
    yk_state_dict *a = yk_module_state_dict(saved->model), *b = yk_module_state_dict(narrow);
    expect_same_bits(yk_cast(yk_state_dict_get(a, "wide.weight"), YK_F32), yk_state_dict_get(b, "wide.weight"), "wide");
    expect_same_bits(yk_state_dict_get(a, "conv.weight"), yk_state_dict_get(b, "conv.weight"), "conv");
    test_free(saved);
}

/* Flips one bit. */
static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void damage_changes_nothing(void **state)
{
    (void)state;
    run *saved = run_begin(6, 1), *live = run_begin(7, 1), *as_before = run_begin(7, 1);
    expect_ok(yk_checkpoint_save("c", &saved->state));
    static const char *const files[] = {"c/model.safetensors", "c/optimizer.safetensors"};
    for (int f = 0; f < 2; f++) {
        for (int part = 1; part < 8; part++) {
            off_t at = size_of(files[f]) * part / 8;
            flip(files[f], at);
            assert_int_equal(yk_checkpoint_load("c", &live->state, NULL, NULL), YK_ERR_FORMAT);
            expect_error(YK_ERR_FORMAT, "the file was damaged");
            flip(files[f], at);
        }
        expect_same_runs(live, as_before);
    }
    expect_ok(yk_checkpoint_load("c", &live->state, NULL, NULL));
    expect_same_runs(live, saved);
    test_free(saved);
    test_free(live);
    test_free(as_before);
}

static void ignore_bytes(void *arg, const void *data, size_t size)
{
    (void)data;
    *(size_t *)arg += size;
}

/* A file that changes between the check and the copy: a removed one is still there for a process that has it open, a
 * changed one is noticed. */
static void changed_in_between(void **state)
{
    (void)state;
    yk_state_dict *dict = yk_state_dict_create();
    yk_tensor *x = yk_randn(2, (int64_t[]){512, 1024}, NULL), *small = yk_randn(1, (int64_t[]){3}, NULL);
    expect_ok(yk_state_dict_add(dict, "x", x));
    expect_ok(yk_state_dict_add(dict, "small", small));
    expect_ok(yk_safetensors_save("removed", dict, NULL));
    expect_ok(yk_safetensors_save("changed", dict, NULL));
    expect_ok(yk_safetensors_save("cut", dict, NULL));
    yk_state_dict *read[3];
    static const char *const names[] = {"removed", "changed", "cut"};
    for (int i = 0; i < 3; i++) {
        size_t bytes = 0;
        read[i] = yk__safetensors_read_deferred(names[i], ignore_bytes, &bytes, NULL, NULL);
        assert_non_null(read[i]);
        assert_int_equal(bytes, size_of(names[i]));
        int64_t at = yk_state_dict_find(read[i], "small"), large = yk_state_dict_find(read[i], "x");
        assert_true(at >= 0 && !yk__state_dict_deferred(read[i], at));
        expect_same_bits(yk_state_dict_at(read[i], at), small, "small");
        assert_true(large >= 0 && yk__state_dict_deferred(read[i], large));
    }
    assert_int_equal(unlink("removed"), 0);
    yk_tensor *to = yk_zeros_like(x);
    expect_ok(yk__state_dict_copy(read[0], yk_state_dict_find(read[0], "x"), to));
    expect_same_bits(to, x, "x");
    flip("changed", size_of("changed") - 4);
    assert_int_equal(yk__state_dict_copy(read[1], yk_state_dict_find(read[1], "x"), to), YK_ERR_IO);
    expect_error(YK_ERR_IO, "changed: was written to while it was loaded");
    assert_int_equal(truncate("cut", 5000), 0);
    assert_int_equal(yk__state_dict_copy(read[2], yk_state_dict_find(read[2], "x"), to), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "cut: the file ended at byte 5000 while it was read");
}

static bool keeps(const void *optimizer, const char *name, yk_dtype dtype)
{
    return yk__optimizer_adopts(optimizer, name, dtype);
}

static void ignore_bytes(void *arg, const void *data, size_t size);

/* True if the tensor waits in the file of "c" to be copied to where it belongs. */
static bool is_deferred(const yk_optimizer *optimizer, const char *name)
{
    size_t bytes = 0;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk__safetensors_read_deferred("c/optimizer.safetensors", ignore_bytes, &bytes,
                                                        optimizer ? keeps : NULL, optimizer);
    int64_t at = yk_state_dict_find(dict, name);
    assert_true(at >= 0);
    bool deferred = yk__state_dict_deferred(dict, at);
    yk_scope_end(scope);
    return deferred;
}

/* The tensors that are read become the optimizer's state where it has none yet, and are read once. */
static void new_state_is_read_once(void **state)
{
    (void)state;
    run *saved = run_begin(8, 1), *fresh = run_begin(9, 0), *used = run_begin(10, 1);
    expect_ok(yk_checkpoint_save("c", &saved->state));
    assert_true(yk__optimizer_adopts(fresh->optimizer, "state.0.weight.exp_avg", YK_F32));
    assert_true(yk__optimizer_adopts(fresh->optimizer, "state.wide.weight.exp_avg_sq", YK_F64));
    assert_false(yk__optimizer_adopts(fresh->optimizer, "state.wide.weight.exp_avg_sq", YK_F32));
    static const char *const others[] = {"state.0.weight.momentum_buffer",
                                         "state.0.weight.step",
                                         "0.weight",
                                         "state.1.weight.exp_avg",
                                         "state.exp_avg",
                                         "exp_avg",
                                         ""};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_false(yk__optimizer_adopts(fresh->optimizer, others[i], YK_F32));
    assert_false(yk__optimizer_adopts(used->optimizer, "state.0.weight.exp_avg", YK_F32));

    assert_true(is_deferred(NULL, "state.0.weight.exp_avg"));
    assert_true(is_deferred(used->optimizer, "state.0.weight.exp_avg"));
    assert_false(is_deferred(fresh->optimizer, "state.0.weight.exp_avg"));
    expect_ok(yk_checkpoint_load("c", &fresh->state, NULL, NULL));
    expect_same_runs(saved, fresh);
    test_free(saved);
    test_free(fresh);
    test_free(used);
}

static size_t allocated(void)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(test_device(0), &info));
    return info.allocated;
}

/* The first save of a manager that knows the state copies to the memory that the manager has allocated, though the
 * optimizer had no state then. */
static void memory_of_the_first_copy(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        yk_scope scope = yk_scope_begin();
        run *r = run_begin(11, 0), *loaded = run_begin(12, 0);
        size_t bytes = 0, before = allocated();
        yk_parameters *params = yk_module_parameters(r->model);
        for (int64_t i = 0; i < yk_parameters_count(params); i++) {
            yk_tensor *x = yk_parameters_at(params, i); /* and two averages of each */
            bytes += 3 * yk_dtype_size(yk_tensor_dtype(x)) * (size_t)yk_numel(x);
        }
        yk_checkpoint_manager *m = yk_checkpoint_manager_create(
            "root", YK_OPTIONS(yk_checkpoint_manager_options, .async = true, .state = known ? &r->state : NULL));
        assert_non_null(m);
        assert_true(known ? allocated() - before >= bytes : allocated() == before);
        run_step(r);
        before = allocated();
        expect_ok(yk_checkpoint_manager_save(m, &r->state));
        assert_true(known ? allocated() - before < bytes / 2 : allocated() - before >= bytes);
        expect_ok(yk_checkpoint_manager_wait(m));
        expect_ok(yk_checkpoint_load("root/step-00000001", &loaded->state, NULL, NULL));
        expect_same_runs(r, loaded);
        test_free(r);
        test_free(loaded);
        yk_scope_end(scope);
    }
    assert_null(yk_checkpoint_manager_create(
        "root", YK_OPTIONS(yk_checkpoint_manager_options, .async = true, .state = &(yk_checkpoint_state){0})));
    expect_error(YK_ERR_ARGUMENT, "the state's model is NULL");
}

/* The most memory that the process had, in KiB. */
static long most_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void takes_no_second_copy(void **state)
{
    (void)state;
    enum { LAYERS = 16, SIDE = 1024 };
    yk_module *model = yk_sequential(yk_identity_create());
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "fc%d", i);
        yk_module_add(model, name, yk_linear_create(SIDE, SIDE, NULL));
    }
    yk_checkpoint_state all = {.model = model};
    expect_ok(yk_checkpoint_save("c", &all));
    long before = most_memory();
    expect_ok(yk_checkpoint_load("c", &all, NULL, NULL));
    long more = most_memory() - before, whole = LAYERS * SIDE * SIDE * 4 / 1024;
    if (more > whole / 4)
        fail_msg("loading %ld KiB took %ld KiB more", whole, more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(takes_no_second_copy), /* first: what the others needed would hide it */
        data_test(into_new_and_into_used_state), data_test(other_dtype),
        data_test(damage_changes_nothing),       data_test(changed_in_between),
        data_test(new_state_is_read_once),       data_test(memory_of_the_first_copy),
    };
    return cmocka_run_group_tests_name("deferred", tests, NULL, NULL);
}
