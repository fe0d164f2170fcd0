/*
 * options.c - command lines: parsed in full or refused with the nearest right name; and how runs end. Layer: cli.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "base/wakeup.h"
#include "cli/options.h"
#include "cli/pages.h"
#include "device/table.h"
#include "host/gpus.h"

enum { MOST_OPTIONS = 64, FIRST = 256 /* beyond every letter; 0 is an unknown option's optopt */, HELP = 1000 };

int cli_usage_error(const cli_verb *verb, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* At once: a process that the launcher stops meanwhile has said all or nothing. */
    fprintf(stderr, "%s: %s\ntry: %s --help\n", verb->name, text, verb->name);
    return EXIT_USAGE;
}

int cli_failed(void)
{
    const yk_error *error = yk_last_error();
    fprintf(stderr, "yoke: %s\n", error ? error->message : "failed without saying why");
    yk_clear_error();
    return EXIT_FAILED;
}

int cli_exit_code_of(yk_status status)
{
    return status == YK_ERR_ARGUMENT || status == YK_ERR_NOT_FOUND || status == YK_ERR_DEVICE ? EXIT_USAGE
                                                                                              : EXIT_FAILED;
}

int cli_not_found(yk_status status)
{
    cli_failed();
    return cli_exit_code_of(status);
}

/* ---- help ---------------------------------------------------------------------------------------------------- */

/* Adds " [DEFAULT]" to the text of an option. */
static void add_default(const cli_option *o, char *to, size_t size)
{
    const char *text = o->default_text;
    *to = 0;
    if (text && !*text)
        return;
    if (text) {
        snprintf(to, size, " [%s]", text);
        return;
    }
    switch (o->kind) {
    case CLI_FLAG: break;
    case CLI_INT: snprintf(to, size, " [%" PRId64 "]", *(int64_t *)o->value); break;
    case CLI_REAL: snprintf(to, size, " [%g]", *(double *)o->value); break;
    case CLI_TEXT:
    case CLI_CHOICE:
        if (*(const char **)o->value)
            snprintf(to, size, " [%s]", *(const char **)o->value);
        break;
    }
}

/* Prints words up to `columns` a line, from column `at` on; lines after the first begin at `indent`. */
static void print_wrapped(const char *text, size_t length, int at, int indent)
{
    enum { COLUMNS = 80 };
    bool first = true;
    for (const char *end = text + length; text < end;) {
        size_t word = strcspn(text, " \n");
        word = word < (size_t)(end - text) ? word : (size_t)(end - text);
        if (word) {
            if (!first && at + 1 + (int)word > COLUMNS) {
                printf("\n%*s", indent, "");
                at = indent;
            } else if (!first) {
                putchar(' ');
                at++;
            }
            printf("%.*s", (int)word, text);
            at += (int)word;
            first = false;
        }
        text += word;
        text += text < end;
    }
    putchar('\n');
}

/* Paragraphs are wrapped; lines that begin with a space stay as they are. */
static void print_about(const char *about)
{
    while (*about) {
        size_t line = strcspn(about, "\n"), length = 0;
        if (*about == ' ' || line == 0) {
            printf("%.*s\n", (int)line, about);
            about += line + (about[line] != 0);
            continue;
        }
        while (about[length] && about[length] != ' ' && about[length] != '\n') {
            length += strcspn(about + length, "\n");
            length += about[length] != 0;
        }
        print_wrapped(about, length, 0, 0);
        about += length;
    }
}

void cli_option_text(const cli_option *o, char *text, size_t size)
{
    int n = snprintf(text, size, "%s", o->help);
    for (int i = 0; o->choices && o->choices[i]; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%s", i ? ", " : ": ", o->choices[i]);
    add_default(o, text + n, size - (size_t)n);
}

static void print_option(const cli_option *o)
{
    enum { COLUMN = 28 };
    char text[1024];
    int width = o->letter ? printf("  -%c, ", o->letter) : printf("  ");
    width += printf("--%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    int indent = width < COLUMN ? COLUMN : width + 1;
    printf("%*s", indent - width, "");
    cli_option_text(o, text, sizeof(text));
    print_wrapped(text, strlen(text), indent, COLUMN);
}

static void print_help(const cli_verb *verb)
{
    printf("usage: %s [options]%s%s\n\n", verb->name, verb->rest ? " [--] " : "", verb->rest ? verb->rest : "");
    print_wrapped(verb->summary, strlen(verb->summary), 0, 0);
    if (verb->about) {
        putchar('\n');
        print_about(verb->about);
    }
    printf("\noptions [default]:\n");
    for (const cli_option *o = verb->options; o->name; o++) {
        if (!o->hidden)
            print_option(o);
    }
    print_option(&(cli_option){.name = "help", .help = "print this"});
    if (verb->examples)
        printf("\nexamples:\n%s", verb->examples);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

bool cli_is_object(const char *value)
{
    size_t length = strlen(value);
    return strchr(value, '/') || (length > 3 && strcmp(value + length - 3, ".so") == 0);
}

static bool in_range(const cli_option *o, double value)
{
    bool unbounded = o->least == 0 && o->most == 0;
    return value >= o->least && (unbounded || value <= o->most);
}

/* "--name", or "VARIABLE" where the value is that of a variable. */
static const char *name_of(const cli_option *o, bool from_variable, char text[64])
{
    snprintf(text, 64, "%s%s", from_variable ? "" : "--", from_variable ? o->variable : o->name);
    return text;
}

static bool refuse(const cli_verb *verb, const char *name, const cli_option *o, const char *text, const char *what,
                   int *code)
{
    text = *text ? text : "''";
    if (o->least == 0 && o->most == 0)
        *code = cli_usage_error(verb, "%s %s: expected %s, 0 or more", name, text, what);
    else
        *code = cli_usage_error(verb, "%s %s: expected %s from %.16g to %.16g", name, text, what, o->least, o->most);
    return false;
}

/* A flag that a variable sets is a number, 0 for no. */
static bool parse_value(const cli_verb *verb, const cli_option *o, const char *text, bool from_variable, int *code)
{
    char *end, name[64];
    name_of(o, from_variable, name);
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG:
        if (from_variable && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
            *code = cli_usage_error(verb, "%s %s: expected 0 or 1", name, text);
            return false;
        }
        *(bool *)o->value = !from_variable || *text == '1';
        return true;
    case CLI_TEXT: *(const char **)o->value = text; return true;
    case CLI_INT: {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || !in_range(o, (double)value))
            return refuse(verb, name, o, text, "an integer", code);
        *(int64_t *)o->value = value;
        return true;
    }
    case CLI_REAL: {
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value) || !in_range(o, value))
            return refuse(verb, name, o, text, "a number", code);
        *(double *)o->value = value;
        return true;
    }
    case CLI_CHOICE: {
        size_t count = 0;
        if (o->or_object && cli_is_object(text)) {
            *(const char **)o->value = text;
            return true;
        }
        for (; o->choices[count]; count++) {
            if (strcmp(text, o->choices[count]) == 0) {
                *(const char **)o->value = o->choices[count];
                return true;
            }
        }
        for (int i = 0; o->refused && o->refused[i]; i += 2) {
            if (strcmp(text, o->refused[i]) == 0) {
                *code = cli_usage_error(verb, "%s: '%s' %s", name, text, o->refused[i + 1]);
                return false;
            }
        }
        const char *near = yk__nearest(text, o->choices, count);
        if (near) {
            *code = cli_usage_error(verb, "%s: unknown value '%s', did you mean '%s'?", name, text, near);
            return false;
        }
        char all[256] = "";
        for (size_t i = 0, n = 0; i < count && n < sizeof(all); i++)
            n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "", o->choices[i]);
        *code = cli_usage_error(verb, "%s: unknown value '%s'; there are %s", name, text, all);
        return false;
    }
    }
    return false;
}

/* ---- parsing -------------------------------------------------------------------------------------------------- */

/* True if a name begins with `word`, in which _ stands for - as well. */
static bool begins_like(const char *name, const char *word)
{
    for (; *word; word++, name++) {
        if (*name != (*word == '_' ? '-' : *word))
            return false;
    }
    return true;
}

/* The option that others call `word`, *exactly or nearly so; _ stands for - as well. NULL: none. */
static const char *known_elsewhere(const cli_verb *verb, const char *word, bool *exactly)
{
    enum { MOST_WORDS = 128 };
    char words[MOST_WORDS][40], plain[64];
    const char *list[MOST_WORDS], *names[MOST_WORDS];
    size_t count = 0;
    for (const cli_option *o = verb->options; o->name; o++) {
        for (const char *at = o->also; at && count < MOST_WORDS; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            snprintf(words[count], sizeof(words[count]), "%.*s", (int)strcspn(at, ","), at);
            list[count] = words[count];
            names[count++] = o->name;
        }
    }
    snprintf(plain, sizeof(plain), "%s", word);
    for (char *c = plain; *c; c++)
        *c = *c == '_' ? '-' : *c;
    const char *near = strlen(plain) > 1 ? yk__nearest(plain, list, count) : NULL;
    for (size_t i = 0; i < count; i++) {
        if (near == list[i]) {
            *exactly = strcmp(plain, near) == 0;
            return names[i];
        }
    }
    return NULL;
}

static int unknown_option(const cli_verb *verb, const char *word)
{
    const char *names[MOST_OPTIONS + 1];
    size_t count = 0;
    for (const cli_option *o = verb->options; o->name; o++)
        names[count++] = o->name;
    names[count++] = "help";
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    const char *bare = name + strspn(name, "-");
    char all[256] = "";
    size_t n = 0, alike = 0;
    for (size_t i = 0; i < count && strncmp(name, "--", 2) == 0 && *bare; i++) {
        if (!begins_like(names[i], bare))
            continue;
        if (n < sizeof(all))
            n += (size_t)snprintf(all + n, sizeof(all) - n, "%s--%s", alike ? ", " : "", names[i]);
        alike++;
    }
    if (alike > 1)
        return cli_usage_error(verb, "%s is short for several options: %s", name, all);
    const char *near = strlen(bare) > 1 ? yk__nearest(bare, names, count) : NULL;
    bool exactly = false;
    const char *other = known_elsewhere(verb, bare, &exactly);
    near = other && (exactly || !near) ? other : near;
    if (near)
        return cli_usage_error(verb, "unknown option %s, did you mean --%s?", name, near);
    return cli_usage_error(verb, "unknown option %s", name);
}

/* The tables of options for getopt: every name, the same with _ for -, and the letters. */
typedef struct option_names {
    struct option table[2 * MOST_OPTIONS + 2];
    char other[MOST_OPTIONS][48];
    char letters[2 * MOST_OPTIONS + 8];
} option_names;

static void name_options(const cli_verb *verb, option_names *names)
{
    struct option *next = names->table;
    char *letter = stpcpy(names->letters, verb->mixed ? ":h" : "+:h");
    for (const cli_option *o = verb->options; o->name; o++) {
        int at = (int)(o - verb->options), argument = o->kind == CLI_FLAG ? no_argument : required_argument;
        *next++ = (struct option){o->name, argument, NULL, FIRST + at};
        if (o->letter) {
            *letter++ = o->letter;
            if (argument == required_argument)
                *letter++ = ':';
        }
        if (!strchr(o->name, '-'))
            continue;
        snprintf(names->other[at], sizeof(names->other[at]), "%s", o->name);
        for (char *c = names->other[at]; *c; c++)
            *c = *c == '-' ? '_' : *c;
        *next++ = (struct option){names->other[at], argument, NULL, FIRST + at};
    }
    *letter = '\0';
    *next++ = (struct option){"help", no_argument, NULL, HELP};
    *next = (struct option){0};
}

static int option_of_letter(const cli_verb *verb, int letter)
{
    for (const cli_option *o = verb->options; o->name; o++) {
        if (letter && o->letter == letter)
            return FIRST + (int)(o - verb->options);
    }
    return letter;
}

bool cli_parse(const cli_verb *verb, int argc, char **argv, int *code)
{
    option_names names;
    name_options(verb, &names);
    if (cli_page_asked(verb, argc, argv)) {
        *code = EXIT_DONE;
        return false;
    }
    opterr = 0;
    optind = 0; /* start anew: a program may parse twice */
    *code = EXIT_USAGE;
    for (const cli_option *o = verb->options; o->name; o++) {
        const char *value = o->variable ? getenv(o->variable) : NULL;
        if (value && *value && !parse_value(verb, o, value, true, code))
            return false;
    }
    for (;;) {
        int at = optind ? optind : 1;
        int found = option_of_letter(verb, getopt_long(argc, argv, names.letters, names.table, NULL));
        if (found == -1)
            break;
        if (found == HELP || found == 'h') {
            print_help(verb);
            *code = EXIT_DONE;
            return false;
        }
        if (found == ':') {
            *code =
                cli_usage_error(verb, "--%s needs a value", verb->options[option_of_letter(verb, optopt) - FIRST].name);
            return false;
        }
        if (found == '?') {
            at = verb->mixed && optind > at ? optind - 1 : at; /* arguments may have been moved behind it */
            *code = optopt >= FIRST
                        ? cli_usage_error(verb, "%.*s takes no value", (int)strcspn(argv[at], "="), argv[at])
                        : unknown_option(verb, argv[at]);
            return false;
        }
        if (!parse_value(verb, &verb->options[found - FIRST], optarg, false, code))
            return false;
    }
    if (optind < argc && !verb->rest) {
        *code = cli_usage_error(verb, "unexpected argument '%s'", argv[optind]);
        return false;
    }
    return true;
}

/* ---- signals -------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught, patient, others_take_sigterm;

static void on_signal(int number)
{
    int before = errno;
    if (!caught)
        caught = number;
    else if (number == SIGINT || !patient)
        _exit(EXIT_SIGNAL + number);
    yk__wakeup_all();
    errno = before;
}

static void end_at_once(int number)
{
    _exit(number == SIGINT ? EXIT_SIGNAL + SIGINT : EXIT_AGAIN);
}

void cli_end_on_signals(void)
{
    struct sigaction action = {.sa_handler = end_at_once};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    yk__signals_are_caught(cli_interrupted);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    if (!others_take_sigterm)
        sigaction(SIGTERM, &action, NULL);
    if (patient)
        sigaction(SIGUSR1, &action, NULL);
}

void cli_catch_signals_to_save(void)
{
    patient = 1;
    cli_catch_signals();
}

void cli_give_sigterm(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&usual.sa_mask);
    others_take_sigterm = true;
    sigaction(SIGTERM, &usual, NULL);
}

void cli_take_sigterm(void)
{
    others_take_sigterm = false;
    cli_catch_signals();
}

int cli_interrupted(void)
{
    return caught;
}

const char *cli_plain(const char *text)
{
    static char buffers[4][4096];
    static unsigned next;
    return text ? yk__escape(text, strlen(text), buffers[next++ % 4], sizeof(buffers[0])) : "";
}

/* A machine's GPU that the CPU is taken in place of: whoever has one wants to know. */
static void tell_unused_gpu(void)
{
    yk_error error;
    if (yk__gpus_count() <= 0 || !yk__device_check((yk_device){YK_CUDA, 0}))
        return;
    yk__error_take(&error);
    fprintf(stderr, "yoke: there is a GPU here, and --device auto takes the CPU: %s\n", error.message);
}

yk_status cli_device(const char *name, yk_device *device)
{
    bool any = strcmp(name, "auto") == 0;
    if (yk__device_check((yk_device){.type = YK_CPU})) /* by the environment: no other --device helps */
        return yk__error_code();
    *device = yk_device_local();
    if (any && device->type == YK_CPU && !yk__error_code())
        tell_unused_gpu();
    if (any || (device->type == YK_CUDA && strcmp(name, "cuda") == 0))
        return yk__error_code();
    if (!yk_device_parse(name, device) || yk__error_code() != YK_ERR_ARGUMENT)
        return yk__error_code();
    yk_error error;
    yk__error_take(&error);
    return yk__fail(error.code, "--device: %s; auto takes a GPU where there is one", error.message);
}
