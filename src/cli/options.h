/*
 * options.h - what every verb of the program shares: its options as a table, signals. Layer: cli.
 */
#ifndef YOKE_CLI_OPTIONS_H
#define YOKE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <yoke/device.h>

#include "launch/exit_codes.h"

typedef enum cli_kind {
    CLI_FLAG,   /* bool: true when given */
    CLI_INT,    /* int64_t in [least, most] */
    CLI_REAL,   /* double in [least, most] */
    CLI_TEXT,   /* const char * */
    CLI_CHOICE, /* const char *, one of `choices` */
} cli_kind;

/* One option, understood with _ for - as well. Its default is what `value` points to when parsing starts; --help prints
 * it. */
typedef struct cli_option {
    const char *name;     /* without the dashes */
    const char *argument; /* "N"; NULL for a flag */
    cli_kind kind;
    void *value;
    const char *help;
    double least, most;         /* CLI_INT and CLI_REAL; both 0: least 0, no most */
    const char *const *choices; /* ends with NULL */
    const char *const *refused; /* CLI_CHOICE: values that are not taken, each with the reason behind it; or NULL */
    bool or_object;             /* CLI_CHOICE: a shared object is taken as well (cli_is_object) */
    const char *default_text;   /* printed in place of the default's value; "" for none */
    const char *variable;       /* of the environment, whose value counts where the option is not given; or NULL */
    char letter;                /* -n for short, or 0 */
    bool hidden;                /* understood, not in --help */
    const char *also;           /* what others call it, "a,b": a mistake that names this option; or NULL */
} cli_option;

typedef struct cli_verb {
    const char *name;          /* "yoke bench step" */
    const char *summary;       /* one line */
    const char *about;         /* paragraphs for --help, or NULL */
    const char *examples;      /* lines for --help, or NULL */
    const cli_option *options; /* ends with a NULL name; --help needs no entry */
    const char *rest;          /* "PROGRAM [ARGUMENT...]": what follows the options, in lines; NULL: nothing may */
    bool mixed;                /* options may stand behind arguments of the rest, too */
} cli_verb;

/*
 * Parses argv[1..] into the options' values. True: go on. False: stop with *code, after --help was printed to stdout
 * or the mistake to stderr. Options end with `--` or with the first argument that is none; such an argument is a
 * mistake unless the verb has a `rest`, which begins at argv[optind] of <unistd.h> then.
 */
bool cli_parse(const cli_verb *verb, int argc, char **argv, int *code);

/* The text of an option in --help: what it is, the choices, and the default in brackets. */
void cli_option_text(const cli_option *o, char *text, size_t size);

/* Prints "VERB: MESSAGE" and where help is to stderr; returns EXIT_USAGE. */
int cli_usage_error(const cli_verb *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the library's error record after "yoke: " to stderr; returns EXIT_FAILED. */
int cli_failed(void);
/* The exit code where the device or the data set that the command line names could not be had, before anything
 * was computed: EXIT_USAGE where it is wrong or not there, EXIT_FAILED for another failure. */
int cli_exit_code_of(yk_status status);
/* cli_failed, for that. */
int cli_not_found(yk_status status);
/* The device that --device names; "cuda" is, of a host's processes, each its own GPU, and "auto" that, or the CPU. */
yk_status cli_device(const char *name, yk_device *device);

/* True of a shared object's path in place of a name: what has a slash in it, or ends in .so. */
bool cli_is_object(const char *value);

/* From now on the first SIGINT or SIGTERM only makes cli_interrupted return its number; the second ends the program. */
void cli_catch_signals(void);
/* Until then, for a run that could save its state but has none yet: the first of them, or SIGUSR1, ends it at once,
 * with EXIT_AGAIN, after SIGINT with EXIT_SIGNAL + SIGINT. */
void cli_end_on_signals(void);
/* The same as cli_catch_signals with SIGUSR1, and a second SIGTERM or SIGUSR1 changes nothing: the run ends when its
 * state is saved. */
void cli_catch_signals_to_save(void);
/* Gives SIGTERM its usual action again, for another part of the process to take; catches it again. */
void cli_give_sigterm(void);
void cli_take_sigterm(void);
int cli_interrupted(void); /* 0: not interrupted */

/* The verbs. Each gets its own name as argv[0] and returns the exit code. */
int cli_train(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_data_check(int argc, char **argv);
int cli_new(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_ckpt(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_monitor(int argc, char **argv);
int cli_ps(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_plot(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_bench_step(int argc, char **argv);
int cli_bench_device(int argc, char **argv);
int cli_bench_loader(int argc, char **argv);
int cli_bench_allreduce(int argc, char **argv);
int cli_bench_checkpoint(int argc, char **argv);
int cli_bench_data_parallel(int argc, char **argv);

/* Text from a file or a peer, for a terminal (yk__escape), cut after some thousand bytes. One of a few buffers: valid
 * until the fourth call after this one. For the main thread. */
const char *cli_plain(const char *text);

#endif
