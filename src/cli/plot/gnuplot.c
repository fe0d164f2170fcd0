/*
 * gnuplot.c - the program gnuplot, run on a script. Layer: cli.
 *
 * The script is a file in memory that is its stdin, so that nobody waits for anybody: one pipe is read until its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/plot/gnuplot.h"

enum { NOT_THERE = 127 };

static bool write_whole(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EINTR)
            return false;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

/* All that comes through a descriptor, with a zero behind it; NULL without memory. */
static char *read_whole(int fd, size_t *length)
{
    size_t room = 1 << 16;
    char *all = malloc(room);
    *length = 0;
    for (ssize_t n; all && (n = read(fd, all + *length, room - *length - 1)) != 0;) {
        if (n < 0 && errno != EINTR)
            break;
        *length += n > 0 ? (size_t)n : 0;
        if (room - *length < 4096) {
            char *more = realloc(all, room *= 2);
            if (!more)
                free(all);
            all = more;
        }
    }
    if (all)
        all[*length] = '\0';
    return all;
}

/* In the child: -d leaves the user's own settings out. */
static void gnuplot_exec(int script, int out, int errors)
{
    static char name[] = "gnuplot", plain[] = "-d", from_stdin[] = "-";
    char *const arguments[] = {name, plain, from_stdin, NULL};
    if (dup2(script, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(errors, STDERR_FILENO) >= 0)
        execvp(name, arguments);
    _exit(NOT_THERE);
}

static yk_status gnuplot_failed(int state, int errors)
{
    char said[1000];
    lseek(errors, 0, SEEK_SET);
    ssize_t size = read(errors, said, sizeof(said) - 1);
    said[size > 0 ? size : 0] = '\0';
    if (WIFEXITED(state) && WEXITSTATUS(state) == NOT_THERE)
        return yk__fail(
            YK_ERR_NOT_FOUND,
            "the program gnuplot is needed to draw, and is not on the path: Debian's package is gnuplot-nox "
            "(apt-get install gnuplot-nox); --print-script prints what it would be told");
    return yk__fail(YK_ERR_STATE, "gnuplot ended with %s %d: %s", WIFEXITED(state) ? "exit code" : "signal",
                    WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state), cli_plain(said));
}

yk_status gnuplot_run(const char *script, size_t size, char **printed, size_t *length)
{
    int in = memfd_create("script", MFD_CLOEXEC), errors = memfd_create("errors", MFD_CLOEXEC), out[2] = {-1, -1};
    int state = 0;
    pid_t pid = -1;
    *printed = NULL;
    if (in >= 0 && errors >= 0 && write_whole(in, script, size) && pipe2(out, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0)
        gnuplot_exec(in, out[1], errors);
    yk_status status = pid < 0 ? yk__fail_errno("gnuplot cannot be started") : YK_OK;
    if (out[1] >= 0)
        close(out[1]);
    if (!status && !(*printed = read_whole(out[0], length)))
        status = yk__fail(YK_ERR_MEMORY, "out of memory for what gnuplot draws");
    if (out[0] >= 0)
        close(out[0]); /* what it still prints is nobody's */
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (!status && state)
        status = gnuplot_failed(state, errors);
    if (!status && !*length)
        status = gnuplot_failed(state, errors); /* it goes on after some mistakes */
    if (status) {
        free(*printed);
        *printed = NULL;
    }
    if (in >= 0)
        close(in);
    if (errors >= 0)
        close(errors);
    return status;
}
