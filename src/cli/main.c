/*
 * main.c - the program `yoke`: finds the verb and hands over. Layer: cli.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/pages.h"

typedef struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} verb;

static int cli_data(int argc, char **argv);
static const verb verbs[] = {
    {"train", cli_train, "train a ready-made network on a data set, and test it"},
    {"predict", cli_predict, "say what a trained network makes of images or rows"},
    {"generate", cli_generate, "go on with a text, by a trained or published GPT-2"},
    {"export", cli_export, "write a trained network as an ONNX file"},
    {"data", cli_data, "check data of your own before training on it"},
    {"new", cli_new, "write the beginning of a program of your own"},
    {"run", cli_run, "start several processes, watch them, stop them together"},
    {"ps", cli_ps, "list the runs of this machine, and who holds its GPUs"},
    {"top", cli_top, "the same on a terminal, while it goes on"},
    {"stop", cli_stop, "end a run in order, or what ended runs have left"},
    {"explain", cli_explain, "why a job does not get on, or ended: which rank, and where"},
    {"trace", cli_trace, "record steps of a run; where the time of a trace goes"},
    {"monitor", cli_monitor, "serve metrics of devices and runs to Prometheus"},
    {"plot", cli_plot, "draw loss, accuracy and speed of runs from their logs"},
    {"ckpt", cli_ckpt, "list, check, convert and compare checkpoints"},
    {"doctor", cli_doctor, "what libraries and devices are here, does a job's address answer"},
    {"bench", cli_bench, "measure: `yoke bench` lists what"},
};
static const verb data_verbs[] = {
    {"check", cli_data_check, "read a folder of pictures or a CSV file, list what is broken"},
};
static const verb subjects[] = {
    {"step", cli_bench_step, "one training step: forward, backward, optimizer"},
    {"device", cli_bench_device, "copies and matrix products of GPUs, or of the CPU"},
    {"data-parallel", cli_bench_data_parallel, "training steps on several devices of one process"},
    {"checkpoint", cli_bench_checkpoint, "saving and loading training state"},
    {"allreduce", cli_bench_allreduce, "all_reduce between the processes of a job"},
    {"loader", cli_bench_loader, "reading, cropping, flipping and normalising images"},
};

static void list(FILE *to, const char *usage, const verb *table, size_t count)
{
    fprintf(to, "usage: %s\n\n", usage);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "  %-13s %s\n", table[i].name, table[i].summary);
}

enum { MOST_VERBS = 32 };

/* The sentence of a command with verbs, for its page of the manual. */
static const char *summary_of(const char *command)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (strncmp(command, "yoke ", 5) == 0 && strcmp(command + 5, verbs[i].name) == 0)
            return verbs[i].summary;
    }
    return "trains neural networks on many devices";
}

/* argv[0] is the command so far ("yoke"), argv[1] the verb. */
static int dispatch(const char *command, const char *kind, const char *usage, const verb *table, size_t count, int argc,
                    char **argv)
{
    cli_entry entries[MOST_VERBS];
    for (size_t i = 0; i < count; i++)
        entries[i] = (cli_entry){table[i].name, table[i].summary};
    if (cli_list_asked(command, summary_of(command), usage, entries, count, argc, argv))
        return EXIT_DONE;
    if (argc < 2) {
        list(stderr, usage, table, count);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    bool helps = strcmp(word, "help") == 0 && argc > 2;
    char help[] = "--help", *own[] = {help, help, help, NULL};
    for (int i = 2; helps && i < argc && i < 4; i++)
        own[i - 2] = argv[i];
    if (helps) { /* `yoke help train` is `yoke train --help` */
        argc = argc > 3 ? 4 : 3;
        word = own[0];
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        list(stdout, usage, table, count);
        printf("\n%s %s --help tells more about each.\n", command, kind);
        return EXIT_DONE;
    }
    const char *names[MOST_VERBS];
    for (size_t i = 0; i < count; i++) {
        names[i] = table[i].name;
        if (strcmp(word, names[i]) == 0)
            return table[i].run(argc - 1, helps ? own : argv + 1);
    }
    const char *near = yk__nearest(word, names, count);
    fprintf(stderr, "%s: unknown %s '%s'", command, word[0] == '-' ? "option" : kind, word);
    if (near)
        fprintf(stderr, ", did you mean '%s'?", near);
    fprintf(stderr, "\ntry: %s --help\n", command);
    return EXIT_USAGE;
}

static int cli_data(int argc, char **argv)
{
    return dispatch("yoke data", "verb", "yoke data VERB [options]", data_verbs,
                    sizeof(data_verbs) / sizeof(*data_verbs), argc, argv);
}

int cli_bench(int argc, char **argv)
{
    const char *usage = "yoke bench SUBJECT [options]";
    size_t count = sizeof(subjects) / sizeof(*subjects);
    if (argc < 2) {
        list(stdout, usage, subjects, count);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "ops") == 0) {
        fputs("yoke bench: 'ops' is a program of the source tree since 0.3.0: make build/bench/operation_times,\n"
              "then build/bench/operation_times --list\n",
              stderr);
        return EXIT_USAGE;
    }
    return dispatch("yoke bench", "subject", usage, subjects, count, argc, argv);
}

/* Opens /dev/null in the place of stdin, stdout and stderr where they are closed, so that no file that is opened later
 * comes there and gets what is printed. Using them fails as before. */
static void occupy_closed(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
    }
}

/* Bytes of stack: what the program needs at least, and what it takes where the limit may be raised. */
enum { LEAST_STACK = 256 << 10, USUAL_STACK = 8 << 20 };

/* A stack that is too small would end in a signal that says nothing. */
static bool has_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= LEAST_STACK)
        return true;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < USUAL_STACK ? limit.rlim_max : USUAL_STACK;
    if (limit.rlim_cur >= LEAST_STACK && setrlimit(RLIMIT_STACK, &limit) == 0)
        return true;
    fprintf(stderr, "yoke: its stack may have %llu KiB (ulimit -s), and %d are needed at least: ulimit -s 8192\n",
            (unsigned long long)before >> 10, LEAST_STACK >> 10);
    return false;
}

int main(int argc, char **argv)
{
    int code = EXIT_DONE;
    if (!has_stack())
        return EXIT_FAILED;
    if (argc < 2 || strcmp(argv[1], "run") != 0) /* which takes /dev/null for them, as its processes' */
        occupy_closed();
    if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0))
        puts("yoke " YK_VERSION);
    else
        code = dispatch("yoke", "verb", "yoke VERB [options]", verbs, sizeof(verbs) / sizeof(*verbs), argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && code == EXIT_DONE) {
        perror("yoke: stdout");
        code = EXIT_FAILED;
    }
    return code;
}
