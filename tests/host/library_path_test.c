/* library_path_test.c - the folders in which a vendor's library is looked for, and their order. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/library_path.h"
#include "tests/support/expect.h"

static char folder[] = "/tmp/yoke-library-path-XXXXXX";

/* Makes FOLDER/name, with the folders above it. */
static const char *place(const char *name)
{
    static char path[4][300];
    static int turn;
    char *made = path[turn++ % 4];
    snprintf(made, sizeof(path[0]), "%s/%s", folder, name);
    for (char *at = made + strlen(folder) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(made, 0755);
        *at = '/';
    }
    FILE *file = fopen(made, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(chmod(made, 0755), 0);
    return made;
}

static void set(const char *name, const char *below)
{
    char value[600];
    snprintf(value, sizeof(value), "%s/%s", folder, below);
    setenv(name, value, 1);
}

static void point(const char *link, const char *to)
{
    const char *made = place(link);
    assert_int_equal(unlink(made), 0);
    assert_int_equal(symlink(to, made), 0);
}

/* The places under the folder of the test, and the bare name: what the machine has besides is left out. */
static int places(const char *file, char found[][400], int most)
{
    char path[400];
    int count = 0;
    for (int i = 0; yk__library_path(file, i, path, sizeof(path)); i++)
        if ((strncmp(path, folder, strlen(folder)) == 0 || strcmp(path, file) == 0) && count < most)
            strcpy(found[count++], path);
    return count;
}

static void the_order_of_places(void **state)
{
    (void)state;
    char found[12][400], list[600];
    const char *file = "libyoke-sample.so.9";
    static const char *const below[] = {"given/",
                                        NULL, /* the bare name */
                                        "toolkit/lib64/",
                                        "conda/lib/",
                                        "venv/lib/python3.11/site-packages/nvidia/cudnn/lib/",
                                        "venv/lib/python3.12/site-packages/nvidia/cu13/lib/",
                                        "venv/lib/python3.11/site-packages/torch/lib/",
                                        "conda/lib/python3.10/site-packages/nvidia/cudnn/lib/",
                                        "python/lib/python3.13/dist-packages/nvidia/cudnn/lib/",
                                        "home/.local/lib/python3.9/site-packages/nvidia/cudnn/lib/"};
    int count = sizeof(below) / sizeof(below[0]);
    char name[400];
    for (int i = 0; i < count; i++)
        if (below[i]) {
            snprintf(name, sizeof(name), "%s%s", below[i], file);
            place(name);
        }
    place("other/lib/python3.8/site-packages/nvidia/cudnn/lib/libyoke-sample.so.9"); /* of nobody */
    place("second/lib/python3.8/site-packages/nvidia/cudnn/lib/libyoke-sample.so.9");
    place("python/bin/python3");
    place("second/bin/python3"); /* not the first on the path */
    place("empty/something");
    snprintf(list, sizeof(list), "%s/empty::%s/given:", folder, folder);
    setenv("YOKE_LIBRARY_PATH", list, 1);
    snprintf(list, sizeof(list), "%s/empty:%s/python/bin:%s/second/bin", folder, folder, folder);
    setenv("PATH", list, 1);
    set("CUDA_HOME", "toolkit");
    set("VIRTUAL_ENV", "venv");
    set("CONDA_PREFIX", "conda");
    set("HOME", "home");
    assert_int_equal(places(file, found, 12), count);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%s%s%s%s", below[i] ? folder : "", below[i] ? "/" : "", below[i] ? below[i] : "",
                 file);
        assert_string_equal(found[i], name);
    }
    /* A path that there is no room for is none, and nothing is written beyond the buffer. */
    char little[8] = "1234567";
    assert_false(yk__library_path(file, 0, little, 4));
    assert_string_equal(little + 4, "567");
}

/* python3 is a link into an environment, whose own is one to the Python that made it: both are looked into. A link that
 * leads to itself is no python3. */
static void links_of_python_are_followed(void **state)
{
    (void)state;
    char found[6][400], list[600], name[400];
    const char *file = "libyoke-linked.so.9";
    static const char *const below[] = {"linked/lib/python3.11/site-packages/nvidia/cudnn/lib/",
                                        "made/lib/python3.11/site-packages/torch/lib/",
                                        "base/lib/python3.11/site-packages/nvidia/cudnn/lib/"};
    static const char *const names[] = {"YOKE_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "%s%s", below[i], file);
        place(name);
    }
    place("base/bin/python3.11");
    point("base/bin/python3", "python3.11"); /* of the same environment, which is looked into once */
    snprintf(list, sizeof(list), "%s/base/bin/python3", folder);
    point("made/bin/python3", list);
    point("linked/bin/python3", "../../made/bin/python3"); /* relative to where it lies */
    snprintf(list, sizeof(list), "%s/linked/bin", folder);
    setenv("PATH", list, 1);
    assert_int_equal(places(file, found, 6), 1 + 3);
    for (int i = 0; i < 3; i++)
        assert_true(strlen(found[1 + i]) > strlen(below[i]) && strstr(found[1 + i], strchr(below[i], '/')));
    assert_non_null(strstr(found[1], "/linked/lib"));
    assert_non_null(strstr(found[2], "made/lib"));
    assert_non_null(strstr(found[3], "/base/lib"));
    point("circle/bin/python3", "python3");
    snprintf(list, sizeof(list), "%s/circle/bin", folder);
    setenv("PATH", list, 1);
    assert_int_equal(places(file, found, 6), 1);
}

static bool is_a_place(const char *file, const char *wanted)
{
    char path[400];
    for (int i = 0; yk__library_path(file, i, path, sizeof(path)); i++)
        if (strcmp(path, wanted) == 0)
            return true;
    return false;
}

/* The folder in which the installer puts CUDA is searched, if no variable names another. */
static void cuda_where_it_is_installed(void **state)
{
    (void)state;
    static const char file[] = "libcudart.so", installed[] = "/usr/local/cuda/lib64/libcudart.so";
    if (access(installed, F_OK) != 0)
        skip();
    unsetenv("CUDA_HOME");
    assert_true(is_a_place(file, installed));
    set("CUDA_HOME", "toolkit");
    assert_false(is_a_place(file, installed));
}

static void without_any_environment(void **state)
{
    (void)state;
    char found[4][400];
    static const char *const names[] = {"YOKE_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV",
                                        "CONDA_PREFIX",      "PATH",      "HOME"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    assert_int_equal(places("libyoke-sample.so.9", found, 4), 1);
    assert_string_equal(found[0], "libyoke-sample.so.9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_places), cmocka_unit_test(links_of_python_are_followed),
        cmocka_unit_test(cuda_where_it_is_installed), cmocka_unit_test(without_any_environment)};
    if (!mkdtemp(folder))
        return 1;
    char path[400];
    snprintf(path, sizeof(path), "/bin:/usr/bin");
    int failed = cmocka_run_group_tests_name("library_path", tests, NULL, NULL);
    setenv("PATH", path, 1);
    char command[400];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) || failed;
}
