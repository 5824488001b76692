#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// What an adapter changes at one place of the model.
struct AdapterSite {
  std::string module;  // as PEFT names it: "model.layers.3.self_attn.q_proj", "lm_head"
  /// "lora": W + scale B A; "dora": its rows at lengths of their own; "ia3": scaled; "weight": one
  /// in the place of W; "rows": rows of W for some tokens.
  std::string kind;
  int64_t rank = 0;   // of "lora" and "dora"
  float scale = 0;    // alpha / rank, or alpha / sqrt(rank)
  std::string dtype;  // of its values: "f32", "f16" or "bf16"
  /// Frobenius norms: of what W changes by, and of W as the engine has it. Absent until they are
  /// computed.
  std::optional<double> delta_norm{}, base_norm{};
};

/// What came of an adapter that was loaded: what was given, what of it acts and how strongly
/// (docs/adapter_receipts.md).
struct AdapterReceipt {
  /// 32 hexadecimal digits: XXH3-128 of what the adapter computes with, whatever its name, file
  /// format and order. Anyone who has the tensors can compute it.
  std::string digest;
  /// Tensors in the file, and those of them that the adapter computes with. The others repeat a
  /// tensor, or say what the base model has.
  int64_t tensors_given = 0, tensors_applied = 0;
  std::vector<AdapterSite> sites{};
  bool is_zero = false;  // no value of the model changes, as before any training

  /// The root of the sum of squares over all sites; absent where a site's is.
  [[nodiscard]] std::optional<double> delta_norm() const;
  [[nodiscard]] std::optional<double> base_norm() const;
  /// One line: "64 tensors, 32 sites, rank 8, scale 2, bf16, |delta| / |W| 0.0123, digest 3f...".
  [[nodiscard]] std::string summary() const;
};

}  // namespace heddle
