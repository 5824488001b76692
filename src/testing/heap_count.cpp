#include "heap_count.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0}, num_bytes{0};
std::atomic<int64_t> calls_to_failure{0};  // 1: the next call fails; 0 and below: none does

/// Counts a call and gives its memory, nullptr where it is to fail or there is none.
void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  ++count;
  num_bytes += static_cast<int64_t>(bytes);
  if (calls_to_failure.load(std::memory_order_relaxed) > 0 && --calls_to_failure == 0) {
    return nullptr;
  }
  bytes = std::max<std::size_t>(bytes, 1);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  if (bytes > SIZE_MAX - alignment) return nullptr;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::size_t size_of(std::align_val_t alignment) {
  return static_cast<std::size_t>(alignment);
}

}  // namespace

// All forms are replaced together: a sanitizer has forms of its own, which would not count.
void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, size_of(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, size_of(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, size_of(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return allocate(bytes, size_of(alignment));
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace heddle::testing {

int64_t num_heap_allocations() { return count; }
int64_t num_heap_bytes() { return num_bytes; }

FailingAllocation::FailingAllocation(int64_t& n) : n_(n) { calls_to_failure = n; }
FailingAllocation::~FailingAllocation() { n_ = calls_to_failure.exchange(0); }

}  // namespace heddle::testing
