/*
 * pages.h - pages of the manual and tables for bash's completion, from the tables of the command line. Layer: cli.
 */
#ifndef YOKE_CLI_PAGES_H
#define YOKE_CLI_PAGES_H

#include "cli/options.h"

/* A verb of a command that has several. */
typedef struct cli_entry {
    const char *name, *summary;
} cli_entry;

/* True where --help-man or --help-options was asked for, and is answered. */
bool cli_page_asked(const cli_verb *verb, int argc, char **argv);
/* The same for --help-man and --help-verbs of a command that has verbs; `usage` begins with the command. */
bool cli_list_asked(const char *command, const char *summary, const char *usage, const cli_entry *entries, size_t count,
                    int argc, char **argv);

#endif
