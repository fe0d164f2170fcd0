/* devices_test.c - logical devices: their number, names, threads and memory, and a bad environment. */
#include "tests/support/expect.h"

#include <unistd.h>

#include <yoke/tensor.h>

#include "device/table.h"
#include "tests/support/machine.h"

static char program[4096];

/* The output of this program as `probe` with an environment of its own: devices, threads of cpu:0, the error. */
static const char *probe(const char *environment)
{
    static char line[1200];
    char command[6000];
    snprintf(command, sizeof(command),
             "env -u YOKE_CPU_DEVICES -u YOKE_CPU_VISIBLE_DEVICES -u OMP_NUM_THREADS -u LOCAL_RANK %s '%s' probe",
             environment, program);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    line[0] = 0;
    assert_non_null(fgets(line, sizeof(line), pipe));
    assert_int_equal(pclose(pipe), 0);
    return line;
}

static int answer_probe(void)
{
    yk_device device;
    int count = yk_device_count(YK_CPU), threads = yk_get_num_threads((yk_device){0});
    yk_status status = yk_device_parse("cpu:0", &device);
    printf("%d devices, %d threads, status %s: %s\n", count, threads, yk_status_name(status),
           yk_last_error() ? yk_last_error()->message : "");
    return 0;
}

static void from_the_environment(void **state)
{
    (void)state;
    assert_string_equal(probe("OMP_NUM_THREADS=6"), "1 devices, 6 threads, status ok: \n");
    assert_string_equal(probe("OMP_NUM_THREADS=8 YOKE_CPU_DEVICES=4"), "4 devices, 2 threads, status ok: \n");
    assert_string_equal(probe("OMP_NUM_THREADS=2 YOKE_CPU_DEVICES=3"), "3 devices, 1 threads, status ok: \n");
    assert_string_equal(probe("OMP_NUM_THREADS=5 YOKE_CPU_DEVICES=64"), "64 devices, 1 threads, status ok: \n");
    assert_string_equal(
        probe("YOKE_CPU_DEVICES=0"),
        "0 devices, 1 threads, status argument: YOKE_CPU_DEVICES=0: expected an integer from 1 to 64\n");
    assert_string_equal(probe("YOKE_CPU_DEVICES=many"), "0 devices, 1 threads, status argument: "
                                                        "YOKE_CPU_DEVICES=many: expected an integer from 1 to 64\n");
    assert_non_null(strstr(probe("OMP_NUM_THREADS=-1"), "OMP_NUM_THREADS=-1: expected an integer from 1 to"));
    assert_string_equal(probe("OMP_NUM_THREADS=6,2,1"), "1 devices, 6 threads, status ok: \n"); /* OpenMP's list */
    assert_string_equal(probe("'OMP_NUM_THREADS= 3 , 1'"), "1 devices, 3 threads, status ok: \n");
    static const char *const bad[] = {"2,", ",2", "2,,1", "2;1", "2,x", "x", "0", "2,0", "2 1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char environment[100], message[100];
        snprintf(environment, sizeof(environment), "'OMP_NUM_THREADS=%s'", bad[i]);
        snprintf(message, sizeof(message), "OMP_NUM_THREADS=%s: expected an integer from 1 to 1024", bad[i]);
        assert_non_null(strstr(probe(environment), message));
    }
    char expected[100];
    snprintf(expected, sizeof(expected), "1 devices, %d threads, status ok: \n", yk__cores());
    assert_string_equal(probe(""), expected);
    /* A list of those that are seen: they get new numbers, and keep their share of the threads. */
    assert_string_equal(probe("OMP_NUM_THREADS=8 YOKE_CPU_DEVICES=4 YOKE_CPU_VISIBLE_DEVICES=3,1"),
                        "2 devices, 2 threads, status ok: \n");
    assert_string_equal(probe("OMP_NUM_THREADS=8 YOKE_CPU_VISIBLE_DEVICES=0"), "1 devices, 8 threads, status ok: \n");
    static const char *const wrong[] = {"4", "0,4", "-1", "0,", ",0", "1;2", " 1", "one", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char environment[100];
        snprintf(environment, sizeof(environment), "YOKE_CPU_DEVICES=4 'YOKE_CPU_VISIBLE_DEVICES=%s'", wrong[i]);
        assert_non_null(strstr(probe(environment), "expected numbers of devices from 0 to 3 with commas between"));
    }
    assert_non_null(strstr(probe("YOKE_CPU_DEVICES=4 YOKE_CPU_VISIBLE_DEVICES=2,0,2"), "2,0,2: 2 is named twice"));
    assert_non_null(strstr(probe("YOKE_CPU_VISIBLE_DEVICES="), "YOKE_CPU_VISIBLE_DEVICES is empty"));
    if (yk__cores() > 1)
        assert_string_equal(probe("taskset -c 0"), "1 devices, 1 threads, status ok: \n");
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        yk_device device;
    } good[] = {{"cpu", {YK_CPU, 0}}, {"cpu:0", {YK_CPU, 0}}, {"cpu:3", {YK_CPU, 3}}, {"cpu:01", {YK_CPU, 1}}};
    static const struct {
        const char *text;
        yk_status status;
        const char *message;
    } bad[] = {{"cpu:4", YK_ERR_DEVICE, "device cpu:4 does not exist: there are 4 cpu devices (YOKE_CPU_DEVICES"},
               {"cuda", YK_ERR_UNSUPPORTED, "the 'cuda' device backend is not there ("},
               {"cuda:1", YK_ERR_UNSUPPORTED, "/yoke-cuda.so): it is built and installed with yoke where"},
               {"gpu", YK_ERR_ARGUMENT, "device 'gpu': expected cpu, cpu:N, cuda or cuda:N"},
               {"", YK_ERR_ARGUMENT, "device ''"},
               {"cpu:", YK_ERR_ARGUMENT, "device 'cpu:': expected cpu, cpu:N, cuda or cuda:N"},
               {"cpu:x", YK_ERR_ARGUMENT, "'x' is not a device number"},
               {"cpu:-1", YK_ERR_ARGUMENT, "'-1' is not a device number"},
               {"cpu: 1", YK_ERR_ARGUMENT, "' 1' is not a device number"},
               {"cpu:+1", YK_ERR_ARGUMENT, "'+1' is not a device number"},
               {"cpu:1x", YK_ERR_ARGUMENT, "'1x' is not a device number"},
               {"cpu:99999999999999999999", YK_ERR_ARGUMENT, "is not a device number"},
               {"CPU", YK_ERR_ARGUMENT, "device 'CPU'"},
               {NULL, YK_ERR_ARGUMENT, "the name is NULL"}};
    yk_device device;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        expect_ok(yk_device_parse(good[i].text, &device));
        assert_true(yk_device_equal(device, good[i].device));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(yk_device_parse(bad[i].text, &device), bad[i].status);
        expect_error(bad[i].status, bad[i].message);
    }
    char text[16];
    assert_string_equal(yk_device_format((yk_device){YK_CPU, 2}, text), "cpu:2");
    assert_string_equal(yk_device_format((yk_device){YK_CUDA, 0}, text), "cuda:0");
    assert_string_equal(yk_device_format((yk_device){99, INT16_MIN}, text), "unknown:-32768");
}

static void counts(void **state)
{
    (void)state;
    assert_int_equal(yk_device_count(YK_CPU), 4);
    assert_int_equal(yk_device_count(YK_CUDA), 0); /* a question: no error, though the plug-in is not here */
    assert_null(yk_last_error());
    assert_true(yk_device_equal(yk_device_local(), (yk_device){YK_CPU, 0}));
    expect_ok(yk__device_check((yk_device){YK_CPU, 3}));
    assert_int_equal(yk__device_check((yk_device){YK_CPU, -1}), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "device cpu:-1 does not exist");
    assert_int_equal(yk__device_check((yk_device){17, 0}), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "unknown:0");
    expect_ok(yk_device_synchronize((yk_device){YK_CPU, 1}));
    assert_int_equal(yk_device_synchronize((yk_device){YK_CPU, 9}), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "cpu:9");
    assert_int_equal(yk__slot_missing((yk_device){YK_CPU, 1}, "gemm"), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "gemm is not implemented for device cpu:1");
}

static void memory_is_counted_per_device(void **state)
{
    (void)state;
    yk_memory_info info;
    for (int16_t i = 0; i < 4; i++) {
        yk__storage *s = yk__storage_create((yk_device){YK_CPU, i}, (size_t)(i + 1) * 65536);
        assert_non_null(s);
        for (int16_t k = 0; k < 4; k++) {
            expect_ok(yk_device_memory((yk_device){YK_CPU, k}, &info));
            assert_int_equal(info.allocated, k == i ? s->reserved : 0);
        }
        yk__storage_release(s);
    }
    assert_int_equal(yk_device_memory((yk_device){YK_CPU, 4}, &info), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "cpu:4");
    yk_device_empty_cache((yk_device){YK_CPU, 4});
    expect_error(YK_ERR_DEVICE, "cpu:4");
    yk_device_reset_peak_memory((yk_device){YK_CPU, 4});
    expect_error(YK_ERR_DEVICE, "cpu:4");
}

static void threads_can_be_set(void **state)
{
    (void)state;
    yk_device second = {YK_CPU, 1};
    assert_int_equal(yk_get_num_threads(second), 1); /* two for four devices, at least one each */
    expect_ok(yk_set_num_threads(second, 3));
    assert_int_equal(yk_get_num_threads(second), 3);
    assert_int_equal(yk_get_num_threads((yk_device){0}), 1);
    assert_int_equal(yk_set_num_threads(second, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "0 is not a number of threads");
    assert_int_equal(yk_set_num_threads(second, 100000), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "100000 threads are more than the limit");
    assert_int_equal(yk_set_num_threads((yk_device){YK_CPU, 9}, 1), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "cpu:9");
    assert_int_equal(yk_get_num_threads(second), 3);
    assert_int_equal(yk_get_num_threads((yk_device){YK_CUDA, 0}), 1);
}

static void tensors_live_on_their_device(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options there = *YK_OPTIONS(yk_tensor_options, .device = {YK_CPU, 2});
    float numbers[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    yk_tensor *x = yk_from_data(numbers, YK_SHAPE(2, 3), &there);
    assert_non_null(x);
    assert_true(yk_device_equal(yk_tensor_device(x), there.device));
    expect_ok(yk_tensor_read(x, back, sizeof(back)));
    assert_memory_equal(back, numbers, sizeof(back));
    assert_true(yk_get(x, (int64_t[]){1, 2}) == 6);
    yk_tensor_options nowhere = *YK_OPTIONS(yk_tensor_options, .device = {YK_CPU, 7});
    assert_null(yk_zeros(YK_SHAPE(2), &nowhere));
    expect_error(YK_ERR_DEVICE, "device cpu:7 does not exist");
    yk_scope_end(scope);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "probe") == 0)
        return answer_probe();
    snprintf(program, sizeof(program), "%s", own_program());
    setenv("YOKE_CPU_DEVICES", "4", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    unsetenv("LOCAL_RANK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_the_environment),
        cmocka_unit_test(names),
        cmocka_unit_test(counts),
        cmocka_unit_test(memory_is_counted_per_device),
        cmocka_unit_test(threads_can_be_set),
        cmocka_unit_test(tensors_live_on_their_device),
    };
    return cmocka_run_group_tests_name("device/devices", tests, NULL, NULL);
}
