#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/test/peft_cases.h"
#include "random.h"

// Methods other than LoRA: A, B and factors against their formulas in double.

namespace heddle::model {
namespace {

using namespace peft_cases;
using testing::expect_invalid;
using testing::expect_unsupported;

using Matrix = std::vector<double>;  // row-major

constexpr int64_t kIn = 4, kOut = 20;  // of q_proj in small_dims
const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj.";

/// A file of random tensors, whose values are kept in double.
class RandomTensors {
 public:
  Matrix add(const std::string& name, const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    const auto values = testing::random_normal<float>(count, 0.5f);
    builder_.tensor(name, "F32", shape,
                    {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    return testing::to_double(values);
  }
  [[nodiscard]] std::string build() const { return builder_.build(); }

 private:
  SafetensorsBuilder builder_;
};

struct MadeAdapter {
  MadeAdapter(const RandomTensors& tensors, const std::string& config,
              const ModelDims* dims = &kDims)
      : file(tensors.build()), adapter(config, bytes_of(file), "dir", dims) {
    adapter.check_fits(small_dims());
  }

  static inline const ModelDims kDims = small_dims();
  std::string file;
  PeftAdapter adapter;
};

Matrix product(const Matrix& x, const Matrix& y, int64_t rows, int64_t inner, int64_t columns) {
  Matrix result(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        result[size_t(i * columns + j)] += x[size_t(i * inner + k)] * y[size_t(k * columns + j)];
      }
    }
  }
  return result;
}

/// scale * B A of a pair.
Matrix delta_of(const LowRank& pair) {
  Matrix delta = product(testing::to_double(pair.stored_b().floats()),
                         testing::to_double(pair.stored_a().floats()), pair.out_features, pair.rank,
                         pair.in_features);
  for (double& value : delta) value *= pair.scale;
  return delta;
}

void expect_near(const Matrix& got, const Matrix& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5) << i;
    largest = std::max(largest, std::abs(want[i]));
  }
  EXPECT_GT(largest, 1e-2);
}

TEST(AdapterMethods, LohaIsAProductOfProducts) {
  constexpr int64_t kRank = 3;
  RandomTensors tensors;
  const Matrix w1a = tensors.add(kQ + "hada_w1_a", {kOut, kRank});
  const Matrix w1b = tensors.add(kQ + "hada_w1_b", {kRank, kIn});
  const Matrix w2a = tensors.add(kQ + "hada_w2_a", {kOut, kRank});
  const Matrix w2b = tensors.add(kQ + "hada_w2_b", {kRank, kIn});
  const MadeAdapter made(tensors, R"({"peft_type": "LOHA", "r": 3, "alpha": 6})", nullptr);
  const AdapterPair& pair = made.adapter.pairs().at(0);
  EXPECT_EQ(pair.rank, kRank * kRank);
  EXPECT_EQ(pair.scale, 2.0f);
  Matrix want = product(w1a, w1b, kOut, kRank, kIn);
  const Matrix second = product(w2a, w2b, kOut, kRank, kIn);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= 2.0 * second[i];
  expect_near(delta_of(pair), want);
}

TEST(AdapterMethods, VeraScalesSharedProjections) {
  constexpr int64_t kRank = 5, kWide = 7, kTall = 23;
  RandomTensors tensors;
  const Matrix a = tensors.add("base_model.vera_A", {kRank, kWide});
  const Matrix b = tensors.add("base_model.vera_B", {kTall, kRank});
  const Matrix lambda_b = tensors.add(kQ + "vera_lambda_b", {kOut});
  const Matrix lambda_d = tensors.add(kQ + "vera_lambda_d", {kRank});
  const std::string config = R"({"peft_type": "VERA", "r": 5})";
  const MadeAdapter made(tensors, config);
  Matrix want(kOut * kIn);
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t k = 0; k < kRank; ++k) {
      for (int64_t i = 0; i < kIn; ++i) {
        want[size_t(o * kIn + i)] += lambda_b[size_t(o)] * b[size_t(o * kRank + k)] *
                                     lambda_d[size_t(k)] * a[size_t(k * kWide + i)];
      }
    }
  }
  expect_near(delta_of(made.adapter.pairs().at(0)), want);
  expect_unsupported({"has the widths of its model"},
                     [&] { MadeAdapter(tensors, config, nullptr); });
  expect_invalid({"has shape [5, 7], a layer needs [6, 4] or more"}, [&] {
    RandomTensors other;
    (void)other.add("base_model.vera_A", {kRank, kWide});
    (void)other.add("base_model.vera_B", {kTall, kRank});
    (void)other.add(kQ + "vera_lambda_b", {kOut});
    (void)other.add(kQ + "vera_lambda_d", {6});
    MadeAdapter(other, R"({"peft_type": "VERA", "r": 6})");
  });
  expect_invalid({"has no tensor 'base_model.vera_A', yet save_projection", "is true"}, [&] {
    RandomTensors other;
    (void)other.add(kQ + "vera_lambda_b", {kOut});
    (void)other.add(kQ + "vera_lambda_d", {kRank});
    MadeAdapter(other, config);
  });
  expect_invalid({"'base_model.vera_A' is present, but save_projection", "is false"}, [&] {
    MadeAdapter(tensors, R"({"peft_type": "VERA", "r": 5, "save_projection": false})");
  });
}

TEST(AdapterMethods, VeraDrawsProjectionsAsTorchDoes) {
  // torch.Generator().manual_seed(7): A [2, 4], the first row of B [20, 2], its last value.
  const Matrix a = {0x1.5e61b8p-4,  -0x1.79be1cp-1, 0x1.8f58dep-2,  0x1.89863cp-2,
                    -0x1.4f2772p-1, -0x1.77efp-3,   -0x1.6f5ad2p-1, 0x1.456a32p-2};
  const double first[] = {-0x1.ddc184p-2, 0x1.378220p+0};
  const double last = -0x1.c9e516p-3;
  RandomTensors tensors;
  const Matrix lambda_b = tensors.add(kQ + "vera_lambda_b", {kOut});
  const Matrix lambda_d = tensors.add(kQ + "vera_lambda_d", {2});
  const MadeAdapter made(tensors, R"({"peft_type": "VERA", "r": 2, "save_projection": false,
      "projection_prng_key": 7, "target_modules": ["q_proj"]})");
  const AdapterPair& pair = made.adapter.pairs().at(0);
  const std::vector<float> got_a = pair.stored_a().floats(), got_b = pair.stored_b().floats();
  const auto scaled = [](double factor, double value) {
    return static_cast<float>(factor) * static_cast<float>(value);
  };
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got_a[i], scaled(lambda_d[i / 4], a[i])) << i;
  for (size_t k = 0; k < 2; ++k) EXPECT_EQ(got_b[k], scaled(lambda_b[0], first[k])) << k;
  EXPECT_EQ(got_b.back(), scaled(lambda_b.back(), last));
}

/// PEFT's product: lambda[k, b] A[k] gamma[b] flattened by (k, b), B by (b, k).
Matrix rand_lora(const Matrix& a, const Matrix& b, const Matrix& lambda, const Matrix& gamma,
                 int64_t rank, int64_t bases, int64_t narrow, int64_t wide) {
  Matrix rows(static_cast<size_t>(rank * bases * narrow));
  for (int64_t k = 0; k < rank; ++k) {
    for (int64_t n = 0; n < bases; ++n) {
      for (int64_t i = 0; i < narrow; ++i) {
        rows[size_t((k * bases + n) * narrow + i)] = lambda[size_t(k * bases + n)] *
                                                     a[size_t(k * narrow + i)] *
                                                     gamma[size_t(n * narrow + i)];
      }
    }
  }
  return product(b, rows, wide, rank * bases, narrow);
}

TEST(AdapterMethods, RandLoraSumsScaledBases) {
  constexpr int64_t kRank = 3, kBases = 2;  // of 4 features
  RandomTensors tensors;
  const Matrix a = tensors.add(kQ + "randlora_A", {kRank, 1, kIn});
  const Matrix b = tensors.add(kQ + "randlora_B", {kOut, kBases, kRank});
  const Matrix lambda = tensors.add(kQ + "randlora_lambda", {kRank, kBases});
  const Matrix gamma = tensors.add(kQ + "randlora_gamma", {kBases, kIn});
  const MadeAdapter made(tensors, R"({"peft_type": "RANDLORA", "r": 3, "randlora_alpha": 6})");
  const AdapterPair& pair = made.adapter.pairs().at(0);
  EXPECT_EQ(pair.rank, kRank * kBases);
  EXPECT_EQ(pair.scale, 2.0f);
  Matrix want = rand_lora(a, b, lambda, gamma, kRank, kBases, kIn, kOut);
  for (double& value : want) value *= 2.0;
  expect_near(delta_of(pair), want);
}

TEST(AdapterMethods, LoraXsHasAMatrixBetweenAAndB) {
  constexpr int64_t kRank = 2;
  for (const std::string name : {"self_attn.q_proj_lora_latent_mapping.weight",
                                 "self_attn.q_proj.default_lora_latent_mapping.weight"}) {
    RandomTensors tensors;
    const Matrix a = tensors.add(kQ + "lora_A.weight", {kRank, kIn});
    const Matrix b = tensors.add(kQ + "lora_B.weight", {kOut, kRank});
    const Matrix r = tensors.add("base_model.model.model.layers.0." + name, {kRank, kRank});
    const MadeAdapter made(tensors, R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2})", nullptr);
    const Matrix want = product(product(b, r, kOut, kRank, kRank), a, kOut, kRank, kIn);
    expect_near(delta_of(made.adapter.pairs().at(0)), want);
  }
}

TEST(AdapterMethods, MlxHasTransposedHalves) {
  constexpr int64_t kRank = 2;
  const std::string q = "model.layers.0.self_attn.q_proj.";
  RandomTensors tensors;
  const Matrix a = tensors.add(q + "lora_a", {kIn, kRank});
  const Matrix b = tensors.add(q + "lora_b", {kRank, kOut});
  const std::string config = R"({"fine_tune_type": "lora", "seed": 1,
      "lora_parameters": {"rank": 2, "scale": 10.0, "dropout": 0.0}})";
  const MadeAdapter made(tensors, config, nullptr);
  EXPECT_EQ(made.adapter.pairs().at(0).scale, 10.0f);
  Matrix transposed(kOut * kIn);
  const Matrix product_of = product(a, b, kIn, kRank, kOut);
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t o = 0; o < kOut; ++o) {
      transposed[size_t(o * kIn + i)] = 10.0 * product_of[size_t(i * kOut + o)];
    }
  }
  expect_near(delta_of(made.adapter.pairs().at(0)), transposed);
  (void)tensors.add(q + "m", {kOut});
  expect_invalid({"q_proj.m' is present, but fine_tune_type", "is \"lora\""},
                 [&] { MadeAdapter(tensors, config, nullptr); });
}

TEST(AdapterMethods, Ia3MultipliesOutputsAndWhatDownProjReads) {
  const std::string layer = "base_model.model.model.layers.0.";
  const int64_t up = 20 + llama::kUp;
  ModelDims dims = small_dims();
  dims.block.slices[llama::kDown].dims.in = up;
  RandomTensors tensors;
  const Matrix of_q = tensors.add(kQ + "ia3_l", {kOut, 1});
  const Matrix of_up = tensors.add(layer + "mlp.up_proj.ia3_l", {up, 1});
  const Matrix of_down = tensors.add(layer + "mlp.down_proj.ia3_l", {1, up});
  const std::string config = R"({"peft_type": "IA3", "target_modules": ["q_proj", "up_proj",
      "down_proj"], "feedforward_modules": ["down_proj"]})";
  const std::string file = tensors.build();
  const PeftAdapter adapter(config, bytes_of(file), "dir", &dims);
  adapter.check_fits(dims);
  ASSERT_EQ(adapter.pairs().size(), 2u);  // down_proj's is up_proj's
  EXPECT_EQ(testing::to_double(adapter.pairs()[0].factor.floats()), of_q);
  EXPECT_EQ(adapter.pairs()[1].module->name, "mlp.up_proj");
  Matrix want(of_up);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= of_down[i];
  expect_near(testing::to_double(adapter.pairs()[1].factor.floats()), want);
  for (const AdapterPair& pair : adapter.pairs()) {
    for (const double value : delta_of(pair)) EXPECT_EQ(value, 0.0);
  }
  ModelDims one_layer = dims;
  one_layer.num_layers = 1;
  EXPECT_TRUE(adapter.warnings(one_layer).empty());  // down_proj has its tensor

  expect_unsupported({"q_proj.ia3_l' is for inputs", "those of down_proj alone"}, [&] {
    RandomTensors other;
    (void)other.add(kQ + "ia3_l", {1, kIn});
    MadeAdapter(other, R"({"peft_type": "IA3"})");
  });
}

TEST(AdapterMethods, RefusesTensorsOfAnotherMethod) {
  for (const std::string part : {"lora_A.weight", "hada_w1_a", "ia3_l"}) {
    expect_unsupported({"is not a tensor of VERA of a layer's q_proj"}, [&] {
      RandomTensors tensors;
      (void)tensors.add(kQ + part, {2, kIn});
      MadeAdapter(tensors, R"({"peft_type": "VERA", "r": 2})");
    });
  }
  expect_unsupported({"q_proj.vera_lambda_b' is not lora_A or lora_B of a layer's"}, [&] {
    RandomTensors tensors;
    (void)tensors.add(kQ + "vera_lambda_b", {kOut});
    MadeAdapter(tensors, R"({"peft_type": "LORA", "r": 2})");
  });
  expect_unsupported({"peft_type is \"LOKR\": its delta is a Kronecker product", "merge"},
                     [] { (void)parse_adapter_config(R"({"peft_type": "LOKR"})", "dir"); });
}

TEST(AdapterMethods, RefusesRanksThatTheEngineDoesNotTake) {
  expect_unsupported({"hada_w1_a' has rank 529, supported: up to 512"}, [&] {
    RandomTensors tensors;
    for (const char* half : {"1", "2"}) {
      (void)tensors.add(kQ + "hada_w" + half + "_a", {kOut, 23});
      (void)tensors.add(kQ + "hada_w" + half + "_b", {23, kIn});
    }
    MadeAdapter(tensors, R"({"peft_type": "LOHA", "r": 23})");
  });
}

}  // namespace
}  // namespace heddle::model
