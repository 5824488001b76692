#include "files/reserved_bytes.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::files {
namespace {

size_t mapped_size(size_t size) { return std::max<size_t>(size, 1); }

}  // namespace

ReservedBytes::ReservedBytes(size_t size, const std::string& name) {
#ifdef MAP_NORESERVE
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* const at = ::mmap(nullptr, mapped_size(size), PROT_NONE, kFlags, -1, 0);
  if (at == MAP_FAILED) {
    throw_error(ErrorCode::kOutOfMemory, name, ": there is no room for its ", size, " bytes");
  }
  bytes_ = {static_cast<std::byte*>(at), size};
}

ReservedBytes::~ReservedBytes() {
  if (bytes_.data() != nullptr) ::munmap(bytes_.data(), mapped_size(bytes_.size()));
}

ReservedBytes::ReservedBytes(ReservedBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

ReservedBytes& ReservedBytes::operator=(ReservedBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::span<std::byte> ReservedBytes::fill(const std::string& name) {
  if (bytes_.empty()) return bytes_;
  if (::mprotect(bytes_.data(), bytes_.size(), PROT_READ | PROT_WRITE) != 0) {
    throw_error(ErrorCode::kOutOfMemory, name, ": there is no memory for its ", bytes_.size(),
                " bytes");
  }
  return bytes_;
}

}  // namespace heddle::files
