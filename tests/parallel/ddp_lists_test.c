/*
 * ddp_lists_test.c - DistributedDataParallel around modules of several inputs and outputs: gradients of the joined
 * batch, an output that the loss leaves out, with unused parameters looked for and without.
 */
#include "tests/nn/attention.h"
#include "tests/parallel/trainer.h"

/* An LSTM cell with two heads and an attention in front: (x, h, c, mask) to (first, second, c'). */
typedef struct reader {
    yk_module *attention, *cell, *first, *second;
} reader;

static yk_status reader_forward(yk_module *self, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    reader *r = yk_module_data(self);
    yk_tensor *read, *state[2];
    if (n_inputs != 4 || n_outputs != 3)
        return yk_set_error(YK_ERR_ARGUMENT, "reader: %d for %d", n_inputs, n_outputs);
    yk_status status = yk_forward_list(r->attention, (yk_tensor *[]){in[0], in[0], in[0], in[3]}, 4, &read, 1);
    if (!status)
        status = yk_forward_list(r->cell, (yk_tensor *[]){yk_select(read, 1, 0), in[1], in[2]}, 3, state, 2);
    if (status)
        return status;
    out[0] = yk_forward(r->first, state[0]);
    out[1] = yk_forward(r->second, state[0]);
    out[2] = state[1];
    return YK_OK;
}

static yk_module *make_reader(uint32_t key)
{
    static const yk_module_class reader_class = {
        .name = "Reader", .data_size = sizeof(reader), .forward_list = reader_forward};
    yk_module *m = yk_module_create(&reader_class);
    reader *r = yk_module_data(m);
    r->attention = yk_module_add(m, "attention", attention_create());
    r->cell = yk_module_add(m, "cell", yk_lstm_cell_create(3, 5, NULL));
    r->first = yk_module_add(m, "first", yk_linear_create(5, 2, NULL));
    r->second = yk_module_add(m, "second", yk_linear_create(5, 2, NULL));
    return yk_module_check(known_values(yk_module_to_dtype(m, YK_F64), key));
}

/* The mean over the batch of what is asked of the outputs; rows [first, first + count) of the whole batch. */
static yk_tensor *loss_of(yk_module *m, uint32_t key, int64_t first, int64_t count, bool use_second)
{
    bool keep[64];
    for (int64_t i = 0; i < count * 4; i++)
        keep[i] = i % 4 <= (first + i / 4) % 4;
    yk_tensor *in[4] = {samples(key, first, count, 2, (int64_t[]){4, 3}),
                        samples(key + 100, first, count, 1, (int64_t[]){5}), NULL,
                        yk_from_data(keep, YK_SHAPE(count, 4), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL))},
              *out[3];
    if (yk_forward_list(m, in, 4, out, 3))
        return NULL;
    yk_tensor *sum = yk_add(yk_mean(yk_square(out[0])), yk_mean(yk_square(out[2])));
    return use_second ? yk_add(sum, yk_mean(yk_square(out[1]))) : sum;
}

static void joined_batch(rank_context *c)
{
    yk_module *net = make_reader(1 + (uint32_t)c->rank), *alone = make_reader(1);
    const bool *find = c->arg;
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .find_unused_parameters = *find));
    CHECK(ddp, "%s", yk_last_error()->message);
    const int64_t part = 3;
    for (uint32_t step = 0; step < 3; step++) {
        yk_scope scope = yk_scope_begin();
        bool second = !*find || step == 1; /* else the head "second" gets no gradient, on no rank */
        yk_module_zero_grad(net);
        yk_module_zero_grad(alone);
        yk_tensor *loss = loss_of(ddp, step, c->rank * part, part, second);
        CHECK(loss, "%s", yk_last_error()->message);
        CHECK_OK(yk_backward(loss));
        CHECK_OK(yk_backward(loss_of(alone, step, 0, c->size * part, second)));
        yk_parameters *own = yk_module_parameters(net), *other = yk_module_parameters(alone);
        for (int64_t p = 0; p < yk_parameters_count(own); p++) {
            yk_tensor *a = yk_grad(yk_parameters_at(own, p)), *b = yk_grad(yk_parameters_at(other, p));
            CHECK((a != NULL) == (b != NULL), "step %u: %s", step, yk_parameters_name(own, p));
            CHECK(!b || distance(a, b) < 1e-13, "step %u: %s is %g apart", step, yk_parameters_name(own, p),
                  distance(a, b));
        }
        yk_scope_end(scope);
    }
}

static void left_out(rank_context *c)
{
    yk_module *ddp = yk_ddp(make_reader(1), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    CHECK_FAILS(yk_backward(loss_of(ddp, 0, c->rank * 3, 3, false)), YK_ERR_STATE,
                "reaches no gradient for second.weight, second.bias");
}

static void test_joined_batch(void **state)
{
    (void)state;
    static const bool find[2] = {false, true};
    for (int i = 0; i < 2; i++) {
        run_ranks(PROCESSES, 2, joined_batch, &find[i], patience(20), true);
        run_ranks(THREADS, 3, joined_batch, &find[i], patience(20), true);
        run_ranks(THREADS, 1, joined_batch, &find[i], patience(20), true);
    }
}

static void test_left_out(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, left_out, NULL, patience(20), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1); /* ranks are forked: no pool of the parent's may be half there */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joined_batch), cmocka_unit_test(test_left_out)};
    return cmocka_run_group_tests_name("ddp_lists", tests, NULL, NULL);
}
