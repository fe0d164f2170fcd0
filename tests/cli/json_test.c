/*
 * json_test.c - the program's output for other programs is JSON with the promised names and digits: every line of a
 * run's log, the last line of `yoke bench`. The program is $YOKE.
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/support/expect.h"

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/yoke-json-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof(path), "%s/log", directory);
    unlink(path);
    snprintf(path, sizeof(path), "%s/out", directory);
    unlink(path);
    return rmdir(directory);
}

/* Runs the program, or with `beside` the one of that name in its folder; the output is in `directory`/out, which is
 * opened. */
static FILE *run_program(const char *beside, const char *arguments)
{
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke";
    const char *slash = beside ? strrchr(yoke, '/') : NULL;
    int folder = slash ? (int)(slash - yoke + 1) : 0;
    char command[512], path[96];
    snprintf(path, sizeof(path), "%s/out", directory);
    snprintf(command, sizeof(command), "'%.*s%s' %s > '%s' 2>&1", folder, yoke, beside ? beside : yoke, arguments,
             path);
    int code = system(command);
    if (code != 0)
        fail_msg("%s: status %d", command, code);
    FILE *out = fopen(path, "r");
    assert_non_null(out);
    return out;
}

static FILE *run(const char *arguments)
{
    return run_program(NULL, arguments);
}

/* The next line as JSON, which the caller releases; NULL at the end. */
static json_t *next_line(FILE *f, char *line, size_t size)
{
    if (!fgets(line, (int)size, f))
        return NULL;
    json_error_t why;
    json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, &why);
    if (!json)
        fail_msg("not JSON (%s): %s", why.text, line);
    return json;
}

static double number(const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    if (!json_is_number(value))
        fail_msg("no number '%s'", name);
    return json_number_value(value);
}

/* The number of significant digits of the loss in a line. */
static int digits_of_loss(const char *line)
{
    const char *p = strstr(line, "\"loss\":");
    assert_non_null(p);
    int digits = 0;
    for (p += 7; *p != ',' && *p != '}' && *p != 'e'; p++)
        digits += (*p >= '1' && *p <= '9') || (*p == '0' && digits > 0);
    return digits;
}

static void check_log(const char *arguments, int least_digits)
{
    char command[256], path[96], line[512];
    snprintf(path, sizeof(path), "%s/log", directory);
    snprintf(command, sizeof(command), "train --epochs 2 --batch-size 1000 %s --log '%s'", arguments, path);
    fclose(run(command));
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    int step = 0, evals = 0, epochs = 0, digits = 0;
    double losses = 0, test_loss = 0, accuracy = 0; /* the sum of an epoch's steps; of its test */
    for (json_t *json; (json = next_line(log, line, sizeof(line))); json_decref(json)) {
        const char *event = json_string_value(json_object_get(json, "event"));
        assert_non_null(event);
        assert_true(number(json, "loss") > 0 && number(json, "loss") < 10);
        if (digits_of_loss(line) > digits)
            digits = digits_of_loss(line);
        if (strcmp(event, "step") == 0) {
            assert_int_equal(json_object_size(json), 5);
            assert_int_equal(number(json, "step"), ++step);
            assert_int_equal(number(json, "epoch"), (step - 1) / 12);
            assert_true(number(json, "samples_per_second") > 0);
            losses += number(json, "loss");
        } else if (strcmp(event, "eval") == 0) {
            assert_int_equal(json_object_size(json), 4);
            assert_int_equal(number(json, "epoch"), evals++);
            assert_int_equal(step, 12 * evals);
            test_loss = number(json, "loss");
            accuracy = number(json, "accuracy");
            assert_true(accuracy >= 0 && accuracy <= 1);
        } else {
            assert_string_equal(event, "epoch");
            assert_int_equal(json_object_size(json), 10);
            assert_int_equal(number(json, "epoch"), epochs++);
            assert_int_equal(epochs, evals); /* after its test */
            assert_int_equal(number(json, "step"), step);
            expect_near(number(json, "loss"), losses / 12, 1e-6, 0);
            losses = 0;
            assert_true(number(json, "test_loss") == test_loss && number(json, "accuracy") == accuracy);
            assert_true(number(json, "top5") >= accuracy && number(json, "top5") <= 1);
            assert_true(number(json, "lr") > 0 && number(json, "samples_per_second") > 0);
            assert_true(number(json, "seconds") > 0);
        }
    }
    fclose(log);
    assert_int_equal(step, 24);
    assert_int_equal(evals, 2);
    assert_int_equal(epochs, 2);
    assert_true(digits >= least_digits);
}

static void test_log(void **state)
{
    (void)state;
    check_log("", 7);
}

static void test_log_f64(void **state)
{
    (void)state;
    check_log("--dtype f64", 16);
}

/* The last line that the command prints. */
static json_t *last_line(const char *arguments)
{
    char line[1024], last[1024] = "";
    FILE *out = run(arguments);
    while (fgets(line, sizeof(line), out))
        strcpy(last, line);
    fclose(out);
    json_t *json = json_loads(last, JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        fail_msg("%s: the last line is not JSON: %s", arguments, last);
    return json;
}

static void test_bench_step(void **state)
{
    (void)state;
    json_t *json = last_line("bench step --model lenet --batch-size 8 --threads 1 --steps 20 --json");
    assert_string_equal(json_string_value(json_object_get(json, "model")), "lenet");
    assert_int_equal(number(json, "batch_size"), 8);
    assert_int_equal(number(json, "threads"), 1);
    assert_int_equal(number(json, "image_size"), 28);
    assert_int_equal(number(json, "steps"), 20);
    double ms = number(json, "step_ms_median");
    assert_true(ms > 0 && number(json, "step_ms_min") <= ms);
    expect_near(number(json, "images_per_second"), 8e3 / ms, 1e-3, 0);
    assert_true(number(json, "peak_rss_mb") > 1);
    assert_true(number(json, "peak_memory_mb") > 0.1);
    assert_true(number(json, "accumulate") == 1);
    json_decref(json);
}

static void test_bench_step_size(void **state)
{
    (void)state;
    json_t *json = last_line("bench step --model resnet18 --batch-size 2 --threads 2 --image-size 48 --steps 1 --json");
    assert_int_equal(number(json, "image_size"), 48);
    assert_int_equal(number(json, "threads"), 2);
    assert_true(number(json, "step_ms_median") > 0);
    json_decref(json);
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words;
}

/* The list has the promised rows, each once, of known directions and bounds, none of which has fewer than a fifth of
 * the rows. */
static void test_operations_list(void **state)
{
    (void)state;
    static const char *const directions[] = {"forward", "backward", "grad_input", "grad_weight", "both", "step", NULL};
    static const char *const bounds[] = {"arithmetic", "memory", "small", "step", "large", NULL};
    FILE *out = run_program("bench/operation_times", "--list --json");
    char line[1000];
    json_t *json, *seen = json_object();
    int count = 0, of_bound[5] = {0};
    while ((json = next_line(out, line, sizeof(line)))) {
        const char *direction = json_string_value(json_object_get(json, "direction"));
        const char *bound = json_string_value(json_object_get(json, "bound"));
        const char *text = json_string_value(json_object_get(json, "case"));
        assert_true(text && direction && is_one_of(direction, directions) && bound && is_one_of(bound, bounds));
        assert_null(json_object_get(json, "us"));
        char row[600];
        snprintf(row, sizeof(row), "%s %s", text, direction);
        if (json_object_get(seen, row))
            fail_msg("'%s' is listed twice", row);
        json_object_set_new(seen, row, json_true());
        for (int i = 0; bounds[i]; i++)
            of_bound[i] += strcmp(bound, bounds[i]) == 0;
        count++;
        json_decref(json);
    }
    fclose(out);
    json_decref(seen);
    int operations = of_bound[0] + of_bound[1] + of_bound[2];
    assert_int_equal(count, operations + of_bound[3] + of_bound[4]);
    assert_true(operations >= 120);
    for (int i = 0; i < 3; i++)
        assert_true(of_bound[i] >= operations / 5);
}

/* Every small row can be made and measured; a pattern of a direction gives rows of that direction alone. */
static void test_operations(void **state)
{
    (void)state;
    FILE *out = run_program("bench/operation_times", "--only ' small$' --seconds 0 --json");
    char line[1000];
    json_t *json;
    int count = 0;
    while ((json = next_line(out, line, sizeof(line)))) {
        assert_string_equal(json_string_value(json_object_get(json, "bound")), "small");
        assert_true(number(json, "us") > 0);
        count++;
        json_decref(json);
    }
    fclose(out);
    assert_true(count >= 40);
    out = run_program("bench/operation_times", "--only 'conv2d x=4x6x12x12 .* grad_input ' --seconds 0 --json");
    json = next_line(out, line, sizeof(line));
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "case")), "conv2d x=4x6x12x12 w=16x6x5x5 bias=1");
    assert_string_equal(json_string_value(json_object_get(json, "direction")), "grad_input");
    assert_string_equal(json_string_value(json_object_get(json, "bound")), "small");
    assert_true(number(json, "us") > 0);
    json_decref(json);
    assert_null(next_line(out, line, sizeof(line)));
    fclose(out);
}

static void test_bench_loader(void **state)
{
    (void)state;
    json_t *json = last_line("bench loader --data glyphs --workers 2 --batch-size 500 --seconds 0.1 --json");
    assert_string_equal(json_string_value(json_object_get(json, "data")), "glyphs");
    assert_int_equal(number(json, "workers"), 2);
    assert_int_equal(number(json, "batch_size"), 500);
    assert_true(number(json, "images_per_second") > 100);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
        TEST(test_log),
        TEST(test_log_f64),
        TEST(test_bench_step),
        TEST(test_bench_step_size),
        TEST(test_operations_list),
        TEST(test_operations),
        TEST(test_bench_loader),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
