// Any bytes as a GGUF file: it is read or refused, and every view of a file that is read lies
// inside it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "heddle/core/error.h"

#include "files/gguf.h"

namespace {

using heddle::files::GgufFile;
using heddle::files::GgufTensor;
using heddle::files::GgufValue;

// Touches every byte, so that the address sanitizer sees a view that leaves the input.
unsigned sum(std::span<const std::byte> bytes) {
  unsigned total = 0;
  for (const std::byte b : bytes) total += static_cast<unsigned>(b);
  return total;
}

template <class T>
void read_as(const GgufFile& file, const GgufValue& value) {
  try {
    if (value.is_array) {
      (void)file.get_array<T>(value.key);
    } else {
      (void)file.get<T>(value.key);
    }
  } catch (const heddle::Error&) {  // another type, or a number that does not fit
  }
}

void read_all(const GgufFile& file) {
  unsigned total = 0;
  for (const GgufValue& value : file.metadata()) {
    if (file.find(value.key) != &value) std::abort();
    total += sum(value.bytes);
    read_as<bool>(file, value);
    read_as<std::string_view>(file, value);
    read_as<int32_t>(file, value);
    read_as<uint64_t>(file, value);
    read_as<float>(file, value);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    if (!heddle::files::weight_type_of(tensor.type_id)) continue;
    const auto data = file.data(tensor);
    if (data.size() != tensor.num_bytes || data.empty()) std::abort();
    total += sum(data);
  }
  [[maybe_unused]] static volatile unsigned sink;  // keeps the reads
  sink = total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    read_all(GgufFile(std::as_bytes(std::span(data, size)), "input"));
  } catch (const heddle::Error& e) {
    if (std::string(e.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
