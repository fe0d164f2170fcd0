/*
 * export.c - `yoke export`: a trained network as an ONNX file. Layer: cli.
 *
 * The network is made as `yoke predict` and `yoke generate` make it where the weights tell of which model they are, and
 * by --model where they do not; its input is an example of that size.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/onnx.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "cli/options.h"
#include "cli/train/net_form.h"
#include "cli/train/train_text.h"
#include "host/file.h"

static const char about[] =
    "CHECKPOINT is a file that yoke train --save wrote, which tells the network and its input, or any weights of that "
    "network: safetensors, .pt, a folder of --checkpoint, or a published folder; then --model names the network.\n"
    "\n"
    "The batch is free in the file; the other sizes are those of --input: images (N,C,H,W) or rows (N,C), of gpt2 "
    "tokens (N,T). Outputs are those of evaluation mode. The file is whole or not there. Weights of more than 2 GiB "
    "are in a "
    "second file, OUTPUT.data, which belongs beside it.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage.\n";
static const char examples[] = "  yoke export lenet.safetensors -o lenet.onnx\n"
                               "  yoke export resnet50.pth --model resnet50 --input 1,3,224,224 -o resnet50.onnx\n"
                               "  yoke export gpt2-folder --model gpt2 --input 1,256 -o gpt2.onnx\n"
                               "  yoke export lenet.safetensors -o - | wc -c\n";

enum { MOST_SIZES = 4 };

typedef struct export_settings {
    const char *model, *output, *input;
    int64_t outputs, n_head;
    bool external_data;
} export_settings;

typedef struct exporter {
    const export_settings *set;
    const char *path;
    int64_t sizes[MOST_SIZES]; /* of --input */
    int n_sizes;               /* 0: not given */
    net_form form;
    yk_module *net;
    yk_tensor *input;
} exporter;

/* Reads "1,3,224,224" into the sizes; false where it is none. */
static bool parse_sizes(exporter *e)
{
    const char *at = e->set->input;
    for (e->n_sizes = 0; at && e->n_sizes < MOST_SIZES; at++) {
        char *end;
        long long size = strtoll(at, &end, 10);
        if (end == at || size < 1 || size > 1 << 24 || (*end && *end != ','))
            return false;
        e->sizes[e->n_sizes++] = size;
        if (!*end)
            return true;
        at = end;
    }
    return !at;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static bool is_gpt2(const char *model)
{
    return model && strcmp(model, "gpt2") == 0;
}

static yk_status open_gpt2(exporter *e)
{
    yk_gpt2_options o;
    e->net = train_text_load(e->path, (yk_device){0}, e->set->n_head, &o, NULL);
    if (!e->net)
        return yk__error_code();
    if (e->n_sizes != 0 && e->n_sizes != 2)
        return yk_set_error(YK_ERR_ARGUMENT, "--input %s: gpt2 takes tokens, N,T", e->set->input);
    int64_t tokens = e->n_sizes ? e->sizes[1] : o.n_positions;
    if (tokens > o.n_positions)
        return yk_set_error(YK_ERR_ARGUMENT, "--input %s: the network of %s takes at most %" PRId64 " tokens",
                            e->set->input, e->path, o.n_positions);
    e->input = yk_zeros(YK_SHAPE(e->n_sizes ? e->sizes[0] : 1, tokens), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return yk__error_code();
}

/* The size of an image that a network usually takes. */
static int64_t usual_side(const char *model)
{
    bool digits = strcmp(model, "lenet") == 0 || strcmp(model, "mlp") == 0;
    return digits ? 28 : strcmp(model, "resnet18-cifar") == 0 ? 32 : 224;
}

/* The outputs that weights have of a model: as many as their last tensor, a bias, has numbers; 0 where that is not
 * there. */
static int64_t outputs_of(const net_form *form, const yk_state_dict *weights)
{
    yk_scope scope = yk_scope_begin();
    yk_module *like = net_form_network(form);
    yk_state_dict *dict = like ? yk_module_state_dict(like) : NULL;
    int64_t count = yk_state_dict_count(dict);
    const yk_tensor *last = count ? yk_state_dict_get(weights, yk_state_dict_name(dict, count - 1)) : NULL;
    int64_t outputs = last && yk_ndim(last) == 1 ? yk_size(last, 0) : 0;
    yk_scope_end(scope);
    return outputs;
}

/* Fills the form from --model and --input, for weights that do not tell. */
static yk_status form_of_options(exporter *e, const yk_state_dict *weights)
{
    net_form *form = &e->form;
    const char *model = e->set->model;
    if (!model)
        return yk_set_error(YK_ERR_ARGUMENT, "%s holds weights, and does not tell of which network: add --model NAME",
                            e->path);
    form->model = yk__strdup(model);
    if (!form->model)
        return YK_ERR_MEMORY;
    form->channels = usual_side(model) == 28 ? 1 : 3;
    form->height = form->width = usual_side(model);
    form->outputs = 1;
    if (e->n_sizes) {
        form->channels = e->sizes[1];
        form->height = e->sizes[2];
        form->width = e->sizes[3];
    }
    int64_t outputs = e->set->outputs ? e->set->outputs : outputs_of(form, weights);
    form->outputs = outputs ? outputs : 10;
    return yk__error_code();
}

/* Fails where the options contradict the form that the file tells. */
static yk_status check_form(const exporter *e)
{
    const net_form *form = &e->form;
    if (cli_is_object(form->model))
        return yk_set_error(YK_ERR_UNSUPPORTED,
                            "%s: its network is %s, a shared object: export it in a program, by yk_onnx_export",
                            e->path, form->model);
    if (e->set->model && strcmp(e->set->model, form->model) != 0)
        return yk_set_error(YK_ERR_ARGUMENT, "--model %s: the network of %s is %s", e->set->model, e->path,
                            form->model);
    if (e->set->outputs && e->set->outputs != form->outputs)
        return yk_set_error(YK_ERR_ARGUMENT, "--num-classes %" PRId64 ": the network of %s has %" PRId64 " outputs",
                            e->set->outputs, e->path, form->outputs);
    return YK_OK;
}

static yk_status open_images(exporter *e)
{
    yk_state_dict *weights = NULL;
    yk_status status = YK_OK;
    if (ckpt_is_folder(e->path))
        weights = ckpt_load_weights(e->path, (yk_device){0});
    else
        status = net_form_load(e->path, (yk_device){0}, &e->form, &weights);
    if (status || !weights)
        return yk__error_code();
    bool row = e->form.model && e->form.fit == FORM_ROW;
    if (e->n_sizes && e->n_sizes != (row ? 2 : 4))
        return yk_set_error(YK_ERR_ARGUMENT, "--input %s: the network takes %s", e->set->input,
                            row ? "rows, N,C" : "images, N,C,H,W");
    status = e->form.model ? check_form(e) : form_of_options(e, weights);
    if (status)
        return status;
    const net_form *form = &e->form;
    e->net = net_form_network(form);
    if (e->net && yk_state_dict_count(weights))
        e->net = yk_module_to_dtype(e->net, yk_tensor_dtype(yk_state_dict_at(weights, 0)));
    if (!e->net)
        return yk__error_code();
    if (yk_module_load_state_dict(e->net, weights, NULL, NULL)) {
        ckpt_name_file(e->path);
        yk__error_prefix("these weights do not fit %s with %" PRId64 " outputs, for inputs of %" PRId64 "x%" PRId64
                         "x%" PRId64,
                         form->model, form->outputs, form->channels, form->height, form->width);
        return yk__error_code();
    }
    int64_t shape[MOST_SIZES] = {e->n_sizes ? e->sizes[0] : 1, form->channels, form->height, form->width};
    memcpy(shape, e->sizes, e->n_sizes ? sizeof(shape) : 0);
    e->input = yk_zeros(row ? 2 : MOST_SIZES, shape,
                        YK_OPTIONS(yk_tensor_options, .dtype = yk_tensor_dtype(yk_state_dict_at(weights, 0))));
    return yk__error_code();
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The file is written beside others of its kind first, since its size comes before what it holds. */
static yk_status export_to_stdout(const exporter *e)
{
    const char *folder = getenv("TMPDIR");
    char *path = yk__format("%s/yoke-export-XXXXXX", folder && *folder ? folder : "/tmp");
    int made = path ? mkstemp(path) : -1;
    yk_status status = !path ? YK_ERR_MEMORY : made < 0 ? yk__fail_errno("%s", path) : YK_OK;
    unsigned char *data = NULL;
    size_t size = 0;
    if (made >= 0) {
        close(made);
        status = yk_onnx_export(e->net, path, &e->input, 1, NULL);
        char *data_path = yk__format("%s.data", path);
        if (data_path && unlink(data_path) == 0)
            status = yk__fail(YK_ERR_UNSUPPORTED,
                              "--output -: the weights take more than the 2 GiB of one file; name a file, beside which "
                              "a second one can be");
        free(data_path);
        if (!status)
            status = yk__file_read(path, SIZE_MAX, &data, &size);
        unlink(path);
    }
    if (!status && (fwrite(data, 1, size, stdout) != size || fflush(stdout)))
        status = yk__fail_errno("stdout");
    if (made >= 0 && data)
        free(data);
    free(path);
    return status;
}

static int export_network(exporter *e)
{
    yk_status status = is_gpt2(e->set->model) ? open_gpt2(e) : open_images(e);
    if (!status && strcmp(e->set->output, "-") == 0)
        status = export_to_stdout(e);
    else if (!status)
        status = yk_onnx_export(e->net, e->set->output, &e->input, 1,
                                YK_OPTIONS(yk_onnx_options, .external_data = e->set->external_data));
    net_form_clear(&e->form);
    return status ? cli_failed() : EXIT_DONE;
}

int cli_export(int argc, char **argv)
{
    export_settings s = {0};
    const cli_option options[] = {
        {"output", "FILE", CLI_TEXT, &s.output, .help = "the ONNX file; - is stdout", .letter = 'o', .default_text = "",
         .also = "out,save,to"},
        {"model", "NAME", CLI_CHOICE, &s.model, "the network of the weights", .choices = train_model_names(),
         .default_text = "what the file tells", .also = "net,network,arch"},
        {"input", "N,C,H,W", CLI_TEXT, &s.input, .help = "sizes of an input",
         .default_text = "what the file tells, else what the network usually takes",
         .also = "shape,input-shape,input-size"},
        {"num-classes", "N", CLI_INT, &s.outputs, "outputs of the network", .least = 1, .most = 1 << 24,
         .default_text = "as many as the weights have", .also = "classes,outputs"},
        {"n-head", "N", CLI_INT, &s.n_head, "of gpt2: attention heads", .least = 1, .most = 1e6,
         .default_text = "as of yoke generate", .also = "heads"},
        {"external-data", NULL, CLI_FLAG, &s.external_data,
         .help = "weights in a second file, OUTPUT.data, as always where one of 2 GiB cannot hold them"},
        {0},
    };
    const cli_verb verb = {
        "yoke export", "Writes a trained network as an ONNX file.", about, examples, options, "CHECKPOINT",
        .mixed = true};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    exporter e = {.set = &s};
    if (argc - optind != 1)
        return cli_usage_error(&verb, "expected one CHECKPOINT, and --output FILE");
    if (!s.output)
        return cli_usage_error(&verb, "expected --output FILE, the ONNX file to write, or - for stdout");
    if (!parse_sizes(&e))
        return cli_usage_error(
            &verb, "--input %s: expected sizes above 0 with commas between them, such as 1,3,224,224", s.input);
    if (strcmp(s.output, "-") == 0 && isatty(STDOUT_FILENO))
        return cli_usage_error(&verb, "--output -: stdout is a terminal, and an ONNX file is no text");
    if (strcmp(s.output, "-") == 0 && s.external_data)
        return cli_usage_error(&verb, "--external-data: stdout has no place for a second file; name one by --output");
    e.path = argv[optind];
    yk_scope scope = yk_scope_begin();
    code = export_network(&e);
    yk_scope_end(scope);
    return code;
}
