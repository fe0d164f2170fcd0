/*
 * net_form.c - what a network takes and gives, into the metadata of a file of weights and back. Layer: cli.
 *
 * All values are texts, as safetensors wants them; lists are JSON in such a text. What a file tells is checked here, so
 * that a file that was made to mislead gets an error and not memory of any size.
 */
#include "cli/train/net_form.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>
#include <yoke/nn.h>

#include "base/core.h"
#include "base/json_line.h"
#include "cli/ckpt/ckpt.h"
#include "data/dataset.h"

enum { MOST_SIDE = 1 << 16, MOST_OUTPUTS = 1 << 24, MOST_CHANNELS = 4096, KEYS = 12 };
static const char *const fits[] = {"as it is", "middle", "exact", "row"};

static void names_free(char **names, int64_t count)
{
    for (int64_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

void net_form_clear(net_form *form)
{
    names_free(form->classes, form->n_classes);
    names_free(form->columns, form->channels);
    free(form->model);
    free(form->target);
    free(form->mean);
    free(form->std);
    *form = (net_form){0};
}

yk_status net_form_copy_names(char ***to, const char *const *names, int64_t count)
{
    *to = yk__calloc((size_t)count + 1, sizeof(**to));
    for (int64_t i = 0; *to && i < count; i++) {
        (*to)[i] = yk__strdup(names[i]);
        if (!(*to)[i])
            return YK_ERR_MEMORY;
    }
    return *to ? YK_OK : YK_ERR_MEMORY;
}

const char *net_form_class(const net_form *form, int64_t output, char text[32])
{
    if (output < form->n_classes)
        return form->classes[output];
    snprintf(text, 32, "%" PRId64, output);
    return text;
}

/* ---- network and inputs ------------------------------------------------------------------------------------------ */

yk_module *net_form_network(const net_form *form)
{
    int64_t features;
    if (form->object)
        return yk_network_load(form->object,
                               &(yk_network_input){form->channels, form->height, form->width, form->outputs});
    if (form->height == form->width)
        return yk_model(form->model, YK_OPTIONS(yk_model_options, .in_channels = form->channels,
                                                .image_size = form->height, .num_classes = form->outputs));
    if (strcmp(form->model, "mlp") == 0 &&
        !__builtin_mul_overflow(form->channels, form->height * form->width, &features))
        return yk_mlp(YK_OPTIONS(yk_mlp_options, .in_features = features, .num_classes = form->outputs));
    if (strcmp(form->model, "lenet") == 0) {
        yk__fail(YK_ERR_ARGUMENT,
                 "lenet takes square images, not %" PRId64 "x%" PRId64 ": give one number, or another --model",
                 form->height, form->width);
        return NULL;
    }
    return yk_model(form->model,
                    YK_OPTIONS(yk_model_options, .in_channels = form->channels, .num_classes = form->outputs));
}

/* Grey as PIL's convert("L") makes it of colours: what networks for one channel were trained on. */
static yk_status make_grey(void *user, yk_sample *sample)
{
    (void)user;
    const unsigned char *from = sample->data;
    int64_t plane = sample->shape[1] * sample->shape[2];
    unsigned char *to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){1, sample->shape[1], sample->shape[2]});
    for (int64_t i = 0; to && i < plane; i++)
        to[i] =
            (unsigned char)((from[i] * 19595u + from[plane + i] * 38470u + from[2 * plane + i] * 7471u + 0x8000) >> 16);
    return to ? YK_OK : YK_ERR_MEMORY;
}

yk_transform *net_form_transform(const net_form *form)
{
    yk_transform *normalize = form->mean ? yk_normalize(form->mean, form->std, (int)form->channels) : yk_to_tensor();
    if (form->fit == FORM_ROW)
        return normalize;
    bool exact = form->fit == FORM_EXACT || form->height != form->width;
    yk_transform *size = exact ? yk_resize_to(form->height, form->width)
                               : yk_compose(yk_resize(form->height), yk_center_crop(form->height));
    if (form->channels == 1)
        return yk_compose(yk_transform_create("grey", make_grey, NULL, NULL), size, yk_to_tensor(), normalize);
    return yk_compose(size, yk_to_tensor(), normalize);
}

/* ---- into metadata ----------------------------------------------------------------------------------------------- */

static char *names_text(char *const *names, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, yk__json_text(names[i], strlen(names[i])));
    char *text = json_dumps(list, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(list);
    return text;
}

static char *numbers_text(const double *numbers, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(numbers[i]));
    char *text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(list);
    return text;
}

/* The form's keys and values, ending with a NULL key; the values but the first are freed by metadata_free. */
static yk_status metadata_make(const net_form *form, yk_metadata all[KEYS])
{
    int n = 0;
    all[n++] = (yk_metadata){"format", "pt"};
    all[n++] = (yk_metadata){"model", yk__strdup(form->model)};
    all[n++] = (yk_metadata){"outputs", yk__format("%" PRId64, form->outputs)};
    if (form->n_classes)
        all[n++] = (yk_metadata){"classes", names_text(form->classes, form->n_classes)};
    if (form->fit != FORM_ROW)
        all[n++] = (yk_metadata){"image_size", yk__format("%" PRId64 "x%" PRId64, form->height, form->width)};
    all[n++] = (yk_metadata){"channels", yk__format("%" PRId64, form->channels)};
    all[n++] = (yk_metadata){"fit", yk__strdup(fits[form->fit])};
    if (form->mean) {
        all[n++] = (yk_metadata){"mean", numbers_text(form->mean, form->channels)};
        all[n++] = (yk_metadata){"std", numbers_text(form->std, form->channels)};
    }
    if (form->columns)
        all[n++] = (yk_metadata){"columns", names_text(form->columns, form->channels)};
    if (form->target)
        all[n++] = (yk_metadata){"target", yk__strdup(form->target)};
    all[n] = (yk_metadata){0};
    for (int i = 0; i < n; i++) {
        if (!all[i].value)
            return yk__fail_memory(sizeof(char *));
    }
    return YK_OK;
}

static void metadata_free(yk_metadata all[KEYS])
{
    for (int i = 1; i < KEYS && all[i].key; i++)
        free((char *)all[i].value);
}

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

yk_status net_form_save(const char *path, yk_module *net, const net_form *form)
{
    yk_metadata all[KEYS] = {0};
    yk_scope scope = yk_scope_begin();
    yk_status status = metadata_make(form, all);
    yk_state_dict *dict = yk_module_state_dict(net);
    if (!status && (ends_in(path, ".pt") || ends_in(path, ".pth")))
        status = ckpt_save_weights(path, dict, all);
    else if (!status)
        status = yk_safetensors_save(path, dict, all);
    metadata_free(all);
    yk_scope_end(scope);
    return status;
}

/* ---- out of metadata --------------------------------------------------------------------------------------------- */

static yk_status metadata_fail(const char *path, const char *key, const char *value)
{
    char quoted[120];
    return yk__fail(YK_ERR_FORMAT, "%s: its metadata has %s '%s', which yoke train does not write", path, key,
                    yk__escape(value, strlen(value), quoted, sizeof(quoted)));
}

/* The text of the metadata under a key; "" for nothing. */
static const char *text_of(const yk_value *metadata, const char *key)
{
    const yk_value *value = yk_value_get(metadata, key);
    return yk_value_kind_of(value) == YK_VALUE_STRING ? yk_value_as_string(value) : "";
}

static yk_status parse_integer(const char *path, const yk_value *metadata, const char *key, int64_t most, int64_t *to)
{
    const char *text = text_of(metadata, key);
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 1 || value > most)
        return metadata_fail(path, key, text);
    *to = value;
    return YK_OK;
}

static yk_status parse_names(const char *path, const yk_value *metadata, const char *key, char ***names, int64_t *count)
{
    const char *text = text_of(metadata, key);
    if (!*text)
        return YK_OK;
    json_t *list = json_loads(text, 0, NULL);
    size_t size = json_array_size(list);
    yk_status status = json_is_array(list) && size > 0 ? YK_OK : metadata_fail(path, key, text);
    for (size_t i = 0; i < size && !status; i++) {
        if (!json_is_string(json_array_get(list, i)))
            status = metadata_fail(path, key, text);
    }
    const char **borrowed = status ? NULL : yk__calloc(size, sizeof(*borrowed));
    for (size_t i = 0; i < size && borrowed; i++)
        borrowed[i] = json_string_value(json_array_get(list, i));
    if (!status)
        status = borrowed ? net_form_copy_names(names, borrowed, (int64_t)size) : YK_ERR_MEMORY;
    *count = status && !*names ? 0 : (int64_t)size;
    free(borrowed);
    json_decref(list);
    return status;
}

static yk_status parse_numbers(const char *path, const yk_value *metadata, const char *key, int64_t count,
                               double **numbers)
{
    const char *text = text_of(metadata, key);
    if (!*text)
        return YK_OK;
    json_t *list = json_loads(text, JSON_DECODE_INT_AS_REAL, NULL);
    yk_status status = (int64_t)json_array_size(list) == count ? YK_OK : metadata_fail(path, key, text);
    *numbers = status ? NULL : yk__calloc((size_t)count, sizeof(**numbers));
    for (int64_t i = 0; *numbers && i < count && !status; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        (*numbers)[i] = json_number_value(item);
        if (!json_is_number(item) || !isfinite((*numbers)[i]))
            status = metadata_fail(path, key, text);
    }
    json_decref(list);
    return status || *numbers ? status : YK_ERR_MEMORY;
}

static yk_status parse_size(const char *path, const yk_value *metadata, net_form *form)
{
    const char *text = text_of(metadata, "image_size");
    int end = 0;
    if (sscanf(text, "%" SCNd64 "x%" SCNd64 "%n", &form->height, &form->width, &end) != 2 || text[end] ||
        form->height < 1 || form->width < 1 || form->height > MOST_SIDE || form->width > MOST_SIDE)
        return metadata_fail(path, "image_size", text);
    return YK_OK;
}

static yk_status form_parse(const char *path, const yk_value *metadata, net_form *form)
{
    const char *fit = text_of(metadata, "fit");
    int64_t columns = 0;
    form->model = yk__strdup(text_of(metadata, "model"));
    for (form->fit = 0; form->fit < FORM_ROW && strcmp(fit, fits[form->fit]) != 0;)
        form->fit++;
    yk_status status = !form->model                                                ? YK_ERR_MEMORY
                       : form->fit == FORM_ROW && strcmp(fit, fits[FORM_ROW]) != 0 ? metadata_fail(path, "fit", fit)
                                                                                   : YK_OK;
    if (!status)
        status = parse_integer(path, metadata, "outputs", MOST_OUTPUTS, &form->outputs);
    if (!status)
        status = parse_names(path, metadata, "columns", &form->columns, &columns);
    form->channels = columns;
    if (!status)
        status = parse_names(path, metadata, "classes", &form->classes, &form->n_classes);
    if (!status && *text_of(metadata, "target")) {
        form->target = yk__strdup(text_of(metadata, "target"));
        status = form->target ? YK_OK : YK_ERR_MEMORY;
    }
    int64_t channels = 0;
    if (!status)
        status = parse_integer(path, metadata, "channels", MOST_CHANNELS, &channels);
    form->height = form->width = 1;
    if (!status && form->fit != FORM_ROW)
        status = parse_size(path, metadata, form);
    if (!status && ((form->fit == FORM_ROW) != (form->columns != NULL) || (columns && columns != channels)))
        status = metadata_fail(path, "columns", text_of(metadata, "columns"));
    if (!status && form->fit != FORM_ROW && channels != 1 && channels != 3)
        status = metadata_fail(path, "channels", text_of(metadata, "channels"));
    if (!status && form->n_classes > form->outputs)
        status = metadata_fail(path, "outputs", text_of(metadata, "outputs"));
    if (status)
        return status;
    form->channels = channels;
    status = parse_numbers(path, metadata, "mean", channels, &form->mean);
    if (!status)
        status = parse_numbers(path, metadata, "std", channels, &form->std);
    if (!status && !form->mean != !form->std)
        status = metadata_fail(path, form->mean ? "std" : "mean", "");
    return status;
}

yk_status net_form_load(const char *path, yk_device device, net_form *form, yk_state_dict **dict)
{
    *form = (net_form){0};
    const yk_value *metadata = NULL;
    yk_state_dict *weights = ckpt_load_described(path, device, &metadata);
    if (!weights)
        return yk__error_code();
    if (dict)
        *dict = weights;
    if (!*text_of(metadata, "model") || !*text_of(metadata, "fit"))
        return YK_OK;
    yk_status status = form_parse(path, metadata, form);
    if (status)
        net_form_clear(form);
    return status;
}
