/*
 * run_folder.h - the folder in which the launchers of a user announce their runs (announcement.h). Layer: launch.
 *
 * YOKE_RUN_DIR, or else $XDG_RUNTIME_DIR/yoke, /run/user/UID/yoke and /tmp/yoke-UID: a launcher takes the first of
 * these whose parent is the user's own (that of the last one is everybody's), and who looks for runs looks in all of
 * them, since a batch job and a login of one user need not have the same variables. The folder belongs to the user, is
 * no link, and nobody else may enter it (0700); one that is otherwise is not used.
 */
#ifndef YOKE_LAUNCH_RUN_FOLDER_H
#define YOKE_LAUNCH_RUN_FOLDER_H

#include "base/core.h"

enum { YK__RUN_FOLDERS = 3, YK__RUN_FOLDER_PATH = 4096 };

/* The path of candidate `index`, from 0; false where there is no such candidate. */
bool yk__run_folder_path(int index, char path[YK__RUN_FOLDER_PATH]);
/* A descriptor of that folder. -1 without an error where it is not there; -1 and an error where it may not be used. */
int yk__run_folder_open(const char *path);
/* The folder for this process's own announcement, made where it is not there; its path goes to `path`. -1 and an error
 * where there is none. */
int yk__run_folder_make(char path[YK__RUN_FOLDER_PATH]);

#endif
