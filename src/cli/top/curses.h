/*
 * curses.h - a screen that is drawn by ncurses, which is loaded when it is needed. Layer: cli.
 */
#ifndef YOKE_CLI_TOP_CURSES_H
#define YOKE_CLI_TOP_CURSES_H

#include "base/core.h"

typedef enum screen_style { SCREEN_PLAIN, SCREEN_BOLD, SCREEN_REVERSE, SCREEN_DIM } screen_style;

/* Keys beyond the characters. */
enum { KEY_NONE = -1, KEY_DOWN = 0402, KEY_UP = 0403, KEY_PAGE_DOWN = 0522, KEY_PAGE_UP = 0523, KEY_RESIZE = 0632 };

/* Takes the terminal of stdin and stdout. An error: the library is not there (YK_ERR_NOT_FOUND), or does not know the
 * terminal. */
yk_status screen_open(void);
/* Gives the terminal back as it was; without a screen it does nothing. */
void screen_close(void);
void screen_size(int *rows, int *columns);
/* Empties what is drawn next. */
void screen_clear(void);
/* A line of text that fits, in the locale's encoding. */
void screen_put(int row, const char *text, screen_style style);
void screen_show(void);
/* The next key, KEY_NONE where none came within the milliseconds. */
int screen_key(int milliseconds);

#endif
