/* plugin_test.c - plug-ins are found by name and compared before they are started; what does not fit is named. */
#include <libgen.h>
#include <pthread.h>
#include <unistd.h>

#include "host/plugin.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

static const int seven = 7;
static char folder[4200];

static yk__plugin_request request(const char *name)
{
    return (yk__plugin_request){
        .name = name,
        .interface = "sample",
        .what = "the sample",
        .sizes = {1, 2, 3},
        .services = &seven,
        .to_build = "build it",
        .to_load = "install it",
    };
}

static void a_plugin_is_loaded_once(void **state)
{
    (void)state;
    yk__plugin_request good = request("good");
    char path[4096];
    const yk__plugin *plugin = yk__plugin_describe(&good, path, sizeof(path));
    assert_non_null(plugin);
    assert_string_equal(plugin->built_with, "nothing 1.2.3");
    assert_non_null(strstr(path, "/yoke-good.so"));
    int (*const *table)(int) = yk__plugin_load(&good);
    expect_ok(table == NULL);
    assert_int_equal(table[0](41), 42);
    assert_ptr_equal(yk__plugin_load(&good), table);
}

static void *load_good(void *unused)
{
    (void)unused;
    yk__plugin_request good = request("good");
    return (void *)(uintptr_t)yk__plugin_load(&good);
}

static void threads_get_the_same_table(void **state)
{
    (void)state;
    pthread_t threads[4];
    void *table, *first = load_good(NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_good, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &table), 0);
        assert_ptr_equal(table, first);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        yk_status code;
    } cases[] = {
        {"old", "yoke-old.so is of yoke 0.0.9, and this is yoke " YK_VERSION, YK_ERR_UNSUPPORTED},
        {"format", "yoke-format.so is not a plug-in of this yoke", YK_ERR_UNSUPPORTED},
        {"symbol", "yoke-symbol.so is not a plug-in of this yoke", YK_ERR_UNSUPPORTED},
        {"sizes", "yoke-sizes.so was built from other sources", YK_ERR_UNSUPPORTED},
        {"other", "yoke-other.so is the plug-in 'good' of the interface 'sample', expected 'other'",
         YK_ERR_UNSUPPORTED},
        {"start", "the sample's library is too old", YK_ERR_DEVICE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk__plugin_request wrong = request(cases[i].name);
        for (int twice = 0; twice < 2; twice++) { /* a failure is not kept */
            assert_null(yk__plugin_load(&wrong));
            expect_error(cases[i].code, cases[i].text);
        }
    }
    yk__plugin_request wrong = request("other");
    wrong.interface = "device";
    assert_null(yk__plugin_load(&wrong));
    expect_error(YK_ERR_UNSUPPORTED, "of the interface 'sample', expected 'other' of 'device'");
}

static void what_is_not_there_says_where_it_was_looked_for(void **state)
{
    (void)state;
    yk__plugin_request absent = request("absent");
    char text[4400];
    snprintf(text, sizeof(text), "the sample is not there (%.900s/yoke-absent.so): build it", folder);
    assert_null(yk__plugin_load(&absent));
    expect_error(YK_ERR_UNSUPPORTED, text);
    assert_int_equal(unsetenv("YOKE_BACKEND_PATH"), 0);
    assert_null(yk__plugin_load(&absent));
    expect_error(YK_ERR_UNSUPPORTED, "/yoke-absent.so): build it");
    assert_int_equal(setenv("YOKE_BACKEND_PATH", folder, 1), 0);

    char path[] = "/tmp/yoke-plugin-XXXXXX", file[64];
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof(file), "%s/yoke-absent.so", path);
    FILE *broken = fopen(file, "w");
    assert_non_null(broken);
    fputs("not an object", broken);
    fclose(broken);
    assert_int_equal(setenv("YOKE_BACKEND_PATH", path, 1), 0);
    assert_null(yk__plugin_load(&absent));
    expect_error(YK_ERR_UNSUPPORTED, "the sample cannot be loaded: ");
    assert_int_equal(setenv("YOKE_BACKEND_PATH", folder, 1), 0);
    unlink(file);
    rmdir(path);
}

int main(void)
{
    char program[4096];
    snprintf(program, sizeof(program), "%s", own_program());
    snprintf(folder, sizeof(folder), "%s/plugins", dirname(dirname(program))); /* tests/plugins, next to tests/base */
    setenv("YOKE_BACKEND_PATH", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_is_loaded_once),
        cmocka_unit_test(threads_get_the_same_table),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(what_is_not_there_says_where_it_was_looked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
