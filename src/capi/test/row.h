#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/core/context.h"

#include "capi/test/call_tensors.h"

namespace heddle::testing {

/// Where an operation has an implementation.
enum class RunsOn { kBoth, kCpu, kGpu };

using CCall = std::function<heddle_status(heddle_context*, PlacedTensors&)>;

/// One row of the table: a C function and its C++ counterpart, with the tensors of a call.
/// ops_test_body.h says what holds of every row.
struct Row {
  struct Refused {
    std::string message;  // its beginning
    CCall call;
    RunsOn where;
  };
  std::string name;
  std::vector<CallTensor> tensors;
  CCall c;
  std::function<void(const ExecContext&, PlacedTensors&)> cpp;
  std::vector<Refused> refused{};
  RunsOn where = RunsOn::kBoth;
  heddle_status elsewhere = HEDDLE_UNSUPPORTED;
};

/// One tensor as an argument.
struct TensorArgument {
  CallTensor tensor;
  size_t at = 0;  // in the row

  DLTensor* c(heddle_context*, PlacedTensors& all) const { return all[at].c(); }
  TensorView cpp(const ExecContext&, PlacedTensors& all) const { return all[at].cpp(); }
  void join(std::vector<CallTensor>& row) {
    at = row.size();
    row.push_back(tensor);
  }
};
/// An argument without tensors.
template <class C, class Cpp>
struct Both {
  C in_c;
  Cpp in_cpp;

  C c(heddle_context*, PlacedTensors&) const { return in_c; }
  Cpp cpp(const ExecContext&, PlacedTensors&) const { return in_cpp; }
  void join(std::vector<CallTensor>&) {}
};
template <class C, class Cpp>
Both<C, Cpp> both(C in_c, Cpp in_cpp) {
  return {in_c, in_cpp};
}
/// An argument that c_of(context, ...) and cpp_of(context, ...) make of others.
template <class MakeC, class MakeCpp, class... Args>
struct Made {
  MakeC c_of;
  MakeCpp cpp_of;
  std::tuple<Args...> args;

  auto c(heddle_context* context, PlacedTensors& all) const {
    return std::apply([&](const auto&... arg) { return c_of(context, arg.c(context, all)...); },
                      args);
  }
  auto cpp(const ExecContext& ctx, PlacedTensors& all) const {
    return std::apply([&](const auto&... arg) { return cpp_of(ctx, arg.cpp(ctx, all)...); }, args);
  }
  void join(std::vector<CallTensor>& row) {
    std::apply([&](auto&... arg) { (arg.join(row), ...); }, args);
  }
};
template <class Arg>
auto argument(Arg arg) {
  if constexpr (std::is_same_v<Arg, CallTensor>) {
    return TensorArgument{std::move(arg)};
  } else if constexpr (std::is_arithmetic_v<Arg>) {
    return both(arg, arg);
  } else {
    return arg;
  }
}
template <class MakeC, class MakeCpp, class... Args>
auto made(MakeC c_of, MakeCpp cpp_of, Args... args) {
  return Made<MakeC, MakeCpp, decltype(argument(args))...>{
      c_of, cpp_of, {argument(std::move(args))...}};
}
/// A struct of either language with these fields.
template <class C, class Cpp, class... Args>
auto fields(Args... args) {
  return made([](auto*, auto... values) { return C{values...}; },
              [](auto&, auto... values) { return Cpp{values...}; }, std::move(args)...);
}

/// Thrown where an argument of a C call cannot be made.
struct FailedArgument {
  heddle_status status;
};

/// C takes structs by address.
template <class Value>
auto passed(Value& value) {
  if constexpr (std::is_class_v<Value>) {
    return &value;
  } else {
    return value;
  }
}

/// The C argument of `arg`; where it is changed, a function of it, or another value.
template <bool is_changed, class Arg, class Change>
struct Changed {
  Arg arg;
  Change change;

  auto c(heddle_context* context, PlacedTensors& all) const {
    if constexpr (!is_changed) {
      return arg.c(context, all);
    } else if constexpr (requires { change(arg.c(context, all)); }) {
      return change(arg.c(context, all));
    } else {
      return change;
    }
  }
};

/// A DLTensor with another shape.
inline auto shaped(std::vector<int64_t> shape) {
  return [shape = std::move(shape)](const DLTensor* tensor) {
    DLTensor other = *tensor;
    other.ndim = int32_t(shape.size());
    other.shape = const_cast<int64_t*>(shape.data());
    other.strides = nullptr;
    return other;
  };
}

/// Makes a Row.
template <class C, class Cpp, class... Args>
class RowOf {
 public:
  RowOf(std::string name, C c, Cpp cpp, Args... args) : c_(c), args_(std::move(args)...) {
    row_.name = std::move(name);
    std::apply([&](auto&... arg) { (arg.join(row_.tensors), ...); }, args_);
    row_.c = call(c, args_);
    row_.cpp = [cpp, args = args_](const ExecContext& ctx, PlacedTensors& all) {
      const auto values =
          std::apply([&](const auto&... arg) { return std::tuple{arg.cpp(ctx, all)...}; }, args);
      std::apply([&](const auto&... value) { cpp(ctx, value...); }, values);
    };
  }
  /// The C call with argument `at`, from 0 on after the context, changed is refused.
  template <size_t at, class Change>
  RowOf refuses(std::string message, Change change, RunsOn where = RunsOn::kBoth) && {
    const auto args = [&]<size_t... i>(std::index_sequence<i...>) {
      return std::tuple{Changed<i == at, Args, Change>{std::get<i>(args_), change}...};
    }
    (std::index_sequence_for<Args...>());
    row_.refused.push_back({std::move(message), call(c_, args), where});
    return std::move(*this);
  }
  /// Another C call with the same arguments is refused.
  template <class Other>
  RowOf refuses_call(std::string message, Other other) && {
    row_.refused.push_back({std::move(message), call(other, args_), RunsOn::kBoth});
    return std::move(*this);
  }
  RowOf only_on(RunsOn where, heddle_status elsewhere = HEDDLE_UNSUPPORTED) && {
    row_.where = where;
    row_.elsewhere = elsewhere;
    return std::move(*this);
  }
  operator Row() && { return std::move(row_); }  // NOLINT(google-explicit-constructor)

 private:
  template <class Function, class Tuple>
  static CCall call(Function function, const Tuple& args) {
    return [=](heddle_context* context, PlacedTensors& all) {
      try {
        auto values = std::apply(
            [&](const auto&... arg) { return std::tuple{arg.c(context, all)...}; }, args);
        return std::apply([&](auto&... value) { return function(context, passed(value)...); },
                          values);
      } catch (const FailedArgument& failed) {
        return failed.status;
      }
    };
  }

  C c_;
  std::tuple<Args...> args_;
  Row row_;
};
/// `cpp`(context, args...) and `c`(context, args...): tensors, numbers, both(), made() or fields().
template <class C, class Cpp, class... Args>
auto row(std::string name, C c, Cpp cpp, Args... args) {
  return RowOf<C, Cpp, decltype(argument(args))...>(std::move(name), c, cpp, argument(args)...);
}

}  // namespace heddle::testing
