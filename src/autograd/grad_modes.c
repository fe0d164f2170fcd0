/*
 * grad_modes.c - the switches of recording, by thread: no_grad, enable_grad, inference mode. Layer: autograd.
 */
#include "autograd/node.h"

/* Sets yk__recording_off and returns its old value, which the no_grad and enable_grad functions hand from begin to
 * end. */
static bool set_recording_off(bool off)
{
    bool previous = yk__recording_off;
    yk__recording_off = off;
    return previous;
}

bool yk_no_grad_begin(void)
{
    return set_recording_off(true);
}

void yk_no_grad_end(bool previous)
{
    yk__recording_off = previous;
}

bool yk_enable_grad_begin(void)
{
    return set_recording_off(false);
}

void yk_enable_grad_end(bool previous)
{
    yk__recording_off = previous;
}

bool yk_set_grad_enabled(bool enabled)
{
    return !set_recording_off(!enabled);
}

bool yk_grad_enabled(void)
{
    return yk__recording();
}

bool yk_inference_mode_begin(void)
{
    bool previous = yk__inference_mode;
    yk__inference_mode = true;
    return previous;
}

void yk_inference_mode_end(bool previous)
{
    yk__inference_mode = previous;
}

bool yk_inference_mode_enabled(void)
{
    return yk__inference_mode;
}

bool yk_is_inference(const yk_tensor *x)
{
    YK__LIVE(x);
    return x && x->inference;
}
