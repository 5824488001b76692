#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace heddle::files {

/// Addresses for bytes that come later, if at all: until then they take no memory, and who touches
/// them faults.
class ReservedBytes {
 public:
  ReservedBytes() = default;
  /// Error(kOutOfMemory) that begins with `name` where there is no room in the address space.
  ReservedBytes(size_t size, const std::string& name);
  ~ReservedBytes();
  ReservedBytes(ReservedBytes&& other) noexcept;
  ReservedBytes& operator=(ReservedBytes&& other) noexcept;

  /// Stay where they are when the object is moved.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// Makes memory of them, zero at first.
  [[nodiscard]] std::span<std::byte> fill(const std::string& name);

 private:
  std::span<std::byte> bytes_;
};

}  // namespace heddle::files
