/*
 * backends_test.c - the names of backends, PyTorch's too; that docs/collectives.md's table of operations is what the
 * backends have; $INIT_METHOD; and which of the host's processes and devices are this one's.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "comm/comm_plugin.h"
#include "comm/group.h"
#include "tests/support/machine.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void gloo_is_native(void **state)
{
    (void)state;
    expect_ok(yk_init_process_group(YK_OPTIONS(yk_init_options, .backend = "gloo")));
    assert_string_equal(yk_process_group_backend(NULL), "native");
    yk_destroy_process_group();
    setenv("YOKE_COMM_BACKEND", "gloo", 1);
    yk_scope scope = yk_scope_begin();
    yk_process_group *group = yk_process_group_create(NULL, 0, 1, NULL);
    assert_string_equal(yk_process_group_backend(group), "native");
    yk_scope_end(scope);
    unsetenv("YOKE_COMM_BACKEND");
}

static void nccl_without_gpus(void **state)
{
    (void)state;
    assert_int_equal(yk_device_count(YK_CUDA), 0);
    assert_int_equal(yk_init_process_group(YK_OPTIONS(yk_init_options, .backend = "nccl")), YK_ERR_UNSUPPORTED);
    expect_error(
        YK_ERR_UNSUPPORTED,
        "backend 'nccl': it is for NVIDIA GPUs, and there are none here (`yoke doctor` says why); 'native', or "
        "'gloo', is the backend of CPUs");
    assert_false(yk_is_initialized());
    assert_int_equal(yk_init_process_group(YK_OPTIONS(yk_init_options, .backend = "ucc")), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED,
                 "unknown backend of collectives 'ucc': there are 'native' ('gloo'), 'nccl', 'mpi' and 'ucx'");
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool carries(const yk__comm_backend *b, int kind)
{
    return kind < YK__COMM_COLLECTIVES ? b->collective[kind] != NULL : b->post && b->wait && b->forget;
}

/* A plug-in of the build; NULL where it has none. */
static const yk__comm_backend *in_folder(const char *folder, const char *name)
{
    char path[5100];
    snprintf(path, sizeof(path), "%s/yoke-%s.so", folder, name);
    if (access(path, R_OK)) {
        print_message("# this build has no yoke-%s.so: its column is not looked at\n", name);
        return NULL;
    }
    const yk__comm_backend *backend = yk__comm_plugin(name);
    expect_ok(backend ? YK_OK : YK_ERR_UNSUPPORTED);
    return backend;
}

/* Every operation has a row, and "yes" stands where the backend's slot is filled. */
static void the_table_of_operations(void **state)
{
    (void)state;
    char folder[5000], line[500], name[100], native[16], mpi[16], nccl[16], ucx[16];
    snprintf(folder, sizeof(folder), "%s", own_program());
    for (int up = 0; up < 3; up++)
        *strrchr(folder, '/') = '\0';
    setenv("YOKE_BACKEND_PATH", folder, 1);
    const yk__comm_backend *with_mpi = in_folder(folder, "mpi"), *with_nccl = in_folder(folder, "nccl"),
                           *with_ucx = in_folder(folder, "ucx");
    FILE *file = fopen("docs/collectives.md", "r");
    assert_non_null(file);
    bool inside = false, seen[YK__COMM_KINDS] = {false};
    while (fgets(line, sizeof(line), file)) {
        if (strcmp(line, "| operation | native | mpi | nccl | ucx |\n") == 0)
            inside = true;
        else if (inside && line[0] != '|')
            break;
        if (!inside ||
            sscanf(line, "| %99[a-z_] | %15[a-z] | %15[a-z] | %15[a-z] | %15[a-z] |", name, native, mpi, nccl, ucx) !=
                5 ||
            strcmp(name, "operation") == 0)
            continue;
        int kind = 0;
        while (kind < YK__COMM_KINDS && strcmp(name, yk__comm_kind_name((yk__comm_kind)kind)) != 0)
            kind++;
        if (kind == YK__COMM_KINDS) {
            fail_msg("there is no operation %s", name);
            return;
        }
        seen[kind] = true;
        assert_string_equal(native, carries(&yk__comm_native, kind) ? "yes" : "no");
        if (with_mpi)
            assert_string_equal(mpi, carries(with_mpi, kind) ? "yes" : "no");
        if (with_nccl)
            assert_string_equal(nccl, carries(with_nccl, kind) ? "yes" : "no");
        if (with_ucx)
            assert_string_equal(ucx, carries(with_ucx, kind) ? "yes" : "no");
    }
    fclose(file);
    for (int kind = 0; kind < YK__COMM_KINDS; kind++) {
        if (!seen[kind])
            fail_msg("%s is not in the table", yk__comm_kind_name((yk__comm_kind)kind));
    }
}

/* ---- $INIT_METHOD ------------------------------------------------------------------------------------------------ */

static yk_status joins(int rank, void *size)
{
    yk_status status = yk_init_process_group(NULL);
    if (status)
        return status;
    if (yk_rank(NULL) != rank || yk_world_size(NULL) != *(int *)size || yk_local_rank() != rank ||
        yk_local_world_size() != *(int *)size)
        return yk_set_error(YK_ERR_STATE, "rank %d of %d, local rank %d of %d", yk_rank(NULL), yk_world_size(NULL),
                            yk_local_rank(), yk_local_world_size());
    status = yk_barrier(NULL);
    yk_destroy_process_group();
    return status;
}

static void init_method_of_the_environment(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke-backends-XXXXXX", path[64], method[80];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/store", folder);
    snprintf(method, sizeof(method), "file://%s", path);
    setenv("INIT_METHOD", method, 1);
    int size = 2;
    expect_ok(yk_spawn(joins, &size, size, NULL));
    assert_int_equal(access(path, R_OK), 0); /* they met there */
    unlink(path);
    setenv("INIT_METHOD", "env://", 1);
    expect_ok(yk_spawn(joins, &size, size, NULL));
    assert_int_not_equal(access(path, R_OK), 0);
    setenv("INIT_METHOD", method, 1);
    assert_int_equal(yk_init_process_group(NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "init_process_group: INIT_METHOD is file:///tmp/yoke-backends-");
    /* The program's own options go first; its rank and world_size come together. */
    assert_int_equal(yk_init_process_group(YK_OPTIONS(yk_init_options, .world_size = 1)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "needs a rank and a world size, and rank was not given");
    assert_int_equal(yk_init_process_group(YK_OPTIONS(yk_init_options, .rank = 0)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "needs a rank and a world size, and world_size was not given");
    assert_int_equal(yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = "env://", .rank = 0)),
                     YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "init_process_group: world_size was not given, but rank was: give both");
    expect_ok(yk_init_process_group(YK_OPTIONS(yk_init_options, .rank = 0, .world_size = 1)));
    yk_destroy_process_group();
    expect_ok(yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = "env://")));
    assert_int_not_equal(access(path, R_OK), 0);
    yk_destroy_process_group();
    setenv("INIT_METHOD", "somewhere", 1);
    assert_int_equal(yk_spawn(joins, &size, size, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "init_process_group: 'somewhere' is not env://, tcp://HOST:PORT or file:///PATH");
    unsetenv("INIT_METHOD");
    unlink(path);
    rmdir(folder);
}

/* ---- the processes and devices of the host ----------------------------------------------------------------------- */

static void the_block_of_devices(void **state)
{
    (void)state;
    static const struct {
        const char *rank, *local, *size;
        int count, first;
    } cases[] = {{"0", "0", "1", 8, 0}, {"0", "0", "2", 4, 0},  {"1", "1", "2", 4, 4},
                 {"2", "2", "3", 2, 4}, {"9", "9", "10", 1, 1}, {"7", "7", "8", 1, 7}};
    assert_int_equal(yk_local_rank(), 0);
    assert_int_equal(yk_local_world_size(), 1);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        yk_device devices[8] = {{0}};
        setenv("RANK", cases[c].rank, 1);
        setenv("WORLD_SIZE", cases[c].size, 1);
        setenv("LOCAL_RANK", cases[c].local, 1);
        setenv("LOCAL_WORLD_SIZE", cases[c].size, 1);
        assert_int_equal(yk_local_rank(), atoi(cases[c].local));
        assert_int_equal(yk_local_world_size(), atoi(cases[c].size));
        assert_int_equal(yk_local_devices(YK_CPU, devices, 8), cases[c].count);
        for (int i = 0; i < cases[c].count; i++)
            assert_true(yk_device_equal(devices[i], (yk_device){YK_CPU, (int16_t)(cases[c].first + i)}));
        assert_int_equal(yk_local_devices(YK_CPU, NULL, 0), cases[c].count);
        assert_int_equal(yk_local_devices(YK_CUDA, devices, 8) == 0, yk_device_count(YK_CUDA) == 0);
    }
    setenv("RANK", "11", 1); /* outside its world: nothing is known, and nothing is on record */
    assert_int_equal(yk_local_world_size(), 1);
    assert_null(yk_last_error());
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    for (int i = 0; i < 4; i++)
        unsetenv(names[i]);
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gloo_is_native),          cmocka_unit_test(nccl_without_gpus),
        cmocka_unit_test(the_block_of_devices),    cmocka_unit_test(init_method_of_the_environment),
        cmocka_unit_test(the_table_of_operations), /* last: it loads MPI */
    };
    return cmocka_run_group_tests_name("comm/backends", tests, NULL, NULL);
}
