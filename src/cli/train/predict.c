/*
 * predict.c - `yoke predict`: what a network that `yoke train` saved says of images, of the rows of a CSV file, or of a
 * whole folder of classes. Layer: cli.
 *
 * The file tells the model, the classes and what is done to the inputs (net_form.h). Inputs are answered in the order
 * they are given, in batches; one that cannot be read is an error on stderr, the others are answered all the same, and
 * the exit code is 1.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <jansson.h>
#include <yoke/autograd.h>
#include <yoke/nn.h>
#include <yoke/ops.h>

#include "base/core.h"
#include "base/json_line.h"
#include "cli/ckpt/ckpt.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/train/confusion.h"
#include "cli/train/net_form.h"
#include "data/dataset.h"

enum { BATCH = 32, NUMBER_DIGITS = 6 };

static const char about[] =
    "FILE is what yoke train --save or --save-best wrote, safetensors or .pt. An INPUT is a JPEG or PNG file of any "
    "size, which is brought to the network's as the training did it, or, for a network of a CSV file, a CSV file with "
    "its columns; the column of the classes may be missing, others are passed over.\n"
    "\n"
    "One line for each input: its name, and the likeliest classes with their probabilities. --data takes a folder of "
    "class folders (or one that holds val/, test/ or train/), or a CSV file with the column of the classes, in place "
    "of inputs, and prints the accuracy; --confusion prints which classes were taken for which.\n"
    "\n"
    "Exit codes: 0 done, 1 an input or the file could not be read, 2 wrong usage.\n";
static const char examples[] = "  yoke predict photos.safetensors cat.jpg\n"
                               "  yoke predict --top 1 --json photos.safetensors *.jpg\n"
                               "  yoke predict photos.safetensors --data photos --confusion\n"
                               "  yoke predict table.safetensors new_rows.csv\n";

typedef struct predict_settings {
    const char *data, *device, *model;
    int64_t top, threads;
    bool json, confusion;
} predict_settings;

typedef struct predictor {
    const predict_settings *set;
    const char *file;
    net_form form;
    yk_device device;
    yk_dtype dtype; /* of the weights, and of the inputs */
    yk_module *net;
    int64_t failed; /* inputs that could not be read */
} predictor;

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* The dtype of the parameters: f32, or f64 where they are. */
static yk_dtype weights_dtype(const yk_state_dict *weights)
{
    for (int64_t i = 0; i < yk_state_dict_count(weights); i++) {
        if (yk_tensor_dtype(yk_state_dict_at(weights, i)) == YK_F64)
            return YK_F64;
    }
    return YK_F32;
}

static yk_status load_network(predictor *p)
{
    yk_state_dict *weights = NULL;
    if (ckpt_is_folder(p->file))
        return yk_set_error(YK_ERR_FORMAT,
                            "%s: it is a folder; a training checkpoint does not tell how to make an input: train with "
                            "--save or --save-best FILE",
                            p->file);
    if (net_form_load(p->file, p->device, &p->form, &weights))
        return yk__error_code();
    if (!p->form.model)
        return yk_set_error(
            YK_ERR_FORMAT,
            "%s: it holds weights, and does not tell of which model, which classes and which inputs, as "
            "the files of yoke train --save do; load the weights by --init FILE --epochs 0 --save OUT",
            p->file);
    if (cli_is_object(p->form.model) != (p->set->model != NULL))
        return yk_set_error(YK_ERR_ARGUMENT,
                            p->set->model ? "--model: the network of %s is %s, which yoke has; leave the option out"
                                          : "%s: its network is %s, a shared object, and no code is run by reading a "
                                            "file: add --model PATH of that object",
                            p->file, cli_plain(p->form.model));
    p->form.object = p->set->model;
    p->dtype = weights_dtype(weights);
    p->net = yk_module_to(yk_module_to_dtype(net_form_network(&p->form), p->dtype), p->device);
    if (!p->net)
        return yk__error_code();
    if (yk_module_load_state_dict(p->net, weights, NULL, NULL)) {
        ckpt_name_file(p->file);
        return yk__error_code();
    }
    yk_module_eval(p->net);
    return YK_OK;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* A line for the screen. */
static void print_answer(const predictor *p, const char *name, const int64_t *order, const double *probabilities)
{
    char number[32];
    printf("%s", cli_plain(name));
    for (int64_t i = 0; i < p->set->top && i < p->form.outputs; i++)
        printf("  %s %.4f", cli_plain(net_form_class(&p->form, order[i], number)), probabilities[order[i]]);
    putchar('\n');
}

static json_t *answer_json(const predictor *p, const char *name, const int64_t *order, const double *probabilities)
{
    char number[32];
    json_t *top = json_array();
    for (int64_t i = 0; i < p->set->top && i < p->form.outputs; i++) {
        const char *class = net_form_class(&p->form, order[i], number);
        json_array_append_new(top, json_pack("{s:o, s:I, s:o}", "class", yk__json_text(class, strlen(class)), "index",
                                             (json_int_t)order[i], "probability",
                                             yk__json_number(probabilities[order[i]], NUMBER_DIGITS)));
    }
    return json_pack("{s:o, s:o}", "input", yk__json_text(name, strlen(name)), "top", top);
}

static yk_status print_json_line(json_t *object)
{
    char *line = yk__json_line(object, YK__JSON_DIGITS);
    if (!line)
        return yk__fail_memory(sizeof(json_t *));
    fputs(line, stdout);
    free(line);
    return YK_OK;
}

/* The outputs from the likeliest on; of equal ones the first. */
static void sort_outputs(const double *probabilities, int64_t count, int64_t top, int64_t *order)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t rank = 0; rank < top && rank < count; rank++) {
        int64_t best = rank;
        for (int64_t i = rank + 1; i < count; i++) {
            if (probabilities[order[i]] > probabilities[order[best]] ||
                (probabilities[order[i]] == probabilities[order[best]] && order[i] < order[best]))
                best = i;
        }
        int64_t taken = order[best];
        order[best] = order[rank];
        order[rank] = taken;
    }
}

/* The probabilities of a batch as doubles, (count, outputs), which the caller frees. */
static double *run_network(const predictor *p, yk_tensor *const *inputs, int count)
{
    yk_tensor *outputs = yk_forward(p->net, yk_to(yk_stack(inputs, count, 0), p->device));
    yk_tensor *probabilities = outputs ? yk_cast(yk_softmax(outputs, 1), YK_F64) : NULL;
    size_t bytes = (size_t)count * (size_t)p->form.outputs * sizeof(double);
    double *values = probabilities ? yk__calloc(1, bytes) : NULL;
    if (values && yk_tensor_read(probabilities, values, bytes)) {
        free(values);
        return NULL;
    }
    return values;
}

static yk_status answer_batch(predictor *p, yk_tensor *const *inputs, const char (*names)[512], int count)
{
    double *values = count ? run_network(p, inputs, count) : NULL;
    int64_t *order = yk__calloc((size_t)p->form.outputs, sizeof(*order));
    yk_status status = (count && !values) || !order ? yk__error_code() : YK_OK;
    for (int i = 0; i < count && !status; i++) {
        const double *row = values + i * p->form.outputs;
        sort_outputs(row, p->form.outputs, p->set->top, order);
        if (p->set->json)
            status = print_json_line(answer_json(p, names[i], order, row));
        else
            print_answer(p, names[i], order, row);
    }
    free(order);
    free(values);
    return status;
}

/* Reports an input that could not be read; the others go on. Where it is sample `index` of a set (-1: it is none), the
 * set's word for that, which its messages begin with, is no news to who gave the name. */
static void refuse_input(predictor *p, const char *name, int64_t index)
{
    char set_says[64];
    yk_error error;
    yk__error_take(&error);
    snprintf(set_says, sizeof(set_says), "sample %" PRId64, index);
    const char *at = index >= 0 ? strstr(error.message, set_says) : NULL;
    const char *message = at ? strstr(at, ": ") : NULL;
    message = message ? message + 2 : error.message;
    if (p->set->json)
        (void)print_json_line(json_pack("{s:o, s:o}", "input", yk__json_text(name, strlen(name)), "error",
                                        yk__json_text(message, strlen(message))));
    fflush(stdout);
    bool named = strncmp(message, name, strlen(name)) == 0;
    fprintf(stderr, "yoke: %s%s%s\n", named ? "" : name, named ? "" : ": ", message);
    p->failed++;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

typedef struct picture_list {
    char *const *paths;
} picture_list;

static yk_status picture_get(void *context, int64_t index, yk_sample *sample)
{
    const picture_list *list = context;
    return yk__image_read(list->paths[index], sample);
}

/* The input that a set makes of sample `index`; NULL and an error. */
static yk_tensor *take_input(const predictor *p, yk_dataset *set, int64_t index)
{
    return yk_dataset_get(set, index, p->dtype, NULL);
}

/* Answers the samples of a set, in its order. `names` tells what each is called; NULL: as the set describes it. */
static yk_status answer_set(predictor *p, yk_dataset *set, char *const *names)
{
    char(*batch_names)[512] = yk__calloc(BATCH, sizeof(*batch_names));
    yk_status status = batch_names ? YK_OK : YK_ERR_MEMORY;
    int64_t length = yk_dataset_length(set);
    for (int64_t at = 0; at < length && !status;) {
        yk_tensor *inputs[BATCH];
        int count = 0;
        yk_scope scope = yk_scope_begin();
        for (; at < length && count < BATCH && !status; at++) {
            if (names)
                snprintf(batch_names[count], sizeof(*batch_names), "%s", names[at]);
            else
                yk_dataset_describe(set, at, batch_names[count], sizeof(*batch_names));
            inputs[count] = take_input(p, set, at);
            if (inputs[count]) {
                count++;
                continue;
            }
            char failed[512];
            snprintf(failed, sizeof(failed), "%s", batch_names[count]);
            yk_error error; /* answers come in the order of the inputs */
            yk__error_take(&error);
            status = answer_batch(p, inputs, batch_names, count);
            count = 0;
            if (!status) {
                yk__error_put(&error);
                refuse_input(p, failed, at);
            }
        }
        if (!status)
            status = answer_batch(p, inputs, batch_names, count);
        yk_scope_end(scope);
    }
    free(batch_names);
    return status;
}

static bool is_csv(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcasecmp(path + length - 4, ".csv") == 0;
}

static yk_status answer_pictures(predictor *p, int count, char *const *paths)
{
    for (int i = 0; i < count; i++) {
        if (is_csv(paths[i]))
            return yk_set_error(YK_ERR_ARGUMENT, "%s: %s takes images, and this is a CSV file", paths[i], p->file);
        if (yk__is_directory(paths[i]))
            return yk_set_error(
                YK_ERR_ARGUMENT,
                "%s: it is a folder; give its images (%s/*.jpg), or --data %s where it holds a folder of "
                "each class",
                paths[i], paths[i], paths[i]);
    }
    picture_list list = {paths};
    yk_dataset_table table = {.name = "image", .length = count, .get = picture_get};
    yk_dataset *set = yk_dataset_create(&table, &list, net_form_transform(&p->form));
    return set ? answer_set(p, set, paths) : yk__error_code();
}

static yk_dataset *open_rows(const predictor *p, const char *path, bool labelled)
{
    const yk__csv_options options = {.target = labelled ? p->form.target : NULL,
                                     .no_target = !labelled,
                                     .columns = (const char *const *)p->form.columns,
                                     .n_columns = (int)p->form.channels,
                                     .classes = (const char *const *)p->form.classes,
                                     .n_classes = p->form.n_classes};
    return yk__csv_open(path, &options, net_form_transform(&p->form));
}

static yk_status answer_rows(predictor *p, int count, char *const *paths)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        if (yk__is_picture(paths[i]))
            return yk_set_error(YK_ERR_ARGUMENT, "%s: %s takes the rows of a CSV file, and this is a picture", paths[i],
                                p->file);
        yk_dataset *set = open_rows(p, paths[i], false);
        if (set)
            status = answer_set(p, set, NULL);
        else
            refuse_input(p, paths[i], -1);
    }
    return status;
}

/* ---- a whole set ------------------------------------------------------------------------------------------------- */

/* The folder of classes: DIR's own part to test on, or to train on, or DIR itself. The caller frees. */
static char *find_folder(const char *path)
{
    char *folder = yk__folder_split(path, YK_TEST);
    if (!folder)
        folder = yk__folder_split(path, YK_TRAIN);
    return folder ? folder : yk__strdup(path);
}

static yk_dataset *open_labelled(const predictor *p)
{
    const char *path = p->set->data;
    if (strncmp(path, "csv:", 4) == 0)
        path += 4;
    if (p->form.fit == FORM_ROW)
        return open_rows(p, path, true);
    if (!yk__is_directory(path)) {
        yk_set_error(YK_ERR_NOT_FOUND, "--data %s: there is no such folder", path);
        return NULL;
    }
    char *folder = find_folder(path);
    yk_dataset *set = folder ? yk_image_folder(folder, net_form_transform(&p->form)) : NULL;
    free(folder);
    return set;
}

/* For each class of the set, its number among the network's; the caller frees. */
static int64_t *match_classes(const predictor *p, const yk_dataset *set)
{
    int64_t classes = yk_dataset_classes(set);
    int64_t *to = yk__calloc((size_t)classes + 1, sizeof(*to));
    for (int64_t i = 0; to && i < classes; i++) {
        const char *name = yk_dataset_class_name(set, i);
        char number[32];
        for (to[i] = 0; to[i] < p->form.outputs && strcmp(net_form_class(&p->form, to[i], number), name) != 0;)
            to[i]++;
        if (to[i] == p->form.outputs) {
            yk_set_error(YK_ERR_FORMAT, "%s: its class '%s' is none of those that %s knows", p->set->data,
                         cli_plain(name), p->file);
            free(to);
            return NULL;
        }
    }
    return to;
}

static yk_status count_answers(predictor *p, yk_dataset *set, const int64_t *classes, confusion *c)
{
    yk_status status = YK_OK;
    int64_t length = yk_dataset_length(set);
    for (int64_t at = 0; at < length && !status;) {
        yk_tensor *inputs[BATCH];
        int64_t labels[BATCH];
        int count = 0;
        yk_scope scope = yk_scope_begin();
        for (; at < length && count < BATCH; at++) {
            inputs[count] = take_input(p, set, at);
            labels[count] = yk_dataset_label(set, at);
            if (inputs[count]) {
                count++;
                continue;
            }
            char name[512];
            refuse_input(p, yk_dataset_describe(set, at, name, sizeof(name)), at);
        }
        double *values = count ? run_network(p, inputs, count) : NULL;
        status = count && !values ? yk__error_code() : YK_OK;
        for (int i = 0; i < count && !status; i++) {
            int64_t first = 0;
            for (int64_t k = 1; k < p->form.outputs; k++)
                first = values[i * p->form.outputs + k] > values[i * p->form.outputs + first] ? k : first;
            confusion_add(c, classes[labels[i]], first);
        }
        free(values);
        yk_scope_end(scope);
    }
    return status;
}

static yk_status print_accuracy(const predictor *p, const yk_dataset *set, const confusion *c)
{
    double accuracy = confusion_accuracy(c);
    if (p->set->json) {
        json_t *object = json_pack("{s:s, s:I, s:o}", "data", p->set->data, "samples",
                                   (json_int_t)yk_dataset_length(set), "accuracy", yk__json_number(accuracy, 9));
        if (object && p->set->confusion)
            json_object_set_new(object, "confusion", confusion_json(c, &p->form));
        return print_json_line(object);
    }
    int columns = terminal_columns(STDOUT_FILENO);
    if (p->set->confusion)
        confusion_print(c, &p->form, columns ? columns : 100, stdout);
    printf("accuracy %.4f of %" PRId64 " samples\n", accuracy, yk_dataset_length(set) - p->failed);
    return YK_OK;
}

static yk_status evaluate(predictor *p)
{
    yk_dataset *set = open_labelled(p);
    int64_t *classes = set ? match_classes(p, set) : NULL;
    confusion c = {0};
    yk_status status = classes ? confusion_create(&c, p->form.outputs) : yk__error_code();
    if (!status)
        status = count_answers(p, set, classes, &c);
    if (!status)
        status = print_accuracy(p, set, &c);
    confusion_clear(&c);
    free(classes);
    return status;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int predict(predictor *p, int count, char *const *inputs)
{
    yk_status status = cli_device(p->set->device, &p->device);
    if (!status && p->set->threads)
        status = yk_set_num_threads(p->device, (int)p->set->threads);
    if (status)
        return cli_not_found(status);
    bool recording = yk_no_grad_begin();
    status = load_network(p);
    if (!status && p->set->data)
        status = evaluate(p);
    else if (!status && p->form.fit == FORM_ROW)
        status = answer_rows(p, count, inputs);
    else if (!status)
        status = answer_pictures(p, count, inputs);
    yk_no_grad_end(recording);
    net_form_clear(&p->form);
    return status ? cli_failed() : p->failed ? EXIT_FAILED : EXIT_DONE;
}

int cli_predict(int argc, char **argv)
{
    predict_settings s = {.device = "auto", .top = 3};
    const cli_option options[] = {
        {"top", "K", CLI_INT, &s.top, "classes to print of each input", .least = 1, .most = 1000,
         .also = "top-k,topk,k"},
        {"data", "DIR|FILE", CLI_TEXT, &s.data, .help = "answer this whole folder or CSV file, and print the accuracy",
         .also = "eval,dataset,test"},
        {"model", "FILE.so", CLI_TEXT, &s.model, .help = "the shared object that the network was trained with"},
        {"confusion", NULL, CLI_FLAG, &s.confusion, .help = "with --data: which classes were taken for which",
         .also = "confusion-matrix"},
        {"json", NULL, CLI_FLAG, &s.json, .help = "print a JSON object a line"},
        {"device", "NAME", CLI_TEXT, &s.device, .help = "auto, cpu, cpu:1, ..., cuda, cuda:1, ...", .also = "gpu,cuda"},
        {"threads", "N", CLI_INT, &s.threads, "threads of one operation", .least = 1, .most = 1024,
         .default_text = "the cores there are"},
        {0},
    };
    const cli_verb verb = {"yoke predict", "Says what a network that yoke train saved makes of new images or rows.",
                           about,          examples,
                           options,        "FILE INPUT...",
                           .mixed = true};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    int given = argc - optind;
    if (given < 1)
        return cli_usage_error(&verb, "expected the FILE of a network, as yoke train --save writes it");
    if (s.data && given > 1)
        return cli_usage_error(&verb, "--data %s takes the place of inputs, and '%s' is given too", s.data,
                               argv[optind + 1]);
    if (!s.data && given < 2)
        return cli_usage_error(&verb, "expected an INPUT behind %s: an image or a CSV file; or --data DIR",
                               argv[optind]);
    if (s.confusion && !s.data)
        return cli_usage_error(&verb, "--confusion needs --data, whose classes are known");
    predictor p = {.set = &s, .file = argv[optind]};
    yk_scope scope = yk_scope_begin();
    code = predict(&p, given - 1, argv + optind + 1);
    yk_scope_end(scope);
    return code;
}
