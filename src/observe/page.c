/*
 * page.c - a snapshot as a page for a browser. Layer: observe.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/escape.h"
#include "observe/page.h"

const char *yk__duration_format(double seconds, char text[32])
{
    enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
    long whole = (long)seconds;
    if (seconds < 0)
        snprintf(text, 32, "-");
    else if (seconds < MINUTE)
        snprintf(text, 32, "%.1f s", seconds);
    else if (whole < HOUR)
        snprintf(text, 32, "%ld min %ld s", whole / MINUTE, whole % MINUTE);
    else if (whole < DAY)
        snprintf(text, 32, "%ld h %ld min", whole / HOUR, whole % HOUR / MINUTE);
    else
        snprintf(text, 32, "%ld d %ld h", whole / DAY, whole % DAY / HOUR);
    return text;
}

const char *yk__rank_phase_text(const yk__run_rank *rank)
{
    if (!rank->alive)
        return "-";
    return rank->phase == YK__PHASE_OWN && rank->phase_text[0] ? rank->phase_text : yk__phase_name(rank->phase);
}

/* The text with what HTML takes for its own escaped; a byte that is no UTF-8 becomes U+FFFD, a control character a
 * space. */
static void html_text(FILE *to, const char *text)
{
    size_t left = strlen(text), size;
    uint32_t code;
    for (; left; text += size, left -= size) {
        size = yk__utf8_decode((const unsigned char *)text, left, &code);
        if (!size) {
            fputs("&#xfffd;", to);
            size = 1;
        } else if (code < 32 || code == 127) {
            fputc(' ', to);
        } else if (strchr("&<>\"'", (int)(code < 128 ? code : 'a'))) {
            fprintf(to, "&#%u;", code);
        } else {
            fwrite(text, 1, size, to);
        }
    }
}

static void cell_text(FILE *to, const char *text)
{
    fputs("<td>", to);
    html_text(to, text);
}

static void cell_number(FILE *to, bool known, const char *format, double value)
{
    fputs("<td class=n>", to);
    if (known)
        fprintf(to, format, value);
    else
        fputc('-', to);
}

static void write_rank(FILE *to, const yk__run_rank *r)
{
    char text[32];
    cell_number(to, true, "%.0f", r->rank);
    cell_text(to, r->role);
    cell_number(to, r->pid > 0, "%.0f", r->pid);
    cell_number(to, r->alive, "%.0f", (double)r->steps);
    cell_number(to, r->alive && r->losses, "%.6g", r->loss);
    cell_text(to, yk__rank_phase_text(r));
    cell_text(to, yk__duration_format(r->alive ? r->step_age : -1, text));
    cell_text(to, yk__duration_format(r->alive ? r->waiting : -1, text));
    cell_number(to, r->resident >= 0, "%.1f", r->resident / (1 << 20));
    fputs("</tr>\n", to);
}

static void write_run(FILE *to, const yk__run *run)
{
    struct timespec now;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    fputs("<h3>", to);
    html_text(to, run->job);
    fprintf(to, "</h3>\n<p>pid %d, for %s, %d of %d ranks here", run->launcher,
            yk__duration_format((double)now.tv_sec - run->began, text), run->n_ranks, run->world);
    if (run->nodes > 1)
        fprintf(to, ", node %d of %d", run->node, run->nodes);
    if (run->restart)
        fprintf(to, ", restarted %d times", run->restart);
    fputs(": <code>", to);
    html_text(to, run->program);
    fputs("</code></p>\n", to);
    if (!run->readable) {
        fputs("<p>", to);
        html_text(to, run->why);
        fputs("</p>\n", to);
        return;
    }
    fputs("<table><tr><th>rank<th>role<th>pid<th>steps<th>loss<th>phase<th>last step ago<th>waits for<th>MiB</tr>\n",
          to);
    for (int i = 0; i < run->n_ranks; i++) {
        fputs("<tr>", to);
        write_rank(to, &run->ranks[i]);
    }
    fputs("</table>\n", to);
}

static void write_gpus(FILE *to, const yk__snapshot *s)
{
    fputs("<table><tr><th>GPU<th>name<th>busy %<th>MiB used<th>MiB free<th>W<th>&deg;C</tr>\n", to);
    for (int i = 0; i < s->n_gpus; i++) {
        const yk__gpu_sample *gpu = &s->gpus[i];
        static const yk__gpu_value columns[] = {YK__GPU_UTIL, YK__GPU_FB_USED, YK__GPU_FB_FREE, YK__GPU_POWER_USAGE,
                                                YK__GPU_TEMP};
        fputs("<tr>", to);
        cell_number(to, true, "%.0f", i);
        cell_text(to, gpu->gpu.name);
        for (size_t c = 0; c < sizeof(columns) / sizeof(*columns); c++)
            cell_number(to, gpu->known && !isnan(gpu->values[columns[c]]), "%.0f", gpu->values[columns[c]]);
        fputs("</tr>\n", to);
    }
    fputs("</table>\n", to);
}

void yk__page_write(FILE *to, const yk__snapshot *s, const char *host)
{
    fputs("<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n"
          "<meta http-equiv=refresh content=5><title>yoke on ",
          to);
    html_text(to, host);
    fputs("</title>\n<style>:root{color-scheme:light dark}body{font:1rem/1.4 sans-serif;margin:1rem}"
          "table{border-collapse:collapse;display:block;overflow-x:auto}"
          "th,td{text-align:left;padding:.15rem .6rem;border-bottom:1px solid}.n{text-align:right}</style>\n<h1>",
          to);
    html_text(to, host);
    fputs("</h1>\n<p><a href=/metrics>/metrics</a> <a href=/metrics/yoke>/metrics/yoke</a> "
          "<a href=/metrics/dcgm>/metrics/dcgm</a> <a href=/health>/health</a></p>\n<h2>GPUs</h2>\n",
          to);
    if (s->n_gpus > 0)
        write_gpus(to, s);
    else
        fputs(s->n_gpus < 0 ? "<p>None: there is no NVIDIA driver.</p>\n" : "<p>None.</p>\n", to);
    fputs("<h2>Runs</h2>\n", to);
    if (!s->runs.count)
        fputs("<p>None that <code>yoke run</code> has started.</p>\n", to);
    for (int i = 0; i < s->runs.count; i++)
        write_run(to, &s->runs.all[i]);
    if (s->runs.elsewhere)
        fprintf(to, "<p>%d more in another pid namespace, as a container's.</p>\n", s->runs.elsewhere);
    if (s->runs.problem[0]) {
        fputs("<p>", to);
        html_text(to, s->runs.problem);
        fputs("</p>\n", to);
    }
    fputs("</html>\n", to);
}
