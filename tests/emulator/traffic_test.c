/* traffic_test.c - that the emulator counts the bytes that kernels and libraries move, and a product's multiply-adds:
 * between two marks, and of a graph that is replayed.
 */
#include <dlfcn.h>
#include <string.h>

#include <jansson.h>

#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

enum { COUNT = 5000, ROWS = 48, COLUMNS = 32, INNER = 16 };

static const yk_device gpu = {YK_CUDA, 0};
static void (*traffic_begin)(void);
static void (*traffic_end)(const char *file);
static char file[4300];

/* The objects of the file, one a line. */
static json_t *read_lines(void)
{
    char line[1000];
    json_t *all = json_array();
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in)) {
        json_t *one = json_loads(line, 0, NULL);
        assert_non_null(one);
        json_array_append_new(all, one);
    }
    fclose(in);
    return all;
}

static void expect_number(const json_t *row, const char *key, double expected)
{
    double found = json_number_value(json_object_get(row, key));
    if (found != expected)
        fail_msg("%s of %s: %s is %g, expected %g", key, file, json_string_value(json_object_get(row, "name")), found,
                 expected);
}

static void expect_name(const json_t *row, const char *name)
{
    assert_string_equal(json_string_value(json_object_get(row, "name")), name);
}

static yk_tensor *rand_on_gpu(int64_t rows, int64_t columns)
{
    return yk_rand(YK_SHAPE(rows, columns), YK_OPTIONS(yk_tensor_options, .device = gpu));
}

/* Each operand once; whole sectors of 32 bytes of what lies apart. */
static void kernels_between_marks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = rand_on_gpu(1, COUNT), *row = rand_on_gpu(COLUMNS, 1), *y = rand_on_gpu(COLUMNS, COUNT / COLUMNS);
    expect_ok(yk_device_synchronize(gpu));
    traffic_begin();
    yk_tensor *both = yk_add(x, x);
    yk_tensor *repeated = yk_mul(y, row);
    yk_tensor *apart = yk_contiguous(yk_select(rand_on_gpu(COLUMNS, INNER), 1, 3));
    assert_true(both && repeated && apart);
    expect_ok(yk_device_synchronize(gpu));
    traffic_end(file);
    json_t *rows = read_lines();
    assert_int_equal(json_array_size(rows), 4);
    const json_t *add = json_array_get(rows, 0), *mul = json_array_get(rows, 1), *copy = json_array_get(rows, 3);
    expect_name(copy, "copy");
    expect_number(add, "read", 2.0 * COUNT * sizeof(float));
    expect_number(add, "written", (double)COUNT * sizeof(float));
    expect_number(add, "sectors_read", (double)COUNT * sizeof(float)); /* of both operands, which are one */
    expect_number(add, "sectors_written", (double)COUNT * sizeof(float));
    expect_number(mul, "sectors_read", (COUNT / COLUMNS * COLUMNS + COLUMNS) * (double)sizeof(float));
    expect_number(copy, "read", COLUMNS * (double)sizeof(float));
    expect_number(copy, "sectors_read", COLUMNS * 32.0);
    expect_number(copy, "sectors_written", COLUMNS * (double)sizeof(float));
    assert_true(json_number_value(json_object_get(add, "blocks")) > 0);
    assert_true(json_number_value(json_object_get(add, "kernel")) > 0);
    json_decref(rows);
    yk_scope_end(scope);
}

static yk_tensor *left, *right;

static yk_status product_step(void *user)
{
    (void)user;
    yk_scope scope = yk_scope_begin();
    yk_tensor *y = yk_relu(yk_matmul(left, right));
    yk_status status = y ? YK_OK : yk_last_error()->code;
    yk_scope_end(scope);
    return status;
}

/* The last replay alone. */
static void a_replayed_graph(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    left = rand_on_gpu(ROWS, INNER), right = rand_on_gpu(INNER, COLUMNS);
    yk_graph *g = yk_graph_create(gpu, 2, product_step, NULL);
    for (int i = 0; i < 8; i++)
        expect_ok(yk_graph_run(g));
    expect_ok(yk_device_synchronize(gpu));
    assert_true(yk_graph_get_info(g).replays > 1);
    json_t *rows = read_lines();
    assert_int_equal(json_array_size(rows), 2);
    const json_t *product = json_array_get(rows, 0), *relu = json_array_get(rows, 1);
    expect_name(product, "cublasLtMatmul");
    expect_number(product, "read", (ROWS * INNER + INNER * COLUMNS) * (double)sizeof(float));
    expect_number(product, "written", ROWS * COLUMNS * (double)sizeof(float));
    expect_number(product, "multiply_adds", (double)ROWS * COLUMNS * INNER);
    expect_number(relu, "sectors_read", ROWS * COLUMNS * (double)sizeof(float));
    expect_number(relu, "multiply_adds", 0);
    json_decref(rows);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_between_marks), cmocka_unit_test(a_replayed_graph)};
    if (!use_emulator())
        return 0;
    snprintf(file, sizeof(file), "%.4000s-%d.traffic", own_program(), (int)getpid());
    setenv("YOKE_EMULATOR_TRAFFIC", file, 1);
    (void)yk_device_count(YK_CUDA); /* loads the backend */
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/yoke-cuda.so", getenv("YOKE_BACKEND_PATH"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&traffic_begin = plugin ? dlsym(plugin, "emulator_traffic_begin") : NULL;
    *(void **)&traffic_end = plugin ? dlsym(plugin, "emulator_traffic_end") : NULL;
    if (!traffic_begin || !traffic_end)
        return 1;
    int failed = cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
    remove(file);
    return failed;
}
