/*
 * sequence_operations.c - the operations of `operation_times` on sequences: recurrent networks and their cells, packed
 * sequences, attention as an operation and as a module, layers of transformers. Layer: bench.
 *
 * Recurrent networks are (T,N,features) as PyTorch's are by default; modules are (N,T,features), without dropout.
 */
#include <math.h>
#include <string.h>

#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- recurrent networks: x (T,N,in), or (N,in) of a cell; w has the rows of all gates ---- */

/* in: x, w_ih, w_hh, b_ih, b_hh; of a cell also h. */
static yk_status prepare_recurrent(ops_subject *s)
{
    int64_t gates = strncmp(s->text, "gru", 3) == 0 ? 3 : 1, rows = yk_size(s->in[1], 0);
    bool cell = yk_ndim(s->in[0]) == 2;
    double small = 1 / sqrt((double)rows / (double)gates);
    s->in[1] = yk_mul_scalar(s->in[1], small);
    s->in[2] = yk_mul_scalar(yk_randn(YK_SHAPE(rows, rows / gates), NULL), small);
    s->in[3] = yk_randn(YK_SHAPE(rows), NULL);
    s->in[4] = yk_randn(YK_SHAPE(rows), NULL);
    if (cell)
        s->in[5] = yk_randn(YK_SHAPE(yk_size(s->in[0], 0), rows / gates), NULL);
    return yk__error_code();
}

static yk_tensor *gru(ops_subject *s)
{
    yk_tensor *out;
    return yk_gru(s->in[0], NULL, s->in + 1, 4, NULL, &out, NULL) ? NULL : out;
}

static yk_tensor *rnn(ops_subject *s)
{
    yk_tensor *out;
    return yk_rnn(s->in[0], NULL, s->in + 1, 4, NULL, &out, NULL) ? NULL : out;
}

static yk_tensor *gru_cell(ops_subject *s)
{
    yk_tensor *const *in = s->in;
    return yk_gru_cell(in[0], in[5], in[1], in[2], in[3], in[4]);
}

static yk_tensor *rnn_cell(ops_subject *s)
{
    yk_tensor *const *in = s->in;
    return yk_rnn_cell(in[0], in[5], in[1], in[2], in[3], in[4], YK_NONLINEARITY_TANH);
}

/* ---- packed sequences: x (T,N,...) of lengths T, T - 1, ..., not below 1 ---- */

static yk_status prepare_lengths(ops_subject *s)
{
    int64_t t = yk_size(s->in[0], 0);
    s->index =
        yk_cast(yk_clamp(yk_arange((double)t, (double)(t - yk_size(s->in[0], 1)), -1, NULL), 1, INFINITY), YK_I64);
    return yk__error_code();
}

static yk_tensor *pack_padded_sequence(ops_subject *s)
{
    yk_packed_sequence packed;
    return yk_pack_padded_sequence(s->in[0], s->index, false, true, &packed) ? NULL : packed.data;
}

/* Packed and padded again, which needs a packed sequence whose data wants the gradient. */
static yk_tensor *pad_packed_sequence(ops_subject *s)
{
    yk_packed_sequence packed;
    yk_tensor *padded;
    if (yk_pack_padded_sequence(s->in[0], s->index, false, true, &packed) ||
        yk_pad_packed_sequence(&packed, false, 0, YK_NOT_GIVEN, &padded, NULL))
        return NULL;
    return padded;
}

static yk_tensor *pad_sequence(ops_subject *s)
{
    return yk_pad_sequence(s->in, 2, true, 0);
}

/* ---- attention and transformers ---- */

static yk_status prepare_heads(ops_subject *s)
{
    s->in[1] = yk_randn_like(s->in[0]);
    s->in[2] = yk_randn_like(s->in[0]);
    return yk__error_code();
}

static yk_tensor *scaled_dot_product_attention(ops_subject *s)
{
    return yk_scaled_dot_product_attention(
        s->in[0], s->in[1], s->in[2], YK_OPTIONS(yk_attention_options, .is_causal = ops_whole(s, "causal", 0) != 0));
}

static yk_status prepare_attention(ops_subject *s)
{
    s->model = yk_multihead_attention(yk_size(s->in[0], -1), ops_whole(s, "heads", 1),
                                      YK_OPTIONS(yk_multihead_attention_options, .batch_first = true));
    return yk__error_code();
}

static yk_status prepare_encoder_layer(ops_subject *s)
{
    s->model = yk_transformer_encoder_layer(
        yk_size(s->in[0], -1), ops_whole(s, "heads", 1),
        YK_OPTIONS(yk_transformer_encoder_layer_options, .batch_first = true, .dropout = 0));
    return yk__error_code();
}

static yk_status prepare_decoder_layer(ops_subject *s)
{
    s->model = yk_transformer_decoder_layer(
        yk_size(s->in[0], -1), ops_whole(s, "heads", 1),
        YK_OPTIONS(yk_transformer_decoder_layer_options, .batch_first = true, .dropout = 0));
    return yk__error_code();
}

/* x, and y where there is one. */
static yk_tensor *module(ops_subject *s)
{
    yk_tensor *out = NULL;
    return yk_forward_list(s->model, s->in, s->in[1] ? 2 : 1, &out, 1) ? NULL : out;
}

const ops_operation ops_sequence_operations[] = {
    {.name = "gru", gru, prepare_recurrent},
    {.name = "rnn", rnn, prepare_recurrent},
    {.name = "gru_cell", gru_cell, prepare_recurrent},
    {.name = "rnn_cell", rnn_cell, prepare_recurrent},
    {.name = "pack_padded_sequence", pack_padded_sequence, prepare_lengths},
    {.name = "pad_packed_sequence", pad_packed_sequence, prepare_lengths},
    {.name = "pad_sequence", pad_sequence},
    {.name = "scaled_dot_product_attention", scaled_dot_product_attention, prepare_heads},
    {.name = "multihead_attention", module, prepare_attention},
    {.name = "transformer_encoder_layer", module, prepare_encoder_layer},
    {.name = "transformer_decoder_layer", module, prepare_decoder_layer},
};
const int ops_sequence_operation_count = sizeof(ops_sequence_operations) / sizeof(*ops_sequence_operations);
