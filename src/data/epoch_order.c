/*
 * epoch_order.c - samplers: the orders of an epoch's samples that are neither that of the data set nor a shuffle of it.
 * Layer: data.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

struct yk_sampler {
    yk__object object;
    char *name;
    int64_t count, range; /* indices of an epoch; the samples that they are of, 0: of any data set */
    yk_sampler_fn order;
    void *user;
    void (*release)(void *user);
};

static void sampler_destroy(void *object)
{
    yk_sampler *sampler = object;
    if (sampler->release)
        sampler->release(sampler->user);
    free(sampler->name);
    yk__object_free(sampler);
}

static const yk__type sampler_type = {"sampler", sampler_destroy};

static yk_sampler *sampler_make(const char *name, int64_t count, yk_sampler_fn order)
{
    if (!yk__scope_check("sampler_create") || !yk__is_there("sampler_create", "order function", order))
        return NULL;
    if (count < 0 || count > (int64_t)1 << 40) {
        yk__fail(YK_ERR_ARGUMENT, "sampler_create: %lld samples; expected 0 to 2^40", (long long)count);
        return NULL;
    }
    yk_sampler *sampler = yk__object_new(&sampler_type, sizeof(*sampler));
    if (!sampler)
        return NULL;
    sampler->name = yk__strdup(name ? name : "sampler");
    if (!sampler->name) {
        yk__object_free(sampler);
        return NULL;
    }
    sampler->count = count;
    sampler->order = order;
    return sampler;
}

yk_sampler *yk_sampler_create(const char *name, int64_t count, yk_sampler_fn order, void *user,
                              void (*release)(void *user))
{
    YK__OWN_RECORD;
    yk_sampler *sampler = sampler_make(name, count, order);
    if (!sampler) {
        if (release)
            release(user);
        return NULL;
    }
    sampler->user = user;
    sampler->release = release;
    return yk__scope_own(sampler);
}

yk_sampler *yk_sampler_retain(yk_sampler *sampler)
{
    return yk_object_retain(sampler);
}

void yk_sampler_release(yk_sampler *sampler)
{
    yk_object_release(sampler);
}

int64_t yk__sampler_count(const yk_sampler *sampler)
{
    return sampler->count;
}

yk_status yk__sampler_check(const yk_sampler *sampler, const yk_dataset *dataset)
{
    int64_t length = dataset->table.length;
    if (sampler->range && sampler->range != length)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: the %s has weights for %lld samples, and the data set has %lld",
                        dataset->table.name, sampler->name, (long long)sampler->range, (long long)length);
    if (sampler->count && !length)
        return yk__fail(YK_ERR_ARGUMENT, "loader of %s: the %s gives %lld samples, and the data set has none",
                        dataset->table.name, sampler->name, (long long)sampler->count);
    return YK_OK;
}

yk_status yk__sampler_order(const yk_sampler *sampler, const yk_dataset *dataset, uint64_t seed, int64_t epoch,
                            int64_t *indices)
{
    yk_status status = sampler->order(sampler->user, seed, epoch, indices, sampler->count);
    if (yk__error_code()) /* a callback that sets an error has failed, whatever it returns */
        status = yk__error_code();
    else if (status)
        yk__fail(YK_ERR_CALLBACK, "order failed with status \"%s\" and set no error", yk_status_name(status));
    for (int64_t i = 0; i < sampler->count && !status; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->table.length)
            status =
                yk__fail(YK_ERR_CALLBACK, "index %lld of %lld is %lld, and the data set has %lld samples", (long long)i,
                         (long long)sampler->count, (long long)indices[i], (long long)dataset->table.length);
    }
    if (status)
        yk__error_prefix("loader of %s: %s, epoch %lld", dataset->table.name, sampler->name, (long long)epoch);
    return status ? yk__error_code() : YK_OK;
}

/* ---- by weights ------------------------------------------------------------------------------------------------- */

typedef struct weighted {
    int64_t count;
    bool replacement;
    double weights[]; /* with replacement, their sums up to and with each */
} weighted;

/* A number in (0, 1]. */
static double draw_unit(uint64_t seed, int64_t epoch, int64_t i)
{
    uint32_t words[4];
    yk__philox((yk__stream){.key = seed, .purpose = YK__RANDOM_SAMPLER, .epoch = (uint32_t)epoch}, (uint64_t)i, words);
    uint64_t bits = (uint64_t)words[0] << 21 ^ words[1] >> 11;
    return (double)(bits + 1) * 0x1p-53;
}

/* The first sample whose sum of weights reaches `at`. */
static int64_t weighted_find(const weighted *w, double at)
{
    int64_t low = 0, high = w->count - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (w->weights[middle] >= at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* A sample and the time of its event, where events come at the rate of its weight: the first ones are the draw. */
typedef struct event {
    double time;
    int64_t index;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static yk_status weighted_order(void *user, uint64_t seed, int64_t epoch, int64_t *indices, int64_t count)
{
    const weighted *w = user;
    if (w->replacement) {
        for (int64_t i = 0; i < count; i++)
            indices[i] = weighted_find(w, draw_unit(seed, epoch, i) * w->weights[w->count - 1]);
        return YK_OK;
    }
    event *events = yk__calloc((size_t)w->count, sizeof(*events));
    if (!events)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < w->count; i++)
        events[i] =
            (event){.time = w->weights[i] > 0 ? -log(draw_unit(seed, epoch, i)) / w->weights[i] : INFINITY, .index = i};
    qsort(events, (size_t)w->count, sizeof(*events), compare_events);
    for (int64_t i = 0; i < count; i++)
        indices[i] = events[i].index;
    free(events);
    return YK_OK;
}

yk_sampler *yk_weighted_sampler(const double *weights, int64_t count, int64_t samples, bool replacement)
{
    YK__OWN_RECORD;
    if (!yk__scope_check("weighted_sampler") || !yk__is_there("weighted_sampler", "array of weights", weights))
        return NULL;
    if (count < 1 || count > (int64_t)1 << 40) {
        yk__fail(YK_ERR_ARGUMENT, "weighted_sampler: %lld weights; expected 1 to 2^40", (long long)count);
        return NULL;
    }
    weighted *w = yk__calloc(1, sizeof(*w) + (size_t)count * sizeof(double));
    if (!w)
        return NULL;
    w->count = count;
    w->replacement = replacement;
    int64_t positive = 0, bad = 0;
    double sum = 0;
    for (; bad < count && isfinite(weights[bad]) && weights[bad] >= 0; bad++) {
        positive += weights[bad] > 0;
        sum += weights[bad];
        w->weights[bad] = replacement ? sum : weights[bad];
    }
    if (bad < count)
        yk__fail(YK_ERR_ARGUMENT, "weighted_sampler: weight %lld of %lld is %g", (long long)bad, (long long)count,
                 weights[bad]);
    else if (!positive || !isfinite(sum))
        yk__fail(YK_ERR_ARGUMENT, "weighted_sampler: the weights sum to %g", sum);
    else if (!replacement && samples > positive)
        yk__fail(
            YK_ERR_ARGUMENT,
            "weighted_sampler: %lld samples without replacement, of %lld whose weight is not 0; give replacement, or "
            "fewer samples",
            (long long)samples, (long long)positive);
    yk_sampler *sampler = yk__error_code() ? NULL : sampler_make("weighted sampler", samples, weighted_order);
    if (!sampler) {
        free(w);
        return NULL;
    }
    sampler->range = count;
    sampler->user = w;
    sampler->release = free;
    return yk__scope_own(sampler);
}
