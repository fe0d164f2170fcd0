/*
 * fuzz_training.c - libFuzzer on state.json, as it follows its checksum: whatever the JSON, no crash and no leak; what
 * a run takes from it can be saved and taken again, and it becomes one value, for PyTorch, which is then a valid
 * checkpoint, or an error.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/training/training.h"
#include "checkpoint/training/training_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static yk_metadata settings[] = {{"model", "linear"}, {NULL, NULL}};
static double loss;
static const yk_checkpoint_value values[] = {{"loss", &loss}, {NULL, NULL}};
static yk_checkpoint_state run;
static yk_loader_state first_place;
static yk_grad_scaler_state first_scale;
static char folder[64]; /* a checkpoint whose state.json is replaced again and again */

static void check(yk_status status)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", yk_last_error()->message);
    abort();
}

static void remove_folder(void)
{
    yk__folder_remove(AT_FDCWD, folder);
}

/* A run with one of everything that has state. */
static void begin(void)
{
    yk_scope_begin(); /* never ends */
    run = (yk_checkpoint_state){.model = yk_linear_create(2, 2, NULL), .settings = settings, .values = values};
    run.optimizer = yk_adamw(yk_module_parameters(run.model), YK_OPTIONS(yk_adam_options, .lr = 0.1));
    run.schedule = yk_linear_warmup_lr(run.optimizer, 4, 0.25, yk_step_lr(run.optimizer, 30, 0.1));
    run.loader =
        yk_loader_create(yk_glyphs(YK_TEST, NULL, 0), YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = true));
    run.scaler = yk_grad_scaler_create(NULL);
    yk_loader_start(run.loader, 0);
    check(yk__error_code());
    first_place = yk_loader_get_state(run.loader);
    first_scale = yk_grad_scaler_get_state(run.scaler);
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/yoke-fuzz-XXXXXX" : "/tmp/yoke-fuzz-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
    check(yk_checkpoint_save(folder, &run));
}

static yk_status take(json_t *json)
{
    yk__snapshot snapshot, reuse = {0};
    check(yk__snapshot_take(&run, &snapshot));
    check(yk__snapshot_copy(&snapshot, &reuse)); /* loading gives its tensors away */
    json_decref(snapshot.state);
    snapshot.state = json_incref(json);
    yk_status status = yk__snapshot_apply("fuzz", &snapshot, &run, NULL, NULL);
    yk__snapshot_clear(&snapshot);
    return status;
}

/* Every input finds the run as it began. */
static void put_back(void)
{
    check(yk_loader_set_state(run.loader, &first_place));
    check(yk_schedule_set_time(run.schedule, 0));
    check(yk_grad_scaler_set_state(run.scaler, &first_scale));
    yk_random_set_state((yk_random_state){0});
}

static void load(json_t *json)
{
    put_back();
    if (!take(json)) {
        yk__snapshot again;
        check(yk__snapshot_take(&run, &again));
        check(take(again.state));
        yk__snapshot_clear(&again);
        yk_loader_state place = yk_loader_get_state(run.loader);
        if (place.start < 0 || place.start > place.dataset_length || place.batch < 0 ||
            yk_schedule_time(run.schedule) < 0)
            abort();
    }
    yk_clear_error();
    yk__snapshot_restore_random(&(yk__snapshot){.state = json}, 1);
}

/* Converts a checkpoint of this state.json, whose other files are valid. */
static void convert(json_t *json)
{
    static json_t *files;
    char path[80];
    snprintf(path, sizeof(path), "%s/state.json", folder);
    if (!files) {
        json_t *state = json_load_file(path, 0, NULL);
        files = json_incref(json_object_get(state, "files"));
        json_decref(state);
    }
    unlink(path);
    yk__folder opened = {.fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .temporary = folder};
    yk__folder_files written = {.folder = &opened};
    check(yk__state_write(&written, json, files));
    check(yk__folder_commit_files(&written));
    close(opened.fd);
    yk_value *value = yk__training_to_value(folder);
    if (value && (!yk_value_get(value, "model") || !yk_value_get(value, "epoch") || yk_checkpoint_verify(folder)))
        abort();
    yk_clear_error();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!run.model)
        begin();
    json_t *json = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    yk_scope scope = yk_scope_begin();
    if (json_is_object(json)) {
        load(json);
        if (!json_object_get(json, "checksum")) /* written by the seal itself */
            convert(json);
    }
    yk_scope_end(scope);
    json_decref(json);
    return 0;
}
