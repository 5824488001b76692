#pragma once

// What the programs bench_lora*_cuda share: the type of weights, x and y, and records.

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/core/dtype.h"

#include "testing/bench_program_cuda.h"

namespace heddle::lora_bench {

using Bench = testing::BenchProgram;
using Indices = testing::DeviceIndices;
using testing::Fact;
using testing::kGpu;
using testing::kReadBytesPerUs;
using testing::median;
using testing::RandomValues;

inline constexpr DType kDtype = DType::kBFloat16;
inline constexpr int64_t kElement = 2;  // bytes of a weight, and of x and y

struct Record {
  std::string op, site;
  int rank;
  int64_t tokens;
  int adapters;  // in use
  std::string form;
  int num_calls;  // in the graph of which a sample is one replay
  double floor_us;
  std::vector<double> samples;  // us of one call
  std::vector<Fact> facts = {};
};

inline void add(Bench& bench, const Record& r) {
  std::vector<Fact> facts{{"op", r.op},         {"site", r.site},         {"rank", r.rank},
                          {"tokens", r.tokens}, {"adapters", r.adapters}, {"form", r.form}};
  facts.insert(facts.end(), r.facts.begin(), r.facts.end());
  facts.emplace_back("calls_in_graph", r.num_calls);
  bench.add(facts, r.floor_us, r.samples);
}

}  // namespace heddle::lora_bench
