/*
 * test_device.c - runs a test program with a GPU of the emulator as its default device: before main, where
 * YOKE_TEST_DEVICE=cuda is set. Cases that tests/emulator/exceptions names are skipped then. Part of every test
 * program.
 */
#include "tests/support/test_device.h"

#include <libgen.h>
#include <stdio.h>

#include <yoke/ops.h>

#include "tensor/host_tensor.h"
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

yk_device_type test_device_type;

__attribute__((constructor(1000))) static void choose_device(void)
{
    const char *name = getenv("YOKE_TEST_DEVICE");
    if (!name || strcmp(name, "cpu") == 0)
        return;
    if (strcmp(name, "cuda") != 0 || !find_emulator()) {
        fprintf(stderr, "YOKE_TEST_DEVICE=%s: %s\n", name,
                strcmp(name, "cuda") ? "expected cpu or cuda" : "this build has no emulator of GPUs");
        exit(1);
    }
    test_device_type = yk__default_device_type = YK_CUDA;
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("YOKE_EMULATOR_GPUS", "16", 0);
    setenv("YOKE_DETERMINISTIC", "1", 0); /* bits are compared */
}

void start_devices(void)
{
    if (!yk_device_count(test_device_type))
        fail_msg("there is no device: %s", yk_last_error() ? yk_last_error()->message : "no record");
}

void use_devices(int count)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", count);
    setenv("YOKE_CPU_DEVICES", text, 1);
    setenv("YOKE_EMULATOR_GPUS", text, 1);
}

const char *device_text(const char *text)
{
    static _Thread_local char texts[16][2000];
    static _Thread_local unsigned turn;
    if (test_device_type == YK_CPU)
        return text;
    char *out = texts[turn++ % 16], *end = out + sizeof(texts[0]) - 8;
    while (*text && out < end) {
        bool names = strncmp(text, "cpu:", 4) == 0 || strncmp(text, "cpu device", 10) == 0;
        out += snprintf(out, 6, "%s", names ? "cuda" : (char[]){*text, 0});
        text += names ? 3 : 1;
    }
    *out = 0;
    return texts[(turn - 1) % 16];
}

const void *host_data(yk_tensor *x)
{
    if (!x || yk__backend_for(x)->host_memory)
        return yk_tensor_data(x);
    yk_tensor *copy = yk__scope_own(yk__raw_to(x, (yk_device){0}));
    return copy ? copy->data : NULL;
}

yk_tensor *finished(yk_tensor *x)
{
    return x && !yk_device_synchronize(yk__device_of(x)) ? x : NULL;
}

yk_tensor *to_test_device(yk_tensor *x)
{
    return yk_to(x, yk_current_device(test_device_type));
}

const void *data_ptr(const yk_tensor *x)
{
    return x ? x->data : NULL;
}

void host_write(yk_tensor *x, size_t offset, const void *bytes, size_t size)
{
    expect_ok(yk__backend_for(x)->upload(yk__device_of(x).index, (char *)x->data + offset, bytes, size));
}

/* ---- cases that do not run there -------------------------------------------------------------------------------- */
static void excepted(void **state)
{
    (void)state;
    skip();
}

/* True if tests/emulator/exceptions has the line "FOLDER/PROGRAM:CASE reason". */
static bool is_excepted(const char *list, const char *name)
{
    char program[4096], line[1000], wanted[1000];
    snprintf(program, sizeof(program), "%s", own_program());
    const char *file = strrchr(program, '/') + 1, *folder = basename(dirname(program));
    int size = snprintf(wanted, sizeof(wanted), "%.200s/%.300s:%.300s", folder, file, name);
    FILE *lines = fopen(list, "r");
    bool found = false;
    if (!lines) {
        perror(list);
        exit(1);
    }
    while (!found && fgets(line, sizeof(line), lines))
        found = strncmp(line, wanted, (size_t)size) == 0 && line[size] == ' ';
    fclose(lines);
    return found;
}

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
/* Replaces cmocka's function (by ld's --wrap): every test program calls it. */
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const char *list = getenv("YOKE_TEST_EXCEPTIONS");
    if (test_device_type == YK_CPU || !list)
        return __real__cmocka_run_group_tests(name, tests, count, setup, teardown);
    struct CMUnitTest *run = calloc(count + 1, sizeof(*run));
    for (size_t i = 0; run && i < count; i++)
        run[i] = is_excepted(list, tests[i].name) ? (struct CMUnitTest){.name = tests[i].name, .test_func = excepted}
                                                  : tests[i];
    int failed = run ? __real__cmocka_run_group_tests(name, run, count, setup, teardown) : 1;
    free(run);
    return failed;
}
