#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/ops/sampling.h"

namespace heddle {

/// The parameters of one row.
struct SamplingRow {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f, min_p = 0.0f;
  int64_t seed = 0, step = 0;
};

/// A SamplingTable with its memory.
class SamplingColumns {
 public:
  explicit SamplingColumns(const std::vector<SamplingRow>& rows) {
    for (const SamplingRow& row : rows) {
      temperature_.push_back(row.temperature);
      top_k_.push_back(row.top_k);
      top_p_.push_back(row.top_p);
      min_p_.push_back(row.min_p);
      seed_.push_back(row.seed);
      step_.push_back(row.step);
    }
  }
  [[nodiscard]] SamplingTable table() const {
    const auto n = static_cast<int64_t>(seed_.size());
    return {.temperature = host_view(temperature_.data(), {n}),
            .top_k = host_view(top_k_.data(), {n}),
            .top_p = host_view(top_p_.data(), {n}),
            .min_p = host_view(min_p_.data(), {n}),
            .seed = host_view(seed_.data(), {n}),
            .step = host_view(step_.data(), {n})};
  }

 private:
  std::vector<float> temperature_, top_p_, min_p_;
  std::vector<int32_t> top_k_;
  std::vector<int64_t> seed_, step_;
};

/// A context with the workspace that sample asks for.
class SamplingContext {
 public:
  SamplingContext(int64_t num_rows, int64_t vocab_size, ThreadPool* threads = nullptr)
      : buffer_(sample_workspace_bytes(num_rows, vocab_size)), workspace_(buffer_) {
    context_.workspace = &workspace_;
    context_.threads = threads;
  }
  SamplingContext(const SamplingContext&) = delete;
  SamplingContext& operator=(const SamplingContext&) = delete;
  operator const ExecContext&() const { return context_; }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<std::byte> buffer_;
  Workspace workspace_;
  ExecContext context_;
};

}  // namespace heddle
