/*
 * plugin_folder.c - where `make install` put the plug-ins. Layer: host.
 *
 * A file of its own because it alone is compiled again by `make install`, which knows the folder: a program that is
 * linked statically with the installed libyoke.a can lie anywhere.
 */
#include "host/plugin.h"

#ifndef YK__PLUGIN_FOLDER
#define YK__PLUGIN_FOLDER ""
#endif

const char yk__plugin_folder[] = YK__PLUGIN_FOLDER;
