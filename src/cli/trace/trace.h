/*
 * trace.h - the parts of `yoke trace`. Layer: cli.
 */
#ifndef YOKE_CLI_TRACE_TRACE_H
#define YOKE_CLI_TRACE_TRACE_H

/* `yoke trace report`, `merge` and `convert`; argv[0] is the verb's name. */
int trace_report(int argc, char **argv);
int trace_merge(int argc, char **argv);
int trace_convert(int argc, char **argv);

#endif
