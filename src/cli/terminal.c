/*
 * terminal.c - how wide the terminal is that something is drawn on. Layer: cli.
 */
#include "cli/terminal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_columns(int fd)
{
    const char *term = getenv("TERM");
    struct winsize size;
    int before = errno; /* why stdout could not be written is told at the program's end */
    bool terminal = isatty(fd);
    errno = before;
    if (!terminal || !term || strcmp(term, "dumb") == 0)
        return 0;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
