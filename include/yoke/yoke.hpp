/*
 * yoke/yoke.hpp - yoke in C++17: values, operators, modules and exceptions over the C headers.
 *
 * Header-only, and nothing of it is in the library. A value (yk::tensor, yk::module, yk::optimizer, any yk::handle) holds
 * a reference to its object: it may be copied, kept and returned, and the object is freed with the last one. No scope is
 * needed; a yk::scope is for calls of the C functions, which are taken as well: x.get() is the yk_tensor *, and
 * yk::call(yk_roll, x, 1, 0) calls any of them with values and gives a value. What fails throws yk::error, with the text
 * and the code of the error record, which is empty again then. Options are the structs of the C headers: their defaults
 * are in them, yk_sgd_options o; o.lr = 0.1; or in C++20 {.lr = 0.1}.
 *
 *     yk::module net = yk::nn::sequential({yk::nn::linear(2, 16), yk::nn::tanh(), yk::nn::linear(16, 1)});
 *     yk::tensor x = yk::randn({64, 2}), loss = yk::mean(yk::square(net(x) - 2 * x[{0, 64}].select(1, 0)));
 *
 * Values are as thread-safe as shared pointers: their count is, one value is not.
 */
#ifndef YOKE_YOKE_HPP
#define YOKE_YOKE_HPP

#include <yoke/yoke.h>

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "yoke/yoke.hpp is C++17; yoke/yoke.h is C"
#endif

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <new>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace yk
{

/* ---- errors ------------------------------------------------------------------------------------------------------ */
/* An error record: what() is its message. */
class error : public std::runtime_error
{
  public:
    explicit error(const yk_error &record)
        : std::runtime_error(record.message), code_(record.code), file_(record.file), line_(record.line)
    {
    }
    yk_status code() const noexcept { return code_; }
    const char *file() const noexcept { return file_; } /* where in yoke it was found */
    int line() const noexcept { return line_; }

  private:
    yk_status code_;
    const char *file_;
    int line_;
};

/* Throws the thread's error record, and clears it. */
[[noreturn]] inline void raise()
{
    yk_error record{YK_ERR_INTERNAL, __FILE__, __LINE__, "a call failed and left no error"};
    if (const yk_error *last = yk_last_error())
        record = *last;
    yk_clear_error();
    throw error(record);
}
inline void check(yk_status status)
{
    if (status != YK_OK)
        raise();
}
/* Throws where an earlier call of a C function has left an error. */
inline void check()
{
    if (yk_last_error())
        raise();
}
template <class T> T *check(T *object)
{
    if (!object)
        raise();
    return object;
}
/* In a catch block of a callback that C calls: makes an error record of what was caught. */
inline yk_status keep_error() noexcept
{
    try {
        throw;
    } catch (const error &caught) {
        return yk_set_error(caught.code(), "%s", caught.what());
    } catch (const std::exception &caught) {
        return yk_set_error(YK_ERR_CALLBACK, "a callback threw: %s", caught.what());
    } catch (...) {
        return yk_set_error(YK_ERR_CALLBACK, "a callback threw something that is no std::exception");
    }
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */
/* Owns what C functions return while it is the innermost one. */
class scope
{
  public:
    scope() : scope_(yk_scope_begin()) {}
    ~scope() { yk_scope_end(scope_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    yk_scope get() const noexcept { return scope_; }

  private:
    yk_scope scope_;
};

/* Nothing is recorded while it lives. Source: torch.no_grad. */
class no_grad
{
  public:
    no_grad() : before_(yk_no_grad_begin()) {}
    ~no_grad() { yk_no_grad_end(before_); }
    no_grad(const no_grad &) = delete;
    no_grad &operator=(const no_grad &) = delete;

  private:
    bool before_;
};

/* Products and convolutions of a device's type in half precision while it lives. Source: torch.autocast. */
class autocast
{
  public:
    autocast(yk_device_type type, yk_dtype dtype, const yk_autocast_options &options = {})
        : before_(yk_autocast_begin(type, dtype, &options))
    {
        check();
    }
    ~autocast() { yk_autocast_end(before_); }
    autocast(const autocast &) = delete;
    autocast &operator=(const autocast &) = delete;

  private:
    yk_autocast before_;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */
/* A reference to a counted object of the C headers, or to none. */
template <class T> class handle
{
  public:
    using object = T;
    handle() noexcept = default;
    explicit handle(T *borrowed) : object_(static_cast<T *>(yk_object_retain(borrowed))) {}
    handle(const handle &other) : handle(other.object_) {}
    handle(handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    handle &operator=(handle other) noexcept
    {
        std::swap(object_, other.object_);
        return *this;
    }
    ~handle() { yk_object_release(object_); }
    T *get() const noexcept { return object_; } /* borrowed */
    explicit operator bool() const noexcept { return object_ != nullptr; }

  private:
    T *object_ = nullptr;
};

class tensor;
class module;
class optimizer;
template <class T> struct value_type { using type = handle<T>; };
template <> struct value_type<yk_tensor> { using type = tensor; };
template <> struct value_type<yk_module> { using type = module; };
template <> struct value_type<yk_optimizer> { using type = optimizer; };

template <class T, size_t N> const T *raw(const T (&argument)[N]) { return argument; }
template <class T> T raw(const T &argument) { return argument; }
template <class T> T *raw(const handle<T> &argument) { return argument.get(); }
inline yk_tensor *raw(const tensor &argument);
inline yk_module *raw(const module &argument);
inline yk_optimizer *raw(const optimizer &argument);

/*
 * Calls a C function; values among the arguments are taken as their objects. An object that it gives is a value; NULL,
 * another status than YK_OK, or a NaN with an error record is thrown; anything else is given as it is.
 */
template <class R, class... P, class... A> auto call(R (*function)(P...), const A &...arguments)
{
    scope inner;
    if constexpr (std::is_void_v<R>) {
        function(raw(arguments)...);
    } else if constexpr (std::is_same_v<R, yk_status>) {
        check(function(raw(arguments)...));
    } else if constexpr (std::is_pointer_v<R> && std::is_class_v<std::remove_pointer_t<R>> &&
                         !std::is_const_v<std::remove_pointer_t<R>>) {
        return typename value_type<std::remove_pointer_t<R>>::type(check(function(raw(arguments)...)));
    } else {
        R result = function(raw(arguments)...);
        if constexpr (std::is_floating_point_v<R>) {
            if (std::isnan(result))
                check();
        }
        return result;
    }
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */
using shape = std::vector<int64_t>;
/* [start, stop), as in Python: negative ones count from the end, YK_END is the end. */
struct range {
    int64_t start, stop = YK_END, step = 1;
};

class tensor : public handle<yk_tensor>
{
  public:
    using handle::handle;
    tensor(double value) : tensor(call(yk_scalar, value, nullptr)) {} /* 0-dimensional, f32 */

    int ndim() const { return yk_ndim(get()); }
    int64_t size(int dim) const { return yk_size(get(), dim); }
    int64_t numel() const { return yk_numel(get()); }
    yk::shape shape() const { return yk::shape(yk_sizes(get()), yk_sizes(get()) + ndim()); }
    yk_dtype dtype() const { return yk_tensor_dtype(get()); }
    yk_device device() const { return yk_tensor_device(get()); }
    double item() const { return call(yk_item, *this); }
    int64_t item_i64() const
    {
        int64_t value = yk_item_i64(get());
        return value ? value : (check(), value);
    }
    /* The elements in C order, from any device. T must have the size of the dtype. */
    template <class T> std::vector<T> to_vector() const
    {
        static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, "numbers; of bool use unsigned char");
        std::vector<T> values(static_cast<size_t>(numel()));
        check(yk_tensor_read(get(), values.data(), values.size() * sizeof(T)));
        return values;
    }
    std::string text() const
    {
        char *made = check(yk_to_string(get()));
        std::string copy(made);
        std::free(made);
        return copy;
    }

    tensor &requires_grad(bool requires_grad = true)
    {
        check(yk_set_requires_grad(get(), requires_grad));
        return *this;
    }
    bool is_leaf() const { return yk_is_leaf(get()); }
    tensor grad() const { return tensor(yk_grad(get())); } /* none: an empty value */
    void backward() const { check(yk_backward(get())); }
    tensor detach() const { return call(yk_detach, *this); }

    tensor to(yk_device device) const { return call(yk_to, *this, device); }
    tensor to(yk_dtype dtype) const { return call(yk_cast, *this, dtype); }
    tensor clone() const { return call(yk_clone, *this); }
    tensor contiguous() const { return call(yk_contiguous, *this); }
    tensor reshape(const yk::shape &to) const { return call(yk_reshape, *this, count(to), to.data()); }
    tensor view(const yk::shape &to) const { return call(yk_view, *this, count(to), to.data()); }
    tensor expand(const yk::shape &to) const { return call(yk_expand, *this, count(to), to.data()); }
    tensor permute(const std::vector<int> &dims) const
    {
        if (static_cast<int>(dims.size()) != ndim())
            check(yk_set_error(YK_ERR_ARGUMENT, "permute: %d dimensions are named, and the tensor has %d",
                               static_cast<int>(dims.size()), ndim()));
        return call(yk_permute, *this, dims.data());
    }
    tensor flatten(int start = 0, int end = -1) const { return call(yk_flatten, *this, start, end); }
    tensor transpose(int a, int b) const { return call(yk_transpose, *this, a, b); }
    tensor squeeze(int dim) const { return call(yk_squeeze, *this, dim); }
    tensor unsqueeze(int dim) const { return call(yk_unsqueeze, *this, dim); }
    tensor select(int dim, int64_t index) const { return call(yk_select, *this, dim, index); }
    tensor narrow(int dim, int64_t start, int64_t length) const { return call(yk_narrow, *this, dim, start, length); }
    tensor operator[](int64_t index) const { return select(0, index); }
    tensor operator[](range r) const { return call(yk_slice, *this, 0, r.start, r.stop, r.step); }

    tensor &operator+=(const tensor &y) { return in_place(yk_add_(get(), y.get(), 1)); }
    tensor &operator-=(const tensor &y) { return in_place(yk_add_(get(), y.get(), -1)); }
    tensor &operator*=(const tensor &y) { return in_place(yk_mul_(get(), y.get())); }
    tensor &operator+=(double y) { return *this += like(y); }
    tensor &operator-=(double y) { return *this -= like(y); }
    tensor &operator*=(double y) { return in_place(yk_mul_scalar_(get(), y)); }

    /* A number as a 0-dimensional tensor beside this one: of its dtype where that holds it, else f64. */
    tensor like(double value) const
    {
        yk_tensor_options o;
        bool floating = dtype() == YK_F32 || dtype() == YK_F64 || dtype() == YK_F16 || dtype() == YK_BF16;
        o.dtype = floating ? dtype() : value != std::floor(value) ? YK_F64 : dtype() == YK_BOOL ? YK_I64 : dtype();
        o.device = device();
        return call(yk_scalar, value, &o);
    }
    template <class T> static int count(const std::vector<T> &list) { return static_cast<int>(list.size()); }

  private:
    tensor &in_place(yk_tensor *result) { return check(result), *this; }
};
using tensors = std::vector<tensor>;
inline yk_tensor *raw(const tensor &argument) { return argument.get(); }
inline std::ostream &operator<<(std::ostream &to, const tensor &x) { return to << x.text(); }

/* Creation: yk::zeros({2, 3}), with options yk_tensor_options o; o.dtype = YK_F64. */
#define YK__CREATE(name) \
    inline tensor name(const shape &sizes, const yk_tensor_options &options = {}) { return call(yk_##name, tensor::count(sizes), sizes.data(), &options); }
YK__CREATE(empty)
YK__CREATE(zeros)
YK__CREATE(ones)
YK__CREATE(rand)
YK__CREATE(randn)
#undef YK__CREATE
inline tensor full(const shape &sizes, double value, const yk_tensor_options &options = {})
{
    return call(yk_full, tensor::count(sizes), sizes.data(), value, &options);
}
inline tensor arange(double start, double end, double step = 1, const yk_tensor_options &options = {})
{
    return call(yk_arange, start, end, step, &options);
}
inline tensor linspace(double start, double end, int64_t steps, const yk_tensor_options &options = {})
{
    return call(yk_linspace, start, end, steps, &options);
}
/* The values, in C order; the dtype is T's (float, double, int32_t, int64_t, uint8_t). */
template <class T> tensor from(const std::vector<T> &values, const shape &sizes)
{
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int32_t> ||
                      std::is_same_v<T, int64_t> || std::is_same_v<T, uint8_t>,
                  "a dtype of yoke's");
    int64_t wanted = 1;
    for (int64_t size : sizes)
        wanted *= size;
    if (wanted != static_cast<int64_t>(values.size()))
        check(yk_set_error(YK_ERR_SHAPE, "from: %lld values for a shape of %lld", static_cast<long long>(values.size()),
                           static_cast<long long>(wanted)));
    yk_tensor_options o;
    o.dtype = std::is_same_v<T, float>     ? YK_F32
              : std::is_same_v<T, double>  ? YK_F64
              : std::is_same_v<T, int32_t> ? YK_I32
              : std::is_same_v<T, int64_t> ? YK_I64
                                           : YK_U8;
    return call(yk_from_data, static_cast<const void *>(values.data()), tensor::count(sizes), sizes.data(), &o);
}
template <class T> tensor from(const std::vector<T> &values)
{
    return from(values, {static_cast<int64_t>(values.size())});
}

/* Operators, between tensors, and with numbers on either side. */
#define YK__OPERATOR(sign, name, with_number) \
    inline tensor operator sign(const tensor &a, const tensor &b) { return call(yk_##name, a, b); } \
    inline tensor operator sign(const tensor &a, double b) { return with_number; } \
    inline tensor operator sign(double a, const tensor &b) { return call(yk_##name, b.like(a), b); }
YK__OPERATOR(+, add, call(yk_add_scalar, a, b))
YK__OPERATOR(-, sub, call(yk_sub_scalar, a, b))
YK__OPERATOR(*, mul, call(yk_mul_scalar, a, b))
YK__OPERATOR(/, div, call(yk_div_scalar, a, b))
YK__OPERATOR(==, eq, call(yk_eq, a, a.like(b)))
YK__OPERATOR(!=, ne, call(yk_ne, a, a.like(b)))
YK__OPERATOR(<, lt, call(yk_lt, a, a.like(b)))
YK__OPERATOR(<=, le, call(yk_le, a, a.like(b)))
YK__OPERATOR(>, gt, call(yk_gt, a, a.like(b)))
YK__OPERATOR(>=, ge, call(yk_ge, a, a.like(b)))
#undef YK__OPERATOR
inline tensor operator-(const tensor &x) { return call(yk_neg, x); }

#define YK__UNARY(name) \
    inline tensor name(const tensor &x) { return call(yk_##name, x); }
YK__UNARY(abs) YK__UNARY(exp) YK__UNARY(log) YK__UNARY(sqrt) YK__UNARY(rsqrt) YK__UNARY(square) YK__UNARY(sin)
YK__UNARY(cos) YK__UNARY(tanh) YK__UNARY(sigmoid) YK__UNARY(relu) YK__UNARY(gelu) YK__UNARY(silu) YK__UNARY(floor)
YK__UNARY(sum) YK__UNARY(mean) YK__UNARY(var) YK__UNARY(max) YK__UNARY(min) YK__UNARY(all) YK__UNARY(any)
YK__UNARY(logical_not)
#undef YK__UNARY
inline tensor sum(const tensor &x, const std::vector<int> &dims, bool keepdim = false)
{
    return call(yk_sum_dims, x, dims.data(), tensor::count(dims), keepdim);
}
inline tensor mean(const tensor &x, const std::vector<int> &dims, bool keepdim = false)
{
    return call(yk_mean_dims, x, dims.data(), tensor::count(dims), keepdim);
}
inline tensor argmax(const tensor &x, int dim, bool keepdim = false) { return call(yk_argmax, x, dim, keepdim); }
inline tensor softmax(const tensor &x, int dim) { return call(yk_softmax, x, dim); }
inline tensor log_softmax(const tensor &x, int dim) { return call(yk_log_softmax, x, dim); }
inline tensor pow(const tensor &x, double exponent) { return call(yk_pow_scalar, x, exponent); }
inline tensor clamp(const tensor &x, double low, double high) { return call(yk_clamp, x, low, high); }
inline tensor matmul(const tensor &a, const tensor &b) { return call(yk_matmul, a, b); }
inline tensor where(const tensor &condition, const tensor &a, const tensor &b)
{
    return call(yk_where, condition, a, b);
}
inline tensor cross_entropy(const tensor &logits, const tensor &target, const yk_cross_entropy_options &options = {})
{
    return call(yk_cross_entropy, logits, target, &options);
}
inline tensor mse_loss(const tensor &x, const tensor &target, yk_reduction reduction = YK_REDUCE_MEAN)
{
    return call(yk_mse_loss, x, target, reduction);
}
/* The objects of values, for C functions that take an array. Valid as long as the values. */
inline std::vector<yk_tensor *> pointers(const tensors &values)
{
    std::vector<yk_tensor *> objects;
    for (const tensor &x : values)
        objects.push_back(x.get());
    return objects;
}
inline tensor cat(const tensors &xs, int dim = 0) { return call(yk_cat, pointers(xs).data(), tensor::count(xs), dim); }
inline tensor stack(const tensors &xs, int dim = 0)
{
    return call(yk_stack, pointers(xs).data(), tensor::count(xs), dim);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */
class module : public handle<yk_module>
{
  public:
    using handle::handle;
    tensor operator()(const tensor &x) const { return call(yk_forward, *this, x); }
    /* Several in, `wanted` out; an empty value is an input that is left out. */
    tensors operator()(const tensors &inputs, int wanted = 1) const
    {
        scope inner;
        std::vector<yk_tensor *> outputs(static_cast<size_t>(wanted > 0 ? wanted : 0));
        check(yk_forward_list(get(), pointers(inputs).data(), tensor::count(inputs), outputs.data(), wanted));
        return tensors(outputs.begin(), outputs.end());
    }
    handle<yk_parameters> parameters() const { return call(yk_module_parameters, *this); }
    handle<yk_state_dict> state_dict() const { return call(yk_module_state_dict, *this); }
    void load_state_dict(const handle<yk_state_dict> &dict) const
    {
        call(yk_module_load_state_dict, *this, dict, nullptr, nullptr);
    }
    const module &to(yk_device device) const { return check(yk_module_to(get(), device)), *this; }
    const module &to(yk_dtype dtype) const { return check(yk_module_to_dtype(get(), dtype)), *this; }
    const module &train(bool training = true) const { return yk_module_train(get(), training), *this; }
    const module &eval() const { return train(false); }
    tensor parameter(const char *name) const /* or a buffer: "0.weight" */
    {
        yk_tensor *found = yk_module_get(get(), name);
        if (!found)
            check(yk_set_error(YK_ERR_NOT_FOUND, "this module has no parameter or buffer '%s'", name));
        return tensor(found);
    }
    void zero_grad() const { yk_module_zero_grad(get()); }
};
inline yk_module *raw(const module &argument) { return argument.get(); }
/* Weights to and from safetensors, PyTorch's names. */
inline void save(const char *path, const module &m) { call(yk_safetensors_save, path, m.state_dict(), nullptr); }
inline void load(const char *path, const module &m, yk_device device = yk_device_local())
{
    m.load_state_dict(call(yk_safetensors_load, path, device));
}

namespace nn
{
inline module linear(int64_t in, int64_t out, const yk_linear_options &options = {})
{
    return call(yk_linear_create, in, out, &options);
}
inline module conv2d(int64_t in, int64_t out, int64_t kernel, const yk_conv2d_module_options &options = {})
{
    return call(yk_conv2d_create, in, out, kernel, &options);
}
inline module batch_norm2d(int64_t features, const yk_batch_norm2d_options &options = {})
{
    return call(yk_batch_norm2d_create, features, &options);
}
inline module layer_norm(const shape &normalized, const yk_layer_norm_options &options = {})
{
    return call(yk_layer_norm_create, tensor::count(normalized), normalized.data(), &options);
}
inline module embedding(int64_t count, int64_t dim, const yk_embedding_options &options = {})
{
    return call(yk_embedding_create, count, dim, &options);
}
inline module lstm(int64_t input, int64_t hidden, const yk_lstm_module_options &options = {})
{
    return call(yk_lstm_create, input, hidden, &options);
}
inline module dropout(double p = 0.5) { return call(yk_dropout_create, p); }
inline module max_pool2d(int64_t kernel, int64_t stride = 0)
{
    return call(yk_max_pool2d_create, kernel, stride, nullptr);
}
inline module relu() { return call(yk_relu_create); }
inline module gelu() { return call(yk_gelu_create); }
inline module tanh() { return call(yk_tanh_create); }
inline module flatten() { return call(yk_flatten_create); }
inline module sequential(const std::vector<module> &modules)
{
    std::vector<yk_module *> objects;
    for (const module &m : modules)
        objects.push_back(m.get());
    return call(yk_sequential_list, objects.data(), tensor::count(modules));
}

/*
 * A module of one's own: a struct with this base, whose parts are members that add() makes, and with
 * `yk::tensor forward(const yk::tensor &x)`, or `yk::tensors forward(const yk::tensors &inputs, int wanted)`:
 *
 *     struct net : yk::nn::own_module {
 *         child fc1 = add("fc1", yk::nn::linear(1, 32)), fc2 = add("fc2", yk::nn::linear(32, 1));
 *         parameter scale = add("scale", yk::ones({1}));
 *         yk::tensor forward(const yk::tensor &x) { return fc2(yk::tanh(fc1(x))) * scale; }
 *     };
 *     yk::module m = yk::nn::make<net>();
 *
 * The struct is the module's data (yk_module_data), so children and parameters that are replaced, and those of another
 * device's replica, come into the members; not into what the members keep elsewhere (a std::vector of children).
 */
class own_module
{
  public:
    class child
    {
      public:
        explicit child(yk_module *m) : module_(m) {}
        module value() const { return module(module_); }
        template <class... A> auto operator()(const A &...arguments) const { return value()(arguments...); }

      private:
        yk_module *module_; /* the module's, which retains it */
    };
    class parameter
    {
      public:
        explicit parameter(yk_tensor *x) : tensor_(x) {}
        operator tensor() const { return tensor(tensor_); }

      private:
        yk_tensor *tensor_; /* likewise */
    };

  protected:
    child add(const char *name, const module &m) { return child(check(yk_module_add(built(), name, m.get()))); }
    parameter add(const char *name, const tensor &x)
    {
        return parameter(check(yk_module_add_parameter(built(), name, x.get())));
    }
    parameter add_buffer(const char *name, const tensor &x)
    {
        return parameter(check(yk_module_add_buffer(built(), name, x.get())));
    }

  private:
    template <class T, class... A> friend module make(A &&...arguments);
    static yk_module *&built() /* by make, on this thread */
    {
        static thread_local yk_module *m = nullptr;
        return m;
    }
};

/* The C functions of a class of modules whose data is a T. */
template <class T> struct own_class {
    struct data {
        alignas(T) unsigned char memory[sizeof(T)];
        bool made;
    };
    static_assert(std::is_base_of_v<own_module, T>, "the struct has the base yk::nn::own_module");
    static_assert(alignof(T) <= alignof(std::max_align_t), "more alignment than a module's data has");
    static T &object(yk_module *m)
    {
        return *std::launder(reinterpret_cast<T *>(static_cast<data *>(yk_module_data(m))->memory));
    }
    static yk_tensor *own(const tensor &x) { return static_cast<yk_tensor *>(yk_scope_own_object(x.get())); }
    static yk_status forward(yk_module *self, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                             int n_outputs) noexcept
    {
        try {
            if constexpr (std::is_invocable_v<decltype(&T::forward), T &, const tensors &, int>) {
                tensors given = object(self).forward(tensors(inputs, inputs + n_inputs), n_outputs);
                for (size_t i = 0; i < given.size() && i < static_cast<size_t>(n_outputs); i++)
                    outputs[i] = own(given[i]);
            } else {
                if (n_inputs != 1 || n_outputs != 1)
                    return yk_set_error(YK_ERR_ARGUMENT, "this module takes one tensor and gives one, not %d for %d",
                                        n_inputs, n_outputs);
                outputs[0] = own(object(self).forward(tensor(inputs[0])));
            }
            return YK_OK;
        } catch (...) {
            return keep_error();
        }
    }
    static void destroy(yk_module *self) noexcept
    {
        if (static_cast<data *>(yk_module_data(self))->made)
            object(self).~T();
    }
    static const yk_module_class *description()
    {
        static const yk_module_class made = [] {
            yk_module_class c{};
            c.name = "Module";
            c.data_size = sizeof(data);
            c.forward_list = forward;
            c.destroy = destroy;
            return c;
        }();
        return &made;
    }
};

/* A new module of that struct, made with these arguments. */
template <class T, class... A> module make(A &&...arguments)
{
    yk::module m = call(yk_module_create, own_class<T>::description());
    auto *data = static_cast<typename own_class<T>::data *>(yk_module_data(m.get()));
    struct outer { /* modules are made in others' constructors */
        yk_module *before;
        ~outer() { own_module::built() = before; }
    } restore{std::exchange(own_module::built(), m.get())};
    ::new (static_cast<void *>(data->memory)) T(std::forward<A>(arguments)...);
    data->made = true;
    check(yk_module_check(m.get()));
    return m;
}
} // namespace nn

/* ---- optimizers -------------------------------------------------------------------------------------------------- */
class optimizer : public handle<yk_optimizer>
{
  public:
    using handle::handle;
    void step() const { check(yk_optimizer_step(get())); }
    void zero_grad() const { yk_optimizer_zero_grad(get()); }
    double lr(int group = 0) const { return call(yk_optimizer_lr, *this, group); }
    void set_lr(double lr, int group = 0) const { check(yk_optimizer_set_lr(get(), group, lr)); }
};
inline yk_optimizer *raw(const optimizer &argument) { return argument.get(); }
inline optimizer sgd(const module &m, const yk_sgd_options &options) { return call(yk_sgd, m.parameters(), &options); }
inline optimizer adam(const module &m, const yk_adam_options &options = {})
{
    return call(yk_adam, m.parameters(), &options);
}
inline optimizer adamw(const module &m, const yk_adam_options &options = {})
{
    return call(yk_adamw, m.parameters(), &options);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
/* for (const yk_batch &batch : yk::epoch(loader, e)): tensors of the batch are the loader's until the next one. */
class epoch
{
  public:
    epoch(const handle<yk_loader> &loader, int64_t number) : loader_(loader) { yk_loader_start(loader.get(), number); }
    struct end_mark {};
    class iterator
    {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = yk_batch;
        using difference_type = std::ptrdiff_t;
        using pointer = const yk_batch *;
        using reference = const yk_batch &;
        explicit iterator(yk_loader *loader) : loader_(loader) { ++*this; }
        const yk_batch &operator*() const { return batch_; }
        iterator &operator++()
        {
            more_ = yk_loader_next(loader_, &batch_);
            if (!more_)
                check();
            return *this;
        }
        bool operator!=(end_mark) const { return more_; }

      private:
        yk_loader *loader_;
        yk_batch batch_{};
        bool more_ = false;
    };
    iterator begin() const { return iterator(loader_.get()); }
    end_mark end() const { return {}; }

  private:
    handle<yk_loader> loader_;
};

} // namespace yk
#endif
