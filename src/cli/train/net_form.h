/*
 * net_form.h - what a network takes and gives, as a saved file tells it. Layer: cli.
 *
 * `yoke train` writes it into the metadata of the weights that it saves, and `yoke predict` makes the network and its
 * inputs from it. The keys are in docs/own-data.md.
 */
#ifndef YOKE_CLI_TRAIN_NET_FORM_H
#define YOKE_CLI_TRAIN_NET_FORM_H

#include <yoke/checkpoint.h>
#include <yoke/data.h>

/* The ways to bring a picture to the network's size. */
typedef enum form_fit {
    FORM_AS_IS,  /* pictures of the data set have that size; others are taken as by FORM_MIDDLE */
    FORM_MIDDLE, /* the shorter side is brought to it, the middle is taken */
    FORM_EXACT,  /* the picture is brought to that height and width */
    FORM_ROW     /* it is no picture, but a row of numbers */
} form_fit;

/* Texts and arrays are its own, freed by net_form_clear. Zero memory is a valid one, without anything. */
typedef struct net_form {
    char *model;        /* of a shared object the name of its file */
    const char *object; /* the shared object's path, borrowed, which no file of weights tells; NULL: it is none */
    int64_t channels, height, width; /* of a row: its columns, 1 and 1 */
    int64_t outputs;                 /* of the network: at least n_classes */
    char **classes;                  /* names of the first outputs; NULL: the data set has none */
    int64_t n_classes;
    form_fit fit;
    double *mean, *std; /* (channels) of what is subtracted and divided by; NULL: neither */
    char **columns;     /* (channels) of a row: names of the inputs; else NULL */
    char *target;       /* of a row: the column of the classes */
} net_form;

void net_form_clear(net_form *form);
/* Copies a list of texts into *to, freed with the form. */
yk_status net_form_copy_names(char ***to, const char *const *names, int64_t count);
/* The name of an output: that of its class, or its number, written into `text`. */
const char *net_form_class(const net_form *form, int64_t output, char text[32]);

/* The network with new weights, of that model and size; owned by the scope. */
yk_module *net_form_network(const net_form *form);
/* The transform that makes the network's input of a decoded picture (3, height, width) of any size; owned by the scope.
 */
yk_transform *net_form_transform(const net_form *form);

/* Writes the weights: PyTorch's .pt where the name ends in .pt or .pth, otherwise safetensors; the form is in either's
 * metadata. */
yk_status net_form_save(const char *path, yk_module *net, const net_form *form);
/* Reads the form of a file, which may hold weights from elsewhere: then `form->model` is NULL. The weights go to *dict
 * unless that is NULL, owned by the scope. An error names the path. */
yk_status net_form_load(const char *path, yk_device device, net_form *form, yk_state_dict **dict);

#endif
