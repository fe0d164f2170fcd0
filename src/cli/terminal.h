/*
 * terminal.h - how wide the terminal is that something is drawn on. Layer: cli.
 */
#ifndef YOKE_CLI_TERMINAL_H
#define YOKE_CLI_TERMINAL_H

/* Columns of the terminal that the descriptor is; 80 where it does not tell, 0 where it is none, or a dumb one. */
int terminal_columns(int fd);

#endif
