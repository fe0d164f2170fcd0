/*
 * yoke/yoke.h - all of yoke's public headers.
 */
#ifndef YOKE_YOKE_H
#define YOKE_YOKE_H

#include <yoke/checkpoint.h>
#include <yoke/comm.h>
#include <yoke/data.h>
#include <yoke/elastic.h>
#include <yoke/onnx.h>
#include <yoke/optim.h>
#include <yoke/parallel.h>
#include <yoke/profiler.h>
#include <yoke/rpc.h>
#include <yoke/store.h>
#include <yoke/summary.h>
#include <yoke/text.h>
#include <yoke/value.h>

#endif
