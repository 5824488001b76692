#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace heddle::serve {

/// Calls `body` until it finds the memory that it needs: for what must happen, and whose failure
/// could not be reported.
template <class Body>
void retry_for_memory(const Body& body) noexcept {
  for (;;) {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

/// Memory that is freed where operator new finds none, so that what ends a request finds the
/// little that it needs. While it cannot be taken again, requests are refused. One per process.
class MemoryReserve {
 public:
  MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
  ~MemoryReserve();

  /// Allocates it again where it was freed; returns whether it is complete.
  [[nodiscard]] bool refill() noexcept;
};

}  // namespace heddle::serve
