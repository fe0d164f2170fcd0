/*
 * values.cpp - yoke/yoke.hpp: values compute what the C functions do and free what they hold, what fails is thrown, and
 * modules of a program's own train, are replicated, and come through C again.
 */
#include <yoke/yoke.hpp>

#include <cstring>
#include <sstream>

namespace
{

int failures = 0;

void expect(bool good, const char *what)
{
    if (!good) {
        std::printf("failed: %s\n", what);
        failures++;
    }
}
#define EXPECT(condition) expect((condition), #condition)

template <class F> void throws(yk_status code, const char *text, F &&function)
{
    try {
        function();
        std::printf("failed: nothing was thrown where '%s' was expected\n", text);
        failures++;
    } catch (const yk::error &e) {
        bool good = e.code() == code && std::strstr(e.what(), text);
        if (!good)
            std::printf("failed: '%s' (%s), expected '%s' (%s)\n", e.what(), yk_status_name(e.code()), text,
                        yk_status_name(code));
        failures += !good;
    }
    EXPECT(!yk_last_error());
}

std::vector<double> numbers(const yk::tensor &x) { return x.to(YK_F64).to_vector<double>(); }
using list = std::vector<double>;

int64_t held()
{
    yk_memory_info info{};
    yk::check(yk_device_memory({YK_CPU, 0}, &info));
    return static_cast<int64_t>(info.allocated);
}

void operators()
{
    yk::tensor a = yk::from<float>({1, 2, 3, 4}, {2, 2}), b = yk::from<float>({4, 3, 2, 1}, {2, 2});
    EXPECT(numbers(a + b) == list({5, 5, 5, 5}));
    EXPECT(numbers(a - b) == list({-3, -1, 1, 3}));
    EXPECT(numbers(a * b) == list({4, 6, 6, 4}));
    EXPECT(numbers(b / a) == list({4, 1.5, 2.0f / 3, 0.25}));
    EXPECT(numbers(-a) == list({-1, -2, -3, -4}));
    EXPECT(numbers(a + 1) == list({2, 3, 4, 5}) && numbers(1 + a) == list({2, 3, 4, 5}));
    EXPECT(numbers(a - 1L) == list({0, 1, 2, 3}) && numbers(1 - a) == list({0, -1, -2, -3}));
    EXPECT(numbers(2 * a) == list({2, 4, 6, 8}) && numbers(12 / a) == list({12, 6, 4, 3}));
    EXPECT(numbers(a > b) == list({0, 0, 1, 1}) && numbers(a >= 2) == list({0, 1, 1, 1}));
    EXPECT(numbers(2 < a) == list({0, 0, 1, 1}) && numbers(a != 3) == list({1, 1, 0, 1}) && numbers(a == b) == list({0, 0, 0, 0}));
    yk::tensor big = yk::from<int64_t>({(int64_t{1} << 53) + 1, 7});
    EXPECT(numbers(big > 7) == list({1, 0}) && numbers(big > 6.5) == list({1, 1}));
    EXPECT((big - 1).dtype() == YK_I64 && (3 - big)[1].item_i64() == -4);
    EXPECT(numbers(yk::matmul(a, b)) == list({8, 5, 20, 13}));
    EXPECT(numbers(a[1]) == list({3, 4}) && numbers(a[yk::range{0, 1}]) == list({1, 2}));
    EXPECT(numbers(a[yk::range{-1}].flatten()) == list({3, 4}));
    EXPECT(numbers(a.transpose(0, 1).reshape({4})) == list({1, 3, 2, 4}) && numbers(a.permute({1, 0})) == list({1, 3, 2, 4}));
    EXPECT(a.shape() == yk::shape({2, 2}) && a.unsqueeze(0).shape() == yk::shape({1, 2, 2}));
    EXPECT(numbers(yk::sum(a, {0})) == list({4, 6}) && yk::mean(a).item() == 2.5 && yk::max(a).item_i64() == 4);
    EXPECT(numbers(yk::cat({a, b}, 1)[0]) == list({1, 2, 4, 3}) && yk::stack({a, b}).shape() == yk::shape({2, 2, 2}));
    EXPECT(numbers(yk::where(a > 2, a, 0.0)) == list({0, 0, 3, 4}));
    EXPECT(numbers(yk::call(yk_roll, a, 1, 1)) == list({2, 1, 4, 3}));
    yk::tensor c = a.clone();
    (c += b) *= 2;
    c -= 1;
    EXPECT(numbers(c) == list({9, 9, 9, 9}) && numbers(a) == list({1, 2, 3, 4}));
    yk_tensor_options in_f64;
    in_f64.dtype = YK_F64;
    EXPECT(yk::zeros({0, 3}, in_f64).numel() == 0 && yk::full({}, 0.1, in_f64).item() == 0.1);
    std::ostringstream text;
    text << yk::arange(0, 3);
    EXPECT(text.str() == "tensor([0., 1., 2.])");
}

void gradients()
{
    yk::tensor x = yk::from<float>({1, 2, 3}).requires_grad();
    yk::sum(yk::square(x) * 2 + 1 / x).backward();
    yk::tensor expected = 4 * x.detach() - 1 / yk::square(x.detach());
    EXPECT(yk::call(yk_all_close, x.grad(), expected, 1e-6, 1e-6, false));
    EXPECT(!yk::tensor(2.0).grad());
    {
        yk::no_grad off;
        EXPECT(!yk_requires_grad((x * 2).get()));
    }
    EXPECT(yk_requires_grad((x * 2).get()));
    yk::autocast half(YK_CPU, YK_BF16);
    EXPECT(yk::matmul(yk::ones({2, 2}), yk::ones({2, 2})).dtype() == YK_BF16);
}

void values_free()
{
    int64_t before = held();
    {
        yk::tensor kept;
        for (int i = 0; i < 10; i++) {
            yk::tensor x = yk::ones({1024, 256}), copy = x;
            kept = copy + x * 2 - 1; /* a MiB each, freed at the end of the expression */
            EXPECT(held() - before <= 3 * (1 << 20) + 65536);
        }
        yk::tensor moved = std::move(kept);
        EXPECT(!kept && moved[0][0].item() == 2);
        moved = yk::tensor();
        EXPECT(held() - before < 1 << 20);
    }
    yk::scope outer; /* of C's own calls */
    yk_tensor *plain = yk_ones(YK_SHAPE(3), nullptr);
    EXPECT(yk::sum(yk::tensor(plain)).item() == 3);
}

void errors()
{
    yk::tensor a = yk::ones({2, 3});
    throws(YK_ERR_SHAPE, "(2, 3)", [&] { yk::matmul(a, a); });
    throws(YK_ERR_SHAPE, "4 values for a shape of 6", [] { yk::from<float>({1, 2, 3, 4}, {2, 3}); });
    throws(YK_ERR_ARGUMENT, "lr", [] { yk::sgd(yk::nn::linear(2, 2), {}); });
    throws(YK_ERR_ARGUMENT, "3 dimensions are named", [&] { a.permute({0, 1, 2}); });
    throws(YK_ERR_SHAPE, "item", [&] { a.item(); });
    throws(YK_ERR_ARGUMENT, "", [] { yk::tensor none; none + 1; });
    throws(YK_ERR_NOT_FOUND, "weigth", [] { yk::nn::linear(2, 2).parameter("weigth"); });
    throws(YK_ERR_IO, "nowhere", [] { yk::save("nowhere/file.safetensors", yk::nn::linear(2, 2)); });
}

/* ---- modules of a program's own ---- */
int alive = 0;

struct counted {
    counted() { alive++; }
    counted(const counted &) { alive++; }
    ~counted() { alive--; }
};

struct block : yk::nn::own_module {
    counted one;
    child fc1, fc2;
    parameter scale = add("scale", yk::ones({1}));
    parameter shift = add_buffer("shift", yk::zeros({1}));
    block(int64_t in, int64_t hidden) : fc1(add("fc1", yk::nn::linear(in, hidden))), fc2(add("fc2", yk::nn::linear(hidden, in))) {}
    yk::tensor forward(const yk::tensor &x) { return fc2(yk::tanh(fc1(x))) * scale + shift; }
};

struct two : yk::nn::own_module { /* a block inside a module that takes and gives several */
    child inner = add("inner", yk::nn::make<block>(3, 5));
    yk::tensors forward(const yk::tensors &in, int wanted)
    {
        yk::tensor y = inner(in[0]);
        if (in.size() > 1 && in[1])
            y = y * in[1];
        return wanted == 1 ? yk::tensors{y} : yk::tensors{y, yk::sum(y)};
    }
};

struct broken : yk::nn::own_module {
    counted one;
    child fc = add("fc", yk::nn::linear(2, 2));
    explicit broken(bool at_once)
    {
        if (at_once)
            throw std::runtime_error("not made");
    }
    yk::tensor forward(const yk::tensor &x)
    {
        if (x.size(0) == 1)
            throw std::runtime_error("one row is too few");
        return x.size(0) == 2 ? fc(yk::matmul(x, x)) : yk::tensor();
    }
};

void modules()
{
    {
        yk::module m = yk::nn::make<block>(3, 8), copy = m;
        EXPECT(yk_module_parameter_count(m.get()) == 3 * 8 + 8 + 8 * 3 + 3 + 1);
        EXPECT(yk_state_dict_count(m.state_dict().get()) == 6);
        yk::tensor x = yk::randn({4, 3});
        yk::tensor w1 = m.parameter("fc1.weight"), b1 = m.parameter("fc1.bias"), w2 = m.parameter("fc2.weight");
        yk::tensor by_hand = yk::matmul(yk::tanh(yk::matmul(x, w1.transpose(0, 1)) + b1), w2.transpose(0, 1)) + m.parameter("fc2.bias");
        EXPECT(yk::call(yk_all_close, m(x), by_hand, 1e-5, 1e-6, false));
        /* A part that is replaced comes into the member. */
        yk::call(yk_module_add, m, "fc2", yk::nn::sequential({}).get());
        EXPECT(m(x).shape() == yk::shape({4, 8}));
        /* So does one of a replica: of two devices each computes its half. */
        yk::module wide = yk::nn::make<block>(3, 8);
        yk_device devices[] = {{YK_CPU, 0}, {YK_CPU, 1}};
        yk_data_parallel_options o;
        o.devices = devices;
        o.count = 2;
        yk::module parallel = yk::call(yk_data_parallel, wide, &o);
        EXPECT(yk::call(yk_all_close, parallel(x), wide(x), 1e-6, 1e-6, false));
        yk::sum(parallel(x)).backward();
        EXPECT(bool(wide.parameter("fc1.weight").grad()));
        yk::module several = yk::nn::make<two>();
        yk::tensors out = several({x, yk::tensor(3.0)}, 2);
        EXPECT(out.size() == 2 && yk::call(yk_all_close, yk::sum(out[0]), out[1], 1e-5, 1e-6, false));
        EXPECT(yk::call(yk_all_close, several({x, yk::tensor()})[0] * 3, out[0], 1e-5, 1e-6, false));
        EXPECT(yk::call(yk_all_close, several(x) * 3, out[0], 1e-5, 1e-6, false));
        EXPECT(alive == 3);
    }
    EXPECT(alive == 0);
    try {
        yk::nn::make<broken>(true);
        EXPECT(false);
    } catch (const std::runtime_error &e) {
        EXPECT(std::strcmp(e.what(), "not made") == 0);
    }
    EXPECT(alive == 0);
    yk::module m = yk::nn::sequential({yk::nn::make<broken>(false)});
    throws(YK_ERR_CALLBACK, "0: a callback threw: one row is too few", [&] { m(yk::ones({1, 2})); });
    EXPECT(m(yk::ones({2, 2})).shape() == yk::shape({2, 2}));
    throws(YK_ERR_SHAPE, "matmul", [&] { m(yk::ones({2, 3})); });
    throws(YK_ERR_CALLBACK, "without an error", [&] { m(yk::ones({3, 2})); });
}

void training()
{
    yk_manual_seed(1);
    yk::handle<yk_loader> loader;
    {
        yk::scope made; /* by C's functions */
        yk_loader_options o;
        o.batch_size = 100;
        o.shuffle = true;
        yk_transform *transform = yk_default_transform("glyphs", YK_TRAIN, false);
        loader = yk::handle<yk_loader>(yk_loader_create(yk_dataset_open("glyphs", YK_TRAIN, transform), &o));
        yk::check();
    }
    yk::module net = yk::nn::sequential({yk::nn::flatten(), yk::nn::linear(784, 32), yk::nn::relu(), yk::nn::linear(32, 10)});
    yk_sgd_options o;
    o.lr = 0.1;
    o.momentum = 0.9;
    yk::optimizer sgd = yk::sgd(net, o);
    double first = 0, last = 0;
    int64_t seen = 0;
    for (const yk_batch &batch : yk::epoch(loader, 0)) {
        yk::tensor loss = yk::cross_entropy(net(yk::tensor(batch.input)), yk::tensor(batch.target));
        sgd.zero_grad();
        loss.backward();
        sgd.step();
        last = loss.item();
        first = batch.index ? first : last;
        seen += batch.count;
    }
    EXPECT(seen == 12000 && first > 2 && last < 0.7 * first);
    sgd.set_lr(0.01);
    EXPECT(sgd.lr() == 0.01);
    throws(YK_ERR_ARGUMENT, "epoch", [&] {
        for (const yk_batch &batch : yk::epoch(loader, -7))
            (void)batch;
    });
    yk::save("values.safetensors", net);
    yk::module other = yk::nn::sequential({yk::nn::flatten(), yk::nn::linear(784, 32), yk::nn::relu(), yk::nn::linear(32, 10)});
    yk::load("values.safetensors", other);
    yk::tensor x = yk::randn({2, 1, 28, 28});
    EXPECT(numbers(other(x)) == numbers(net(x)));
    std::remove("values.safetensors");
}

} // namespace

int main()
{
    try {
        setenv("YOKE_CPU_DEVICES", "2", 1);
        operators();
        gradients();
        values_free();
        errors();
        modules();
        training();
    } catch (const std::exception &e) {
        std::printf("failed: %s\n", e.what());
        failures++;
    }
    return failures ? 1 : 0;
}
