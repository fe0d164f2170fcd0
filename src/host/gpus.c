/*
 * gpus.c - how many GPUs this process may use, without starting their driver. Layer: host.
 *
 * CUDA_VISIBLE_DEVICES is read as CUDA does: numbers or the beginnings of UUIDs, the first of them deciding which; the
 * list ends before an entry that is none of the GPUs, and one that is named twice leaves nothing.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "host/gpus.h"

/* Any number above what a host has; those beyond are not seen. */
enum { MOST_GPUS = 256 };

typedef struct gpu {
    char uuid[64]; /* "GPU-..."; empty: not said */
    int number;    /* among all of this host */
} gpu;

/* The value of a line "NAME:  VALUE" of the driver's file; false where there is none. */
static bool value_of(const char *line, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) != 0 || line[length] != ':')
        return false;
    line += length + 1;
    line += strspn(line, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(line, " \t\r\n"), line);
    return true;
}

/* True if this process may use the GPU that the file tells of. */
static bool read_gpu(const char *path, const char *devices, gpu *one)
{
    char line[256], minor[16] = "", device[512];
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof(line), file)) {
        value_of(line, "GPU UUID", one->uuid, sizeof(one->uuid));
        value_of(line, "Device Minor", minor, sizeof(minor));
    }
    fclose(file);
    snprintf(device, sizeof(device), "%s/nvidia%s", devices, minor);
    return minor[0] && access(device, R_OK | W_OK) == 0;
}

static int entry_is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* By the address on the PCI bus, whose parts have as many digits each. */
static int entry_before(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The number of GPUs that may be used; -1 where the driver has no such folder. */
static int read_gpus(const char *driver, const char *devices, gpu gpus[MOST_GPUS])
{
    struct dirent **entries = NULL;
    int count = 0, all = scandir(driver, &entries, entry_is_shown, entry_before);
    for (int i = 0; i < all; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%.255s/information", driver, entries[i]->d_name);
        if (count < MOST_GPUS) {
            gpus[count] = (gpu){.number = i};
            count += read_gpu(path, devices, &gpus[count]);
        }
        free(entries[i]);
    }
    free(entries);
    return all < 0 ? -1 : count;
}

/* The GPU that an entry of the list names, as a number from 0; -1: none, or several. */
static int find_gpu(const char *entry, size_t length, bool by_uuid, const gpu *gpus, int count)
{
    int found = -1;
    for (int i = 0; i < count && by_uuid; i++) {
        if (length && strncmp(gpus[i].uuid, entry, length) == 0) {
            if (found >= 0)
                return -1;
            found = i;
        }
    }
    if (by_uuid || !length || entry[0] < '0' || entry[0] > '9')
        return found;
    long number = strtol(entry, NULL, 10);
    return number < count ? (int)number : -1;
}

static void number_put(int number, int at, int *numbers, int most)
{
    if (at < most)
        numbers[at] = number;
}

int yk__gpus_list_in(const char *driver, const char *devices, const char *visible, int *numbers, int most)
{
    gpu gpus[MOST_GPUS];
    bool named[MOST_GPUS] = {false};
    int count = read_gpus(driver, devices, gpus), taken = 0;
    for (int i = 0; i < count && !visible; i++)
        number_put(gpus[i].number, i, numbers, most);
    if (count <= 0 || !visible)
        return count;
    visible += strspn(visible, " \t");
    if (strncmp(visible, "MIG-", 4) == 0)
        return -1;
    bool by_uuid = strncmp(visible, "GPU-", 4) == 0;
    for (const char *at = visible; *at;) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        size_t used = length;
        while (used && (at[used - 1] == ' ' || at[used - 1] == '\t'))
            used--;
        int which = find_gpu(at, used, by_uuid, gpus, count);
        if (which < 0)
            break;
        if (named[which])
            return 0;
        named[which] = true;
        number_put(gpus[which].number, taken++, numbers, most);
        at += length + (at[length] == ',');
    }
    return taken;
}

int yk__gpus_count_in(const char *driver, const char *devices, const char *visible)
{
    return yk__gpus_list_in(driver, devices, visible, NULL, 0);
}

int yk__gpus_list(int *numbers, int most)
{
    const char *folder = getenv("YOKE_NVIDIA_DRIVER"); /* of the tests that have no GPU */
    char driver[512], devices[512];
    snprintf(driver, sizeof(driver), "%s/gpus", folder ? folder : "/proc/driver/nvidia");
    snprintf(devices, sizeof(devices), "%s", folder ? folder : "/dev");
    return yk__gpus_list_in(driver, devices, getenv("CUDA_VISIBLE_DEVICES"), numbers, most);
}

int yk__gpus_count(void)
{
    return yk__gpus_list(NULL, 0);
}
