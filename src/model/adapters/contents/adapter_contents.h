#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "model/adapters/adapter.h"

namespace heddle::model {

/// What the values of a loaded adapter are, read once: in blocks, each of which is checked and
/// hashed while it is in the cache, by several threads where there are many. The adapter outlives
/// it.
class AdapterContents {
 public:
  /// rounded_to: the dtype to which a GPU rounds matrices. The secret is that of Hasher.
  explicit AdapterContents(const Adapter& adapter, std::optional<DType> rounded_to = {},
                           std::span<const std::byte> secret = process_secret());

  /// Error(kInvalidArgument) with the tensor where a value is NaN or infinite, or, of matrices,
  /// beyond what rounded_to holds.
  void check_finite() const;

  /// Of all that the adapter makes a token row compute: its layers, modules, scales, types and
  /// values, of its embedding and head too. Two adapters of one digest give the same bits, whatever
  /// their paths, names and file formats. What is stored in another dtype has another digest, even
  /// where its values are equal.
  ///
  /// aLoRA's invocation tokens do not count: they say where in a prompt an adapter acts and not
  /// what it computes there. What is kept of a prompt has to know from where on it acted, too.
  [[nodiscard]] Digest digest() const;

  /// 32 hexadecimal digits that name what the adapter computes with, aLoRA's invocation tokens
  /// included: XXH3-128 without a secret, so that whoever has the tensors can compute it, in other
  /// programs too. docs/adapter_receipts.md has the formula. It names contents of people who trust
  /// each other; a cache that must withstand others uses `digest`.
  [[nodiscard]] std::string fingerprint() const;

 private:
  /// Pair by pair, then what it has in the embedding, the head and the score head: the order in
  /// which `digest` and `fingerprint` take them.
  struct Tensor {
    StoredValues values;
    std::optional<DType> rounded_to;
    int64_t not_finite = -1;  // the first value that is not
    Digest with_secret{}, open{};

    void read(std::span<const std::byte> secret);
  };

  const Adapter& adapter_;
  std::span<const std::byte> secret_;
  std::vector<Tensor> tensors_;
};

}  // namespace heddle::model
