/*
 * explain.c - `yoke explain`: who holds a job up, or ended it, by the pages of its ranks. Layer: cli.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"
#include "host/file.h"
#include "observe/explain.h"
#include "observe/runs.h"

enum { MOST_BYTES = 1 << 30 };

/* Adds the pages of a file, a JSON object on each line. */
static yk_status file_add(const char *path, json_t *pages)
{
    unsigned char *data = NULL;
    size_t size = 0, at = 0;
    yk_status status = yk__file_read(path, MOST_BYTES, &data, &size);
    for (int line = 1; !status && at < size; line++) {
        const unsigned char *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - data) - at : size - at;
        json_t *page = length ? json_loadb((const char *)data + at, length, 0, NULL) : NULL;
        if (page)
            json_array_append_new(pages, page);
        else if (length)
            status = yk__fail(YK_ERR_FORMAT, "%s:%d: this is no page of a rank", path, line);
        at += length + 1;
    }
    free(data);
    return status;
}

/* Adds those that `yoke run --log-dir DIR` has saved. */
static yk_status folder_add(const char *path, json_t *pages)
{
    char *pattern = yk__format("%s/rank_*/page.json", path);
    glob_t found = {0};
    yk_status status = YK_OK;
    int code = pattern ? glob(pattern, 0, NULL, &found) : GLOB_NOSPACE;
    if (code)
        status =
            yk__fail(YK_ERR_NOT_FOUND,
                     "there is no page in %s: yoke run --log-dir leaves DIR/rank_N/page.json when its job fails", path);
    for (size_t i = 0; !code && i < found.gl_pathc && !status; i++)
        status = file_add(found.gl_pathv[i], pages);
    if (!code)
        globfree(&found);
    free(pattern);
    return status;
}

/* Adds those of a run that goes on, by its name or a pid of its launcher's: of each launcher of this machine. */
static yk_status run_add(const char *name, json_t *pages)
{
    yk__runs runs;
    int found = 0;
    yk__runs_read(&runs);
    for (int i = 0; i < runs.count; i++) {
        const yk__run *run = &runs.all[i];
        if (!yk__run_is_called(run, name))
            continue;
        json_t *more = yk__run_pages(run);
        json_array_extend(pages, more);
        json_decref(more);
        found++;
    }
    yk__runs_clear(&runs);
    if (!found)
        return yk__fail(YK_ERR_NOT_FOUND, "%s is no file or folder, and no run of this name or pid is here (yoke ps)",
                        name);
    if (!json_array_size(pages))
        return yk__fail(YK_ERR_STATE, "the run %s is here, and no rank of it has called yoke yet", name);
    return YK_OK;
}

int cli_explain(int argc, char **argv)
{
    const cli_option options[] = {{0}};
    const cli_verb verb = {
        .name = "yoke explain",
        .summary =
            "Says why a job does not get on, or why it ended: which rank did not come, to which operation, since\n"
            "when and what it was doing; then what each rank was doing.",
        .about =
            "FILE is what `yoke run` saved when the job failed (yoke-pages-*.json), DIR its --log-dir, JOB the\n"
            "name or the pid of a run on this machine that goes on. Several files may be given: of several nodes.\n",
        .examples = "  yoke explain night\n"
                    "  yoke explain logs\n"
                    "  yoke explain /tmp/yoke-pages-8fQ3xZ.json\n",
        .options = options,
        .rest = "JOB|DIR|FILE...",
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (!argv[optind])
        return cli_usage_error(&verb, "expected a job, a folder or a file; yoke ps lists the jobs");
    json_t *pages = json_array();
    yk_status status = YK_OK;
    for (int i = optind; argv[i] && !status; i++) {
        struct stat about;
        bool there = stat(argv[i], &about) == 0;
        status = (!there ? run_add : S_ISDIR(about.st_mode) ? folder_add : file_add)(argv[i], pages);
    }
    if (!status)
        status = yk__explain(pages, stdout);
    json_decref(pages);
    return status ? cli_not_found(status) : EXIT_DONE;
}
