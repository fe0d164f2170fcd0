/*
 * generate.c - `yoke generate`: a GPT-2 goes on with a text, from a file that `yoke train` wrote, a folder of its
 * checkpoints, or a folder in the published form. Layer: cli.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train_text.h"
#include "data/dataset.h"

static const char about[] =
    "PATH is a file that yoke train --save wrote, a folder of its --checkpoint, or a folder with model.safetensors "
    "(or model.safetensors.index.json) as GPT-2 is published, where config.json tells the number of heads and "
    "tokenizer.json, or vocab.json and merges.txt, the tokens.\n"
    "\n"
    "Text goes to stdout as it is made. The same --seed gives the same text.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage.\n";
static const char examples[] = "  yoke train --model gpt2 --save tales.safetensors\n"
                               "  yoke generate tales.safetensors --prompt \"It was a\"\n"
                               "  yoke generate gpt2-folder --prompt \"Two oxen\" --top-k 50 --temperature 0.8\n";

typedef struct generate_settings {
    const char *tokenizer, *prompt, *device;
    int64_t max_tokens, top_k, seed, n_head, threads;
    double temperature, top_p;
    bool no_cache;
} generate_settings;

typedef struct speaker {
    const generate_settings *set;
    const char *path;
    yk_device device;
    yk_module *model;
    yk_tokenizer *tokenizer;
    char *said_tokenizer; /* by the file; NULL: it says none */
} speaker;

/* --tokenizer, or that of the folder, or the one that the file names, or the bytes where there are as many tokens. */
static yk_status load_tokenizer(speaker *p, int64_t vocabulary)
{
    const char *path = p->set->tokenizer ? p->set->tokenizer : p->said_tokenizer;
    char *whole = yk__format("%s/tokenizer.json", p->path), *parts = yk__format("%s/vocab.json", p->path);
    if (!path && whole && parts && (yk__is_file(whole) || yk__is_file(parts)))
        path = p->path;
    free(whole);
    free(parts);
    if (!path && vocabulary != 256)
        return yk_set_error(YK_ERR_NOT_FOUND,
                            "%s: it has %" PRId64 " tokens and no tokenizer beside it; give --tokenizer", p->path,
                            vocabulary);
    p->tokenizer = train_text_tokenizer(path);
    if (p->tokenizer && yk_tokenizer_vocab_size(p->tokenizer) > vocabulary)
        return yk_set_error(YK_ERR_ARGUMENT, "%s has %" PRId64 " tokens, and the network of %s %" PRId64,
                            path ? path : "the tokenizer", yk_tokenizer_vocab_size(p->tokenizer), p->path, vocabulary);
    return p->tokenizer ? YK_OK : yk__error_code();
}

/* Prints a token as soon as it is there. One that the tokenizer does not have, of a network with rows to spare, is
 * nothing. */
static yk_status say(void *user, int64_t id)
{
    const speaker *p = user;
    char *text;
    size_t size;
    if (!yk_tokenizer_token_of(p->tokenizer, id))
        return YK_OK;
    yk_tensor *one = yk_from_data(&id, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    if (!one || yk_tokenizer_decode(p->tokenizer, one, &text, &size))
        return yk__error_code();
    bool written = fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0;
    free(text);
    return written ? YK_OK : yk__fail_errno("stdout");
}

static yk_status speak(speaker *p)
{
    const generate_settings *s = p->set;
    yk_gpt2_options sizes;
    p->model = train_text_load(p->path, p->device, s->n_head, &sizes, &p->said_tokenizer);
    yk_status status = p->model ? YK_OK : yk__error_code();
    if (!status)
        status = load_tokenizer(p, yk_size(yk_module_get(p->model, "transformer.wte.weight"), 0));
    if (status)
        return status;
    int64_t end = yk_tokenizer_id_of(p->tokenizer, "<|endoftext|>");
    size_t size = strlen(s->prompt);
    yk_tensor *ids = yk_tokenizer_encode(p->tokenizer, s->prompt, size, NULL);
    if (!size) { /* something has to be there: the end of another text, or of a line */
        int64_t begin = end >= 0 ? end : yk_tokenizer_id_of(p->tokenizer, "\u010a");
        begin = begin < 0 ? 0 : begin;
        ids = yk_from_data(&begin, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    }
    yk_generate_options o =
        *YK_OPTIONS(yk_generate_options, .max_tokens = s->max_tokens, .temperature = s->temperature, .top_p = s->top_p,
                    .seed = (uint64_t)s->seed, .cache = !s->no_cache, .on_token = say, .user = p);
    if (s->top_k)
        o.top_k = s->top_k;
    if (end >= 0)
        o.stop = end;
    fputs(s->prompt, stdout);
    status = yk_gpt2_generate(p->model, ids, &o) ? YK_OK : yk__error_code();
    fputc('\n', stdout);
    return status;
}

int cli_generate(int argc, char **argv)
{
    generate_settings s = {.prompt = "", .device = "auto", .max_tokens = 200, .temperature = 1, .top_p = 1};
    const cli_option options[] = {
        {"prompt", "TEXT", CLI_TEXT, &s.prompt, .help = "the text that it goes on with", .default_text = "a new text",
         .also = "start,text"},
        {"max-tokens", "N", CLI_INT, &s.max_tokens, "tokens to make", .least = 1, .most = 1e9,
         .also = "max-new-tokens,length,tokens"},
        {"temperature", "X", CLI_REAL, &s.temperature, "what logits are divided by; 0 takes the likeliest", .most = 1e9,
         .also = "temp"},
        {"top-k", "K", CLI_INT, &s.top_k, "draw among the K likeliest tokens", .least = 1, .most = 1e9,
         .default_text = "all"},
        {"top-p", "P", CLI_REAL, &s.top_p, "draw among the likeliest that together have this probability",
         .least = 1e-9, .most = 1},
        {"seed", "N", CLI_INT, &s.seed, "of the draws", .most = 1e15, .also = "random-seed"},
        {"no-cache", NULL, CLI_FLAG, &s.no_cache, .help = "compute all anew for each token: slower, the same text"},
        {"tokenizer", "PATH", CLI_TEXT, &s.tokenizer, .help = "a folder with tokenizer.json, or that file",
         .default_text = "the one beside the weights, or the bytes"},
        {"n-head", "N", CLI_INT, &s.n_head, "attention heads", .least = 1, .most = 1e6,
         .default_text = "what the file says, or a 64th of n_embd", .also = "heads"},
        {"device", "NAME", CLI_TEXT, &s.device, .help = "auto, cpu, cpu:1, ..., cuda, cuda:1, ...", .also = "gpu,cuda"},
        {"threads", "N", CLI_INT, &s.threads, "threads of one operation", .least = 1, .most = 1024,
         .default_text = "the cores there are"},
        {0},
    };
    const cli_verb verb = {
        "yoke generate", "Goes on with a text, a token at a time, by a GPT-2.", about, examples, options, "PATH",
        .mixed = true};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (argc - optind != 1)
        return cli_usage_error(&verb, "expected the PATH of a network");
    speaker p = {.set = &s, .path = argv[optind]};
    yk_scope scope = yk_scope_begin();
    yk_status status = cli_device(s.device, &p.device);
    if (!status && s.threads)
        status = yk_set_num_threads(p.device, (int)s.threads);
    code = status ? cli_not_found(status) : speak(&p) ? cli_failed() : EXIT_DONE;
    free(p.said_tokenizer);
    yk_scope_end(scope);
    return code;
}
