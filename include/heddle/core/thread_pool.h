#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace heddle {

/// Non-owning reference to a callable; lives no longer than the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// A fixed team of threads for the CPU ops: the caller and num_threads - 1 workers, which spin for
/// a moment between jobs and then sleep. One job at a time; a pool is used by one caller thread at
/// a time.
class ThreadPool {
 public:
  /// At most 2047 threads. Throws kOutOfMemory, with none of them left, where the system does not
  /// give so many.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const;

  /// Calls body(begin, end) on disjoint chunks that cover [0, n), each `grain` long but for the
  /// last, from all threads;
  /// returns when all are done. Which thread gets a chunk is not determined, so a chunk must not
  /// depend on it. Chunks begin in ascending order, each when all below it have begun: so a body
  /// may wait until chunks below its own are done.
  /// The body must not throw.
  void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
