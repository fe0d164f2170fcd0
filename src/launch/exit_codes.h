/*
 * exit_codes.h - how the program and the processes that it starts end. Layer: launch.
 */
#ifndef YOKE_LAUNCH_EXIT_CODES_H
#define YOKE_LAUNCH_EXIT_CODES_H

/* EXIT_USAGE: docs/errors.md. A signal that ended a run adds its number to EXIT_SIGNAL, as shells do. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 };
/* The run was asked to end, saved a checkpoint and can be started again: EX_TEMPFAIL of sysexits.h. */
enum { EXIT_AGAIN = 75 };
/* --hang-timeout: the processes do not get on. What timeout(1) ends with. */
enum { EXIT_HUNG = 124 };
/* A program that is there but may not run, and one that is not there, as shells have them. */
enum { EXIT_MAY_NOT_RUN = 126, EXIT_NOT_THERE = 127 };

#endif
