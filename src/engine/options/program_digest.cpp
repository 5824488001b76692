#include "engine/options/program_digest.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <gnu/libc-version.h>
#include <link.h>
#include <span>
#include <string_view>

namespace heddle {
namespace {

/// Adds the read-only segments, which relocation leaves as they are in the file, of the
/// object that holds the address.
struct ReadOnlySegments {
  uintptr_t address;
  Hasher hasher{};

  static int add(dl_phdr_info* object, size_t /*size*/, void* to) {
    return static_cast<ReadOnlySegments*>(to)->add(*object) ? 1 : 0;
  }
  bool add(const dl_phdr_info& object) {
    const std::span segments(object.dlpi_phdr, object.dlpi_phnum);
    const auto begin_of = [&](const ElfW(Phdr) & segment) {
      return object.dlpi_addr + segment.p_vaddr;
    };
    bool is_here = false;
    for (const ElfW(Phdr) & segment : segments) {
      is_here |= segment.p_type == PT_LOAD && address >= begin_of(segment) &&
                 address - begin_of(segment) < segment.p_memsz;
    }
    if (!is_here) return false;
    for (const ElfW(Phdr) & segment : segments) {
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
      const auto* const bytes = reinterpret_cast<const std::byte*>(begin_of(segment));
      hasher.add(uint64_t{segment.p_memsz}).add(std::span(bytes, segment.p_memsz));
    }
    return true;
  }
};

}  // namespace

Digest program_digest() {
  ReadOnlySegments segments{reinterpret_cast<uintptr_t>(&program_digest)};
  dl_iterate_phdr(&ReadOnlySegments::add, &segments);
  return segments.hasher.digest();
}

std::string processor_name() {
  std::string name, flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {  // of the first processor
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = line.size() > colon + 2 ? line.substr(colon + 2) : "";
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("flags") || line.starts_with("Features")) flags = value;
  }
  const auto [low, high] = Hasher().add(std::string_view(flags)).digest();
  return name + ", features " + std::to_string(low ^ high) + ", glibc " + gnu_get_libc_version();
}

}  // namespace heddle
