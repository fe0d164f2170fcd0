/* fuzz_image.c - JPEG, PNG, BMP, TIFF, WebP, PGM and PPM files, decoded and then resized, cropped and normalised. */
#include <stdlib.h>

#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static yk__data_worker worker; /* kept, as a loader's worker keeps it */
    yk_sample sample = {.worker = &worker};
    yk_status status = yk__image_decode(bytes, size, &sample);
    if ((status != YK_OK) != (yk_last_error() != NULL))
        abort();
    if (status) {
        yk_clear_error();
        return 0;
    }
    yk_scope scope = yk_scope_begin();
    yk_transform *steps[] = {yk_resize_to(9, 14), yk_center_crop(12), yk_random_crop(11, 2),
                             yk_normalize((double[]){0.1, 0.2, 0.3}, (double[]){0.5, 0.5, 0.5}, 3)};
    for (int i = 0; i < 4; i++) {
        if (steps[i]->apply(steps[i], &sample))
            abort();
    }
    if (sample.dtype != YK_F32 || sample.shape[0] != 3 || sample.shape[1] != 11 || sample.shape[2] != 11)
        abort();
    const float *values = sample.data;
    for (int i = 0; i < 3 * 11 * 11; i++) {
        if (!(values[i] >= -0.6f && values[i] <= 1.8f))
            abort();
    }
    yk_scope_end(scope);
    return 0;
}
