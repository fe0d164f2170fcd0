/*
 * top_view.c - the lines of `yoke top`, for a width. Layer: cli.
 *
 * A table is a list of columns, each with a width and how much it is wanted: those that are wanted least are left out
 * until the others fit. The first column takes what is left over.
 */
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "base/escape.h"
#include "cli/options.h"
#include "cli/top/top_view.h"
#include "observe/page.h"

const char *const top_orders[] = {"rank", "step", "loss", "waiting", "cpu", "memory", NULL};

/* ---- a line ------------------------------------------------------------------------------------------------------ */
enum { LINE_BYTES = 2048, CELL = 96, MOST_COLUMNS = 12 };

typedef struct text_line {
    char text[LINE_BYTES];
    size_t size;
    int width, limit;
} text_line;

/* The bytes and the columns of the character at text[0]; one that this terminal cannot show is '?'. */
static size_t character_read(const char *text, int *width, bool *shown)
{
    uint32_t code;
    size_t size = yk__utf8_decode((const unsigned char *)text, strlen(text), &code);
    int columns = size && (code < 128 || strcmp(nl_langinfo(CODESET), "UTF-8") == 0) ? wcwidth((wchar_t)code) : -1;
    *shown = columns >= 0;
    *width = columns < 0 ? 1 : columns;
    return size ? size : 1;
}

/* Adds as much of the text as fits into `most` columns and the line; returns the columns that it takes. */
static int line_add(text_line *line, const char *text, int most)
{
    int used = 0, width;
    bool shown;
    if (most > line->limit - line->width)
        most = line->limit - line->width;
    for (size_t size; *text; text += size, used += width) {
        size = character_read(text, &width, &shown);
        if (used + width > most || line->size + size + 1 > sizeof(line->text))
            break;
        memcpy(line->text + line->size, shown ? text : "?", shown ? size : 1);
        line->size += shown ? size : 1;
    }
    line->text[line->size] = '\0';
    line->width += used;
    return used;
}

static int text_width(const char *text)
{
    int all = 0, width;
    bool shown;
    for (size_t size; *text; text += size, all += width)
        size = character_read(text, &width, &shown);
    return all;
}

static void line_fill(text_line *line, int columns)
{
    for (int i = 0; i < columns; i++)
        line_add(line, " ", 1);
}

/* ---- a table ----------------------------------------------------------------------------------------------------- */
typedef struct column {
    const char *title;
    int width; /* of the first one the least that it takes */
    bool left;
    int wanted; /* the more the longer it stays */
} column;

typedef struct table {
    const column *columns;
    int count, limit;
    int widths[MOST_COLUMNS]; /* 0: left out */
} table;

/* Chooses the columns that fit. */
static table table_begin(const column *columns, int count, int limit)
{
    table t = {.columns = columns, .count = count, .limit = limit};
    for (int i = 0; i < count; i++)
        t.widths[i] = columns[i].width;
    for (;;) {
        int sum = -1, least = -1;
        for (int i = 0; i < count; i++) {
            sum += t.widths[i] ? t.widths[i] + 1 : 0;
            if (t.widths[i] && (least < 0 || columns[i].wanted < columns[least].wanted))
                least = i;
        }
        if (sum <= limit || least <= 0) {
            enum { MOST_ROOM = 24 };
            int room = limit - sum > MOST_ROOM ? MOST_ROOM : limit - sum;
            t.widths[0] += columns[0].left && room > 0 ? room : 0;
            return t;
        }
        t.widths[least] = 0;
    }
}

/* One row; cells NULL: the titles. A cell that is too long is cut at the end, a number too: it has '>' there. */
static void table_row(const table *t, char (*cells)[CELL], text_line *line)
{
    *line = (text_line){.limit = t->limit};
    for (int i = 0, shown = 0; i < t->count; i++) {
        if (!t->widths[i])
            continue;
        const char *text = cells ? cells[i] : t->columns[i].title;
        int width = text_width(text), room = t->widths[i];
        line_fill(line, shown++ ? 1 : 0);
        if (!t->columns[i].left)
            line_fill(line, room - width);
        line_add(line, text, width > room ? room - 1 : room);
        if (width > room)
            line_add(line, ">", 1);
        if (t->columns[i].left)
            line_fill(line, room - width);
    }
    while (line->size && line->text[line->size - 1] == ' ')
        line->text[--line->size] = '\0';
}

/* ---- speeds ------------------------------------------------------------------------------------------------------ */
/* Seconds between two looks of which a speed is made; and after which it is made even where no step has ended. */
static const double LEAST_TIME = 0.3, MOST_TIME = 20;

static const top_before *before_find(const top_view *v, int pid)
{
    for (int i = 0; i < v->count; i++) {
        if (v->before[i].pid == pid)
            return &v->before[i];
    }
    return NULL;
}

/* The speeds of the rank since then, as numbers a second; those of the look before where too little time has passed. */
static top_before before_next(const top_before *old, const yk__run_rank *r, double now)
{
    top_before next = old ? *old : (top_before){.pid = r->pid, .step_speed = NAN, .sample_speed = NAN, .cpu = NAN};
    double passed = now - next.taken, cpu_passed = now - next.cpu_taken;
    if (!old || cpu_passed >= LEAST_TIME) {
        next.cpu = old && r->cpu_seconds >= 0 ? 100 * (r->cpu_seconds - old->cpu_seconds) / cpu_passed : NAN;
        next.cpu_seconds = r->cpu_seconds;
        next.cpu_taken = now;
    }
    if (!old || (passed >= LEAST_TIME && r->steps != old->steps) || passed >= MOST_TIME) {
        next.step_speed = old ? (double)(r->steps - old->steps) / passed : NAN;
        next.sample_speed = old && r->samples ? (double)(r->samples - old->samples) / passed : NAN;
        next.steps = r->steps;
        next.samples = r->samples;
        next.taken = now;
    }
    return next;
}

void top_view_note(top_view *v, const yk__snapshot *s)
{
    int count = 0;
    for (int i = 0; i < s->runs.count; i++)
        count += s->runs.all[i].n_ranks;
    top_before *all = yk__calloc((size_t)count + 1, sizeof(*all));
    if (!all)
        return;
    count = 0;
    for (int i = 0; i < s->runs.count; i++) {
        for (int k = 0; k < s->runs.all[i].n_ranks; k++) {
            const yk__run_rank *r = &s->runs.all[i].ranks[k];
            if (r->alive)
                all[count++] = before_next(before_find(v, r->pid), r, s->taken);
        }
    }
    free(v->before);
    v->before = all;
    v->count = count;
}

void top_view_clear(top_view *v)
{
    free(v->before);
    *v = (top_view){0};
}

/* ---- numbers as cells -------------------------------------------------------------------------------------------- */
static void cell_number(char cell[CELL], const char *format, double value)
{
    if (isnan(value))
        snprintf(cell, CELL, "-");
    else
        snprintf(cell, CELL, format, value);
}

static void cell_speed(char cell[CELL], double value)
{
    cell_number(cell, value < 10 ? "%.2f" : value < 1000 ? "%.1f" : "%.0f", value);
}

static void cell_duration(char cell[CELL], double seconds)
{
    char text[32];
    snprintf(cell, CELL, "%s", yk__duration_format(seconds, text));
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */
/* Lines go to whoever draws, until the rows are used up. */
typedef struct drawing {
    top_put put;
    void *argument;
    int row, rows, columns; /* rows 0: there is no end of them */
} drawing;

static void draw_text(drawing *d, const char *text, screen_style style)
{
    text_line line = {.limit = d->columns};
    if (d->rows && d->row >= d->rows)
        return;
    line_add(&line, text, d->columns);
    d->put(d->argument, d->row++, line.text, style);
}

static void draw_row(drawing *d, const table *t, char (*cells)[CELL], screen_style style)
{
    text_line line;
    table_row(t, cells, &line);
    draw_text(d, line.text, style);
}

static void draw_machine(drawing *d, const yk__machine *m)
{
    char text[400], busy[CELL], used[CELL], all[CELL];
    cell_number(busy, "%.0f", m->busy);
    cell_number(used, "%.1f", (m->memory - m->available) / (1 << 30));
    cell_number(all, "%.1f", m->memory / (1 << 30));
    snprintf(text, sizeof(text), "CPU  %s%% of %d cores  %s of %s GiB", busy, m->cores, used, all);
    draw_text(d, text, SCREEN_PLAIN);
}

static void draw_gpus(drawing *d, const yk__snapshot *s)
{
    static const column columns[] = {{"GPU", 8, true, 9},       {"BUSY %", 6, false, 8}, {"MIB USED", 9, false, 7},
                                     {"MIB FREE", 9, false, 6}, {"C", 4, false, 5},      {"W", 6, false, 4},
                                     {"PROCESSES", 9, false, 3}};
    static const yk__gpu_value values[] = {YK__GPU_UTIL, YK__GPU_FB_USED, YK__GPU_FB_FREE, YK__GPU_TEMP,
                                           YK__GPU_POWER_USAGE};
    char cells[MOST_COLUMNS][CELL];
    table t = table_begin(columns, sizeof(columns) / sizeof(*columns), d->columns);
    if (s->n_gpus <= 0)
        return;
    draw_row(d, &t, NULL, SCREEN_DIM);
    for (int i = 0; i < s->n_gpus; i++) {
        const yk__gpu_sample *gpu = &s->gpus[i];
        snprintf(cells[0], CELL, "%d %s", i, cli_plain(gpu->gpu.name));
        for (size_t c = 0; c < sizeof(values) / sizeof(*values); c++)
            cell_number(cells[c + 1], "%.0f", gpu->known ? gpu->values[values[c]] : NAN);
        cell_number(cells[6], "%.0f", gpu->known ? gpu->gpu.n_holders : NAN);
        draw_row(d, &t, cells, SCREEN_PLAIN);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */
static const column run_columns[] = {{"JOB", 9, true, 20},        {"PID", 8, false, 9},    {"FOR", 12, false, 10},
                                     {"RANKS", 9, false, 19},     {"STEP", 9, false, 18},  {"STEPS/S", 8, false, 16},
                                     {"SAMPLES/S", 9, false, 14}, {"LOSS", 11, false, 17}, {"WAITING", 12, false, 15},
                                     {"RESTARTS", 8, false, 5},   {"PROGRAM", 28, true, 4}};
enum { RUN_COLUMNS = sizeof(run_columns) / sizeof(*run_columns) };

static void run_cells(const top_view *v, const yk__run *run, char (*cells)[CELL])
{
    struct timespec now;
    int alive = 0;
    double step = NAN, loss = NAN, waiting = -1, speed = NAN, samples = NAN;
    bool lossy = false;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < run->n_ranks; i++) {
        const yk__run_rank *r = &run->ranks[i];
        const top_before *b = r->alive ? before_find(v, r->pid) : NULL;
        if (!r->alive)
            continue;
        alive++;
        step = isnan(step) || (double)r->steps > step ? (double)r->steps : step;
        waiting = r->waiting > waiting ? r->waiting : waiting;
        if (r->losses && !lossy) { /* of the lowest rank that says one */
            loss = r->loss;
            lossy = true;
        }
        if (b && !isnan(b->step_speed))
            speed = isnan(speed) || b->step_speed > speed ? b->step_speed : speed;
        if (b && !isnan(b->sample_speed))
            samples = (isnan(samples) ? 0 : samples) + b->sample_speed;
    }
    snprintf(cells[0], CELL, "%s", cli_plain(run->job));
    snprintf(cells[1], CELL, "%d", run->launcher);
    cell_duration(cells[2], (double)now.tv_sec - run->began);
    snprintf(cells[3], CELL, "%d/%d", run->readable ? alive : run->local, run->world);
    cell_number(cells[4], "%.0f", step);
    cell_speed(cells[5], speed);
    cell_speed(cells[6], samples);
    if (lossy)
        snprintf(cells[7], CELL, "%.6g", loss);
    else
        snprintf(cells[7], CELL, "-");
    cell_duration(cells[8], waiting);
    snprintf(cells[9], CELL, "%d", run->restart);
    snprintf(cells[10], CELL, "%s", cli_plain(run->program));
}

static int run_selected(const top_view *v, const yk__runs *runs)
{
    for (int i = 0; i < runs->count; i++) {
        if (runs->all[i].supervisor == v->selected)
            return i;
    }
    return 0;
}

void top_view_move(top_view *v, const yk__snapshot *s, int steps)
{
    int at = run_selected(v, &s->runs) + steps;
    at = at >= s->runs.count ? s->runs.count - 1 : at;
    at = at < 0 ? 0 : at;
    if (s->runs.count && s->runs.all[at].supervisor != v->selected) {
        v->selected = s->runs.all[at].supervisor;
        v->first = 0;
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static const column rank_columns[] = {
    {"RANK", 4, false, 20},       {"PHASE", 13, true, 18},    {"STEP", 9, false, 19},    {"STEPS/S", 8, false, 12},
    {"LOSS", 11, false, 17},      {"WAITING", 12, false, 16}, {"CPU %", 6, false, 15},   {"MIB", 7, false, 14},
    {"LAST STEP", 12, false, 10}, {"PID", 8, false, 13},      {"RESTARTS", 8, false, 5}, {"ROLE", 12, true, 4}};
enum { RANK_COLUMNS = sizeof(rank_columns) / sizeof(*rank_columns) };

typedef struct ranked {
    const yk__run_rank *rank;
    double key;
} ranked;

static double key_of(const top_view *v, const yk__run_rank *r)
{
    const top_before *b = before_find(v, r->pid);
    double value = 0;
    switch (v->order) {
    case TOP_BY_RANK: return r->rank;
    case TOP_BY_STEP: value = r->alive ? -(double)r->steps : INFINITY; return -value; /* the least first */
    case TOP_BY_LOSS: value = r->alive && r->losses ? (isnan(r->loss) ? INFINITY : r->loss) : -INFINITY; break;
    case TOP_BY_WAITING: value = r->alive ? r->waiting : -1; return value; /* the one that the others wait for first */
    case TOP_BY_CPU: value = b && !isnan(b->cpu) ? b->cpu : -1; break;
    case TOP_BY_MEMORY: value = r->resident; break;
    }
    return -value;
}

static int lower_key(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank->rank - y->rank->rank;
}

static void rank_cells(const top_view *v, const yk__run_rank *r, char (*cells)[CELL])
{
    const top_before *b = before_find(v, r->pid);
    for (int i = 0; i < RANK_COLUMNS; i++)
        snprintf(cells[i], CELL, "-");
    snprintf(cells[0], CELL, "%d", r->rank);
    snprintf(cells[11], CELL, "%s", cli_plain(r->role));
    if (!r->alive) {
        snprintf(cells[1], CELL, "%s", r->pid ? "has ended" : "not in yoke");
        return;
    }
    snprintf(cells[1], CELL, "%s", cli_plain(yk__rank_phase_text(r)));
    snprintf(cells[2], CELL, "%llu", (unsigned long long)r->steps);
    cell_speed(cells[3], b ? b->step_speed : NAN);
    if (r->losses)
        snprintf(cells[4], CELL, "%.6g", r->loss);
    cell_duration(cells[5], r->waiting);
    cell_number(cells[6], "%.0f", b ? b->cpu : NAN);
    cell_number(cells[7], "%.0f", r->resident >= 0 ? r->resident / (1 << 20) : NAN);
    cell_duration(cells[8], r->step_age);
    snprintf(cells[9], CELL, "%d", r->pid);
    snprintf(cells[10], CELL, "%d", r->incarnation);
}

/* Seconds that other ranks wait before the one that they wait for stands out. */
static const double LONG_WAIT = 2;

static void draw_ranks(top_view *v, drawing *d, const yk__run *run)
{
    char cells[MOST_COLUMNS][CELL];
    table t = table_begin(rank_columns, RANK_COLUMNS, d->columns);
    ranked *all = yk__calloc((size_t)run->n_ranks + 1, sizeof(*all));
    double longest = 0, shortest = INFINITY;
    if (!run->readable)
        draw_text(d, cli_plain(run->why), SCREEN_BOLD);
    if (!run->readable || !all) {
        free(all);
        return;
    }
    for (int i = 0; i < run->n_ranks; i++) {
        const yk__run_rank *r = &run->ranks[i];
        all[i] = (ranked){r, key_of(v, r)};
        longest = r->alive && r->waiting > longest ? r->waiting : longest;
        shortest = r->alive && r->waiting < shortest ? r->waiting : shortest;
    }
    qsort(all, (size_t)run->n_ranks, sizeof(*all), lower_key);
    draw_row(d, &t, NULL, SCREEN_DIM);
    int room = d->rows ? d->rows - d->row : run->n_ranks, last = run->n_ranks - room;
    v->first = v->first > last ? last : v->first;
    v->first = v->first < 0 ? 0 : v->first;
    for (int i = v->first; i < run->n_ranks; i++) {
        const yk__run_rank *r = all[i].rank;
        bool late = !r->alive || (longest > LONG_WAIT && longest - shortest > LONG_WAIT && r->waiting <= shortest);
        rank_cells(v, r, cells);
        draw_row(d, &t, cells, late ? SCREEN_BOLD : SCREEN_PLAIN);
    }
    free(all);
}

/* ---- changes of members ------------------------------------------------------------------------------------------ */
/* The last changes of the run that are shown, and a line above them; of an end of rows they take a third at most. */
static int changes_shown(const drawing *d, const yk__run *run)
{
    int third = (d->rows - d->row) / 3 - 1, most = !d->rows || third > run->n_changes ? run->n_changes : third;
    return run->view && run->n_changes && most > 0 ? most : 0;
}

static void draw_changes(drawing *d, const yk__run *run, int count)
{
    char text[600], clock[16], after[32];
    if (!count)
        return;
    snprintf(text, sizeof(text), "MEMBERS %lld, view %lld; the last changes, and the time until the next step",
             (long long)run->members, (long long)run->view);
    draw_text(d, text, SCREEN_DIM);
    for (int i = run->n_changes - count; i < run->n_changes; i++) {
        const yk__member_change *c = &run->changes[i];
        time_t when = (time_t)c->time;
        struct tm local;
        clock[0] = after[0] = '\0';
        if (localtime_r(&when, &local))
            strftime(clock, sizeof(clock), "%H:%M:%S", &local);
        if (c->seconds >= 0)
            snprintf(after, sizeof(after), "%.3f s", c->seconds);
        snprintf(text, sizeof(text), "%8s %9s  %s", clock, after, cli_plain(c->what));
        draw_text(d, text, SCREEN_PLAIN);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */
static void draw_head(const top_view *v, drawing *d, const yk__snapshot *s)
{
    char text[400], clock[16] = "";
    int alive = 0;
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(clock, sizeof(clock), "%H:%M:%S", &local);
    for (int i = 0; i < s->runs.count; i++) {
        for (int k = 0; k < s->runs.all[i].n_ranks; k++)
            alive += s->runs.all[i].ranks[k].alive;
    }
    snprintf(text, sizeof(text), "%s  %d run%s, %d rank%s  by %s  %s", clock, s->runs.count,
             s->runs.count == 1 ? "" : "s", alive, alive == 1 ? "" : "s", top_orders[v->order], cli_plain(v->host));
    draw_text(d, text, SCREEN_BOLD);
}

/* With an end of rows the selected run is among those shown, and its ranks have half of what is left, at least. */
static void draw_runs(top_view *v, drawing *d, const yk__runs *runs)
{
    char cells[MOST_COLUMNS][CELL];
    table t = table_begin(run_columns, RUN_COLUMNS, d->columns);
    int at = run_selected(v, runs), first = 0, room = runs->count;
    if (!runs->count) {
        draw_text(d, "no run of yoke run is here", SCREEN_PLAIN);
        return;
    }
    if (d->rows) {
        int half = (d->rows - d->row - 1) / 2;
        room = half < 1 ? 1 : half < runs->count ? half : runs->count;
        first = at >= room ? at - room + 1 : 0;
    }
    draw_row(d, &t, NULL, SCREEN_DIM);
    for (int i = first; i < first + room; i++) {
        run_cells(v, &runs->all[i], cells);
        draw_row(d, &t, cells, d->rows && i == at ? SCREEN_REVERSE : SCREEN_PLAIN);
    }
    for (int i = 0; !d->rows && i < runs->count; i++) {
        char title[160];
        snprintf(title, sizeof(title), "ranks of %s, pid %d", cli_plain(runs->all[i].job), runs->all[i].launcher);
        draw_text(d, title, SCREEN_BOLD);
        draw_ranks(v, d, &runs->all[i]);
        draw_changes(d, &runs->all[i], changes_shown(d, &runs->all[i]));
    }
    if (d->rows) {
        int shown = changes_shown(d, &runs->all[at]), room_below = shown ? shown + 1 : 0;
        d->rows -= room_below;
        draw_ranks(v, d, &runs->all[at]);
        d->rows += room_below;
        draw_changes(d, &runs->all[at], shown);
    }
}

void top_view_draw(top_view *v, const yk__snapshot *s, int columns, int rows, top_put put, void *argument)
{
    drawing d = {.put = put, .argument = argument, .rows = rows ? rows - 1 : 0, .columns = columns};
    if (rows == 1)
        d.rows = 1;
    draw_head(v, &d, s);
    draw_machine(&d, &s->machine);
    draw_gpus(&d, s);
    draw_runs(v, &d, &s->runs);
    if (s->runs.elsewhere) {
        char text[80];
        snprintf(text, sizeof(text), "%d more in another pid namespace, as a container's", s->runs.elsewhere);
        draw_text(&d, text, SCREEN_PLAIN);
    }
    if (s->runs.problem[0])
        draw_text(&d, cli_plain(s->runs.problem), SCREEN_BOLD);
    if (rows > 1) {
        d.row = rows - 1;
        d.rows = rows;
        draw_text(&d, "q quit  up/down run  s sort  pgup/pgdn ranks", SCREEN_DIM);
    }
}
