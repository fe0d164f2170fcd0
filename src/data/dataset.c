/*
 * dataset.c - the data set as an object: a table of functions, the transforms behind it, and what can be asked of it.
 * Layer: data.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "tensor/tensor.h"

static void names_free(yk_dataset_table *table)
{
    for (int64_t i = 0; table->class_names && i < table->classes; i++)
        free((void *)table->class_names[i]);
    free((void *)table->class_names);
    free((void *)table->name);
}

static void dataset_destroy(void *object)
{
    yk_dataset *dataset = object;
    if (dataset->table.destroy)
        dataset->table.destroy(dataset->context);
    names_free(&dataset->table);
    yk_object_release(dataset->transform);
    yk__object_free(dataset);
}

static const yk__type dataset_type = {"dataset", dataset_destroy};

static yk_status names_copy(yk_dataset_table *to, const yk_dataset_table *from)
{
    to->class_names = NULL;
    to->name = yk__strdup(from->name ? from->name : "dataset");
    if (!to->name)
        return YK_ERR_MEMORY;
    if (!from->class_names)
        return YK_OK;
    char **names = yk__calloc((size_t)from->classes, sizeof(*names));
    if (!names)
        return YK_ERR_MEMORY;
    to->class_names = (const char *const *)names;
    for (int64_t i = 0; i < from->classes; i++) {
        names[i] = yk__strdup(from->class_names[i]);
        if (!names[i])
            return YK_ERR_MEMORY;
    }
    return YK_OK;
}

static yk_dataset *dataset_make(const yk_dataset_table *table, void *context, yk_transform *transform)
{
    if (yk__transform_lost(transform) || !yk__scope_check("dataset_create"))
        return NULL;
    if (!yk__is_there("dataset_create", "table", table))
        return NULL;
    const char *name = table->name ? table->name : "dataset";
    if (!table->get) {
        yk__fail(YK_ERR_ARGUMENT, "dataset_create: %s has no get function", name);
        return NULL;
    }
    if (table->length < 0 || table->length > (int64_t)1 << 40 || table->classes < 0 || table->classes > INT32_MAX) {
        yk__fail(YK_ERR_ARGUMENT, "dataset_create: %s has length %lld and %lld classes; expected at most 2^40 and 2^31",
                 name, (long long)table->length, (long long)table->classes);
        return NULL;
    }
    yk_dataset *dataset = yk__object_new(&dataset_type, sizeof(*dataset));
    if (!dataset)
        return NULL;
    dataset->table = *table;
    if (names_copy(&dataset->table, table)) {
        names_free(&dataset->table);
        yk__object_free(dataset);
        return NULL;
    }
    dataset->context = context;
    dataset->transform = yk_transform_retain(transform);
    return dataset;
}

yk_dataset *yk_dataset_create(const yk_dataset_table *table, void *context, yk_transform *transform)
{
    YK__LIVE(transform);
    yk_dataset *dataset = dataset_make(table, context, transform);
    if (!dataset && table && table->destroy)
        table->destroy(context);
    return yk__scope_own(dataset);
}

yk_dataset *yk__dataset_of_images(const yk_dataset_table *table, void *context, yk_transform *transform)
{
    yk_dataset *dataset = yk_dataset_create(table, context, transform);
    if (dataset)
        dataset->images = true;
    return dataset;
}

yk_dataset *yk_dataset_retain(yk_dataset *dataset)
{
    return yk_object_retain(dataset);
}

void yk_dataset_release(yk_dataset *dataset)
{
    yk_object_release(dataset);
}

const char *yk_dataset_name(const yk_dataset *dataset)
{
    YK__LIVE(dataset);
    return dataset ? dataset->table.name : "";
}

int64_t yk_dataset_length(const yk_dataset *dataset)
{
    YK__LIVE(dataset);
    if (dataset && yk__is_iterable(dataset))
        return -1;
    return dataset ? dataset->table.length : 0;
}

int64_t yk_dataset_classes(const yk_dataset *dataset)
{
    YK__LIVE(dataset);
    return dataset ? dataset->table.classes : 0;
}

void yk__dataset_set_transform(yk_dataset *dataset, yk_transform *transform)
{
    yk_transform *before = dataset->transform;
    dataset->transform = yk_transform_retain(transform);
    yk_object_release(before);
}

int64_t yk_dataset_label(const yk_dataset *dataset, int64_t index)
{
    YK__LIVE(dataset);
    if (!dataset || !dataset->table.label || index < 0 || index >= dataset->table.length)
        return -1;
    return dataset->table.label(dataset->context, index);
}

const char *yk_dataset_class_name(const yk_dataset *dataset, int64_t label)
{
    YK__LIVE(dataset);
    if (!dataset || label < 0 || label >= dataset->table.classes)
        return NULL;
    return dataset->table.class_names ? dataset->table.class_names[label] : NULL;
}

const char *yk_dataset_describe(const yk_dataset *dataset, int64_t index, char *text, size_t size)
{
    YK__LIVE(dataset);
    if (!dataset || index < 0 || index >= dataset->table.length)
        snprintf(text, size, "no sample %lld", (long long)index);
    else if (dataset->table.describe)
        dataset->table.describe(dataset->context, index, text, size);
    else
        snprintf(text, size, "%s sample %lld", dataset->table.name, (long long)index);
    return text;
}

yk_status yk_dataset_get_list(yk_dataset *dataset, int64_t index, yk_dtype dtype, yk_tensor *tensors[YK_SAMPLE_TENSORS],
                              int *count)
{
    YK__OWN_RECORD;
    YK__LIVE(dataset);
    if (!yk__is_there("dataset_get", "array of tensors", tensors) || !yk__is_there("dataset_get", "count", count))
        return YK_ERR_ARGUMENT;
    *count = 0;
    if (!dataset)
        return yk__fail(YK_ERR_ARGUMENT, "dataset_get: the data set is NULL");
    if (!yk__has_indices("dataset_get", dataset))
        return YK_ERR_ARGUMENT;
    if (!yk__scope_reserve("dataset_get", YK_SAMPLE_TENSORS))
        return yk__error_code();
    yk__pipeline pipeline;
    yk__data_worker worker = {0};
    yk__loaded loaded;
    yk_status status = yk__pipeline_init(&pipeline, dataset, dtype);
    if (!status) {
        status = yk__pipeline_load(&pipeline, &worker, 0, 0, index, &loaded);
        for (int i = 0; !status && i < loaded.sample.count; i++) {
            yk_sample_tensor from = yk__sample_tensor(&loaded.sample, i);
            tensors[i] = yk__tensor_new(from.ndim, from.shape, NULL, from.dtype, (yk_device){0});
            if (!tensors[i]) {
                status = yk__error_code();
                break;
            }
            if (i == 0)
                yk__pipeline_store(&pipeline, &loaded, tensors[0]->data);
            else if (from.data)
                memcpy(tensors[i]->data, from.data, yk__sample_tensor_bytes(&from));
            yk__scope_own(tensors[i]);
            *count = i + 1;
        }
        yk__pipeline_clear(&pipeline);
    }
    yk__data_worker_clear(&worker);
    return status;
}

yk_tensor *yk_dataset_get(yk_dataset *dataset, int64_t index, yk_dtype dtype, int64_t *label)
{
    YK__OWN_RECORD;
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    if (yk_dataset_get_list(dataset, index, dtype, tensors, &count))
        return NULL;
    if (!label)
        return tensors[0];
    if (count < 2 || tensors[1]->dtype != YK_I64 || tensors[1]->ndim) {
        yk__fail(YK_ERR_STATE, "%s: sample %lld has no label", dataset->table.name, (long long)index);
        return NULL;
    }
    *label = *(int64_t *)tensors[1]->data;
    return tensors[0];
}
