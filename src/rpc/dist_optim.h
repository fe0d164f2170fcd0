/*
 * dist_optim.h - the classes of the library's own that live at owners of parameters and modules. Layer: rpc.
 */
#ifndef YOKE_RPC_DIST_OPTIM_H
#define YOKE_RPC_DIST_OPTIM_H

#include <yoke/rpc.h>

extern const yk_rpc_class yk__dist_optimizer_class; /* dist_optim.c */
extern const yk_rpc_class yk__remote_module_class;  /* remote_module.c */

#endif
