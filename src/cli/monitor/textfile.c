/*
 * textfile.c - metrics in a file that node_exporter reads. Layer: cli.
 *
 * node_exporter takes every *.prom of its folder, so that the file beside it, which is renamed, has another ending.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/monitor/textfile.h"
#include "host/file.h"

yk_status textfile_write(const char *path, void (*write)(void *argument, FILE *to), void *argument)
{
    char *beside = yk__temporary_name(path, yk__name_bits());
    if (!beside)
        return yk__error_code();
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool whole = to != NULL;
    if (to) {
        write(argument, to);
        whole = !ferror(to) && fchmod(fd, 0644) == 0;
        whole = (fclose(to) == 0) && whole;
    } else if (fd >= 0) {
        close(fd);
    }
    whole = whole && rename(beside, path) == 0;
    yk_status status = whole ? YK_OK : yk__fail_errno("%s cannot be written", path);
    if (!whole && fd >= 0)
        unlink(beside);
    free(beside);
    return status;
}
