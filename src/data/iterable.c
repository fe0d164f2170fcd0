/*
 * iterable.c - data sets without indices: the table of functions as a data set, and one iterator of it. Layer: data.
 *
 * For all that asks by index such a set is one of length 0; what would take it for an empty one asks yk__has_indices.
 */
#include <stdlib.h>

#include "data/dataset.h"

enum { MOST_STREAMS = 1024 };

static yk_status iterable_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context, (void)sample;
    return yk__fail(YK_ERR_STATE, "sample %lld of an iterable set", (long long)index);
}

static bool table_is_whole(const yk_iterable_table *table)
{
    if (!yk__is_there("iterable_dataset", "table", table))
        return false;
    const char *name = table->name ? table->name : "dataset";
    if (!table->open || !table->next) {
        yk__fail(YK_ERR_ARGUMENT, "iterable_dataset: %s has no %s function", name, table->open ? "next" : "open");
        return false;
    }
    if (table->streams < 0 || table->streams > MOST_STREAMS) {
        yk__fail(YK_ERR_ARGUMENT, "iterable_dataset: %s has %d streams; expected 0 to %d", name, table->streams,
                 MOST_STREAMS);
        return false;
    }
    return true;
}

yk_dataset *yk_iterable_dataset(const yk_iterable_table *table, void *context, yk_transform *transform)
{
    YK__LIVE(transform);
    YK__OWN_RECORD;
    if (!table_is_whole(table)) {
        if (table && table->destroy)
            table->destroy(context);
        return NULL;
    }
    yk_dataset_table with_get = {.name = table->name,
                                 .classes = table->classes,
                                 .class_names = table->class_names,
                                 .get = iterable_get,
                                 .destroy = table->destroy};
    yk_dataset *dataset = yk_dataset_create(&with_get, context, transform);
    if (!dataset)
        return NULL;
    dataset->iterable = *table;
    dataset->iterable.name = NULL;
    dataset->iterable.class_names = NULL;
    return dataset;
}

bool yk__is_iterable(const yk_dataset *dataset)
{
    return dataset->iterable.next != NULL;
}

bool yk__has_indices(const char *what, const yk_dataset *dataset)
{
    if (!yk__is_iterable(dataset))
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: %s is iterable: it has no indices and no length, and is for a loader alone", what,
             dataset->table.name);
    return false;
}

int yk__dataset_streams(const yk_dataset *dataset)
{
    return !yk__is_iterable(dataset) ? 0 : dataset->iterable.streams ? dataset->iterable.streams : 1;
}

/* The status of a callback: one that sets an error has failed, whatever it returns. */
static yk_status callback_status(const char *function, yk_status status)
{
    if (status && !yk__error_code())
        yk__fail(YK_ERR_CALLBACK, "%s failed with status \"%s\" and set no error", function, yk_status_name(status));
    return yk__error_code();
}

yk_status yk__data_stream_open(const yk_dataset *dataset, const yk_iterable_part *part, yk__data_stream *stream)
{
    *stream = (yk__data_stream){.part = *part};
    yk_status status = callback_status("open", dataset->iterable.open(dataset->context, part, &stream->iterator));
    stream->open = !status;
    if (status)
        yk__error_prefix("%s: stream %d of rank %d", dataset->table.name, part->stream, part->rank);
    return status;
}

void yk__data_stream_close(const yk_dataset *dataset, yk__data_stream *stream)
{
    if (stream->open && dataset->iterable.close)
        dataset->iterable.close(stream->iterator);
    *stream = (yk__data_stream){0};
}

int64_t yk__data_stream_index(const yk__data_stream *stream)
{
    const yk_iterable_part *p = &stream->part;
    return (stream->taken * p->ranks + p->rank) * p->streams + p->stream;
}

yk_status yk__data_stream_next(const yk_dataset *dataset, yk__data_stream *stream, yk_sample *sample)
{
    bool end = false;
    if (sample->index >= (int64_t)1 << 40)
        return yk__fail(YK_ERR_STATE, "a data set has at most 2^40 samples");
    yk_status status = callback_status("next", dataset->iterable.next(stream->iterator, sample, &end));
    stream->ended = !status && end;
    stream->taken += !status && !end;
    return status;
}
