/*
 * dist_optim.h - the classes of the library's own that live at owners of parameters and modules. Layer: rpc.
 */
#ifndef YOKE_RPC_DIST_OPTIM_H
#define YOKE_RPC_DIST_OPTIM_H

#include <yoke/rpc.h>

/* An optimizer on its way to another worker: its kind, by name, and its options, as a list of bools and reals. */
typedef enum yk__optim_wire {
    YK__OPTIM_SGD,
    YK__OPTIM_ADAM,
    YK__OPTIM_ADAMW,
    YK__OPTIM_ADAGRAD,
    YK__OPTIM_WIRE
} yk__optim_wire;
typedef union yk__optim_options {
    yk_sgd_options sgd;
    yk_adam_options adam; /* AdamW's too */
    yk_adagrad_options adagrad;
} yk__optim_options;

/* ---- dist_optim.c ---- */
const char *yk__optim_wire_name(int kind);
yk_value *yk__optim_options_value(int kind, const yk__optim_options *options);
/* Reads what the function above made; YK_ERR_FORMAT for a name of no kind. */
yk_status yk__optim_options_read(const char *name, const yk_value *list, int *kind,
                                 yk__optim_options *options) YK_MUST_CHECK;
yk_optimizer *yk__optim_make(int kind, yk_parameters *parameters, const yk__optim_options *options);

extern const yk_rpc_class yk__dist_optimizer_class;
extern const yk_rpc_class yk__remote_module_class; /* remote_module.c */

#endif
