/*
 * value_json.h - the shape of a value as JSON, its tensors left out by name. Layer: checkpoint.
 *
 * Where a format holds only named tensors and text (safetensors), this text is what puts the nested state together
 * again. Numbers, booleans, null, text and lists are JSON's own (integers of 64 bits); the rest is an object of one
 * member: {"tensor": NAME}, {"tuple": [...]}, {"set": [...]}, {"dict": [[KEY, VALUE], ...]}, {"bytes": HEX},
 * {"real": "nan"} (or "inf", "-inf"), {"text": HEX} with a zero byte in it, {"ordered": [[KEY, VALUE], ...],
 * "attributes": VALUE}; {"size": [...]}, {"counter": [[KEY, VALUE], ...]}, {"dtype": TEXT} and
 * {"device": TEXT} are the forms of tuple, dict and text that value.h lists.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_VALUE_JSON_H
#define YOKE_CHECKPOINT_FORMATS_VALUE_JSON_H

#include <jansson.h>

#include "value/value.h"

/* The text, which the caller frees. Tensors are named as yk_value_flatten names them; those in attributes of dicts
 * are an error. */
char *yk__value_to_json(const yk_value *value);
/* One reference to the value, whose tensors are those of `dict` by their names, each once. `path` is for messages. */
yk_value *yk__value_from_json(const char *path, const char *text, const yk_state_dict *dict);

#endif
