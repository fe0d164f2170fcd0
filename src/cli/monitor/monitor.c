/*
 * monitor.c - `yoke monitor`: what devices and runs of this machine do, for Prometheus and for a browser. Layer: cli.
 *
 * Its options are dcgm-exporter's where they are the same thing. It opens no door: without TLS and passwords it listens
 * on loopback alone.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_line.h"
#include "cli/monitor/monitor_http.h"
#include "cli/monitor/textfile.h"
#include "cli/options.h"
#include "host/nvml.h"
#include "net/socket.h"
#include "observe/metrics.h"
#include "observe/page.h"
#include "observe/snapshot_json.h"

enum { PORT = 9400, BACKLOG = 64 };

typedef struct monitor {
    const char *address, *file, *dialect, *config_file, *hosts, *textfile;
    int64_t interval; /* milliseconds */
    bool no_hostname;
    char host[YK__HOST_SIZE];
    yk__dcgm_collectors collectors;
    yk__metrics_options options;
    yk__sampler *sampler;
    web_config config;
    char names[3 * YK__HOST_SIZE]; /* of this machine: its own, and --hosts */
} monitor;

/* Writes the snapshot that the page draws. */
static void monitor_snapshot(monitor *m, FILE *body)
{
    json_t *shot = yk__snapshot_json(yk__sampler_take(m->sampler), NULL);
    json_object_set_new(shot, "host", yk__json_text(m->host, strlen(m->host)));
    char *line = yk__json_line(shot, YK__JSON_DIGITS);
    fputs(line ? line : "null\n", body);
    free(line);
}

/* On the server's thread, one call at a time. */
static const char *monitor_page(void *argument, const char *path, FILE *body)
{
    monitor *m = argument;
    bool all = strcmp(path, "/metrics") == 0, dcgm = all || strcmp(path, "/metrics/dcgm") == 0;
    bool yoke = all || strcmp(path, "/metrics/yoke") == 0;
    const char *type, *text;
    size_t size;
    if (strcmp(path, "/health") == 0) {
        fputs("OK\n", body);
        return "text/plain; charset=utf-8";
    }
    if (yk__page_part(path, &type, &text, &size)) {
        fwrite(text, 1, size, body);
        return type;
    }
    if (strcmp(path, "/api/snapshot") == 0) {
        monitor_snapshot(m, body);
        return "application/json";
    }
    if (!dcgm && !yoke)
        return NULL;
    const yk__snapshot *snapshot = yk__sampler_take(m->sampler);
    if (dcgm)
        yk__metrics_dcgm(body, snapshot, &m->options);
    if (yoke)
        yk__metrics_yoke(body, snapshot, &m->options);
    return "text/plain; version=0.0.4; charset=utf-8";
}

/* Returns a listening socket; or -1 after a message, with the exit code in *code. */
static int monitor_listen(const cli_verb *verb, const monitor *m, yk__address *bound, int *code)
{
    char all[64], host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    yk__address address;
    int port;
    *code = EXIT_USAGE;
    bool any = m->address[0] == ':'; /* as dcgm-exporter writes: all addresses */
    snprintf(all, sizeof(all), "*%s", m->address);
    if (yk__host_port_parse(any ? all : m->address, PORT, host, &port)) {
        *code = cli_usage_error(verb, "--address: %s", yk_last_error()->message);
        yk_clear_error();
        return -1;
    }
    if (any)
        yk__address_any(port, &address);
    else if (!yk__resolve(host, port, yk__now() + 10, &address, 1, why)) {
        *code = cli_usage_error(verb, "--address %s: %s", m->address, why);
        return -1;
    }
    if (!yk__address_is_loopback(&address) && (!m->config.cert || !m->config.n_users)) {
        const char *lacks = m->config_file && m->config.cert      ? "its web configuration has no basic_auth_users"
                            : m->config_file && m->config.n_users ? "its web configuration has no tls_server_config"
                                                                  : "there is neither TLS nor a password";
        *code =
            cli_usage_error(verb,
                            "--address %s: other machines could reach it, and %s. Give --web-config-file with both, or "
                            "an address of this machine alone, 127.0.0.1:%d, and let others come through "
                            "ssh (ssh -L %d:127.0.0.1:%d HOST) or a proxy that asks who they are",
                            m->address, lacks, PORT, PORT, PORT);
        return -1;
    }
    int fd = yk__listen(&address, BACKLOG, bound);
    if (fd < 0)
        *code = cli_failed();
    return fd;
}

static void monitor_say(const monitor *m, const yk__address *bound)
{
    char text[YK__ADDRESS_TEXT], problem[YK__NVML_PROBLEM];
    const char *driver;
    const yk__snapshot *s = yk__sampler_take(m->sampler);
    printf("yoke monitor: http%s://%s/metrics\n", m->config.cert ? "s" : "", yk__address_format(bound, text));
    driver = s->driver;
    if (s->n_gpus < 0 && yk__nvml_problem(problem))
        printf("%s; there are no metrics of GPUs\n", problem);
    else if (s->n_gpus < 0)
        printf("no NVIDIA driver: there are no metrics of GPUs\n");
    else
        printf("%d GPU%s, driver %s%s\n", s->n_gpus, s->n_gpus == 1 ? "" : "s", *driver ? driver : "unknown",
               s->gpm || !s->n_gpus ? "" : "; DCGM_FI_PROF_* need GPM (Hopper and later), which none of them has");
    for (int i = 0; i < m->collectors.count; i++) {
        if (m->collectors.all[i].field->kind == YK__DCGM_NONE)
            printf("%s is not served: NVML is not asked for it\n", m->collectors.all[i].field->name);
    }
    if (s->runs.problem[0])
        printf("%s\n", cli_plain(s->runs.problem));
    fflush(stdout);
}

/* Serves until a signal asks for the end. */
static int monitor_serve(const cli_verb *verb, monitor *m)
{
    int code, number = 0;
    yk__address bound;
    sigset_t ends;
    int fd = monitor_listen(verb, m, &bound, &code);
    if (fd < 0)
        return code;
    if (!(m->sampler = yk__sampler_create((double)m->interval / 1000))) {
        yk__socket_close(fd);
        return cli_failed();
    }
    monitor_say(m, &bound);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the server's thread, which is not to take them */
    signal(SIGPIPE, SIG_IGN);
    const http_options options = {.page = monitor_page,
                                  .argument = m,
                                  .config = &m->config,
                                  .passwords = m->config.n_users ? password_check_create(&m->config) : NULL,
                                  .hosts = m->names};
    bool checked = options.passwords || !m->config.n_users;
    http_server *server = checked ? http_server_start(fd, &options) : NULL;
    if (!checked)
        yk__socket_close(fd);
    if (server) {
        sigwait(&ends, &number);
        http_server_stop(server);
    }
    code = server ? EXIT_DONE : cli_failed();
    password_check_free(options.passwords);
    yk__sampler_free(m->sampler);
    return code;
}

/* ---- a file for node_exporter ------------------------------------------------------------------------------------ */
static void metrics_write(void *argument, FILE *to)
{
    monitor *m = argument;
    const yk__snapshot *snapshot = yk__sampler_take(m->sampler);
    yk__metrics_dcgm(to, snapshot, &m->options);
    yk__metrics_yoke(to, snapshot, &m->options);
}

/* Writes it again and again until a signal asks for the end. A file that cannot be written later on is said once, and
 * taken away as far as that goes, as it is at the end: what it says is not true any more. */
static int monitor_keep_textfile(monitor *m, bool once)
{
    sigset_t ends;
    bool failed = false;
    if (!(m->sampler = yk__sampler_create(0)))
        return cli_failed();
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    int code = textfile_write(m->textfile, metrics_write, m) ? cli_failed() : EXIT_DONE;
    if (code == EXIT_DONE && !once) {
        printf("yoke monitor: %s, every %g s\n", cli_plain(m->textfile), (double)m->interval / 1000);
        fflush(stdout);
    }
    const struct timespec pause = {.tv_sec = m->interval / 1000, .tv_nsec = m->interval % 1000 * 1000000};
    while (code == EXIT_DONE && !once && sigtimedwait(&ends, NULL, &pause) < 0) {
        if (errno == EINTR)
            continue;
        bool before = failed;
        failed = textfile_write(m->textfile, metrics_write, m) != YK_OK;
        if (failed && !before)
            cli_failed();
        if (failed)
            unlink(m->textfile);
        yk_clear_error();
    }
    if (code == EXIT_DONE && !once)
        unlink(m->textfile);
    yk__sampler_free(m->sampler);
    return code;
}

/* Reads the web configuration, and notes the names by which this machine may be called; else *code. */
static bool monitor_protect(const cli_verb *verb, monitor *m, int *code)
{
    char own[YK__HOST_SIZE] = "";
    if (m->config_file && web_config_read(m->config_file, &m->config)) {
        bool wrong = yk__error_code() == YK_ERR_FORMAT;
        *code = wrong ? cli_usage_error(verb, "--web-config-file: %s", yk_last_error()->message) : cli_failed();
        yk_clear_error();
        return false;
    }
    if (m->config.n_users && !m->config.cert)
        fprintf(stderr, "yoke monitor: without tls_server_config passwords go over the network as they are\n");
    gethostname(own, sizeof(own) - 1);
    snprintf(m->names, sizeof(m->names), "%s", m->hosts ? m->hosts : "");
    if (m->config.n_users) /* who has the password may call it by its name */
        snprintf(m->names + strlen(m->names), sizeof(m->names) - strlen(m->names), ",%s,%.*s", own,
                 (int)strcspn(own, "."), own);
    return true;
}

int cli_monitor(int argc, char **argv)
{
    static const char *const dialects[] = {"old", "new", "both", NULL};
    bool once = false;
    monitor m = {.address = "127.0.0.1:9400", .dialect = "old", .interval = 1000};
    const cli_option options[] = {
        {"address", "HOST:PORT", CLI_TEXT, &m.address,
         .help = "where to listen: beyond loopback with TLS and passwords alone; port 0 is a free one", .letter = 'a',
         .variable = "DCGM_EXPORTER_LISTEN", .also = "listen,web-listen-address,port"},
        {"collectors", "FILE.csv", CLI_TEXT, &m.file, .help = "the DCGM_FI_* metrics to serve, as dcgm-exporter's",
         .letter = 'f', .default_text = "as deploy/default-counters.csv", .variable = "DCGM_EXPORTER_COLLECTORS"},
        {"collect-interval", "MS", CLI_INT, &m.interval,
         .help = "GPUs are asked again when what they said is older; runs at every request", .least = 0, .most = 3.6e6,
         .letter = 'c', .variable = "DCGM_EXPORTER_INTERVAL"},
        {"no-hostname", NULL, CLI_FLAG, &m.no_hostname, .help = "no label with the name of this machine",
         .letter = 'n'},
        {"web-config-file", "FILE.yml", CLI_TEXT, &m.config_file,
         .help = "TLS and passwords, as Prometheus' exporters have them (tls_server_config, basic_auth_users)",
         .default_text = "", .variable = "DCGM_EXPORTER_WEB_CONFIG_FILE", .also = "tls,password"},
        {"web.config.file", "FILE.yml", CLI_TEXT, &m.config_file, .help = "the same", .hidden = true},
        {"hosts", "NAME,NAME", CLI_TEXT, &m.hosts, .help = "further names by which clients may call this machine",
         .default_text = ""},
        {"textfile", "FILE.prom", CLI_TEXT, &m.textfile,
         .help = "serve nobody, and write the metrics there for node_exporter, every --collect-interval",
         .default_text = ""},
        {"once", NULL, CLI_FLAG, &once, .help = "write the --textfile once, as for a timer of systemd"},
        {"labels", "WHICH", CLI_CHOICE, &m.dialect,
         .help = "of DCGM_FI_*: old: Hostname, as dcgm-exporter up to 4.8.2; new: hostname; both", .choices = dialects},
        {0}};
    const cli_verb verb = {
        .name = "yoke monitor",
        .summary = "Serves what the GPUs and the runs of this machine do to Prometheus: /metrics, or /metrics/dcgm\n"
                   "and /metrics/yoke apart; / is a page for a browser, /health says OK.",
        .about =
            "DCGM_FI_* have the names, types and labels of dcgm-exporter, so that its dashboards work; yoke_* are\n"
            "steps, losses, phases, waiting and memory of each rank that `yoke run` of this user has started.\n"
            "What is not known is left out, and never 0. SIGTERM and SIGINT end it.\n",
        .examples = "  yoke monitor\n"
                    "  yoke monitor -a 127.0.0.1:0 -f deploy/default-counters.csv -c 15000\n"
                    "  yoke monitor -a :9400 --web-config-file web.yml\n"
                    "  yoke monitor --textfile /var/lib/prometheus/node-exporter/yoke.prom -c 15000\n",
        .options = options,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    size_t end = m.textfile ? strlen(m.textfile) : 0;
    if (m.textfile && (end < 6 || strcmp(m.textfile + end - 5, ".prom") != 0))
        return cli_usage_error(&verb, "--textfile %s: node_exporter reads files whose names end in .prom alone",
                               m.textfile);
    if (m.textfile && m.config_file)
        return cli_usage_error(&verb, "--textfile serves nobody: --web-config-file has nothing to protect there");
    if (m.textfile && !once && m.interval < 100)
        return cli_usage_error(&verb, "--collect-interval %d: a --textfile is written every 100 ms at most",
                               (int)m.interval);
    if (once && !m.textfile)
        return cli_usage_error(&verb, "--once goes with --textfile");
    const char *node = getenv("NODE_NAME");
    if (node && *node)
        snprintf(m.host, sizeof(m.host), "%s", node);
    else
        gethostname(m.host, sizeof(m.host) - 1);
    m.options = (yk__metrics_options){.host = m.no_hostname ? NULL : m.host, .collectors = &m.collectors};
    m.options.label = m.dialect[0] == 'b'   ? YK__HOST_LABEL_BOTH
                      : m.dialect[0] == 'n' ? YK__HOST_LABEL_NEW
                                            : YK__HOST_LABEL_OLD;
    yk_status status = yk__dcgm_collectors_read(m.file, &m.collectors);
    if (status == YK_ERR_FORMAT) {
        code = cli_usage_error(&verb, "--collectors: %s", yk_last_error()->message);
        yk_clear_error();
        return code;
    }
    if (status)
        return cli_failed();
    code = EXIT_FAILED;
    if (m.textfile)
        code = monitor_keep_textfile(&m, once);
    else if (monitor_protect(&verb, &m, &code))
        code = monitor_serve(&verb, &m);
    web_config_clear(&m.config);
    yk__dcgm_collectors_clear(&m.collectors);
    return code;
}
