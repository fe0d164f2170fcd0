/*
 * replay.c - the main function of a fuzz target that reads files: each argument is a file, or a folder of them.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static long replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    size_t size = 0, room = 1 << 16;
    uint8_t *data = malloc(room);
    while (data && (size += fread(data + size, 1, room - size, f)) == room)
        data = realloc(data, room *= 2);
    fclose(f);
    if (!data) {
        fprintf(stderr, "%s: out of memory\n", path);
        exit(1);
    }
    /* As large as the file, so that a sanitizer sees a read past its end. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        exit(1);
    memcpy(exact, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 1;
}

static long replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return replay_file(path);
    long count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        count += replay_file(name);
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    long count = 0;
    for (int i = 1; i < argc; i++)
        count += replay_folder(argv[i]);
    printf("%ld files\n", count);
    return count == 0;
}
