/*
 * index_operations.c - the operations of `operation_times` that read and write through indices and masks.
 * Layer: bench.
 *
 * Indices are uniform over the dimension, masks true for half of their elements, both drawn once. An operation in place
 * writes the same operand again in each run.
 */
#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- one index for each row of the result, or of y ---- */

static yk_status prepare_rows(ops_subject *s)
{
    int dim = ops_dim(s);
    int64_t given = s->in[1] ? yk_size(s->in[1], dim) : 1;
    int64_t rows = (int64_t)ops_text_number(s->text, "rows", (double)given);
    s->index = yk_randint(0, yk_size(s->in[0], dim), YK_SHAPE(rows), NULL);
    return yk__error_code();
}

static yk_tensor *embedding(ops_subject *s)
{
    return yk_embedding(s->index, s->in[0], -1);
}

/* Its gradient is of rows alone. */
static yk_tensor *embedding_sparse(ops_subject *s)
{
    return yk_embedding_sparse(s->index, s->in[0], -1);
}

/* Means of sixteen rows each. */
static yk_status prepare_bags(ops_subject *s)
{
    int64_t bags = (int64_t)ops_text_number(s->text, "rows", 16) / 16;
    s->index = yk_randint(0, yk_size(s->in[0], 0), YK_SHAPE(bags, 16), NULL);
    return yk__error_code();
}

static yk_tensor *embedding_bag(ops_subject *s)
{
    return yk_embedding_bag(s->index, s->in[0], NULL);
}

static yk_tensor *index_rows(ops_subject *s)
{
    return yk_index(s->in[0], YK_INDEX(yk_by(s->index)));
}

static yk_tensor *index_put_(ops_subject *s)
{
    return yk_index_put_(s->in[0], YK_INDEX(yk_by(s->index)), s->in[1], ops_text_number(s->text, "accumulate", 0) != 0);
}

static yk_tensor *index_select(ops_subject *s)
{
    return yk_index_select(s->in[0], ops_dim(s), s->index);
}

static yk_tensor *index_add_(ops_subject *s)
{
    return yk_index_add_(s->in[0], ops_dim(s), s->index, s->in[1], 1);
}

/* One into all elements. */
static yk_status prepare_take(ops_subject *s)
{
    s->index = yk_randint(0, yk_numel(s->in[0]), YK_SHAPE((int64_t)ops_text_number(s->text, "rows", 1)), NULL);
    return yk__error_code();
}

static yk_tensor *take(ops_subject *s)
{
    return yk_take(s->in[0], s->index);
}

/* ---- an index of x's shape along its dimension ---- */

static yk_status prepare_positions(ops_subject *s)
{
    yk_tensor *x = s->in[0];
    s->index = yk_randint(0, yk_size(x, ops_dim(s)), yk_ndim(x), yk_sizes(x), NULL);
    return yk__error_code();
}

static yk_tensor *gather(ops_subject *s)
{
    return yk_gather_dim(s->in[0], ops_dim(s), s->index);
}

static yk_tensor *scatter_(ops_subject *s)
{
    return yk_scatter_dim_(s->in[0], ops_dim(s), s->index, s->in[1]);
}

static yk_tensor *scatter_value_(ops_subject *s)
{
    return yk_scatter_dim_value_(s->in[0], ops_dim(s), s->index, 1.5);
}

static yk_tensor *take_along_dim(ops_subject *s)
{
    return yk_take_along_dim(s->in[0], s->index, ops_dim(s));
}

static yk_tensor *scatter_add_(ops_subject *s)
{
    return yk_scatter_add_(s->in[0], ops_dim(s), s->index, s->in[1]);
}

/* ---- masks ---- */

static yk_status prepare_mask(ops_subject *s)
{
    s->index = yk_gt(yk_rand_like(s->in[0]), yk_scalar(0.5, NULL));
    return yk__error_code();
}

/* As many values as the mask is true for. */
static yk_status prepare_mask_and_values(ops_subject *s)
{
    if (prepare_mask(s))
        return yk__error_code();
    s->in[1] = yk_randn(YK_SHAPE(yk_item_i64(yk_sum(s->index))), NULL);
    return yk__error_code();
}

static yk_tensor *index_mask(ops_subject *s)
{
    return yk_index(s->in[0], YK_INDEX(yk_by(s->index)));
}

static yk_tensor *index_put_mask_(ops_subject *s)
{
    return yk_index_put_(s->in[0], YK_INDEX(yk_by(s->index)), s->in[1], false);
}

static yk_tensor *index_fill_mask_(ops_subject *s)
{
    return yk_index_put_(s->in[0], YK_INDEX(yk_by(s->index)), yk_scalar(0, NULL), false);
}

static yk_tensor *masked_select(ops_subject *s)
{
    return yk_masked_select(s->in[0], s->index);
}

static yk_tensor *masked_fill(ops_subject *s)
{
    return yk_masked_fill(s->in[0], s->index, 0);
}

static yk_tensor *masked_fill_(ops_subject *s)
{
    return yk_masked_fill_(s->in[0], s->index, 0);
}

static yk_tensor *nonzero(ops_subject *s)
{
    return yk_nonzero(s->index);
}

const ops_operation ops_index_operations[] = {
    {.name = "embedding", embedding, prepare_rows},
    {.name = "embedding_sparse", embedding_sparse, prepare_rows},
    {.name = "embedding_bag", embedding_bag, prepare_bags},
    {.name = "index", index_rows, prepare_rows},
    {.name = "index_put_", index_put_, prepare_rows},
    {.name = "index_select", index_select, prepare_rows},
    {.name = "index_add_", index_add_, prepare_rows},
    {.name = "take", take, prepare_take},
    {.name = "gather", gather, prepare_positions},
    {.name = "scatter_", scatter_, prepare_positions},
    {.name = "scatter_value_", scatter_value_, prepare_positions},
    {.name = "take_along_dim", take_along_dim, prepare_positions},
    {.name = "scatter_add_", scatter_add_, prepare_positions},
    {.name = "index_mask", index_mask, prepare_mask},
    {.name = "index_put_mask_", index_put_mask_, prepare_mask_and_values},
    {.name = "index_fill_mask_", index_fill_mask_, prepare_mask},
    {.name = "masked_select", masked_select, prepare_mask},
    {.name = "masked_fill", masked_fill, prepare_mask},
    {.name = "masked_fill_", masked_fill_, prepare_mask},
    {.name = "nonzero", nonzero, prepare_mask},
};
const int ops_index_operation_count = sizeof(ops_index_operations) / sizeof(*ops_index_operations);
