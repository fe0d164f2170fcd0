/*
 * conv_module.h - declarations that the layers of convolutions share. Layer: nn.
 */
#ifndef YOKE_NN_CONV_MODULE_H
#define YOKE_NN_CONV_MODULE_H

#include <yoke/nn.h>

/* The numbers that a printed convolution shows, of `axes` entries; NULL: not of its kind. */
typedef struct yk__conv_text {
    int64_t in_channels, out_channels, groups;
    const int64_t *kernel, *stride, *padding, *dilation, *output_padding;
    bool bias;
    yk_pad_mode padding_mode;
} yk__conv_text;
void yk__conv_describe(char *buffer, size_t size, int axes, const yk__conv_text *text);

/* x with the border that a padding is in a mode, YK_PADDING_SAME too; padding[] becomes 0. */
yk_tensor *yk__conv_border(yk_tensor *x, int axes, const int64_t *kernel, const int64_t *dilation, int64_t *padding,
                           yk_pad_mode mode);
/* True if the mode is one; an error in the name of a constructor otherwise. */
bool yk__conv_mode_check(const char *name, yk_pad_mode mode);

#endif
