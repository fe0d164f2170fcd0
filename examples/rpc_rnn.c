/*
 * rpc_rnn.c - a language model whose large parts are in another process: the embedding of its words and the decoder are
 * remote modules, the LSTM between them is here. One optimizer steps all three where they are. Follows the RNN of
 * PyTorch's rpc_tutorial.
 *
 * It learns what comes next in a text of two sentences that are repeated. The losses must be those of the same model in
 * one process, to the last bit.
 *
 * cc -O2 rpc_rnn.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 2 ./a.out          worker0 trains, worker1 keeps embedding and decoder
 */
#include <stdlib.h>

#include <yoke/yoke.h>

enum { WORDS = 32, FEATURES = 16, HIDDEN = 32, LENGTH = 16, BATCH = 8, STEPS = 60, MOST = 8 };

/* ---- the parts, alike in every process --------------------------------------------------------------------------- */

static yk_module *embedding_make(yk_call *call)
{
    (void)call;
    yk_manual_seed(1);
    return yk_embedding_create(WORDS, FEATURES, NULL);
}

static yk_module *lstm_make(void)
{
    yk_manual_seed(2);
    return yk_lstm_create(FEATURES, HIDDEN, NULL);
}

static yk_module *decoder_make(yk_call *call)
{
    (void)call;
    yk_manual_seed(3);
    return yk_linear_create(HIDDEN, WORDS, NULL);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* Letter `i` of a text without end, as a word: a is 1, the rest is 0. */
static int64_t text_at(int64_t i)
{
    static const char text[] = "a stitch in time saves nine. the early bird catches the worm. ";
    char c = text[i % (int64_t)(sizeof(text) - 1)];
    return c >= 'a' && c <= 'z' ? c - 'a' + 1 : 0;
}

/* Stretches of text (LENGTH, BATCH), from a position on that depends on the step; shifted by one, they are what the
 * model is to say. */
static yk_tensor *batch_of(int step, int shift)
{
    int64_t words[LENGTH][BATCH];
    for (int t = 0; t < LENGTH; t++)
        for (int b = 0; b < BATCH; b++)
            words[t][b] = text_at(7 * (int64_t)step + 13 * b + t + shift);
    return yk_from_data(words, YK_SHAPE(LENGTH, BATCH), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The same for modules of this process and of others. */
static yk_tensor *loss_of(yk_module *const parts[3], int step)
{
    yk_tensor *hidden = yk_forward(parts[1], yk_forward(parts[0], batch_of(step, 0)));
    yk_tensor *scores = yk_forward(parts[2], hidden);
    return yk_cross_entropy(yk_reshape(scores, YK_SHAPE(LENGTH * BATCH, WORDS)),
                            yk_reshape(batch_of(step, 1), YK_SHAPE(LENGTH * BATCH)), NULL);
}

static yk_status train(void)
{
    const yk_sgd_options *options = YK_OPTIONS(yk_sgd_options, .lr = 1, .momentum = 0.9);
    yk_module *parts[3] = {yk_remote_module_create("worker1", "embedding", NULL), lstm_make(),
                           yk_remote_module_create("worker1", "decoder", NULL)};
    yk_ref *parameters[3 * MOST];
    int count = 0, more = 0;
    if (yk_remote_parameters(parts[0], parameters, MOST, &count) ||
        yk_remote_parameters(parts[2], parameters + count, MOST, &more))
        return yk_last_error()->code;
    count += more;
    yk_parameters *own = yk_module_parameters(parts[1]);
    for (int64_t i = 0; i < yk_parameters_count(own); i++)
        parameters[count++] = yk_ref_create(yk_value_tensor(yk_parameters_at(own, i)));
    yk_dist_optimizer *sgd = yk_dist_sgd(parameters, count, options);

    yk_module *alone[3] = {embedding_make(NULL), lstm_make(), decoder_make(NULL)};
    yk_optimizer *sgd_alone = yk_sgd(yk_module_parameters(yk_sequential_list(alone, 3)), options);
    int same = 0;
    for (int step = 0; step < STEPS && !yk_last_error(); step++) {
        yk_scope scope = yk_scope_begin();
        yk_dist_context *context = yk_dist_autograd_begin();
        yk_tensor *loss = loss_of(parts, step);
        if (yk_dist_backward(context, &loss, 1, NULL) || yk_dist_optimizer_step(sgd, context) ||
            yk_dist_autograd_end(context))
            return yk_last_error()->code;
        yk_tensor *loss_alone = loss_of(alone, step);
        yk_optimizer_zero_grad(sgd_alone);
        if (yk_backward(loss_alone) || yk_optimizer_step(sgd_alone))
            return yk_last_error()->code;
        same += yk_item(loss) == yk_item(loss_alone);
        if (step % 10 == 0 || step == STEPS - 1)
            printf("step %d: loss %.6f in two processes, %.6f in one\n", step, yk_item(loss), yk_item(loss_alone));
        yk_scope_end(scope);
    }
    if (!yk_last_error() && same < STEPS)
        return yk_set_error(YK_ERR_NUMERIC, "%d of %d losses differ", STEPS - same, STEPS);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(void)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    yk_scope program = yk_scope_begin();
    if (!size || atoi(size) != 2) {
        fprintf(stderr, "start it with: yoke run -n 2 ./rpc_rnn\n");
        return 2;
    }
    if (yk_rpc_register_module("embedding", embedding_make) || yk_rpc_register_module("decoder", decoder_make) ||
        yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    if (rank && atoi(rank) == 0 && train())
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* worker1 answers until the trainer has come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
