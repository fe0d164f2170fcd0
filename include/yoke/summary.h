/*
 * yoke/summary.h - event files that TensorBoard shows: curves, histograms, images, text, hyperparameters, modules.
 *
 * Layer: observe. What is given is queued, and a thread of the writer's own makes records of it and writes them: a call
 * copies what it is given and waits for nobody. A disk that is full, or any other failure of the file, ends nothing:
 * what comes afterwards is left out, and yk_summary_flush says so. PyTorch: torch.utils.tensorboard.SummaryWriter.
 */
#ifndef YOKE_SUMMARY_H
#define YOKE_SUMMARY_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_summary_writer yk_summary_writer;

typedef struct yk_summary_options {
    double flush_seconds YK_DEFAULT(1); /* after which what was given is in the file, at most */
    /* Bytes that may wait for the file, at least 1 MiB: what comes then is left out. */
    int64_t queue_bytes YK_DEFAULT(64 << 20);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_summary_options;
#define yk_summary_options_DEFAULTS .yk__mark = YK__MARK, .flush_seconds = 1, .queue_bytes = 64 << 20

/*
 * A new file events.out.tfevents.SECONDS.HOST.PID.NUMBER in the folder, which is made where it is not there. One
 * process of a job writes; a run of its own has a folder of its own, and TensorBoard shows those below one folder
 * together. NULL and an error (YK_ERR_IO) where the file cannot be made.
 */
YK_API yk_summary_writer *yk_summary_create(const char *dir, const yk_summary_options *options);
YK_API yk_summary_writer *yk_summary_retain(yk_summary_writer *writer);
/* The last release writes what is queued, and closes the file. */
YK_API void yk_summary_release(yk_summary_writer *writer);

/*
 * Each tag is a curve, or a series of pictures: "loss/train"; what stands in front of the slash groups them. Any
 * thread. A failure is one of the arguments (YK_ERR_ARGUMENT, YK_ERR_SHAPE), not of the file.
 */
/* One point; in f32, as TensorBoard has it, NaN and infinity too. Source: add_scalar. */
YK_API yk_status yk_summary_scalar(yk_summary_writer *writer, const char *tag, double value,
                                   int64_t step) YK_MUST_CHECK;
/* The distribution of the elements of x, of any shape and dtype: 64 parts between the least and the largest of those
 * that are finite. x is copied, which takes its time. Source: add_histogram. */
YK_API yk_status yk_summary_histogram(yk_summary_writer *writer, const char *tag, yk_tensor *x,
                                      int64_t step) YK_MUST_CHECK;
/* x (C, H, W) of u8, or floating in [0, 1] (others are cut to that), C being 1 (grey), 3 (RGB) or 4 (with alpha). It is
 * written as PNG. Source: add_image. */
YK_API yk_status yk_summary_image(yk_summary_writer *writer, const char *tag, yk_tensor *x, int64_t step) YK_MUST_CHECK;
/* Text, which TensorBoard reads as Markdown. Source: add_text. */
YK_API yk_status yk_summary_text(yk_summary_writer *writer, const char *tag, const char *text,
                                 int64_t step) YK_MUST_CHECK;

/* A hyperparameter: a text, or where that is NULL a number. */
typedef struct yk_summary_hparam {
    const char *name, *text;
    double number;
} yk_summary_hparam;
/* The settings of a run, and the tags of scalars that say how good it is. Source: add_hparams, without the points,
 * which yk_summary_scalar gives. */
YK_API yk_status yk_summary_hparams(yk_summary_writer *writer, const yk_summary_hparam *hparams, int count,
                                    const char *const *metrics, int metric_count) YK_MUST_CHECK;
/* The network as TensorBoard's graph: its modules with the sizes of their parameters, the operations between them, and
 * what is the input of what. For that the model is called once with n_inputs tensors, at most 8, in evaluation mode,
 * and is as before then; its first output counts. Without inputs there are the modules alone. An error of the model's
 * is this one's. Once for a writer. Source: add_graph. */
YK_API yk_status yk_summary_graph(yk_summary_writer *writer, yk_module *model, yk_tensor *const *inputs,
                                  int n_inputs) YK_MUST_CHECK;

/* Waits until what was given before is in the file. YK_ERR_IO: the file could not be written, and has what came before
 * that; YK_ERR_MEMORY: some was left out, because the queue was full. Says the same each time. */
YK_API yk_status yk_summary_flush(yk_summary_writer *writer) YK_MUST_CHECK;
/* The path of the file; valid while the writer lives. */
YK_API const char *yk_summary_path(const yk_summary_writer *writer) YK_QUESTION;

#ifdef __cplusplus
}
#endif

#endif
