/*
 * gpus_test.c - GPUs counted from the driver's files, as CUDA_VISIBLE_DEVICES chooses among them.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/gpus.h"

static char folder[] = "/tmp/yoke-gpus-XXXXXX";
static char driver[64], devices[64];

static const char *const uuids[] = {"GPU-11aa22bb-0000-0000-0000-000000000001",
                                    "GPU-11aa22cc-0000-0000-0000-000000000002",
                                    "GPU-99ff0000-0000-0000-0000-000000000003"};

static void write_gpu(int index, const char *uuid)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/0000:%02x:00.0", driver, index);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof(path), "%s/0000:%02x:00.0/information", driver, index);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nGPU UUID: \t %s\nBus Type: \t PCIe\nDevice Minor: \t %d\n",
            uuid, index);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof(path), "%s/nvidia%d", devices, index);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static int make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(driver, sizeof(driver), "%s/gpus", folder);
    snprintf(devices, sizeof(devices), "%s/dev", folder);
    return mkdir(driver, 0777) || mkdir(devices, 0777);
}

static int clear(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static int count(const char *visible)
{
    return yk__gpus_count_in(driver, devices, visible);
}

static void gpus_of_the_driver(void **state)
{
    (void)state;
    assert_int_equal(yk__gpus_count_in("/no/such/folder", devices, NULL), -1);
    assert_int_equal(yk__gpus_count_in("/no/such/folder", devices, "0,1"), -1);
    assert_int_equal(count(NULL), 0);
    for (int i = 0; i < 3; i++)
        write_gpu(i, uuids[i]);
    assert_int_equal(count(NULL), 3);
}

static void those_that_the_variable_names(void **state)
{
    (void)state;
    const struct {
        const char *visible;
        int count;
    } cases[] = {
        {"", 0},
        {"0", 1},
        {"2,0", 2},
        {"0,1,2", 3},
        {" 0 , 2", 2},
        {"0,7,1", 1}, /* the list ends before one that is not there */
        {"-1", 0},
        {"0,-1,1", 1},
        {"NoDevFiles", 0},
        {"1,1", 0}, /* twice: none at all */
        {"0,", 1},
        {",0", 0},
        {"GPU-99ff", 1},
        {"GPU-11aa22bb,GPU-99ff0000-0000-0000-0000-000000000003", 2},
        {"GPU-11aa", 0},        /* two of them begin so */
        {"GPU-99ff,GPU-99", 0}, /* twice */
        {"GPU-99ff,0", 1},      /* the first decides what is listed */
        {"GPU-12345678,GPU-99ff", 0},
        {"MIG-0000", -1},
        {"99999999999999999999", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (count(cases[i].visible) != cases[i].count)
            fail_msg("CUDA_VISIBLE_DEVICES='%s': %d, expected %d", cases[i].visible, count(cases[i].visible),
                     cases[i].count);
    }
}

/* A container sees the driver's list, and has the files of its own GPUs alone. */
static void those_with_a_device_file(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof(path), "%s/nvidia1", devices);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(count(NULL), 2);
    assert_int_equal(count("0,1,2"), 2);
}

/* By the bus, as NVML counts, whatever order the folder has; those without a device file count, and are not listed. */
static void their_numbers(void **state)
{
    (void)state;
    int numbers[3] = {-1, -1, -1};
    assert_int_equal(yk__gpus_list_in(driver, devices, NULL, numbers, 3), 2);
    assert_int_equal(numbers[0], 0);
    assert_int_equal(numbers[1], 2);
    assert_int_equal(numbers[2], -1);
    assert_int_equal(yk__gpus_list_in(driver, devices, "1,0", numbers, 3), 2);
    assert_int_equal(numbers[0], 2);
    assert_int_equal(numbers[1], 0);
    assert_int_equal(yk__gpus_list_in(driver, devices, "GPU-99ff", numbers, 3), 1);
    assert_int_equal(numbers[0], 2);
    assert_int_equal(numbers[1], 0); /* as it was */
    assert_int_equal(yk__gpus_list_in(driver, devices, NULL, numbers, 1), 2);
    assert_int_equal(numbers[0], 0);
    assert_int_equal(yk__gpus_list_in("/no/such/folder", devices, NULL, numbers, 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_of_the_driver),
        cmocka_unit_test(those_that_the_variable_names),
        cmocka_unit_test(those_with_a_device_file),
        cmocka_unit_test(their_numbers),
    };
    return cmocka_run_group_tests_name("gpus", tests, make, clear);
}
