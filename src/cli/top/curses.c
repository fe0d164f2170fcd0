/*
 * curses.c - a screen that is drawn by ncurses. Layer: cli.
 *
 * ncurses is not linked: no other verb needs it, and it need not be there to build. What is used of it is declared here
 * as its header of ABI 6 has it. A screen is made by newterm, since initscr ends the process where it fails.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top/curses.h"

enum { BOLD = 1 << 21, REVERSE = 1 << 18, DIM = 1 << 20 };

typedef struct screen screen;
typedef struct window window;

static struct {
    screen *(*newterm)(const char *type, FILE *out, FILE *in);
    void (*delscreen)(screen *s);
    int (*endwin)(void);
    int (*cbreak)(void);
    int (*noecho)(void);
    int (*curs_set)(int visible);
    int (*keypad)(window *w, bool on);
    void (*wtimeout)(window *w, int milliseconds);
    int (*wgetch)(window *w);
    int (*werase)(window *w);
    int (*wmove)(window *w, int row, int column);
    int (*waddnstr)(window *w, const char *text, int bytes);
    int (*wattrset)(window *w, int attributes);
    int (*wrefresh)(window *w);
    int (*getmaxy)(const window *w);
    int (*getmaxx)(const window *w);
} curses;

static window **standard; /* stdscr, of the library */
static screen *own;

static bool load_library(void)
{
    static const char *const files[] = {"libncursesw.so.6", "libncurses.so.6"};
    static const char *const names[] = {"newterm",  "delscreen", "endwin",  "cbreak", "noecho", "curs_set",
                                        "keypad",   "wtimeout",  "wgetch",  "werase", "wmove",  "waddnstr",
                                        "wattrset", "wrefresh",  "getmaxy", "getmaxx"};
    void *symbols[sizeof(names) / sizeof(*names)], *library = NULL;
    _Static_assert(sizeof(symbols) == sizeof(curses), "one function for each name");
    for (size_t i = 0; !library && i < sizeof(files) / sizeof(*files); i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof(names) / sizeof(*names); i++) {
        if (!(symbols[i] = dlsym(library, names[i])))
            return false;
    }
    standard = library ? dlsym(library, "stdscr") : NULL;
    if (standard)
        memcpy(&curses, symbols, sizeof(symbols)); /* functions' addresses, which dlsym gives as objects' */
    return standard != NULL;
}

yk_status screen_open(void)
{
    const char *type = getenv("TERM");
    if (!load_library())
        return yk__fail(YK_ERR_NOT_FOUND,
                        "the library libncursesw is needed to draw on a terminal, and is not there: Debian's package "
                        "is libncursesw6 (apt-get install libncursesw6); --once prints the same without it");
    if (!(own = curses.newterm(type, stdout, stdin)))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "ncurses does not know the terminal '%s' (the variable TERM; Debian's package ncurses-term has "
                        "more of them); --once prints the same without it",
                        type ? type : "");
    curses.cbreak();
    curses.noecho();
    curses.curs_set(0);
    curses.keypad(*standard, true);
    return YK_OK;
}

void screen_close(void)
{
    if (!own)
        return;
    curses.endwin();
    curses.delscreen(own);
    own = NULL;
}

void screen_size(int *rows, int *columns)
{
    *rows = curses.getmaxy(*standard);
    *columns = curses.getmaxx(*standard);
}

void screen_clear(void)
{
    curses.werase(*standard);
}

void screen_put(int row, const char *text, screen_style style)
{
    static const int attributes[] = {0, BOLD, REVERSE, DIM};
    curses.wattrset(*standard, attributes[style]);
    curses.wmove(*standard, row, 0);
    curses.waddnstr(*standard, text, -1);
    curses.wattrset(*standard, 0);
}

void screen_show(void)
{
    curses.wrefresh(*standard);
}

int screen_key(int milliseconds)
{
    curses.wtimeout(*standard, milliseconds);
    return curses.wgetch(*standard);
}
