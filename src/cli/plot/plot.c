/*
 * plot.c - `yoke plot`: loss, accuracy and speed of runs, drawn by gnuplot from their logs. Layer: cli.
 *
 * Names of files go into the script between single quotes, in which gnuplot replaces nothing, and without control
 * characters; numbers are written by this program.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/plot/gnuplot.h"
#include "cli/plot/plot_log.h"
#include "cli/terminal.h"
#include "host/file.h"

/* POINTS: of a line, more than a picture has columns. PANEL: pixels of a picture's height for one panel. */
enum { MOST_LOGS = 64, POINTS = 2000, PANEL = 320, WIDTH = 960, ROWS = 20, NARROWEST = 30 };

typedef struct plotting {
    int n_logs;
    plot_log logs[MOST_LOGS];
    const char *output, *metric, *format;
    bool logarithmic, print_script;
} plotting;

/* One picture beside, or below, the others. */
typedef struct panel {
    const char *name, *title;
    plot_what lines, marks; /* marks PLOT_SERIES: none */
} panel;
static const panel panels[] = {{"loss", "loss", PLOT_LOSS, PLOT_TEST_LOSS},
                               {"accuracy", "accuracy of tests", PLOT_SERIES, PLOT_ACCURACY},
                               {"speed", "samples a second", PLOT_SPEED, PLOT_SERIES}};
enum { PANELS = sizeof(panels) / sizeof(*panels) };
static const char *const metrics[] = {"all", "loss", "accuracy", "speed", NULL};

/* ---- the script -------------------------------------------------------------------------------------------------- */
static bool series_has_value(const plot_series *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (isfinite(s->values[i]))
            return true;
    }
    return false;
}

static bool panel_has(const plotting *p, const panel *one, int log, bool marks)
{
    plot_what what = marks ? one->marks : one->lines;
    return what != PLOT_SERIES && series_has_value(&p->logs[log].series[what]);
}

/* Chooses the panels; their number. */
static int panels_choose(const plotting *p, const panel *chosen[PANELS])
{
    int count = 0;
    for (int i = 0; i < PANELS; i++) {
        bool any = strcmp(p->metric, panels[i].name) == 0;
        for (int k = 0; k < p->n_logs && strcmp(p->metric, "all") == 0; k++)
            any = any || panel_has(p, &panels[i], k, false) || panel_has(p, &panels[i], k, true);
        if (any)
            chosen[count++] = &panels[i];
    }
    return count;
}

/* A text between single quotes. */
static void write_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text; text++)
        fputs(*text == '\'' ? "''" : (const char[]){*text, '\0'}, to);
    fputc('\'', to);
}

/* A log's name in the key: without its folders, unless two have the same then. */
static const char *log_name(const plotting *p, int log)
{
    const char *slash = strrchr(p->logs[log].path, '/'), *name = slash ? slash + 1 : p->logs[log].path;
    for (int i = 0; i < p->n_logs; i++) {
        const char *other = strrchr(p->logs[i].path, '/');
        if (i != log && strcmp(other ? other + 1 : p->logs[i].path, name) == 0)
            return cli_plain(p->logs[log].path);
    }
    return cli_plain(name);
}

/* "$d0_1 << END" and a line for each point; where there is no value a line ends. */
static void write_data(FILE *to, const plotting *p, int log, plot_what what)
{
    const plot_series *s = &p->logs[log].series[what];
    fprintf(to, "$d%d_%d << END\n", log, (int)what);
    for (size_t i = 0; i < s->count; i++) {
        if (isfinite(s->values[i]))
            fprintf(to, "%.15g %.9g\n", s->steps[i], s->values[i]);
        else
            fputc('\n', to);
    }
    fputs("END\n", to);
}

static void write_panel(FILE *to, const plotting *p, const panel *one)
{
    bool first = true, log_axis = p->logarithmic && one->lines == PLOT_LOSS;
    fprintf(to, "set title '%s'\n%s logscale y\nset key %s right\n", one->title, log_axis ? "set" : "unset",
            one->lines == PLOT_LOSS ? "top" : "bottom"); /* a loss falls */
    for (int i = 0; i < p->n_logs; i++) {
        for (int marks = 0; marks < 2; marks++) {
            if (!panel_has(p, one, i, marks))
                continue;
            fprintf(to, "%s$d%d_%d using 1:2 with %s lt %d %stitle ", first ? "plot " : ", ", i,
                    (int)(marks ? one->marks : one->lines), marks ? "linespoints" : "lines", i + 1,
                    marks && one->lines != PLOT_SERIES ? "dt 2 " : "");
            char name[4200];
            snprintf(name, sizeof(name), "%s%s", log_name(p, i), marks && one->lines != PLOT_SERIES ? ", test" : "");
            write_quoted(to, name);
            first = false;
        }
    }
    if (first) /* the metric that was asked for is in no log */
        fputs("set xrange [0:1]\nset yrange [0:1]\nplot NaN title 'nothing in these logs'\nset autoscale", to);
    fputc('\n', to);
}

static void write_script(FILE *to, const plotting *p, int columns)
{
    const panel *chosen[PANELS];
    int count = panels_choose(p, chosen);
    bool terminal = strcmp(p->format, "terminal") == 0;
    fputs("set encoding utf8\n", to);
    if (terminal)
        fprintf(to, "set terminal dumb nofeed noenhanced size %d,%d\n", columns, ROWS);
    else if (strcmp(p->format, "svg") == 0)
        fprintf(to, "set terminal svg noenhanced size %d,%d dynamic font 'sans,12' background 'white'\n", WIDTH,
                count * PANEL);
    else
        fprintf(to, "set terminal pngcairo noenhanced size %d,%d font 'sans,11'\n", WIDTH, count * PANEL);
    fputs("set xlabel 'step'\nset key noenhanced\n", to);
    if (!terminal)
        fputs("set grid\n", to);
    for (int i = 0; i < p->n_logs; i++) {
        for (int what = 0; what < PLOT_SERIES; what++)
            write_data(to, p, i, (plot_what)what);
    }
    if (!terminal && count > 1)
        fprintf(to, "set multiplot layout %d,1\n", count);
    for (int i = 0; i < count; i++)
        write_panel(to, p, chosen[i]);
    if (!terminal && count > 1)
        fputs("unset multiplot\n", to);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */
/* A drawing for the terminal, without the blanks around it. */
static void print_lines(const char *text)
{
    for (size_t size; *text; text += size + (text[size] == '\n')) {
        size = strcspn(text, "\n");
        size_t shown = size;
        while (shown && strchr(" \f", text[shown - 1]))
            shown--;
        if (shown)
            printf("%.*s\n", (int)shown, text);
    }
}

static yk_status plot_write(const plotting *p, const char *drawn, size_t size)
{
    if (!p->output) {
        print_lines(drawn);
        return YK_OK;
    }
    yk__file_writer *file = yk__file_create(p->output);
    if (!file)
        return yk__error_code();
    if (yk__file_write(file, drawn, size)) {
        yk__file_abort(file);
        return yk__error_code();
    }
    return yk__file_commit(file);
}

static yk_status plot_draw(plotting *p)
{
    char *script = NULL, *drawn = NULL;
    size_t size = 0, length = 0;
    int columns = terminal_columns(STDOUT_FILENO);
    FILE *to = open_memstream(&script, &size);
    for (int i = 0; i < p->n_logs; i++) {
        for (int what = 0; what < PLOT_SERIES; what++)
            plot_series_thin(&p->logs[i].series[what], POINTS);
    }
    if (to)
        write_script(to, p, columns ? (columns > NARROWEST ? columns - 1 : NARROWEST) : 100);
    if (!to || fclose(to)) {
        free(script);
        return yk__fail(YK_ERR_MEMORY, "out of memory for the script of gnuplot");
    }
    yk_status status = YK_OK;
    if (p->print_script)
        fwrite(script, 1, size, stdout);
    else
        status = gnuplot_run(script, size, &drawn, &length);
    if (!status && !p->print_script)
        status = plot_write(p, drawn, length);
    free(drawn);
    free(script);
    return status;
}

/* The form that the name of the file asks for; NULL after a message. */
static const char *format_of(const cli_verb *verb, const char *output)
{
    const char *end = output ? strrchr(output, '.') : NULL;
    if (!output)
        return "terminal";
    if (end && (strcmp(end, ".svg") == 0 || strcmp(end, ".png") == 0))
        return end + 1;
    cli_usage_error(verb, "--output %s: the name ends in .svg or .png, which says what is drawn", output);
    return NULL;
}

int cli_plot(int argc, char **argv)
{
    plotting p = {.metric = metrics[0]};
    const cli_option options[] = {
        {"output", "FILE", CLI_TEXT, &p.output, .help = "a picture, FILE.svg or FILE.png, in place of the terminal",
         .default_text = "", .letter = 'o', .also = "out,save,file"},
        {"metric", "WHICH", CLI_CHOICE, &p.metric, .help = "what is drawn", .choices = metrics, .also = "what"},
        {"log-scale", NULL, CLI_FLAG, &p.logarithmic, .help = "the loss on a logarithmic axis", .also = "logy"},
        {"print-script", NULL, CLI_FLAG, &p.print_script, .help = "print what gnuplot is told, with the data"},
        {0}};
    const cli_verb verb = {
        .name = "yoke plot",
        .summary =
            "Draws loss, accuracy and speed of one or several runs by step, from the logs that `yoke train --log`\n"
            "writes: on the terminal, or as a picture.",
        .about = "It takes gnuplot (Debian: gnuplot-nox). Of more than 2000 steps means are drawn. A loss that is no\n"
                 "number is a gap. Logs of runs that go on may be drawn.\n",
        .examples = "  yoke plot night.log\n"
                    "  yoke plot --output both.svg sgd.log adam.log\n"
                    "  yoke plot --metric loss --log-scale -o loss.png *.log\n",
        .options = options,
        .rest = "LOG...",
        .mixed = true,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (!argv[optind])
        return cli_usage_error(&verb, "expected the log of a run, or several; yoke train --log FILE writes one");
    if (argc - optind > MOST_LOGS)
        return cli_usage_error(&verb, "%d logs: at most %d are drawn together", argc - optind, MOST_LOGS);
    if (!(p.format = format_of(&verb, p.output)))
        return EXIT_USAGE;
    yk_status status = YK_OK;
    for (; argv[optind] && !status; optind++) {
        status = plot_log_read(argv[optind], &p.logs[p.n_logs]);
        p.n_logs += !status;
    }
    status = status ? status : plot_draw(&p);
    for (int i = 0; i < p.n_logs; i++)
        plot_log_clear(&p.logs[i]);
    return status ? cli_failed() : EXIT_DONE;
}
