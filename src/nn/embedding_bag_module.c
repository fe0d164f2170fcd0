/*
 * embedding_bag_module.c - EmbeddingBag. Layer: nn.
 */
#include "nn/module.h"

typedef struct embedding_bag {
    yk_tensor *weight;
    yk_embedding_bag_options o; /* but for what each forward is given */
} embedding_bag;

static yk_status embedding_bag_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                       int n_outputs)
{
    const embedding_bag *d = yk__module_data(m);
    if (n_inputs < 1 || n_inputs > 3 || !inputs[0] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "EmbeddingBag: %d inputs and %d outputs, expected an index, offsets and per-sample weights for "
                        "one tensor",
                        n_inputs, n_outputs);
    yk_embedding_bag_options o = d->o;
    o.offsets = n_inputs > 1 ? inputs[1] : NULL;
    o.per_sample_weights = n_inputs > 2 ? inputs[2] : NULL;
    outputs[0] = yk_embedding_bag(inputs[0], d->weight, &o);
    return outputs[0] ? YK_OK : yk__error_code();
}

static void embedding_bag_describe(yk_module *m, char *buffer, size_t size)
{
    static const char *const modes[] = {"mean", "sum", "max"};
    const embedding_bag *d = yk__module_data(m);
    int used = snprintf(buffer, size, "%lld, %lld, mode='%s'", (long long)yk_size(d->weight, 0),
                        (long long)yk_size(d->weight, 1), modes[d->o.mode]);
    if (d->o.padding_idx != YK_NOT_GIVEN && used > 0 && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, ", padding_idx=%lld", (long long)d->o.padding_idx);
}

static const yk_module_class embedding_bag_class = {.name = "EmbeddingBag",
                                                    .data_size = sizeof(embedding_bag),
                                                    .forward_list = embedding_bag_forward,
                                                    .describe = embedding_bag_describe};

yk_module *yk_embedding_bag_create(int64_t count, int64_t dim, const yk_embedding_bag_module_options *options)
{
    static const char name[] = "embedding_bag_create";
    yk_embedding_bag_module_options o;
    if (YK__OPTIONS_TAKE(name, yk_embedding_bag_module_options, options, &o))
        return NULL;
    if ((unsigned)o.mode > YK_BAG_MAX) {
        yk__fail(YK_ERR_ARGUMENT, "%s: mode %d is none of mean, sum and max", name, (int)o.mode);
        return NULL;
    }
    yk_module *table = yk_embedding_create(
        count, dim, YK_OPTIONS(yk_embedding_options, .padding_idx = o.padding_idx, .sparse = o.sparse));
    yk_module *m = table ? yk_module_create(&embedding_bag_class) : NULL;
    if (!m)
        return NULL;
    embedding_bag *d = yk_module_data(m);
    d->o = *YK_OPTIONS(yk_embedding_bag_options, .mode = o.mode, .include_last_offset = o.include_last_offset,
                       .padding_idx = o.padding_idx, .sparse = o.sparse);
    if (o.padding_idx != YK_NOT_GIVEN && o.padding_idx < 0)
        d->o.padding_idx = o.padding_idx + count;
    d->weight = yk_module_add_parameter(m, "weight", yk_module_get(table, "weight"));
    return d->weight ? m : NULL;
}
