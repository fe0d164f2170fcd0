/*
 * augment.cu - the slot augment: images of bytes to floats, cropped, mirrored and normalised in one pass.
 * Layer: device/cuda.
 *
 * An element is a look into a table of 256 numbers for its channel, so the bits are the host's. A thread has neighbours
 * of a row, which a warp reads and writes together; the table stays in the caches. Least to move: a byte in, a float
 * out.
 */
#include "device/cuda/walk.h"

enum { THREADS = WALK_THREADS, ITEMS = WALK_ITEMS };

/* INDEX: wide enough for the number of elements; divisions of 32 bits take a fifth of the time. */
template <typename T, typename INDEX>
YK__KERNEL(THREADS)
augment_kernel(yk__view out, yk__view images, yk__view crops, yk__view table)
{
    INDEX channels = (INDEX)out.shape[1], height = (INDEX)out.shape[2], width = (INDEX)out.shape[3];
    INDEX total = (INDEX)out.shape[0] * channels * height * width;
    yk__global<T> to(static_cast<T *>(out.data));
    yk__global<const unsigned char> bytes(static_cast<const unsigned char *>(images.data));
    yk__global<const T> numbers(static_cast<const T *>(table.data));
    yk__global<const int64_t> windows(static_cast<const int64_t *>(crops.data));
    INDEX tile = (INDEX)THREADS * ITEMS;
    YK__LOOP for (INDEX first = tile * blockIdx.x + threadIdx.x; first < total; first += tile * gridDim.x)
    {
        unsigned char byte[ITEMS];
        INDEX row_of[ITEMS];
        YK__UNROLL for (int u = 0; u < ITEMS; u++)
        {
            INDEX i = first + (INDEX)u * THREADS, line = i / width, x = i - line * width, plane = line / height;
            INDEX n = plane / channels, channel = plane - n * channels;
            byte[u] = 0;
            row_of[u] = table.shape[0] > 1 ? channel : 0;
            if (i >= total)
                continue;
            int64_t c = (int64_t)n * YK__CROP_NUMBERS;
            int64_t from = windows[c], in_height = windows[c + 1], in_width = windows[c + 2];
            int64_t y = (int64_t)(line - plane * height) + windows[c + 3];
            int64_t at = (int64_t)(windows[c + 5] ? width - 1 - x : x) + windows[c + 4];
            if (y >= 0 && y < in_height && at >= 0 && at < in_width)
                byte[u] = bytes[from + ((int64_t)channel * in_height + y) * in_width + at];
        }
        YK__UNROLL for (int u = 0; u < ITEMS; u++)
        {
            INDEX i = first + (INDEX)u * THREADS;
            if (i < total)
                to[i] = numbers[row_of[u] * 256 + byte[u]];
        }
    }
}

yk_status cuda_augment(int device, const yk__view *out, const yk__view *images, const yk__view *crops,
                       const yk__view *table)
{
    const yk__view *views[] = {out, images, crops, table};
    int64_t total = out->shape[0] * out->shape[1] * out->shape[2] * out->shape[3];
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || total == 0)
        return status;
    bool small = total <= INT32_MAX; /* so that adding a grid's elements does not overflow */
    void (*kernel)(yk__view, yk__view, yk__view, yk__view) =
        out->dtype == YK_F32 ? small ? augment_kernel<float, uint32_t> : augment_kernel<float, uint64_t>
        : small ? augment_kernel<double, uint32_t>
                             : augment_kernel<double, uint64_t>;
    YK__LAUNCH("augment", kernel, walk_blocks(device, total), THREADS, 0, stream, *out, *images, *crops, *table);
    return cuda_launched(device, "augment", 4, views);
}
