// Any bytes as a safetensors file, and as the tensors of an adapter: read or refused, never a view
// outside the input.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "files/safetensors.h"
#include "model/adapters/peft_adapter.h"
#include "model/config/decoder_config.h"
#include "model/test/one_line.h"

namespace {

using heddle::files::SafetensorsFile;
using heddle::files::SafetensorsTensor;
using heddle::model::AdapterPair;

unsigned sum(std::span<const std::byte> bytes) {
  unsigned total = 0;
  for (const std::byte b : bytes) total += static_cast<unsigned>(b);
  return total;
}

unsigned read_file(std::span<const std::byte> bytes) {
  const SafetensorsFile file(bytes, "input");
  unsigned total = 0;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) std::abort();
    total += sum(tensor.data);
    heddle::testing::expect_one_line([&] { (void)file.dtype(tensor); });
  }
  return total;
}

unsigned read_adapter(std::span<const std::byte> bytes) {
  const heddle::model::PeftAdapter adapter(R"({"peft_type": "LORA", "r": 2})", bytes, "input");
  heddle::model::ModelDims dims{.num_layers = 2, .block = heddle::model::DecoderConfig{}.block()};
  for (auto& slice : dims.block.slices) slice.dims = {.in = 4, .out = 4};
  heddle::testing::expect_one_line([&] { adapter.check_fits(dims); });
  unsigned total = 0;
  for (const AdapterPair& pair : adapter.pairs()) {
    const size_t element = heddle::size_of(pair.dtype);
    total += sum({pair.a, static_cast<size_t>(pair.rank * pair.in_features) * element});
    total += sum({pair.b, static_cast<size_t>(pair.rank * pair.out_features) * element});
  }
  for (const heddle::model::VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    total += sum(part->weight.bytes());
    if (part->pair)
      total += sum(part->pair->stored_a().bytes()) + sum(part->pair->stored_b().bytes());
  }
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static volatile unsigned sink;  // keeps the reads
  const auto bytes = std::as_bytes(std::span(data, size));
  heddle::testing::expect_one_line([&] { sink = read_file(bytes); });
  heddle::testing::expect_one_line([&] { sink = read_adapter(bytes); });
  return 0;
}
