#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>

namespace heddle::serve {

/// How many bytes the server holds of bodies that have not come whole or were not read yet, and of
/// answers that their clients have not taken: of all connections together, so that many cannot hold
/// what one may not. Of the thread of the network, but for what is said.
class Buffers {
 public:
  /// A connection that holds no more is never given up: small requests are served while others fill
  /// the buffers.
  static constexpr int64_t kLittle = 64 << 10;

  explicit Buffers(int64_t most_bytes) : most_bytes_(most_bytes) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// The part of one connection.
  class Holder {
   public:
    /// `give_up` is called when the connection is to let go of all that it holds; it counts for
    /// nothing from then on.
    Holder(Buffers& buffers, std::function<void()> give_up);
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder();

    /// It now holds so much. While all hold more than they may, the one that holds the most is
    /// given up; false: that is this one, which then holds nothing.
    [[nodiscard]] bool hold(int64_t num_bytes);
    void let_go() { static_cast<void>(hold(0)); }

   private:
    friend class Buffers;
    Buffers& buffers_;
    const std::function<void()> give_up_;
    int64_t num_bytes_ = 0;
  };

  /// Bytes of events that are pending; in any thread.
  void add_events(int64_t num_bytes) { num_bytes_ += num_bytes; }
  /// In any thread.
  [[nodiscard]] bool is_full() const { return num_bytes_ > most_bytes_; }
  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }
  /// How often a connection was given up.
  [[nodiscard]] int64_t num_given_up() const { return num_given_up_; }

 private:
  const int64_t most_bytes_;
  std::atomic<int64_t> num_bytes_ = 0;
  std::set<Holder*> holders_;  // that hold anything
  int64_t num_given_up_ = 0;
};

}  // namespace heddle::serve
