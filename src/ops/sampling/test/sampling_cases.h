#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/ops/sampling.h"

#include "testing/mirror.h"

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
  [[nodiscard]] SamplingTable on(testing::Mirror& m) const {
    const auto view = [&m](const auto& values) {
      return m(ConstTensorView(host_view(values.data(), {std::ssize(values)})));
    };
    return {.temperature = view(temperature_),
            .top_k = view(top_k_),
            .top_p = view(top_p_),
            .min_p = view(min_p_),
            .seed = view(seed_),
            .step = view(step_)};
  }
  [[nodiscard]] SamplingTable table() const {
    testing::Mirror host;
    return on(host);
  }

 private:
  std::vector<float> temperature_, top_p_, min_p_;
  std::vector<int32_t> top_k_;
  std::vector<int64_t> seed_, step_;
};

/// A context with the workspace that sample needs.
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
