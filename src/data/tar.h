/* tar.h - members of a tar archive in memory. Layer: data. */
#ifndef YOKE_DATA_TAR_H
#define YOKE_DATA_TAR_H

#include <yoke/base.h>

enum { YK__TAR_NAME = 4096 /* bytes of a member's path, its end included */ };

/* An archive on its way from one member to the next: filled with path (for messages), bytes and size. */
typedef struct yk__tar {
    const char *path;
    const unsigned char *bytes;
    size_t size, at; /* at: where the next header lies */
    /* The member that was found last, a regular file. */
    char name[YK__TAR_NAME];
    size_t header; /* offset of its header */
    const unsigned char *data;
    size_t length;
} yk__tar;

/* Goes to the next regular file. *end is set where the archive ends. Errors name the file, the member and its offset.
 */
yk_status yk__tar_next(yk__tar *tar, bool *end);

#endif
