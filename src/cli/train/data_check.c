/*
 * data_check.c - `yoke data check`: reads a folder of pictures, tar shards, or a CSV file, in full. Layer: cli.
 *
 * A file that cannot be decoded would end a training in the middle of an epoch; here all of them are named at once.
 * What a training leaves out (by its name or place) is told as well, with the reason. Decoding is spread over threads;
 * what they find is printed in the order of the files.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <jansson.h>

#include "base/core.h"
#include "base/json_line.h"
#include "cli/options.h"
#include "data/dataset.h"

enum { MOST_THREADS = 16, MOST_LEFT_OUT = 20 /* that are printed */ };

static const char about[] =
    "DIR is what yoke train --data takes: a folder with train/ and val/ or test/, or with a folder of each class. "
    "Every picture is decoded. Broken files (one a training would stop at) and files that a training leaves out are "
    "listed with the reason; so are parts whose classes differ. Of a CSV file every row is read, of shards:PATTERN "
    "every picture in the archives.\n"
    "\n"
    "Exit codes: 0 nothing is broken, 1 something is, or DIR cannot be read, 2 wrong usage.\n";
static const char examples[] = "  yoke data check photos\n"
                               "  yoke data check --json table.csv --target species\n";

/* A file or row, and what is wrong with it. */
typedef struct finding {
    char *path, *why;
} finding;

typedef struct finding_list {
    finding *all;
    int64_t count, capacity;
} finding_list;

typedef struct data_check {
    const char *path, *target;
    bool json;
    int64_t samples, classes;
    int64_t sides[4]; /* of the pictures: least and most height, least and most width; 0: none yet */
    finding_list broken, left_out;
    bool no_memory; /* a finding was lost */
    char **names;   /* of the classes of the first part, n_names of them */
    int64_t n_names;
} data_check;

static void findings_add(data_check *d, finding_list *to, const char *path, const char *why)
{
    if (to->count == to->capacity) {
        int64_t capacity = to->capacity ? 2 * to->capacity : 16;
        finding *grown = yk__realloc(to->all, (size_t)capacity * sizeof(*grown));
        d->no_memory |= !grown;
        if (!grown)
            return;
        to->all = grown;
        to->capacity = capacity;
    }
    finding f = {yk__strdup(path), yk__strdup(why)};
    d->no_memory |= !f.path || !f.why;
    to->all[to->count++] = f;
}

static void findings_clear(finding_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        free(list->all[i].path);
        free(list->all[i].why);
    }
    free(list->all);
}

static void note_left_out(void *user, const char *path, const char *why)
{
    data_check *d = user;
    findings_add(d, &d->left_out, path, why);
}

static void note_broken(void *user, const char *path, const char *why)
{
    data_check *d = user;
    findings_add(d, &d->broken, path, why);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* The state that the threads share. Each takes the next sample until none is left. */
typedef struct decoding {
    yk_dataset *set;
    atomic_int_fast64_t next;
    char **why;         /* for each sample what is wrong with it; NULL: nothing */
    int64_t (*size)[2]; /* for each its height and width */
} decoding;

static void *decode_samples(void *arg)
{
    decoding *d = arg;
    yk__data_worker worker = {0};
    int64_t length = d->set->table.length;
    for (int64_t i; (i = atomic_fetch_add(&d->next, 1)) < length;) {
        yk_sample sample = {.worker = &worker, .index = i, .count = 1};
        if (d->set->table.get(d->set->context, i, &sample)) {
            d->why[i] = yk__strdup(yk_last_error()->message);
            yk_clear_error();
        } else {
            d->size[i][0] = sample.shape[1];
            d->size[i][1] = sample.shape[2];
        }
    }
    yk__data_worker_clear(&worker);
    return NULL;
}

static void run_threads(decoding *d)
{
    pthread_t threads[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : (int)cores, count = 0;
    while (count < wanted - 1 && pthread_create(&threads[count], NULL, decode_samples, d) == 0)
        count++;
    decode_samples(d);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void widen_sides(int64_t sides[4], const int64_t size[2])
{
    for (int side = 0; side < 2; side++) {
        int64_t *least = &sides[2 * side], *most = &sides[2 * side + 1];
        *least = !*least || size[side] < *least ? size[side] : *least;
        *most = size[side] > *most ? size[side] : *most;
    }
}

static yk_status decode_all(data_check *d, yk_dataset *set)
{
    int64_t length = yk_dataset_length(set);
    decoding all = {.set = set,
                    .why = yk__calloc((size_t)length + 1, sizeof(char *)),
                    .size = yk__calloc((size_t)length + 1, sizeof(int64_t[2]))};
    yk_status status = all.why && all.size ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        run_threads(&all);
    for (int64_t i = 0; i < length && !status; i++) {
        char path[4096];
        if (all.why[i])
            findings_add(d, &d->broken, yk_dataset_describe(set, i, path, sizeof(path)), all.why[i]);
        else if (all.size[i][0])
            widen_sides(d->sides, all.size[i]);
        free(all.why[i]);
    }
    free(all.why);
    free(all.size);
    return status;
}

/* Names classes that one part has and another has not: a training refuses such parts. */
static yk_status compare_classes(data_check *d, const yk_dataset *set, const char *folder)
{
    int64_t classes = yk_dataset_classes(set);
    if (!d->names) {
        d->names = yk__calloc((size_t)classes + 1, sizeof(*d->names));
        for (int64_t i = 0; d->names && i < classes; i++)
            d->names[d->n_names++] = yk__strdup(yk_dataset_class_name(set, i));
        d->classes = classes;
        return d->names ? YK_OK : YK_ERR_MEMORY;
    }
    bool same = classes == d->n_names;
    for (int64_t i = 0; i < classes && same; i++)
        same = d->names[i] && strcmp(d->names[i], yk_dataset_class_name(set, i)) == 0;
    for (int64_t i = 0, k = 0; !same && (i < classes || k < d->n_names);) {
        const char *mine = i < classes ? yk_dataset_class_name(set, i) : NULL,
                   *other = k < d->n_names ? d->names[k] : NULL;
        int order = !mine ? 1 : !other ? -1 : strcmp(mine, other);
        char why[400];
        if (order)
            snprintf(why, sizeof(why),
                     order < 0 ? "class '%.200s' is not in the part to train on"
                               : "class '%.200s' of the part to train on is not in it",
                     order < 0 ? mine : other);
        if (order)
            findings_add(d, &d->broken, folder, why);
        i += order <= 0;
        k += order >= 0;
    }
    return YK_OK;
}

static yk_status check_part(data_check *d, const char *folder)
{
    const yk__folder_report report = {note_left_out, note_broken, d};
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk__image_folder_open(folder, &report, NULL);
    yk_status status = set ? decode_all(d, set) : yk__error_code();
    if (!status)
        status = compare_classes(d, set, folder);
    if (!status) {
        d->samples += yk_dataset_length(set);
        if (!d->json)
            printf("%s: %" PRId64 " images in %" PRId64 " classes\n", cli_plain(folder), yk_dataset_length(set),
                   yk_dataset_classes(set));
    }
    yk_scope_end(scope);
    return status;
}

static yk_status check_folder(data_check *d)
{
    char *train = yk__folder_split(d->path, YK_TRAIN), *test = yk__folder_split(d->path, YK_TEST);
    yk_status status = check_part(d, train ? train : d->path);
    if (!status && train && test)
        status = check_part(d, test);
    free(train);
    free(test);
    return status;
}

/* Tar shards. A fault of an archive itself ends the reading of them, and is the error. */
static yk_status check_shards(data_check *d)
{
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk_shard_list_dataset(d->path + strlen("shards:"), NULL, NULL);
    yk_status status = set ? decode_all(d, set) : yk__error_code();
    if (!status) {
        d->samples = yk_dataset_length(set);
        d->classes = yk_dataset_classes(set);
        if (!d->json)
            printf("%s: %" PRId64 " images in %" PRId64 " classes\n", cli_plain(d->path), d->samples, d->classes);
    }
    yk_scope_end(scope);
    return status;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void note_row(void *user, const char *message)
{
    data_check *d = user;
    const char *why = strstr(message, ": "); /* "FILE:LINE: what is wrong" */
    size_t length = why ? (size_t)(why - message) : 0;
    char where[4096];
    snprintf(where, sizeof(where), "%.*s", (int)length, message);
    findings_add(d, &d->broken, where, why ? why + 2 : message);
}

static yk_status check_rows(data_check *d)
{
    const yk__csv_options options = {.target = d->target, .fault = note_row, .user = d};
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = yk__csv_open(strncmp(d->path, "csv:", 4) == 0 ? d->path + 4 : d->path, &options, NULL);
    yk_status status = set ? YK_OK : yk__error_code();
    if (set) {
        int64_t rows;
        int columns;
        (void)yk__csv_values(set, &rows, &columns);
        d->samples = rows;
        d->classes = yk_dataset_classes(set);
        if (!d->json)
            printf("%s: %" PRId64 " rows of %d numbers, %" PRId64 " classes in column '%s'\n", cli_plain(d->path), rows,
                   columns, d->classes, cli_plain(yk__csv_column(set, -1)));
    }
    yk_scope_end(scope);
    return status;
}

/* ---- what was found ---------------------------------------------------------------------------------------------- */

static json_t *findings_json(const finding_list *list)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < list->count; i++)
        json_array_append_new(array, json_pack("{s:o, s:o}", "path",
                                               yk__json_text(list->all[i].path, strlen(list->all[i].path)), "why",
                                               yk__json_text(list->all[i].why, strlen(list->all[i].why))));
    return array;
}

static yk_status print_findings_json(const data_check *d)
{
    json_t *object =
        json_pack("{s:o, s:b, s:I, s:I, s:o, s:o}", "data", yk__json_text(d->path, strlen(d->path)), "valid",
                  d->broken.count == 0, "samples", (json_int_t)d->samples, "classes", (json_int_t)d->classes, "broken",
                  findings_json(&d->broken), "left_out", findings_json(&d->left_out));
    char *line = yk__json_line(object, YK__JSON_DIGITS);
    if (!line)
        return yk__fail_memory(sizeof(json_t *));
    fputs(line, stdout);
    free(line);
    return YK_OK;
}

static void print_findings(const data_check *d)
{
    const int64_t *s = d->sides;
    if (s[0])
        printf("sizes: %" PRId64 " to %" PRId64 " high, %" PRId64 " to %" PRId64 " wide\n", s[0], s[1], s[2], s[3]);
    for (int64_t i = 0; i < d->broken.count; i++)
        printf("broken: %s: %s\n", cli_plain(d->broken.all[i].path), cli_plain(d->broken.all[i].why));
    for (int64_t i = 0; i < d->left_out.count && i < MOST_LEFT_OUT; i++)
        printf("left out: %s: %s\n", cli_plain(d->left_out.all[i].path), cli_plain(d->left_out.all[i].why));
    if (d->left_out.count > MOST_LEFT_OUT)
        printf("left out: %" PRId64 " more (--json lists all)\n", d->left_out.count - MOST_LEFT_OUT);
    printf("%" PRId64 " broken, %" PRId64 " left out\n", d->broken.count, d->left_out.count);
}

static int check_data(data_check *d)
{
    size_t length = strlen(d->path);
    bool rows = strncmp(d->path, "csv:", 4) == 0 || (length > 4 && strcasecmp(d->path + length - 4, ".csv") == 0);
    yk_status status;
    if (rows)
        status = check_rows(d);
    else if (strncmp(d->path, "shards:", strlen("shards:")) == 0)
        status = check_shards(d);
    else if (!yk__is_directory(d->path))
        status = yk_set_error(YK_ERR_NOT_FOUND, "%s: there is no such folder%s", d->path,
                              yk__is_file(d->path) ? "; a file is checked where its name ends in .csv" : "");
    else
        status = check_folder(d);
    if (!status && d->no_memory)
        status = yk__fail_memory(sizeof(finding));
    if (!status && d->json)
        status = print_findings_json(d);
    else if (!status)
        print_findings(d);
    int code = status ? cli_failed() : d->broken.count ? EXIT_FAILED : EXIT_DONE;
    findings_clear(&d->broken);
    findings_clear(&d->left_out);
    for (int64_t i = 0; i < d->n_names; i++)
        free(d->names[i]);
    free(d->names);
    return code;
}

int cli_data_check(int argc, char **argv)
{
    data_check d = {0};
    const cli_option options[] = {
        {"target", "COLUMN", CLI_TEXT, &d.target, .help = "of a CSV file: the column of the classes",
         .default_text = "target, label, class, or the last", .also = "label"},
        {"json", NULL, CLI_FLAG, &d.json, .help = "print one JSON object"},
        {0},
    };
    const cli_verb verb = {"yoke data check",
                           "Reads all of a data set of your own, and lists what is broken.",
                           about,
                           examples,
                           options,
                           "DIR|FILE.csv|shards:PATTERN",
                           .mixed = true};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (argc - optind != 1)
        return cli_usage_error(&verb, "expected a folder or a CSV file (or shards:PATTERN), got %d arguments",
                               argc - optind);
    d.path = argv[optind];
    return check_data(&d);
}
