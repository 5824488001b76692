#include "heap_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0}, num_bytes{0};

void* counted(std::size_t bytes) {
  ++count;
  num_bytes += static_cast<int64_t>(bytes);
  return std::malloc(bytes);
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = counted(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace heddle::testing {

int64_t num_heap_allocations() { return count; }
int64_t num_heap_bytes() { return num_bytes; }

}  // namespace heddle::testing
