/*
 * conv_strips_body.h - depthwise convolutions of 3 x 3 taps and stride 1 for one dtype; included by conv_lanes_body.h.
 *
 * Two rows of outputs at a time, a strip, of one vector of channels after the other, from the first column to the last.
 * Each element of the source is loaded once for the up to six outputs that it belongs to, whose sums, or in a gradient
 * of the weight those of the nine taps, stay in registers with the weights. How far pixels lie apart does not matter
 * then; where it is a multiple of 4 KiB all lines of a window fall on the same sets of the first-level cache.
 */
#define LOAD(from) (whole ? (V) * (const VU *)(from) : TYPED(yk__load_part)((from), lanes))
#define TAPS(i, k) YK__UNROLL for (int i = 0; i < 3; i++) YK__UNROLL for (int k = 0; k < 3; k++)

/* Computes outputs [x, x + outputs) of both rows, of one vector of channels, its first `lanes` where not `whole`;
 * `inside`: all rows and columns exist, and STRIP_OUTPUTS outputs. `src` is the first column of row 0 of the four.
 * Nothing is stored before all is loaded: a load waits for an earlier store to the same place of another page. */
static inline __attribute__((always_inline)) void TYPED(strip_of)(const struct strip *s, const T *src, T *dst,
                                                                  const T *weights, const T *bias, int64_t x,
                                                                  int64_t outputs, int64_t lanes, const bool inside,
                                                                  const bool whole)
{
    const int64_t row = s->row, column = s->column, columns = s->columns, at = x - s->padding;
    const int first = s->first, last = s->last;
    V w[3][3], sum[2][STRIP_OUTPUTS];
    TAPS(i, k) w[i][k] = *(const V *)(weights + (s->backward ? 8 - (i * 3 + k) : i * 3 + k) * WIDTH);
    YK__UNROLL for (int i = 0; i < STRIP_OUTPUTS; i++) sum[0][i] = sum[1][i] = *(const V *)bias;
    src += at * column;
    YK__UNROLL for (int c = 0; c < STRIP_OUTPUTS + 2; c++, src += column)
    {
        if (!inside && (at + c < 0 || at + c >= columns))
            continue;
        YK__UNROLL for (int r = 0; r < 4; r++)
        {
            if (!inside && (r < first || r >= last))
                continue;
            V v = LOAD(src + r * row);
            YK__KEEP(v);
            YK__UNROLL for (int o = 0; o < 2; o++)
                YK__UNROLL for (int k = 0; k < 3; k++) if (r - o >= 0 && r - o < 3 && c - k >= 0 &&
                                                           c - k < STRIP_OUTPUTS) sum[o][c - k] += v * w[r - o][k];
        }
    }
    dst += x * s->out_column;
    YK__UNROLL for (int o = 0; o < 2; o++)
    {
        if (!inside && o >= s->outputs)
            break;
        T *to = dst + o * s->out_row;
        YK__UNROLL for (int k = 0; k < STRIP_OUTPUTS; k++, to += s->out_column)
        {
            if (!inside && k >= outputs)
                break;
            if (whole)
                *(VU *)to = sum[o][k];
            else
                TYPED(yk__store_part)(to, sum[o][k], lanes);
        }
    }
}

/* Adds the products of columns [begin, end) of the source to the nine sums of one vector of channels. */
static inline __attribute__((always_inline)) void TYPED(strip_sums_of)(const struct strip *s, const T *from,
                                                                       const T *gout, T *to, int64_t begin, int64_t end,
                                                                       int64_t lanes, const bool inside,
                                                                       const bool whole)
{
    const int64_t row = s->row, column = s->column, out_row = s->out_row, out_column = s->out_column, width = s->width;
    const int first = s->first, last = s->last, outputs = s->outputs;
    V sum[3][3], grad[2][3] = {{{0}}};
    TAPS(i, k) sum[i][k] = (V){0};
    int64_t x = begin + s->padding; /* the output whose first tap meets this column */
    const T *a = from + begin * column, *g = gout + x * out_column;
    YK__UNROLL for (int k = 1; k < 3; k++)
    {
        bool exists = x - k >= 0 && x - k < width;
        if (!exists)
            continue;
        grad[0][3 - k] = LOAD(g - k * out_column);
        if (outputs == 2)
            grad[1][3 - k] = LOAD(g - k * out_column + out_row);
    }
    for (int64_t c = begin; c < end;)
        YK__UNROLL for (int j = 0; j < 3; j++)
        {
            if (j && c == end)
                break;
            if (x < width) {
                grad[0][j] = LOAD(g);
                if (inside || outputs == 2)
                    grad[1][j] = LOAD(g + out_row);
            }
            bool all = x >= 2 && x < width;
            YK__UNROLL for (int r = 0; r < 4; r++)
            {
                if (!inside && (r < first || r >= last))
                    continue;
                V v = LOAD(a + r * row);
                YK__KEEP(v);
                YK__UNROLL for (int o = 0; o < 2; o++)
                {
                    if (r - o < 0 || r - o > 2 || (o == 1 && !inside && outputs == 1))
                        continue;
                    if (all) {
                        YK__UNROLL for (int k = 0; k < 3; k++) sum[r - o][k] += v * grad[o][(j - k + 3) % 3];
                        continue;
                    }
                    YK__UNROLL for (int k = 0; k < 3; k++) if (x - k >= 0 && x - k < width) sum[r - o][k] +=
                        v * grad[o][(j - k + 3) % 3];
                }
            }
            c++, x++, a += column, g += out_column;
        }
    TAPS(i, k) * (V *)(to + (i * 3 + k) * WIDTH) += sum[i][k];
}

/* Computes outputs [x, x + outputs) of `channels` channels. */
static void TYPED(strip_span)(const struct strip *s, const T *src, T *dst, const T *weights, const T *bias, int64_t x,
                              int64_t outputs, int64_t channels)
{
    const bool inside = s->first == 0 && s->last == 4 && s->outputs == 2 && outputs == STRIP_OUTPUTS &&
                        x >= s->padding && x - s->padding + STRIP_OUTPUTS + 2 <= s->columns;
    const int64_t rest = channels % WIDTH, whole = channels - rest;
    for (int64_t c = 0; c < whole; c += WIDTH) {
        if (inside)
            TYPED(strip_of)(s, src + c, dst + c, weights + c * 9, bias + c, x, outputs, WIDTH, true, true);
        else
            TYPED(strip_of)(s, src + c, dst + c, weights + c * 9, bias + c, x, outputs, WIDTH, false, true);
    }
    if (rest)
        TYPED(strip_of)
    (s, src + whole, dst + whole, weights + whole * 9, bias + whole, x, outputs, rest, false, false);
}

/* Computes the strip whose first row is y, images [n0, n1). */
static void TYPED(run_strip)(const struct map *m, int64_t y, int64_t n0, int64_t n1)
{
    const struct strip s = strip_at(&m->strips, y, m->src_stride, m->dst_stride);
    const T *bias = (const T *)m->packed + m->lanes.blocks * 9 * WIDTH;
    for (int64_t x = 0; x < s.width; x += STRIP_OUTPUTS)
        for (int64_t n = n0; n < n1; n++)
            TYPED(strip_span)
    (&s, (const T *)m->src + n * m->src_stride[0] + (y - m->strips.padding[0]) * s.row,
     (T *)m->dst + n * m->dst_stride[0] + y * s.out_row, m->packed, bias, x,
     s.width - x < STRIP_OUTPUTS ? s.width - x : STRIP_OUTPUTS, m->lanes.groups);
}

/* Adds the products of a strip to the sums of one vector of channels, of which there are `lanes`, in spans of
 * columns. */
static void TYPED(sum_spans)(const struct strip *s, const T *x, const T *gout, T *to, int64_t length, int64_t lanes)
{
    const bool inside = s->first == 0 && s->last == 4 && s->outputs == 2;
    for (int64_t begin = 0, end; begin < s->columns; begin = end) {
        end = span_end(begin, s->columns, length);
        if (lanes < WIDTH)
            TYPED(strip_sums_of)(s, x, gout, to, begin, end, lanes, false, false);
        else if (inside)
            TYPED(strip_sums_of)(s, x, gout, to, begin, end, WIDTH, true, true);
        else
            TYPED(strip_sums_of)(s, x, gout, to, begin, end, WIDTH, false, true);
    }
}

/* Sums of the gradient of the weight, over a strip as in run_strip. */
static void TYPED(sum_strip)(const struct grad *g, int64_t y, int64_t n0, int64_t n1, T *sums)
{
    const struct strip s = strip_at(&g->strips, y, g->x_stride, g->gout_stride);
    const int64_t groups = g->lanes.groups;
    for (int64_t n = n0; n < n1; n++) {
        const T *x = (const T *)g->x + n * g->x_stride[0] + (y - g->strips.padding[0]) * s.row;
        const T *gout = (const T *)g->gout + n * g->gout_stride[0] + y * s.out_row;
        for (int64_t c = 0; c < groups; c += WIDTH)
            TYPED(sum_spans)
        (&s, x + c, gout + c, sums + c * 9, STRIP_COLUMNS, groups - c < WIDTH ? groups - c : WIDTH);
    }
}
#undef TAPS
#undef LOAD
