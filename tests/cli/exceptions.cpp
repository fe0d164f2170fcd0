/* exceptions.cpp - what callbacks throw becomes an error of the call, on the program's thread and on a loader's. */
#include <yoke/yoke.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace
{

int failures = 0;

/* The last error is this one, of a callback. */
void expect(const char *where, const char *message)
{
    const yk_error *error = yk_last_error();
    bool good = error && error->code == YK_ERR_CALLBACK && std::strstr(error->message, message);
    std::printf("%s: %s\n", where, good ? "an error" : error ? error->message : "no error");
    failures += !good;
    yk_clear_error();
}

yk_status get(void *, int64_t index, yk_sample *sample)
{
    if (index == 7)
        throw std::out_of_range("no sample 7");
    const int64_t shape[] = {3};
    auto *to = static_cast<float *>(yk_sample_allocate(sample, YK_F32, 1, shape));
    for (int i = 0; to && i < 3; i++)
        to[i] = static_cast<float>(index);
    return to ? YK_OK : YK_ERR_MEMORY;
}

yk_tensor *hook(yk_tensor *, void *)
{
    throw std::runtime_error("the gradient is not liked");
}

yk_tensor *forward(yk_custom *, yk_tensor *const *, int)
{
    throw 7;
}

yk_status backward(yk_custom *, yk_tensor *, yk_tensor **, int)
{
    return YK_OK;
}

yk_status visit(yk_module *, void *)
{
    throw std::runtime_error("the module is not liked");
}

} // namespace

int main()
{
    yk_scope program = yk_scope_begin();
    for (int workers = 0; workers <= 2; workers += 2) {
        yk_dataset *set = yk_dataset_create(
            YK_OPTIONS(yk_dataset_table, .name = "own", .length = 12, .get = yk_catch<get>), nullptr, nullptr);
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = workers));
        yk_batch batch;
        int batches = 0;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);)
            batches++;
        failures += batches != 1;
        expect(workers ? "a data set on two workers" : "a data set", "a callback threw: no sample 7");
    }
    const int64_t shape[] = {3};
    yk_tensor *x = yk_ones(1, shape, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    failures += yk_register_hook(x, yk_catch<hook>, nullptr) == 0;
    failures += yk_backward(yk_sum(x)) == YK_OK;
    expect("a hook", "a callback threw: the gradient is not liked");
    yk_custom_function function{};
    function.name = "own";
    function.forward = yk_catch<forward>;
    function.backward = yk_catch<backward>;
    failures += yk_custom_apply(&function, &x, 1, nullptr) != nullptr;
    expect("a custom function", "a callback threw something that is no std::exception");
    failures += yk_module_apply(yk_lenet(nullptr), yk_catch<visit>, nullptr) == YK_OK;
    expect("module_apply", "a callback threw: the module is not liked");
    yk_scope_end(program);
    return failures || yk_last_error();
}
