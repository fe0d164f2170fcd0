/*
 * top.c - `yoke top`: runs and devices of this machine on a terminal, again and again. Layer: cli.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json_line.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/top/top_view.h"
#include "observe/snapshot_json.h"

/* Milliseconds between the two looks of one shot, which has speeds; columns of one that goes to no terminal. */
enum { SHOT = 500, WIDE = 160 };

static void put_screen(void *argument, int row, const char *text, screen_style style)
{
    (void)argument;
    screen_put(row, text, style);
}

static void put_line(void *argument, int row, const char *text, screen_style style)
{
    (void)argument, (void)row, (void)style;
    puts(text);
}

/* The end of what is shown once: 1 where the runs cannot be read. */
static int shot_end(const yk__snapshot *s)
{
    if (s->runs.problem[0])
        fprintf(stderr, "yoke top: %s\n", cli_plain(s->runs.problem));
    return s->runs.problem[0] ? EXIT_FAILED : EXIT_DONE;
}

static int top_once(top_view *view, yk__sampler *sampler)
{
    int columns = terminal_columns(STDOUT_FILENO);
    top_view_note(view, yk__sampler_take(sampler));
    usleep(SHOT * 1000);
    const yk__snapshot *s = yk__sampler_take(sampler);
    top_view_note(view, s);
    top_view_draw(view, s, columns ? columns : WIDE, 0, put_line, NULL);
    return shot_end(s);
}

static int top_json(yk__sampler *sampler)
{
    yk__leftovers leftovers;
    yk__leftovers_read(&leftovers);
    const yk__snapshot *s = yk__sampler_take(sampler);
    char *line = yk__json_line(yk__snapshot_json(s, &leftovers), YK__JSON_DIGITS);
    yk__leftovers_clear(&leftovers);
    if (!line) {
        fprintf(stderr, "yoke top: out of memory\n");
        return EXIT_FAILED;
    }
    fputs(line, stdout);
    free(line);
    return shot_end(s);
}

/* False: the key is that of the end. */
static bool key_take(top_view *view, const yk__snapshot *s, int key)
{
    int rows, columns;
    screen_size(&rows, &columns);
    switch (key) {
    case 'q':
    case 'Q': return false;
    case 'j':
    case KEY_DOWN: top_view_move(view, s, 1); break;
    case 'k':
    case KEY_UP: top_view_move(view, s, -1); break;
    case KEY_PAGE_DOWN: view->first += rows / 2; break;
    case KEY_PAGE_UP: view->first -= rows / 2; break;
    case 's':
        view->order = top_orders[view->order + 1] ? view->order + 1 : TOP_BY_RANK;
        view->first = 0;
        break;
    default: break;
    }
    return true;
}

/* Draws until a key or a signal asks for the end. */
static int top_watch(top_view *view, yk__sampler *sampler, double interval)
{
    if (screen_open())
        return cli_failed();
    cli_catch_signals();
    double next = 0;
    const yk__snapshot *s = NULL;
    for (bool goes_on = true; goes_on && !cli_interrupted();) {
        int rows, columns;
        double now = yk__now();
        if (now >= next) {
            s = yk__sampler_take(sampler);
            top_view_note(view, s);
            next = now + interval;
        }
        screen_size(&rows, &columns);
        screen_clear();
        if (rows > 0 && columns > 0)
            top_view_draw(view, s, columns, rows, put_screen, NULL);
        screen_show();
        double wait = next - yk__now();
        int key = screen_key(wait < 0.01 ? 10 : wait > 0.5 ? 500 : (int)(wait * 1000) + 1);
        goes_on = key_take(view, s, key);
    }
    screen_close();
    return EXIT_DONE;
}

int cli_top(int argc, char **argv)
{
    bool json = false, once = false;
    double interval = 1;
    const char *sort = top_orders[0];
    const cli_option options[] = {
        {"interval", "SECONDS", CLI_REAL, &interval, .help = "how often it looks", .least = 0.1, .most = 3600,
         .letter = 'd', .also = "delay"},
        {"sort", "WHICH", CLI_CHOICE, &sort, .help = "the order of ranks", .choices = top_orders},
        {"once", NULL, CLI_FLAG, &once, .help = "print all of it once, as where stdout is no terminal", .letter = '1',
         .also = "batch"},
        {"json", NULL, CLI_FLAG, &json, .help = "print once what `yoke ps --json` prints"},
        {0}};
    const cli_verb verb = {
        .name = "yoke top",
        .summary =
            "Shows on a terminal what the devices and the runs of this user do, and what each rank of a run does.",
        .about =
            "Keys: q ends it; up and down (k, j) select a run; s sorts its ranks by the next of the orders; page up\n"
            "and page down show others of them. Ranks that others wait for, or that have ended, are bold. On a\n"
            "narrow terminal columns are left out. Without a terminal it prints all of it once.\n",
        .examples = "  yoke top\n"
                    "  yoke top --interval 5 --sort waiting\n"
                    "  yoke top --once | less -S\n",
        .options = options,
    };
    int code;
    top_view view = {0};
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    setlocale(LC_CTYPE, ""); /* of the terminal's characters; numbers stay as they are */
    for (int i = 0; top_orders[i]; i++)
        view.order = top_orders[i] == sort ? (top_order)i : view.order;
    gethostname(view.host, sizeof(view.host) - 1);
    yk__sampler *sampler = yk__sampler_create(interval);
    if (!sampler)
        return cli_failed();
    bool terminal = isatty(STDIN_FILENO) && terminal_columns(STDOUT_FILENO) > 0;
    code = json                ? top_json(sampler)
           : once || !terminal ? top_once(&view, sampler)
                               : top_watch(&view, sampler, interval);
    yk__sampler_free(sampler);
    top_view_clear(&view);
    return code;
}
