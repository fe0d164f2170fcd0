/*
 * fork_test.c - (emulated) GPUs in the processes of yk_spawn: a parent that has only counted them leaves them to its
 * children, one that has used them tells a child so.
 */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <sys/stat.h>

#include <yoke/yoke.h>

enum { GPUS = 2 };

static yk_status uses_own(int rank, void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    yk_device local = yk_device_local();
    yk_status status = YK_OK;
    if (yk_device_count(YK_CUDA) != GPUS || local.type != YK_CUDA || local.index != rank)
        status = yk_set_error(YK_ERR_DEVICE, "rank %d has device %d:%d of %d", rank, local.type, local.index,
                              yk_device_count(YK_CUDA));
    yk_tensor *x = status ? NULL : yk_full(1, (int64_t[]){5}, rank + 2, YK_OPTIONS(yk_tensor_options, .device = local));
    float got[5] = {0};
    if (!status)
        status = yk_tensor_read(yk_mul_scalar(x, 3), got, sizeof(got));
    if (!status && got[4] != 3 * ((float)rank + 2))
        status = yk_set_error(YK_ERR_NUMERIC, "rank %d computed %g", rank, (double)got[4]);
    yk_scope_end(scope);
    return status;
}

static void a_parent_that_counts(void **state)
{
    (void)state;
    yk_device device;
    assert_int_equal(yk_device_count(YK_CUDA), GPUS);
    expect_ok(yk_device_parse("cuda:1", &device));
    assert_int_equal(yk_device_local().type, YK_CUDA);
    assert_int_equal(yk_device_parse("cuda:2", &device), YK_ERR_DEVICE);
    yk_clear_error();
    expect_ok(yk_spawn(uses_own, NULL, GPUS, NULL));
    expect_ok(yk_spawn(uses_own, NULL, GPUS, NULL));
}

static void a_parent_that_computes(void **state)
{
    (void)state;
    expect_ok(uses_own(0, NULL));
    assert_int_equal(yk_spawn(uses_own, NULL, 1, NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "used CUDA before it forked this one");
    expect_ok(uses_own(0, NULL)); /* and goes on */
}

/* The files that the driver of GPUS GPUs shows, in `folder`. */
static void write_driver(const char *folder)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/gpus", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < GPUS; i++) {
        snprintf(path, sizeof(path), "%s/nvidia%d", folder, i);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        snprintf(path, sizeof(path), "%s/gpus/%d", folder, i);
        assert_int_equal(mkdir(path, 0777), 0);
        snprintf(path, sizeof(path), "%s/gpus/%d/information", folder, i);
        file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "Device Minor: \t %d\n", i);
        assert_int_equal(fclose(file), 0);
    }
    setenv("YOKE_NVIDIA_DRIVER", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_parent_that_counts),
                                       cmocka_unit_test(a_parent_that_computes)};
    if (!use_emulator())
        return 0;
    char folder[] = "/tmp/yoke-fork-XXXXXX", command[64];
    if (!mkdtemp(folder))
        return 1;
    write_driver(folder);
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("RANK");
    int failed = cmocka_run_group_tests_name("fork", tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command) || failed;
}
