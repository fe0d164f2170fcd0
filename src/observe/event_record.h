/*
 * event_record.h - what TensorBoard's event files are made of (Note [Event files]). Layer: observe.
 *
 * Note [Event files]
 * A file is records, each 8 bytes of length, the masked CRC-32C of these, the data, and its masked CRC-32C; numbers
 * have their lowest byte first. Data is a message Event: 1 time (double), 2 step, 3 version (of the first), 4 a graph,
 * 5 a summary. A reader takes the records that are whole, so that a file is good wherever it ends.
 */
#ifndef YOKE_OBSERVE_EVENT_RECORD_H
#define YOKE_OBSERVE_EVENT_RECORD_H

#include "observe/protobuf.h"

/* The CRC-32 of Castagnoli, as of iSCSI and ext4. */
uint32_t yk__crc32c(const void *data, size_t size);
/* Appends the data as a record, and empties it. */
void yk__record_add(yk__proto *to, yk__proto *data);

/* Each makes an Event; `value` is one value of a summary, which it empties. */
void yk__record_version(yk__proto *event, double time);
void yk__record_summary(yk__proto *event, double time, int64_t step, yk__proto *value);
void yk__record_graph(yk__proto *event, double time, yk__proto *graph);

/* Values of a summary. */
void yk__board_scalar(yk__proto *value, const char *tag, double number);
void yk__board_text(yk__proto *value, const char *tag, const char *text);
/* A histogram of the numbers that are finite; false where there are none. */
bool yk__board_histogram(yk__proto *value, const char *tag, const float *numbers, size_t count);
/* Pixels row by row, the channels of each together; false without memory. */
bool yk__board_image(yk__proto *value, const char *tag, const unsigned char *pixels, int height, int width,
                     int channels);
/* A message of the plug-in for hyperparameters, which it empties. */
void yk__board_hparams(yk__proto *value, const char *tag, yk__proto *content);

#endif
