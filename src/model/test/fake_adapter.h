#pragma once

#include <cstring>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/dispatch.h"

#include "model/adapters/adapter.h"

namespace heddle::model {

/// An adapter of no file, whose parts are what a test makes them.
class FakeAdapter final : public Adapter {
 public:
  explicit FakeAdapter(std::string path = "dir") : Adapter(std::move(path)) {}
  void check_fits(const ModelDims& /*dims*/) const override {}
  [[nodiscard]] std::vector<std::string> warnings(const ModelDims& /*dims*/) const override {
    return {};
  }

  /// A tensor of ones, one of which is another value.
  StoredValues tensor(const char* name, DType dtype, int64_t rows, int64_t columns, int64_t at = -1,
                      float value = 1.0f) {
    // After a byte, so that no address is aligned.
    auto& bytes = memory_.emplace_back(
        static_cast<size_t>(rows * columns) * heddle::size_of(dtype) + 1, std::byte{});
    dispatch_dtype<float, half, bfloat16>(dtype, "a test", [&]<class T>() {
      for (int64_t i = 0; i < rows * columns; ++i) {
        const T element = from_float<T>(i == at ? value : 1.0f);
        std::memcpy(bytes.data() + 1 + i * int64_t{sizeof(T)}, &element, sizeof(T));
      }
    });
    return {dtype, rows, columns, bytes.data() + 1, name};
  }
  AdapterPair& add_pair(const StoredValues& a, const StoredValues& b) {
    AdapterPair pair;
    pair.rank = a.rows, pair.in_features = a.columns, pair.out_features = b.rows;
    pair.dtype = a.dtype;
    pair.a = a.data, pair.b = b.data;
    pair.a_name = a.name, pair.b_name = b.name;
    return pairs_.emplace_back(pair);
  }
  AdapterPair& pair(size_t i) { return pairs_[i]; }
  VocabularyPart& of_embedding() { return embedding_; }
  VocabularyPart& of_head() { return head_; }
  StoredValues& of_score() { return score_; }
  StoredValues& of_score_bias() { return score_bias_; }
  std::vector<int32_t>& invocation() { return invocation_tokens_; }

 private:
  std::list<std::vector<std::byte>> memory_;
};

}  // namespace heddle::model
