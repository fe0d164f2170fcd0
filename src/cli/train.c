/*
 * train.c - `yoke train`: a ready-made network, a data set, SGD, and a test after every epoch; its command line.
 * Layer: cli.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train.h"

static const char about[] =
    "Data sets: glyphs (built in), fashion-mnist, mnist, cifar10, image-folder. A DIR that is not given or not there\n"
    "is looked up under $YOKE_DATA.\n"
    "\n"
    "A bar (or a line every few seconds) goes to stderr, results go to stdout; its last line is the test accuracy.\n"
    "Ctrl-C ends the run after the step, saves where --save or --checkpoint is given, and exits with 130; a second "
    "one\n"
    "exits at once.\n"
    "\n"
    "--checkpoint keeps in DIR what --resume needs to go on, to the bit, in the middle of an epoch, after whatever "
    "ended\n"
    "the run; the same command line with --resume can be repeated until the run is done. SIGTERM and SIGUSR1 then "
    "save\n"
    "after the step and exit with 75: start me again.\n"
    "\n"
    "--precision bf16 and fp16 train in mixed precision: products and convolutions in half precision, parameters and\n"
    "their gradients in f32. fp16 scales the loss, and leaves out steps whose gradients are not finite.\n"
    "\n"
    "Several processes: `yoke run -n 4 -- yoke train ...` (mpirun and srun too) trains data-parallel. Each process\n"
    "takes its part of every epoch in batches of --batch-size, so a step sees 4 times as many images, and --lr is\n"
    "taken as it is. The gradients and losses are means over all of them, and each tests its part. Process 0 prints\n"
    "and writes; images/s are of all together. Options and data that differ between the processes are an error.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 saved and to be resumed, 128 + N ended by signal N.\n";

static const char examples[] =
    "  yoke train\n"
    "  yoke train --model lenet --data fashion-mnist --batch-size 4 --lr 0.001 --epochs 10\n"
    "  yoke train --model resnet18 --data cifar10 --batch-size 256 --lr 0.1 --weight-decay "
    "1e-5 --save net.safetensors\n"
    "  yoke train --model resnet18 --data cifar10 --precision bf16\n"
    "  yoke train --model resnet18 --data cifar10 --checkpoint run1 --save-every 60s "
    "--async-save --resume\n"
    "  yoke run -n 2 -- yoke train --model resnet18 --data cifar10 --batch-size 128 --lr 0.1\n"
    "  yoke train --model resnet18 --data cifar10 --init net.safetensors --epochs 0\n";

/* Returns the exit code. */
static int train(train_job *r)
{
    if (ranks_join(&r->ranks))
        return cli_failed();
    if (r->set->checkpoint)
        cli_catch_signals_to_save();
    yk_status status = train_find(r);
    if (status || train_build(r)) {
        int code = ranks_failed(&r->ranks);
        train_queue_free(r);
        return status ? cli_exit_code_of(status) : code;
    }
    return train_conduct(r);
}

int cli_train(int argc, char **argv)
{
    settings s = {.model = "lenet",
                  .data = "glyphs",
                  .dtype = "f32",
                  .precision = "fp32",
                  .schedule = "none",
                  .device = "auto",
                  .epochs = -1,
                  .batch_size = 64,
                  .accumulate = 1,
                  .workers = 1,
                  .lr = 0.05,
                  .momentum = 0.9,
                  .gamma = NAN};
    static const char *const dtypes[] = {"f32", "f64", NULL}, *const schedules[] = {"none", "step", "cosine", NULL},
                             *const precisions[] = {"fp32", "bf16", "fp16", NULL};
    const double big = 1e15;
    const cli_option options[] = {
        {"model", "NAME", CLI_CHOICE, &s.model, "the network", .choices = yk_model_names()},
        {"data", "NAME[:DIR]", CLI_TEXT, &s.data, .help = "the data set"},
        {"dtype", "TYPE", CLI_CHOICE, &s.dtype, "numbers to compute with", .choices = dtypes},
        {"precision", "NAME", CLI_CHOICE, &s.precision, "bf16, fp16: of products and convolutions; the rest is --dtype",
         .choices = precisions},
        {"epochs", "N", CLI_INT, &s.epochs, "passes over the data; 0 only tests", .most = 1e9,
         .default_text = "5, or what --steps needs"},
        {"steps", "N", CLI_INT, &s.steps, "stop after this many steps in all", .least = 1, .most = big,
         .default_text = ""},
        {"batch-size", "N", CLI_INT, &s.batch_size, "images per step, of each process", .least = 1, .most = 1e6},
        {"accumulate", "N", CLI_INT, &s.accumulate, "batches per step: gradients are those of their mean", .least = 1,
         .most = 1e6},
        {"lr", "X", CLI_REAL, &s.lr, .help = "learning rate of SGD"},
        {"momentum", "X", CLI_REAL, &s.momentum, .help = "momentum of SGD"},
        {"weight-decay", "X", CLI_REAL, &s.weight_decay, .help = "weight decay of SGD"},
        {"schedule", "NAME", CLI_CHOICE, &s.schedule, "how the learning rate falls", .choices = schedules},
        {"step-size", "N", CLI_INT, &s.step_size, "step: epochs until it falls", .least = 1, .most = 1e9,
         .default_text = "a third of the run"},
        {"gamma", "X", CLI_REAL, &s.gamma, .help = "step: the factor it falls by", .default_text = "0.1"},
        {"warmup", "N", CLI_INT, &s.warmup, "steps in which it first rises from 1/N of --lr", .most = 1e9},
        {"seed", "N", CLI_INT, &s.seed, "of initial weights, order and augmentation", .most = big},
        {"num-classes", "N", CLI_INT, &s.num_classes, "outputs of the network", .least = 1, .most = 1e9,
         .default_text = "the data set's classes"},
        {"device", "NAME", CLI_TEXT, &s.device, .help = "auto, cpu, cpu:1, ..., cuda, cuda:1, ..."},
        {"threads", "N", CLI_INT, &s.threads, "threads of one operation", .least = 1, .most = 1024,
         .default_text = "the cores there are"},
        {"workers", "N", CLI_INT, &s.workers, "threads that read data; 0 reads between steps", .most = 1024},
        {"no-graph", NULL, CLI_FLAG, &s.no_graph, .help = "on a GPU: do not record a step (CUDA graph) and replay it"},
        {"sync-bn", NULL, CLI_FLAG, &s.sync_bn, .help = "batch normalisation over the batches of all processes"},
        {"no-shuffle", NULL, CLI_FLAG, &s.no_shuffle, .help = "take the files' order"},
        {"no-augment", NULL, CLI_FLAG, &s.no_augment, .help = "leave out random crops and flips"},
        {"no-eval", NULL, CLI_FLAG, &s.no_eval, .help = "do not test"},
        {"allow-nan", NULL, CLI_FLAG, &s.allow_nan, .help = "go on when the loss is not a finite number"},
        {"init", "FILE", CLI_TEXT, &s.init, .help = "start from these weights: safetensors, .pt, or a checkpoint"},
        {"save", "FILE", CLI_TEXT, &s.save, .help = "write the weights after every epoch and at the end (safetensors)"},
        {"checkpoint", "DIR", CLI_TEXT, &s.checkpoint, .help = "save all state to DIR/step-N/, and at the end"},
        {"save-every", "N|Ns", CLI_TEXT, &s.save_every, .help = "checkpoint every N steps, or every N seconds",
         .default_text = "every epoch"},
        {"keep", "K", CLI_INT, &s.keep, "checkpoints that stay", .least = 1, .most = 1e6, .default_text = "3"},
        {"resume", NULL, CLI_FLAG, &s.resume, .help = "go on from the newest checkpoint, if there is one"},
        {"async-save", NULL, CLI_FLAG, &s.async_save, .help = "train on while a checkpoint is written"},
        {"sharded-save", NULL, CLI_FLAG, &s.sharded_save,
         .help = "each process writes a share of a checkpoint; all see DIR"},
        {"log", "FILE", CLI_TEXT, &s.log, .help = "write every step and test as a line of JSON"},
        {0},
    };
    const cli_verb verb = {"yoke train", "Trains a ready-made network on a data set and tests it after every epoch.",
                           about, examples, .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    const char *const paths[][2] = {
        {"init", s.init}, {"save", s.save}, {"checkpoint", s.checkpoint}, {"log", s.log}, {"data", s.data}};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        if (paths[i][1] && !*paths[i][1]) /* "$UNSET" in a script */
            return cli_usage_error(&verb, "--%s: the value is empty", paths[i][0]);
    }
    if (strcmp(s.precision, "fp32") != 0 && strcmp(s.dtype, "f32") != 0)
        return cli_usage_error(&verb, "--precision %s is for --dtype f32, not %s", s.precision, s.dtype);
    train_job r = {.set = &s};
    if (s.save_every && !saver_parse_every(&r.saver, s.save_every))
        return cli_usage_error(&verb, "--save-every %s: expected a number of steps (500) or of seconds (30s)",
                               s.save_every);
    if (!s.checkpoint && (s.save_every || s.keep || s.resume || s.async_save || s.sharded_save))
        return cli_usage_error(&verb, "--%s needs --checkpoint DIR",
                               s.save_every   ? "save-every"
                               : s.keep       ? "keep"
                               : s.resume     ? "resume"
                               : s.async_save ? "async-save"
                                              : "sharded-save");
    if (strcmp(s.schedule, "step") != 0 && (!isnan(s.gamma) || s.step_size))
        return cli_usage_error(&verb, "--%s needs --schedule step", isnan(s.gamma) ? "step-size" : "gamma");
    s.gamma = isnan(s.gamma) ? 0.1 : s.gamma;
    if (s.checkpoint)
        cli_end_on_signals(); /* nothing is to be saved before the ranks have joined */
    yk_scope program = yk_scope_begin();
    code = train(&r);
    if ((r.failed || code == EXIT_FAILED || code == EXIT_USAGE) && r.ranks.world > 1)
        return code; /* see ranks_leave */
    ranks_leave(&r.ranks);
    yk_scope_end(program);
    return code;
}
