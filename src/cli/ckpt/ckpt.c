/*
 * ckpt.c - `yoke ckpt`: the command lines of its verbs. Layer: cli.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "cli/pages.h"

typedef struct ckpt_verb {
    const char *name, *rest, *summary, *about, *examples;
    int paths;
    int (*run)(const ckpt_settings *s);
} ckpt_verb;

static const ckpt_verb verbs[] = {
    {"info", "PATH", "list what a checkpoint holds",
     "Every tensor by its full dotted name with dtype and shape, then the numbers and texts beside them.\n",
     "  yoke ckpt info resnet18.pt\n", 1, ckpt_info},
    {"verify", "PATH", "read a checkpoint in full",
     "Exit code 0 only where the whole file or training checkpoint is valid, checksums included, and every tensor was\n"
     "read. Of a folder of training checkpoints the newest valid one counts.\n",
     "  yoke ckpt verify last.pt && echo good\n", 1, ckpt_verify},
    {"convert", "IN OUT", "write a checkpoint in the format of OUT's ending",
     "Endings: .pt and .pth (PyTorch), .safetensors; none: a training checkpoint, a folder. Nested state is kept: in "
     "a\n"
     "safetensors file its description is metadata, from which a later conversion to .pt puts it together again. Of a\n"
     "training checkpoint the optimizer, schedule and scaler get PyTorch's form. What is lost is told on stderr.\n",
     "  yoke ckpt convert model.pt model.safetensors\n  yoke ckpt convert runs/step-00001000 for-torch.pt\n", 2,
     ckpt_convert},
    {"diff", "A B", "compare two checkpoints",
     "Names that only one has; different dtypes, shapes and values, these with the largest absolute difference.\n"
     "Exit code 0 where nothing differs, 1 where something does or a file cannot be read.\n",
     "  yoke ckpt diff before.pt after.safetensors\n", 2, ckpt_diff},
    {"strip", "IN OUT", "keep the model's weights only",
     "The tensors under \"model\", \"state_dict\", \"model_state_dict\" and the like, or those of a plain state dict;\n"
     "optimizer state, counters and settings are left out.\n",
     "  yoke ckpt strip --strip-module last.pt weights.safetensors\n", 2, ckpt_strip},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

static void list(FILE *to)
{
    fputs("usage: yoke ckpt VERB [options]\n\n", to);
    for (int i = 0; i < VERBS; i++)
        fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
}

/* Brings options to the front, up to a "--": all are flags, so they may come after the paths too. */
static void options_first(int argc, char **argv)
{
    int at = 1;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || !argv[i][1])
            continue;
        char *option = argv[i];
        memmove(argv + at + 1, argv + at, (size_t)(i - at) * sizeof(*argv));
        argv[at++] = option;
    }
}

static int run_verb(const ckpt_verb *v, int argc, char **argv)
{
    ckpt_settings s = {0};
    char name[32];
    snprintf(name, sizeof(name), "yoke ckpt %s", v->name);
    bool strips = v->run == ckpt_strip;
    const cli_option options[] = {
        {"json", NULL, CLI_FLAG, &s.json, .help = "print one JSON object"},
        {strips ? "strip-module" : NULL, NULL, CLI_FLAG, &s.strip_module, .help = "take 'module.' off the names"},
        {NULL, NULL, CLI_FLAG, NULL, .help = NULL},
    };
    const cli_verb verb = {name, v->summary, v->about, v->examples, options, v->rest, .mixed = false};
    int code;
    options_first(argc, argv);
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (argc - optind != v->paths)
        return cli_usage_error(&verb, "expected %s, got %d argument%s", v->rest, argc - optind,
                               argc - optind == 1 ? "" : "s");
    for (int i = 0; i < v->paths; i++) {
        s.paths[i] = argv[optind + i];
        if (!*s.paths[i]) /* "$UNSET" in a script */
            return cli_usage_error(&verb, "expected %s, but path %d is empty", v->rest, i + 1);
    }
    if (v->paths == 2 && v->run != ckpt_diff && ckpt_check_output(s.paths[1])) {
        code = cli_usage_error(&verb, "%s", yk_last_error()->message);
        yk_clear_error();
        return code;
    }
    yk_scope scope = yk_scope_begin();
    code = v->run(&s);
    yk_scope_end(scope);
    return code;
}

int cli_ckpt(int argc, char **argv)
{
    if (argc < 2) {
        list(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        list(stdout);
        puts("\nyoke ckpt VERB --help tells more about each.");
        return EXIT_DONE;
    }
    cli_entry entries[VERBS];
    for (int i = 0; i < VERBS; i++)
        entries[i] = (cli_entry){verbs[i].name, verbs[i].summary};
    if (cli_list_asked("yoke ckpt", "list, check, convert and compare checkpoints", "yoke ckpt VERB [options]", entries,
                       VERBS, argc, argv))
        return EXIT_DONE;
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run_verb(&verbs[i], argc - 1, argv + 1);
    }
    const char *near = yk__nearest(argv[1], names, VERBS);
    fprintf(stderr, "yoke ckpt: unknown verb '%s'", argv[1]);
    if (near)
        fprintf(stderr, ", did you mean '%s'?", near);
    fputs("\ntry: yoke ckpt --help\n", stderr);
    return EXIT_USAGE;
}
