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

/* A file for each page: page.json, and for the incarnations before page.0.json and so on; whether there are such. */
static bool pages_save_in_folder(job *j, const worker *w, const yk__pages *pages)
{
    char path[4200];
    bool earlier = false;
    for (int back = YK__PAGES_KEPT; back >= 0; back--) {
        const yk__rank_page *page = yk__pages_before(pages, w->local_rank, back);
        if (!page || !atomic_load(&page->pid))
            continue;
        run_pages_folder(j, w, path, sizeof(path) - 40);
        size_t used = strlen(path);
        if (back)
            snprintf(path + used, sizeof(path) - used, "/page.%d.json", page->incarnation);
        else
            snprintf(path + used, sizeof(path) - used, "/page.json");
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        page_write(j, fd, path, page);
        if (fd >= 0)
            close(fd);
        earlier |= back > 0;
    }
    return earlier;
}

static bool any_page(const group *g, const yk__pages *pages)
{
    for (int i = 0; i < g->count; i++) {
        for (int back = 0; back <= YK__PAGES_KEPT; back++) {
            const yk__rank_page *page = yk__pages_before(pages, i, back);
            if (page && atomic_load(&page->pid))
                return true;
        }
    }
    return false;
}

void run_pages_save(job *j, const group *g, char *path, size_t size)
{
    const yk__pages *pages = yk__hang_pages(g->hang);
    const char *folder = getenv("TMPDIR");
    *path = '\0';
    if (!any_page(g, pages))
        return;
    if (j->log_dir) {
        bool earlier = false;
        for (int i = 0; i < g->count; i++)
            earlier |= pages_save_in_folder(j, &g->workers[i], pages);
        snprintf(path, size, "%s/rank_*/page%s.json", j->log_dir, earlier ? "*" : "");
        return;
    }
    snprintf(path, size, "%s/yoke-pages-XXXXXX.json", folder && *folder ? folder : "/tmp");
    int fd = mkostemps(path, (int)strlen(".json"), O_CLOEXEC);
    for (int i = 0; i < g->count; i++) {
        for (int back = YK__PAGES_KEPT; back >= 0; back--) {
            const yk__rank_page *page = yk__pages_before(pages, i, back);
            if (!page || !atomic_load(&page->pid))
                continue;
            page_write(j, fd, path, page);
            if (fd < 0) {
                *path = '\0';
                return;
            }
        }
    }
    close(fd);
}
