/* tar_files.h - writes tar archives for tests, member by member. */
#ifndef YOKE_TESTS_DATA_TAR_FILES_H
#define YOKE_TESTS_DATA_TAR_FILES_H

#include <stdio.h>
#include <string.h>

static inline void tar_block(FILE *file, const void *data, size_t size)
{
    static const char zeros[512];
    if (size)
        fwrite(data, 1, size, file);
    fwrite(zeros, 1, (512 - size % 512) % 512, file);
}

/* A member of a type ('0', 'L', 'x', ...); names of up to 100 bytes. */
static inline void tar_member(FILE *file, const char *name, char type, const void *data, size_t size)
{
    unsigned char header[512] = {0};
    unsigned sum = 0;
    memcpy(header, name, strlen(name) < 100 ? strlen(name) : 100);
    memcpy(header + 100, "0000644", 7);
    snprintf((char *)header + 124, 12, "%011llo", (unsigned long long)size);
    memcpy(header + 136, "00000000000", 11);
    memset(header + 148, ' ', 8);
    header[156] = (unsigned char)type;
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *)header + 148, 7, "%06o", sum);
    fwrite(header, 1, 512, file);
    tar_block(file, data, size);
}

static inline int tar_end(FILE *file)
{
    static const char zeros[1024];
    fwrite(zeros, 1, sizeof(zeros), file);
    return fclose(file);
}

#endif
