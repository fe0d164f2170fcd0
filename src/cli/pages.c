/*
 * pages.c - the text of --help as a page of the manual, and as the table that bash's completion reads. Layer: cli.
 *
 * Options that --help does not list, understood where they are the only one: --help-man prints the source of the page
 * (scripts/make-manual), --help-options a line for each option (scripts/yoke.bash), --help-verbs the verbs of a command
 * that has some. All of it comes from the tables that the command line is parsed with, and so does not differ from
 * them.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/core.h"
#include "cli/pages.h"

enum { COLUMNS = 76 /* of the source, which mandoc wants below 80 */ };

/* ---- roff -------------------------------------------------------------------------------------------------------- */

/* A character as roff prints it as it is; gives the columns it takes in the source. */
static int print_character(char c)
{
    switch (c) {
    case '-': return printf("\\-");
    case '\\': return printf("\\e");
    case '\'': return printf("\\(aq");
    case '`': return printf("\\(ga");
    case '~': return printf("\\(ti");
    case '^': return printf("\\(ha");
    default: return putchar(c) == EOF ? 0 : 1;
    }
}

static void print_word(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        print_character(word[i]);
}

/* The columns of a word in the source. */
static int source_width(const char *word, size_t length)
{
    int width = 0;
    for (size_t i = 0; i < length; i++)
        width += strchr("-\\", word[i]) ? 2 : strchr("'`~^", word[i]) ? 4 : 1;
    return width;
}

/* Words in lines, from column `at` on; one that would be a request at the begin of a line gets a mark before it. */
static void print_filled_from(int at, const char *text, size_t length)
{
    bool first = true;
    for (const char *end = text + length; text < end;) {
        size_t word = strcspn(text, " \n");
        word = word < (size_t)(end - text) ? word : (size_t)(end - text);
        int width = source_width(text, word);
        if (word) {
            if (!first && at + 1 + width > COLUMNS) {
                putchar('\n');
                at = 0;
            } else if (!first) {
                at += printf(" ");
            }
            if (!at && (*text == '.' || *text == '\''))
                at = printf("\\&");
            print_word(text, word);
            at += width;
            first = false;
        }
        text += word;
        text += text < end;
    }
    putchar('\n');
}

static void print_filled(const char *text, size_t length)
{
    print_filled_from(0, text, length);
}

/* A line that stays one: what is too long for the source goes on behind a backslash. */
static void print_literal(const char *line, size_t length)
{
    int at = 0;
    if (length && *line == '.')
        at = printf("\\&");
    for (size_t i = 0; i < length; i++) {
        if (at > COLUMNS - 4) {
            printf("\\\n");
            at = 0;
        }
        at += print_character(line[i]);
    }
    putchar('\n');
}

/* Paragraphs; lines that begin with a space stay lines. */
static void print_paragraphs(const char *text)
{
    bool literal = false, first = true;
    while (*text) {
        size_t line = strcspn(text, "\n");
        if (*text == ' ') {
            if (!literal)
                puts(first ? ".nf" : ".PP\n.nf");
            literal = true;
            print_literal(text, line);
            text += line + (text[line] != 0);
            first = false;
            continue;
        }
        if (literal)
            puts(".fi");
        literal = false;
        if (line == 0) {
            text++;
            continue;
        }
        size_t length = 0;
        while (text[length] && text[length] != '\n' && (length == 0 || text[length] != ' ')) {
            length += strcspn(text + length, "\n");
            length += text[length] != 0;
        }
        if (!first)
            puts(".PP");
        print_filled(text, length);
        text += length;
        first = false;
    }
    if (literal)
        puts(".fi");
}

/* The date of the pages: SOURCE_DATE_EPOCH's, so that a package built again is the same, else today. */
static void print_date(void)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t when = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&when, &parts))
        strftime(text, sizeof(text), "%Y-%m-%d", &parts);
    printf("%s", text);
}

/* "yoke bench step" as "yoke-bench-step". */
static void page_name(const char *command, char *name, size_t size)
{
    snprintf(name, size, "%s", command);
    for (char *c = name; *c; c++)
        *c = *c == ' ' ? '-' : *c;
}

/* The head of a page, with its first sentence as what it is. */
static void print_head(const char *command, const char *summary)
{
    char name[64], title[64], sentence[300];
    page_name(command, name, sizeof(name));
    for (size_t i = 0; i <= strlen(name); i++)
        title[i] = (char)toupper((unsigned char)name[i]);
    size_t length = strcspn(summary, ".");
    while (summary[length] && summary[length + 1] && !isspace((unsigned char)summary[length + 1]))
        length += 1 + strcspn(summary + length + 1, ".");
    snprintf(sentence, sizeof(sentence), "%.*s", (int)length, summary);
    printf(".TH ");
    print_word(title, strlen(title));
    printf(" 1 ");
    print_date();
    printf(" \"yoke %s\" \"User Commands\"\n.SH NAME\n", YK_VERSION);
    print_word(name, strlen(name));
    printf(" \\- ");
    print_filled_from(source_width(name, strlen(name)) + 4, sentence, strlen(sentence));
}

static void print_see_also(const char *command)
{
    char name[64];
    page_name(command, name, sizeof(name));
    char *dash = strrchr(name, '-');
    if (!dash)
        return;
    *dash = '\0';
    printf(".SH SEE ALSO\n.BR ");
    print_word(name, strlen(name));
    printf(" (1)\n");
}

static void print_options(const cli_verb *verb)
{
    static const cli_option help = {.name = "help", .help = "print this"};
    char text[1024];
    puts(".SH OPTIONS\nDefaults stand in brackets.");
    for (const cli_option *o = verb->options;; o = o->name ? o + 1 : &help) {
        const cli_option *shown = o->name ? o : &help;
        if (!shown->hidden) {
            printf(".TP\n");
            if (shown->letter)
                printf("\\fB\\-%c\\fR, ", shown->letter);
            printf("\\fB\\-\\-");
            print_word(shown->name, strlen(shown->name));
            printf("\\fR");
            if (shown->argument) {
                printf(" \\fI");
                print_word(shown->argument, strlen(shown->argument));
                printf("\\fR");
            }
            putchar('\n');
            cli_option_text(shown, text, sizeof(text));
            print_filled(text, strlen(text));
        }
        if (!o->name)
            break;
    }
}

static void print_page(const cli_verb *verb)
{
    print_head(verb->name, verb->summary);
    puts(".SH SYNOPSIS");
    printf(".B ");
    print_word(verb->name, strlen(verb->name));
    puts("\n[\\fIoptions\\fR]");
    for (const char *rest = verb->rest; rest && *rest;) {
        size_t line = strcspn(rest, "\n");
        const char *word = rest + strspn(rest, " ");
        printf(rest == verb->rest ? "[\\-\\-] " : "");
        print_filled(word, line - (size_t)(word - rest));
        rest += line + (rest[line] != 0);
    }
    puts(".SH DESCRIPTION");
    print_filled(verb->summary, strlen(verb->summary));
    if (verb->about) {
        puts(".PP");
        print_paragraphs(verb->about);
    }
    print_options(verb);
    if (verb->examples) {
        puts(".SH EXAMPLES");
        print_paragraphs(verb->examples);
    }
    print_see_also(verb->name);
}

/* ---- the table of the completion --------------------------------------------------------------------------------- */

/* A line: the option, its kind (flag, file or value), and the values there are. */
static void print_table(const cli_verb *verb)
{
    for (const cli_option *o = verb->options; o->name; o++) {
        if (o->hidden)
            continue;
        bool file =
            o->argument && (strstr(o->argument, "FILE") || strstr(o->argument, "DIR") || strstr(o->argument, "PATH"));
        printf("--%s %s", o->name, o->kind == CLI_FLAG ? "flag" : file || o->or_object ? "file" : "value");
        for (int i = 0; o->choices && o->choices[i]; i++)
            printf(" %s", o->choices[i]);
        putchar('\n');
        if (o->letter)
            printf("-%c %s\n", o->letter, o->kind == CLI_FLAG ? "flag" : file ? "file" : "value");
    }
    puts("--help flag");
}

bool cli_page_asked(const cli_verb *verb, int argc, char **argv)
{
    if (argc != 2)
        return false;
    if (strcmp(argv[1], "--help-man") == 0)
        print_page(verb);
    else if (strcmp(argv[1], "--help-options") == 0)
        print_table(verb);
    else
        return false;
    return true;
}

bool cli_list_asked(const char *command, const char *summary, const char *usage, const cli_entry *entries, size_t count,
                    int argc, char **argv)
{
    if (argc != 2)
        return false;
    if (strcmp(argv[1], "--help-verbs") == 0) {
        for (size_t i = 0; i < count; i++)
            printf("%s\n", entries[i].name);
        return true;
    }
    if (strcmp(argv[1], "--help-man") != 0)
        return false;
    char name[64];
    page_name(command, name, sizeof(name));
    print_head(command, summary);
    puts(".SH SYNOPSIS");
    printf(".B ");
    print_word(command, strlen(command));
    putchar('\n');
    const char *rest = usage + strlen(command);
    print_filled(rest, strlen(rest));
    puts(".SH DESCRIPTION");
    print_filled(summary, strlen(summary));
    for (size_t i = 0; i < count; i++) {
        printf(".TP\n.BR ");
        print_word(name, strlen(name));
        printf("\\-");
        print_word(entries[i].name, strlen(entries[i].name));
        printf(" (1)\n");
        print_filled(entries[i].summary, strlen(entries[i].summary));
    }
    print_see_also(command);
    return true;
}
