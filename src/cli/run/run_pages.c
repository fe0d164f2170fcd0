/*
 * run_pages.c - what the ranks of a failed job were doing, kept in files. Layer: cli.
 *
 * Without --log-dir the file is a new one that only its user may read: its folder may be everybody's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run/run_pages.h"
#include "launch/hang.h"

static void page_write(job *j, int fd, const char *path, const yk__rank_page *page)
{
    char *text = fd >= 0 ? yk__page_json(page) : NULL;
    size_t size = text ? strlen(text) : 0;
    errno = fd >= 0 ? ENOMEM : errno;
    if (!text || write(fd, text, size) != (ssize_t)size)
        yk__relay_say(&j->err, "yoke run: the pages of the ranks: %s: %s\n", path, strerror(errno));
    free(text);
}

void run_pages_folder(const job *j, const worker *w, char *path, size_t size)
{
    int used = snprintf(path, size, "%s/rank_%d", j->log_dir, w->rank);
    if (w->role && used > 0 && (size_t)used < size)
        snprintf(path + used, size - (size_t)used, ".%s_%d", w->role, w->role_rank);
}

void run_pages_save(job *j, const group *g, char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    int fd = -1;
    *path = '\0';
    for (int i = 0; i < g->count; i++) {
        const yk__rank_page *page = yk__pages_at(yk__hang_pages(g->hang), i);
        if (!page || !atomic_load(&page->pid))
            continue;
        if (j->log_dir) {
            char file[4200];
            run_pages_folder(j, &g->workers[i], file, sizeof(file) - 16);
            strcat(file, "/page.json");
            fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
            page_write(j, fd, file, page);
            if (fd >= 0)
                close(fd);
            fd = -1;
            snprintf(path, size, "%s/rank_*/page.json", j->log_dir);
            continue;
        }
        if (!*path) {
            snprintf(path, size, "%s/yoke-pages-XXXXXX.json", folder && *folder ? folder : "/tmp");
            fd = mkostemps(path, (int)strlen(".json"), O_CLOEXEC);
        }
        page_write(j, fd, path, page);
        if (fd < 0) {
            *path = '\0';
            return;
        }
    }
    if (fd >= 0)
        close(fd);
}
