#include "memory.h"

#include <cstdlib>

namespace heddle::serve {
namespace {

/// Enough for the frames, handlers and error answers of some hundred requests.
constexpr size_t kReserve = size_t{4} << 20;

std::atomic<void*> reserve{nullptr};

void give_back_or_throw() {
  void* const memory = reserve.exchange(nullptr);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace

MemoryReserve::MemoryReserve() {
  (void)refill();
  std::set_new_handler(give_back_or_throw);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  std::free(reserve.exchange(nullptr));
}

bool MemoryReserve::refill() noexcept {
  if (reserve.load() != nullptr) return true;
  void* const memory = std::malloc(kReserve);
  void* none = nullptr;
  if (memory != nullptr && !reserve.compare_exchange_strong(none, memory)) std::free(memory);
  return memory != nullptr;
}

}  // namespace heddle::serve
