/* Made by tests/golden/make_images.py; not to be edited. CRC-32 as zlib's. */
static const struct resize_case {
    int64_t channels, height, width, size, to_height, to_width, out_height, out_width;
    uint32_t crc;
    unsigned char first[8]; /* of the result */
} resize_cases[] = {
    {3, 13, 17, 8, 0, 0, 8, 10, 0x6494ed04u, {96, 130, 61, 96, 101, 120, 96, 175}},
    {3, 17, 13, 8, 0, 0, 10, 8, 0x05a9e9e5u, {108, 159, 120, 127, 111, 59, 80, 129}},
    {1, 5, 8, 20, 0, 0, 20, 32, 0x23cc1d91u, {60, 60, 64, 73, 81, 90, 98, 107}},
    {3, 33, 47, 0, 16, 16, 16, 16, 0xff6165bfu, {114, 112, 119, 77, 120, 152, 128, 111}},
    {1, 64, 48, 7, 0, 0, 9, 7, 0x58732611u, {127, 116, 132, 134, 129, 143, 133, 131}},
    {3, 9, 31, 9, 0, 0, 9, 31, 0x043253afu, {60, 94, 129, 180, 12, 94, 198, 142}},
    {3, 200, 301, 64, 0, 0, 64, 96, 0xd75aead3u, {111, 117, 134, 157, 145, 156, 119, 124}},
    {3, 301, 200, 224, 0, 0, 337, 224, 0x28582e72u, {60, 89, 120, 161, 93, 46, 126, 187}},
    {1, 28, 28, 0, 1, 1, 1, 1, 0xa6b33d17u, {131}},
    {3, 1, 7, 3, 0, 0, 3, 21, 0xa6a39639u, {60, 60, 71, 83, 94, 106, 117, 129}},
    {1, 40, 40, 0, 41, 39, 41, 39, 0x914b7c82u, {61, 96, 133, 162, 23, 110, 188, 113}},
    {3, 500, 375, 32, 0, 0, 42, 32, 0x4d1dc70au, {121, 121, 127, 124, 124, 118, 123, 126}},
};
static const struct center_case {
    int64_t channels, height, width, size;
    uint32_t crc;
} center_cases[] = {
    {1, 5, 6, 3, 0x99420889u},
    {1, 6, 7, 3, 0x518f9be5u},
    {3, 7, 7, 4, 0x1f14760au},
    {1, 9, 8, 5, 0xc1d75b6fu},
    {1, 3, 4, 6, 0x872a4345u},
    {1, 4, 5, 7, 0x2ae5da1eu},
    {1, 3, 9, 4, 0x8f5e7c4cu},
    {1, 10, 3, 5, 0xd6f1229au},
    {1, 8, 11, 1, 0xc46e20c8u},
    {1, 4, 4, 4, 0x05d50646u},
};
/* Bytes 0 to 255 in each channel, to_tensor and normalize by CIFAR-10's numbers: of the float and double
 * results in little-endian memory. */
static const uint32_t normalized_crc_f32 = 0xa74a6e59u;
static const uint32_t normalized_crc_f64 = 0xf1ac2e33u;
