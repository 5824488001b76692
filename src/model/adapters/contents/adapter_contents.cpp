#include "model/adapters/contents/adapter_contents.h"

#include <algorithm>

#include "heddle/core/thread_pool.h"

#include "model/adapters/contents/finite_values.h"
#include "model/adapters/load_threads.h"

namespace heddle::model {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 10;  // that stay in a core's own cache

/// body(values, is_matrix) for each tensor that an adapter computes with: those of its pairs, its
/// embedding, its head and its score head.
void for_each_tensor(const Adapter& adapter, FunctionRef<void(const StoredValues&, bool)> body) {
  const auto add = [&](const StoredValues& values, bool is_matrix) {
    if (values.is_present()) body(values, is_matrix);
  };
  const auto add_pair = [&](const LowRank& pair) {
    add(pair.stored_a(), true);
    add(pair.stored_b(), true);
    for (const StoredValues* vector : pair.vectors()) add(*vector, false);
  };
  for (const AdapterPair& pair : adapter.pairs()) add_pair(pair);
  for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
    if (part->pair) add_pair(*part->pair);
    add(part->weight, true);
    add(part->token_rows, false);
  }
  add(adapter.score(), false);
  add(adapter.score_bias(), false);
}

}  // namespace

AdapterContents::AdapterContents(const Adapter& adapter, std::optional<DType> rounded_to,
                                 std::span<const std::byte> secret)
    : adapter_(adapter), secret_(secret) {
  size_t num_bytes = 0;
  for_each_tensor(adapter, [&](const StoredValues& values, bool is_matrix) {
    tensors_.push_back({values, is_matrix ? rounded_to : std::nullopt});
    num_bytes += values.bytes().size();
  });
  parallel_load(num_bytes, tensors_.size(), [&](size_t i) { tensors_[i].read(secret_); });
}

void AdapterContents::Tensor::read(std::span<const std::byte> secret) {
  Hasher keyed(secret), plain;
  const std::span<const std::byte> bytes = values.bytes();
  for (size_t begin = 0; begin < bytes.size(); begin += kBlockBytes) {
    const auto block = bytes.subspan(begin, std::min(kBlockBytes, bytes.size() - begin));
    if (not_finite < 0) {
      const int64_t at = find_not_finite(values.dtype, block, rounded_to);
      if (at >= 0) not_finite = static_cast<int64_t>(begin / size_of(values.dtype)) + at;
    }
    keyed.add(block);
    plain.add(block);
  }
  with_secret = keyed.digest();
  open = plain.digest();
}

void AdapterContents::check_finite() const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.not_finite < 0) continue;
    refuse_value(adapter_.path(), tensor.values, tensor.not_finite, tensor.rounded_to);
  }
}

}  // namespace heddle::model
