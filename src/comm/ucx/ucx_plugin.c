/*
 * ucx_plugin.c - the object yoke-ucx.so: native's table with a carrier, and UCX in this process. Layer: comm/ucx.
 *
 * UCX reads its own environment (UCX_TLS, UCX_NET_DEVICES, ...). When it is loaded it takes over signals that are this
 * process's to handle; they are given back, unless UCX_HANDLE_ERRORS says otherwise. What it would write to standard
 * output is left out, unless UCX_LOG_LEVEL asks for it: a failure is the error that the caller gets.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "comm/ucx/ucx_carrier.h"

const yk__base_services *ucx_base;

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static ucp_context_h context;

yk_status ucx_failed(const char *what, ucs_status_t status)
{
    static const char *const names[] = {"UCX_TLS", "UCX_NET_DEVICES", "UCX_SHM_DEVICES"};
    char given[300] = "";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        size_t used = strlen(given);
        if (value)
            snprintf(given + used, sizeof(given) - used, "%s%s=%.80s", used ? ", " : " (", names[i], value);
    }
    return ucx_fail(YK_ERR_CONNECTION, "the ucx backend: %s: UCX says: %s%s%s; `ucx_info -d` lists its transports",
                    what, ucs_status_string(status), given, *given ? ")" : "");
}

ucp_context_h ucx_context(void)
{
    pthread_mutex_lock(&context_lock);
    ucp_config_t *config = NULL;
    ucs_status_t status = UCS_OK;
    if (!context) {
        status = ucp_config_read(NULL, NULL, &config);
        const ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                         .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                                         .mt_workers_shared = 1};
        if (status == UCS_OK) {
            if (!getenv("UCX_RNDV_SCHEME")) /* Note [Memory that UCX still has] */
                status = ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
            if (status == UCS_OK)
                status = ucp_init(&parameters, config, &context);
            ucp_config_release(config);
        }
        if (status != UCS_OK) {
            context = NULL;
            (void)ucx_failed("it cannot begin", status);
        }
    }
    pthread_mutex_unlock(&context_lock);
    return context;
}

/* ---- the object's one export ------------------------------------------------------------------------------------- */
static yk__comm_backend backend;

static const void *start_plugin(const yk__base_services *base, const void *services)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP};
    const yk__comm_services *yoke = services;
    ucx_base = base;
    backend = *yoke->native;
    backend.name = "ucx";
    backend.carrier = &ucx_carrier;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]) && !getenv("UCX_HANDLE_ERRORS"); i++)
        ucs_debug_disable_signal(signals[i]);
    if (!getenv("UCX_LOG_LEVEL"))
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    return &backend;
}

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

const yk__plugin yk__plugin_description = {
    .format = YK__PLUGIN_FORMAT,
    .name = "ucx",
    .version = YK_VERSION,
    .interface = YK__COMM_PLUGIN_INTERFACE,
    .sizes = YK__COMM_PLUGIN_SIZES,
    .built_with = "UCX " TEXT_OF(UCP_API_MAJOR) "." TEXT_OF(UCP_API_MINOR),
    .start = start_plugin,
};
